"""``python -m benchmarks``: run all benchmarks, or those that are named."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks import admission, live, planning, replay, scheduler, yardstick
from benchmarks.harness import BenchmarkError, Options

BENCHMARKS = {
    "scheduler": scheduler.tables,
    "admission": admission.tables,
    "planning": planning.tables,
    "yardstick": yardstick.tables,
    "replay": replay.tables,
    "live": live.tables,
}


def main() -> int:
    """Run the benchmarks and print their tables, as soon as each is known."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="may be repeated")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--repetitions", type=_positive, default=3, help="processes a figure")
    parser.add_argument(
        "--records", type=_positive, default=1_000_000, help="records of the log that is replayed"
    )
    chosen = parser.parse_args()
    options = Options(chosen.repetitions, chosen.records, _traces(parser))
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs"
    as_json = chosen.output == "json"
    answers: list[dict[str, Any]] = []
    try:
        for name in chosen.only or BENCHMARKS:
            for table in BENCHMARKS[name](options):
                answers.append({"benchmark": name, **table.as_plain()})
                if not as_json:
                    _say(f"{table.as_text()}\n")
    except BenchmarkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if as_json:
        _say(json.dumps({"machine": machine, "tables": answers}, indent=2) + "\n")
    else:
        _say(f"{machine}; median (least-most) of {options.repetitions} processes\n")
    return 0


def _traces(parser: argparse.ArgumentParser) -> Path | None:
    folder = os.environ.get("RESILIN_TRACES")
    if not folder:
        return None
    if not (Path(folder) / "elasticflow").is_dir():
        parser.error(f"RESILIN_TRACES: {folder} has no folder elasticflow: see docs/traces.md")
    return Path(folder)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
