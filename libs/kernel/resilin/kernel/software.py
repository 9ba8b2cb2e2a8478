"""Which version of the code this is: decisions of another version may come out otherwise."""

from __future__ import annotations

import importlib.metadata
from typing import Final

__all__ = ["SOFTWARE", "may_differ"]

SOFTWARE: Final = importlib.metadata.version("resilin")


def may_differ(software: str) -> bool:
    """Say whether code of a version, empty if it is not known, is known to be other than this."""
    return software not in ("", SOFTWARE)
