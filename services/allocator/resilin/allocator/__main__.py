"""The allocator as a process on Kafka: `python -m resilin.allocator`."""

from __future__ import annotations

import sys

from resilin.allocator.decider import AllocatorDecider
from resilin.runtime.main import run_service

if __name__ == "__main__":
    sys.exit(run_service(AllocatorDecider()))
