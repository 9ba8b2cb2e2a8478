"""What all benchmarks share: fresh processes, spreads, tables.

A benchmark is a module with a function ``tables`` (runs here, starts processes, returns
tables) and a function ``measure`` (runs in a fresh process, one task, one answer).
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "BenchmarkError",
    "Cell",
    "Options",
    "Spread",
    "Table",
    "answer_task",
    "fresh",
    "peak_memory_mebibytes",
    "percentile",
    "repeated",
    "spread_of",
]

ROOT = Path(__file__).resolve().parent.parent
Answer = dict[str, Any]


class BenchmarkError(RuntimeError):
    """A benchmark could not be carried out, or its answer is wrong."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a benchmark may be told.

    Attributes:
        repetitions: Fresh processes for each figure.
        records: Records of the log that is replayed.
        traces: The folder with the public traces; None where there is none.
    """

    repetitions: int
    records: int
    traces: Path | None


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some repetitions, and the least and the most of them."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        if self.least == self.most:
            return _digits(self.median)
        return f"{_digits(self.median)} ({_digits(self.least)}-{_digits(self.most)})"


Cell = str | int | float | Spread | None


@dataclass(slots=True)
class Table:
    """Figures with their meaning.

    Attributes:
        title: What they are.
        columns: A heading for each column, with the unit.
        rows: The first cell of each names it.
        notes: What a reader must know, such as why a row is missing.
    """

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """Lay the table out in columns; text to the left, numbers to the right."""
        lines = [[*self.columns], *([_text(cell) for cell in row] for row in self.rows)]
        places = range(len(self.columns))
        widths = [max(len(line[place]) for line in lines) for place in places]
        is_text = [all(isinstance(row[place], str) for row in self.rows) for place in places]
        shown = [self.title, ""]
        for line in lines:
            cells = [
                cell.ljust(width) if left else cell.rjust(width)
                for cell, width, left in zip(line, widths, is_text, strict=True)
            ]
            shown.append("  " + "  ".join(cells).rstrip())
        shown += [f"  ({note})" for note in self.notes]
        return "\n".join(shown) + "\n"

    def as_plain(self) -> Answer:
        """Return the table as JSON holds it."""
        rows = [
            {name: _plain(cell) for name, cell in zip(self.columns, row, strict=True)}
            for row in self.rows
        ]
        return {"title": self.title, "rows": rows, "notes": self.notes}


def _plain(cell: Cell) -> object:
    if isinstance(cell, Spread):
        return {"median": cell.median, "least": cell.least, "most": cell.most}
    return cell


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return _digits(cell)
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _digits(number: float) -> str:
    """Show three significant digits, and no fraction of a large number."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    return f"{number:,.{max(0, 2 - math.floor(math.log10(abs(number))))}f}"


def spread_of(values: Iterable[float]) -> Spread:
    """Return the median and the range of some values."""
    listed = list(values)
    return Spread(statistics.median(listed), min(listed), max(listed))


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def fresh(module: str, task: Mapping[str, Any]) -> Answer:
    """Run one task of a benchmark in a fresh process and return its answer.

    Raises:
        BenchmarkError: If the process failed; it has said why on the error stream.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", json.dumps(task)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(  # noqa: S603 (our own module)
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"benchmarks.{module} failed with status {done.returncode}: {task}")
    answer: Answer = json.loads(done.stdout)
    return answer


def repeated(module: str, task: Mapping[str, Any], repetitions: int) -> list[Answer]:
    """Run one task in so many fresh processes, one after the other."""
    return [fresh(module, task) for _ in range(repetitions)]


def answer_task(measure: Callable[[Answer], Answer]) -> None:
    """Be the fresh process: read the task from the command line, print the answer."""
    sys.stdout.write(json.dumps(measure(json.loads(sys.argv[1]))))


def peak_memory_mebibytes() -> float:
    """Return the most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
