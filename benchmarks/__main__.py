"""``python -m benchmarks``: run all benchmarks, or those that are named."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from benchmarks import admission, replay, scheduler
from benchmarks.harness import Options

BENCHMARKS = {"scheduler": scheduler.tables, "admission": admission.tables, "replay": replay.tables}


def main() -> int:
    """Run the benchmarks and print their tables as they come."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="may be repeated")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--repetitions", type=_positive, default=3, help="processes a figure")
    parser.add_argument(
        "--records", type=_positive, default=1_000_000, help="records of the log that is replayed"
    )
    chosen = parser.parse_args()
    traces = os.environ.get("RESILIN_TRACES")
    options = Options(chosen.repetitions, chosen.records, Path(traces) if traces else None)
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs"
    answers = []
    for name in chosen.only or BENCHMARKS:
        for table in BENCHMARKS[name](options):
            if chosen.output == "json":
                answers.append({"benchmark": name, **table.as_plain()})
            else:
                sys.stdout.write(f"{table.as_text()}\n")
                sys.stdout.flush()
    if chosen.output == "json":
        json.dump({"machine": machine, "tables": answers}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(f"{machine}; {options.repetitions} repetitions: median (least-most)\n")
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
