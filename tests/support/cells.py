"""Runners of cells that go wrong; other processes import them from here."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resilin.evaluation.cell import run_cell
from resilin.evaluation.grid import Cell


def fails_for_edf(cell: Cell, traces: Path | None) -> Mapping[str, Any]:
    if cell.policy == "edf":
        raise ArithmeticError("no way")
    return run_cell(cell, traces)


def dies_for_edf(cell: Cell, traces: Path | None) -> Mapping[str, Any]:
    if cell.policy == "edf":
        os._exit(9)
    return run_cell(cell, traces)


def must_not_run(cell: Cell, traces: Path | None) -> Mapping[str, Any]:
    raise AssertionError(f"{cell.label} was run again")


def never_ends(cell: Cell, traces: Path | None) -> Mapping[str, Any]:
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    threading.Event().wait()
    raise AssertionError("nobody sets it")
