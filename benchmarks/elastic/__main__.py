"""``python -m benchmarks.elastic``: measure the elastic worker runtime on this machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.elastic import (
    broadcast,
    disorder,
    equality,
    failures,
    once,
    steady,
    stops,
    stragglers,
    switches,
    transient,
)
from benchmarks.elastic.rows import Options, Part, Row, load_average, table_of
from benchmarks.harness import BenchmarkError, Table
from resilin.elastic.local import LocalRunError

PARTS = (
    Part("small", (1, 3, 5), stops.measure_small),
    Part("large", (2, 3, 5), stops.measure_large),
    Part("broadcast", (4,), broadcast.measure_broadcast),
    Part("standby", (6,), stops.measure_standby),
    Part("steady", (7,), steady.measure_steady),
    Part("once", (8, 10), once.measure_once),
    Part("equality", (9,), equality.measure_equality),
    Part("kills", (11,), failures.measure_kills),
    Part("silence", (12,), failures.measure_silence),
    Part("leader", (13,), failures.measure_leader),
    Part("switches", (14,), switches.measure_switches),
    Part("stragglers", (15,), stragglers.measure_stragglers),
    Part("disorder", (16,), disorder.measure_disorder),
    Part("transient", (), transient.measure_transient),
)
NOT_MEASURED = "17 is left out: the parameter server is not part of this runtime yet"


def main() -> int:
    """Measure, and print one table of all rows; what is done goes to the error stream."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=__doc__)
    names = {part.name: part for part in PARTS}
    numbers = {str(number) for part in PARTS for number in part.numbers}
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*sorted(numbers, key=int), *names],
        metavar="ROW",
        help="rows by number, or parts by name: " + ", ".join(names),
    )
    parser.add_argument("--repetitions", type=_positive, default=5, help="of what is timed")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--tiny", action="store_true", help="show only that it works: the figures are worthless"
    )
    chosen = parser.parse_args()
    options = Options(1 if chosen.tiny else chosen.repetitions, chosen.tiny)
    wanted = [
        part
        for part in PARTS
        if not chosen.only
        or part.name in chosen.only
        or any(str(number) in chosen.only for number in part.numbers)
    ]
    began, before = time.monotonic(), load_average()
    rows, tables, failed = _measure(wanted, options)
    machine = (
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs;"
        f" {time.monotonic() - began:.0f} s; load average {before} before, {load_average()} after"
    )
    if chosen.output == "json":
        answer = {
            "machine": machine,
            "rows": [row.as_plain() for row in rows],
            "tables": [table.as_plain() for table in tables],
            "failed": failed,
        }
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        notes = [NOT_MEASURED, *(f"{name} FAILED: {why}" for name, why in failed.items()), machine]
        if options.tiny:
            notes.append("tiny: these figures mean nothing")
        shown = [*([table_of(rows, notes)] if rows or not tables else ()), *tables]
        sys.stdout.write("\n".join(table.as_text() for table in shown))
    return 1 if failed else 0


def _measure(
    parts: Sequence[Part], options: Options
) -> tuple[list[Row], list[Table], dict[str, Any]]:
    rows: dict[int, Row] = {}
    tables: list[Table] = []
    failed: dict[str, Any] = {}
    for part in parts:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = part.run(options, Path(folder))
            except (BenchmarkError, LocalRunError) as error:
                failed[part.name] = str(error).partition("\n")[0]
                sys.stderr.write(f"{error}\n")
                continue
        rows |= {row.number: row for row in result.rows}
        tables += result.tables
        seconds = time.monotonic() - began
        sys.stderr.write(f"{part.name}: {seconds:.0f} s, load average {load_average()}\n")
        for row in result.rows:
            sys.stderr.write(f"  {row.number}: {row.measured}\n")
    return list(rows.values()), tables, failed


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
