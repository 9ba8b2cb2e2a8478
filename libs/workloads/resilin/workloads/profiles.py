"""Throughput profiles on disk, read into a curve book."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from resilin.planning.curves import ThroughputCurve
from resilin.workloads.csv_table import (
    MOST_WHOLE,
    FilePath,
    Row,
    Table,
    plain_stem,
    read_table,
)
from resilin.workloads.curve_book import PACKED, CurveBook
from resilin.workloads.pollux_models import is_models_folder, read_models
from resilin.workloads.trace import WorkloadError

__all__ = ["read_profiles"]

_Key = tuple[str, int, str]
_Measured = tuple[Row, float]
_Rates = dict[_Key, dict[int, _Measured]]

_BATCH_COLUMN = "global_batch_size"
_PLAIN_COLUMNS = ("model", "global_batch", "workers", "iterations_per_second")


def read_profiles(path: FilePath) -> CurveBook:
    """Read all throughput profiles in a folder, or one file of them.

    The layout is told by what is there, file by file:

    * ElasticFlow: ``<model>.csv`` with header ``global_batch_size,1,2,4,...``: a row a global
      batch, a column a worker count, iterations per second in the cells; ``nan``, nothing or
      0 means not measured.
    * plain: ``model,global_batch,workers,iterations_per_second`` and optionally ``locality``
      (none or an empty cell means packed), for any number of models.
    * Pollux: a folder of model folders (see :mod:`resilin.workloads.pollux_models`).

    Files may be gzip. Other files of the folder are passed over. Curves are kept as measured:
    not cut at their peak.

    Raises:
        WorkloadError: If there is no profile, or one cannot be used.
    """
    source = os.fspath(path)
    place = Path(source)
    try:
        is_pollux = place.is_dir() and is_models_folder(place)
        files = _profile_files(place)
    except (OSError, ValueError) as error:
        raise WorkloadError(source, f"cannot be listed ({error}); check the path") from None
    if is_pollux:
        return _book(source, read_models(place))
    rates: _Rates = {}
    for file in files:
        table = read_table(file)
        _layout(table)(table, plain_stem(file), rates)
    return _book(
        source,
        {
            key: ThroughputCurve.from_mapping(
                {count: rate for count, (_, rate) in by_count.items()}
            )
            for key, by_count in rates.items()
        },
        rates,
    )


def _profile_files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    return sorted(file for file in place.iterdir() if file.name.endswith((".csv", ".csv.gz")))


def _layout(table: Table) -> Callable[[Table, str, _Rates], None]:
    """Return the function that reads a table's layout."""
    if _BATCH_COLUMN in table.columns:
        return _read_elasticflow
    table.require(
        _PLAIN_COLUMNS, layout=f"plain profile (an ElasticFlow profile has {_BATCH_COLUMN})"
    )
    return _read_plain


def _book(
    source: str, curves: dict[_Key, ThroughputCurve], rates: _Rates | None = None
) -> CurveBook:
    if not curves:
        raise WorkloadError(
            source, "holds no throughput profile (a .csv or .csv.gz file); check the path"
        )
    for (model, batch, locality), by_count in (rates or {}).items():
        if (model, batch, PACKED) not in curves:
            row = next(iter(by_count.values()))[0]
            raise row.error(
                "locality",
                f"{model!r} with global batch {batch} is profiled for {locality!r} but not for "
                f"{PACKED!r}, which every planner needs; add rows for it",
            )
    return CurveBook(source, curves)


def _add(rates: _Rates, key: _Key, workers: int, measured: _Measured, column: str) -> None:
    row = measured[0]
    first = rates.setdefault(key, {}).setdefault(workers, measured)
    if first is not measured:
        model, batch, locality = key
        raise row.error(
            column,
            f"{workers} workers of {model!r} with global batch {batch}, {locality}, are already "
            f"profiled at {first[0].place}; keep one",
        )


def _read_elasticflow(table: Table, model: str, rates: _Rates) -> None:
    table.require((_BATCH_COLUMN,), layout="ElasticFlow profile")
    counts = _worker_counts(table)
    seen: dict[int, int] = {}
    for row in table.rows:
        batch = row.whole(_BATCH_COLUMN)
        first = seen.setdefault(batch, row.line)
        if first != row.line:
            raise row.error(_BATCH_COLUMN, f"{batch} is on line {first} too; keep one of them")
        measured = [column for column in counts if not _is_unmeasured(row.text(column))]
        if not measured:
            raise row.error(None, f"nothing is measured for batch {batch}; drop the line")
        for column in measured:
            rate = row.rate(column)
            _add(rates, (model, batch, PACKED), counts[column], (row, rate), column)


def _worker_counts(table: Table) -> dict[str, int]:
    """Return the worker count of each column but the first."""
    counts = {}
    for column in table.columns:
        if column == _BATCH_COLUMN:
            continue
        digits = column.isascii() and column.isdigit() and len(column) < len(str(MOST_WHOLE))
        counts[column] = int(column) if digits else 0
        if counts[column] == 0:
            raise WorkloadError(
                table.file,
                f"is no worker count; the header is {_BATCH_COLUMN},1,2,4,...",
                line=table.header_line,
                field=column[:40],
            )
    return counts


def _is_unmeasured(text: str) -> bool:
    if text.lower() in ("", "nan"):
        return True
    try:
        return float(text) == 0
    except ValueError:
        return False


def _read_plain(table: Table, _file_stem: str, rates: _Rates) -> None:
    for row in table.rows:
        locality = PACKED
        if "locality" in table.columns and row.text("locality"):
            locality = row.name("locality")
        key = row.name("model"), row.whole("global_batch"), locality
        rate = row.rate("iterations_per_second")
        _add(rates, key, row.whole("workers"), (row, rate), "workers")
