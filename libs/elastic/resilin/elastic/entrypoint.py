"""From the name of an entry point to what it names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["load_entrypoint"]


def load_entrypoint(entrypoint: str, directory: str) -> Any:  # noqa: ANN401 (whatever it names)
    """Import the user's code from its directory, which becomes the working directory.

    Raises:
        ImportError: If there is no such code.
    """
    where, _, name = entrypoint.rpartition(":")
    home = Path(directory).resolve()
    os.chdir(home)
    sys.path.insert(0, str(home))
    module = _load_file(home / where) if where.endswith(".py") else importlib.import_module(where)
    try:
        return getattr(module, name)
    except AttributeError:
        raise ImportError(f"{where} defines no {name}") from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ImportError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
