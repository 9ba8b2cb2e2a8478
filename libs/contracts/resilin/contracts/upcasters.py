"""Upcasters: pure steps from an event's older version to the next, on plain dicts.

They run before validation, so the rest of the code sees only the newest version of each
type. A step is registered under (type, the version it reads) and returns the content of
version + 1; steps chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["UPCASTERS", "Upcaster", "upcast"]

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

# No event type has needed a second version yet.
UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}


def upcast(
    content: dict[str, Any],
    newest_version: int,
    upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
) -> dict[str, Any]:
    """Bring an event of an older version to ``newest_version``, step by step.

    Content that is already of that version, or of a later one, is returned as it is.

    Raises:
        KeyError: If a step between the two versions is missing.
    """
    version = content.get("version", 1)
    while isinstance(version, int) and version < newest_version:
        content = {**upcasters[content["type"], version](content), "version": version + 1}
        version += 1
    return content
