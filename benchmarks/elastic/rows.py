"""The rows of the table, and how their figures are written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Table, spread_of

__all__ = ["Options", "Part", "Result", "Row", "in_units", "load_average", "table_of"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a run may be told.

    Attributes:
        repetitions: Of everything that is timed.
        tiny: Whether this only shows that it works: every figure is then worthless.
    """

    repetitions: int
    tiny: bool

    def count(self, full: int, tiny: int = 1) -> int:
        """Return how often to do something."""
        return tiny if self.tiny else full


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement beside its target.

    Attributes:
        number: As the acceptance measurements number it.
        what: What was measured.
        target: What it should be.
        measured: The figure, as a person reads it.
        met: Whether it is what it should be.
        how: How it was measured; what a reader must know.
        values: The figures behind it, for machines.
    """

    number: int
    what: str
    target: str
    measured: str
    met: bool
    how: str
    values: dict[str, Any] = field(default_factory=dict)

    def as_plain(self) -> dict[str, Any]:
        """Return the row as JSON holds it."""
        return asdict(self)


@dataclass(slots=True)
class Result:
    """What one part of the benchmark has found."""

    rows: list[Row] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are measured in one go.

    Attributes:
        name: What it is called on the command line, beside its rows' numbers.
        numbers: Of its rows.
        measure: Does it, in an empty folder.
    """

    name: str
    numbers: Sequence[int]
    measure: Callable[[Options, Path], Coroutine[Any, Any, Result]]

    def run(self, options: Options, folder: Path) -> Result:
        """Do it."""
        return asyncio.run(self.measure(options, folder))


def in_units(values: Iterable[float], factor: float, unit: str) -> str:
    """Write values as median (least-most) in a unit."""
    return f"{spread_of(value * factor for value in values)} {unit}"


def load_average() -> str:
    """Return how busy the machine is."""
    return "/".join(f"{load:.1f}" for load in os.getloadavg())


def table_of(rows: Sequence[Row], notes: Sequence[str]) -> Table:
    """Lay rows out."""
    table = Table(
        "The elastic worker runtime: median (least-most), both sides in the same run",
        ("row", "what", "target", "measured", "met"),
    )
    for row in sorted(rows, key=lambda row: row.number):
        met = "yes" if row.met else "NO"
        table.rows.append((str(row.number), row.what, row.target, row.measured, met))
        table.notes.append(f"{row.number}: {row.how}")
    table.notes += notes
    return table
