"""The placement as a process on Kafka: `python -m resilin.placement`."""

from __future__ import annotations

import sys

from resilin.placement.decider import PlacementDecider
from resilin.runtime.main import run_service

if __name__ == "__main__":
    sys.exit(run_service(PlacementDecider()))
