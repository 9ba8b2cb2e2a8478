"""Small simulated runs, made once a test session and only ever read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from resilin.contracts.commands import SubmitJob
from resilin.contracts.record import LogEntry, encode_record
from resilin.contracts.values import StopCost
from resilin.eventlog.memory import MemoryLog
from resilin.eventlog.port import EventLog
from resilin.simulation.cluster import FailureModel, Physics
from resilin.simulation.scenario import (
    Cluster,
    configuration,
    opening_commands,
    submissions,
)
from resilin.simulation.simulation import Simulation, TimedCommand
from resilin.workloads import built_in_curves, generate_trace

__all__ = [
    "FAILURES",
    "KINDS",
    "physics_of",
    "recorded",
    "run",
    "scenario",
    "spaced_scenario",
    "written",
]

SERVERS, GPUS_PER_SERVER = 4, 4
FAILURES = FailureModel(mean_seconds_between=20_000.0, mean_seconds_to_repair=900.0)

KINDS = ("free stops", "costly stops", "noise", "failures")
"""The kinds of run that :func:`recorded` makes."""


def scenario(
    seed: int = 1,
    *,
    jobs: int = 14,
    policy: str = "elasticflow",
    stop_cost: StopCost | None = None,
    reserve_servers: int = 0,
    margin: float = 1.0,
) -> list[TimedCommand]:
    """The commands of a small cell with jobs that come faster than they are done."""
    cluster = Cluster(SERVERS, GPUS_PER_SERVER)
    curves = built_in_curves(most_workers=cluster.gpus, gpus_per_server=GPUS_PER_SERVER)
    trace = generate_trace(
        jobs=jobs,
        seed=seed,
        curves=curves,
        mean_interarrival_seconds=300.0,
        cluster_gpus=cluster.gpus,
        best_effort_share=0.2,
    )
    settings = configuration(
        policy,
        stop_cost or StopCost(),
        reserve_servers=reserve_servers,
        promise_margin_seconds=margin,
    )
    start = trace.jobs[0].submitted_at_seconds
    return [*opening_commands(start, cluster, settings, curves), *submissions(trace.jobs)]


def spaced_scenario(seed: int, jobs: int = 25) -> tuple[Physics, list[TimedCommand]]:
    """A cell with costly stops, no two of its commands at once but those that open it.

    What happens at the same moment has no order that all runners would have to keep.
    """
    physics = physics_of("costly stops")
    return physics, [
        replace(each, at_seconds=each.at_seconds + 10.0 + number / 16)
        if isinstance(each.command, SubmitJob)
        else each
        for number, each in enumerate(scenario(seed, jobs=jobs, stop_cost=physics.stop_cost))
    ]


def physics_of(kind: str, seed: int = 1) -> Physics:
    """How the world behaves in a run of this kind."""
    if kind == "costly stops":
        return Physics(stop_cost=StopCost.modelled())
    if kind == "noise":
        return Physics(throughput_noise=0.05, seed=seed)
    if kind == "failures":
        return Physics(failures=FAILURES, seed=seed, checkpoint_interval_seconds=60.0)
    return Physics()


def run(
    commands: Sequence[TimedCommand], physics: Physics, log: EventLog | None = None
) -> tuple[LogEntry, ...]:
    """Run commands to the end of the last job and return the log."""
    log = MemoryLog() if log is None else log
    Simulation(log, commands, physics).run()
    return tuple(log.read())


@cache
def recorded(kind: str = "free stops", seed: int = 1) -> tuple[LogEntry, ...]:
    """The log of a small run of one of the :data:`KINDS`."""
    physics = physics_of(kind, seed)
    failing = kind == "failures"
    commands = scenario(
        seed,
        stop_cost=physics.stop_cost,
        reserve_servers=int(failing),
        margin=600.0 if failing else 1.0,
    )
    return run(commands, physics)


def written(entries: Sequence[LogEntry]) -> list[bytes]:
    """Return the bytes of every record."""
    return [encode_record(entry.record) for entry in entries]


def edited(entry: LogEntry, **changes: object) -> LogEntry:
    """Return an entry whose record has been tampered with."""
    return LogEntry(entry.offset, replace(entry.record, **changes))  # type: ignore[arg-type]  # by name
