"""``python -m benchmarks.elastic``: measure the elastic worker runtime on this machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.elastic import stops
from benchmarks.elastic.rows import Options, Part, Result, load_average, table_of
from benchmarks.harness import BenchmarkError

PARTS = (
    Part("small", (1,), stops.measure_small),
    Part("large", (2, 3, 5), stops.measure_large),
    Part("standby", (6,), stops.measure_standby),
)


if __name__ == "__main__":
    for part in PARTS:
        if part.name in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as f:
                t=time.time()
                r=part.run(Options(int(os.environ.get("R","1")), "T" in os.environ), Path(f))
                print(table_of(r.rows, [f"{time.time()-t:.0f} s, load {load_average()}"]).as_text())
                for t in r.tables: print(t.as_text())
