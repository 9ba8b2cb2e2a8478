"""The process of a cell at home: `python -m resilin.embedded --home DIR`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from resilin.agent.backend import LocalBackend
from resilin.embedded.folder import Home, HomeBusyError
from resilin.embedded.home import CELL, SERVER_ID, run_home
from resilin.executor.backend import WorkerBackend
from resilin.runtime.clock import Clock, WallClock
from resilin.runtime.logs import configure_logs
from resilin.simulation.backend import SimulatedBackend


def main() -> int:
    """Run until SIGTERM or SIGINT; 1 if another process runs the cell."""
    parser = argparse.ArgumentParser(prog="python -m resilin.embedded", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--time-scale", type=float, default=1.0)
    options = parser.parse_args()
    home = Home(options.home)
    settings = home.settings(options.slots)
    clock = WallClock(options.time_scale, settings.origin_seconds)

    def make_backend(clock: Clock) -> WorkerBackend:
        if options.simulate:
            return SimulatedBackend(clock.now_seconds, clock.sleep_until)
        return LocalBackend({SERVER_ID: settings.slots}, home.path, clock=clock.now_seconds)

    configure_logs("info", service="embedded", instance="embedded", cell=CELL)
    running = run_home(home, make_backend, slots=settings.slots, port=options.port, clock=clock)
    try:
        asyncio.run(running)
    except HomeBusyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
