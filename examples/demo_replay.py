"""Runs the submissions of a live log again in simulation, and compares what is decided.

The services, the log and the job specifications are the same ones; the clock and the workers are
not. The throughput is what the live cell measured when it tried the jobs out. What the simulated
workers do not do, and live ones did: be killed, stand still for less than the model of a change
says, run a little slower or faster than when they were tried out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from resilin.contracts import events as ev
from resilin.contracts.commands import ConfigureCell, ImportCurves, SubmitJob
from resilin.contracts.record import LogEntry
from resilin.eventlog.memory import MemoryLog
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import Simulation, TimedCommand
from resilin.simulation.what_if import profiled_curves, recorded_commands

__all__ = ["Decisions", "decisions", "simulated"]


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided about one job.

    Attributes:
        answer: What admission answered it.
        shares: The worker counts that the allocator gave it, in order.
    """

    answer: str
    shares: tuple[int, ...]


def decisions(entries: Sequence[LogEntry]) -> dict[str, Decisions]:
    """Return what a log's services decided, by job."""
    answers: dict[str, str] = {}
    shares: dict[str, list[int]] = {}
    for event in itertools.chain.from_iterable(entry.record.events for entry in entries):
        match event:
            case ev.JobAdmitted(job_id=job_id, minimum_satisfactory_share=share):
                answers[job_id] = f"promised, {share} at least"
            case ev.JobRejected(job_id=job_id, reason=reason):
                answers[job_id] = f"refused, {reason.value}"
            case ev.AllocationPlanned(changes=changes):
                for change in changes:
                    shares.setdefault(change.job_id, []).append(change.allocation.workers)
            case _:
                pass
    return {job: Decisions(answer, tuple(shares.get(job, ()))) for job, answer in answers.items()}


def simulated(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the log of the same submissions, at the same times, in a simulation."""
    commands = list(recorded_commands(entries))
    settings = [
        timed.command.configuration
        for timed in commands
        if isinstance(timed.command, ConfigureCell)
    ]
    # The live cell measured while the first of each kind waited for its answer; here it is
    # known when the first one comes.
    first = next(n for n, timed in enumerate(commands) if isinstance(timed.command, SubmitJob))
    measured = ImportCurves(
        command_id="measured", curves=tuple(profiled_curves(entries)), curve_source="profiled"
    )
    commands.insert(first, TimedCommand(commands[first].at_seconds, measured))
    log = MemoryLog()
    Simulation(log, commands, Physics(stop_cost=settings[-1].stop_cost)).run()
    return list(log.read())
