"""Running a simulation, and what it cost."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

from resilin.cli.errors import InputError
from resilin.cli.progress import progress
from resilin.contracts import events as ev
from resilin.contracts.commands import SubmitJob
from resilin.contracts.record import LogEntry
from resilin.contracts.values import Curve
from resilin.eventlog.port import EventLog
from resilin.planning.bound import SolverError
from resilin.report.history import History
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import Simulation, TimedCommand

__all__ = ["cost_figures", "run"]

_ENDS = (ev.JobRejected, ev.JobCancelled, ev.JobCompleted, ev.JobFailed)


def run(
    log: EventLog,
    commands: Sequence[TimedCommand],
    physics: Physics,
    what: str,
    *,
    unknown_curves: Sequence[Curve] = (),
) -> History:
    """Run a simulation into an empty log, with a progress bar; return its history.

    Args:
        log: Where its records go.
        commands: What clients send.
        physics: How its world behaves.
        what: What to say beside the progress bar.
        unknown_curves: Throughput that the cell knows once it has tried a job out.

    Raises:
        InputError: If the policy needs a solver that is not installed.
    """
    history = History()
    jobs = sum(isinstance(timed.command, SubmitJob) for timed in commands)
    with progress(what, jobs) as advance:

        def observe(entry: LogEntry) -> None:
            history.fold(entry)
            if advance is not None:
                for event in entry.record.events:
                    if isinstance(event, _ENDS):
                        advance()

        try:
            Simulation(log, commands, physics, unknown_curves=unknown_curves, observe=observe).run()
        except SolverError as error:
            raise InputError(str(error)) from None
    return history


def cost_figures(jobs: int) -> dict[str, Any]:
    """Return what this process has cost so far: start, imports and reading included."""
    cpu_seconds = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "cpu_seconds": cpu_seconds,
        "jobs_per_cpu_second": jobs / cpu_seconds,
        # Linux counts in KiB, macOS in bytes.
        "peak_memory_bytes": peak if sys.platform == "darwin" else peak * 1024,
    }
