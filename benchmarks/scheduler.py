"""The speed of the whole scheduler: seven services, the log and a simulated cluster."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    Answer,
    Options,
    Table,
    answer_task,
    fresh,
    peak_memory_mebibytes,
    repeated,
    spread_of,
)
from benchmarks.worlds import BUILT_IN, traced_world
from resilin.eventlog.sqlite import SqliteLog
from resilin.report.history import History
from resilin.report.summary import summarize
from resilin.simulation.simulation import Simulation

__all__ = ["measure", "tables"]


@dataclass(frozen=True, slots=True)
class _Run:
    """One row: a trace on so many servers of 8 GPUs."""

    trace: str
    servers: int
    modelled_stops: bool

    @property
    def title(self) -> str:
        stops = "stops modelled" if self.modelled_stops else "stops free"
        return f"{self.trace.removesuffix('.csv')} on {self.servers} x 8, {stops}"

    @property
    def heading(self) -> str:
        name = self.trace.removesuffix(".csv").removesuffix("-128-gpus")
        return f"{name}, {'modelled' if self.modelled_stops else 'free'}"


RUNS = (
    _Run(BUILT_IN, 16, modelled_stops=True),
    _Run("195job.csv", 16, modelled_stops=False),
    _Run("195job.csv", 16, modelled_stops=True),
    _Run("cluster10.csv", 32, modelled_stops=False),
    _Run("cluster06.csv", 64, modelled_stops=False),
    _Run("cluster01.csv", 64, modelled_stops=False),
)

DECIDERS = ("admission", "allocator", "placement")
"""The services that decide at all in this version; the others record facts."""


def tables(options: Options) -> Iterator[Table]:
    """Run every workload; then once more with a stopwatch in every part."""
    speed = Table(
        "Scheduler speed: all services, a log on disk and a simulated cluster in one process",
        (
            "workload",
            "jobs",
            "deadlines met",
            "records",
            "whole process, CPU s",
            "jobs/CPU s",
            "simulation alone, CPU s",
            "jobs/CPU s alone",
            "peak MiB",
        ),
    )
    parts = Table("Where the time goes: percent of the CPU seconds of one run", ("part",))
    columns: list[Answer] = []
    for run in RUNS:
        if run.trace != BUILT_IN and options.traces is None:
            speed.notes.append(f"left out: {run.title}: RESILIN_TRACES is not set")
            continue
        task = {
            "traces": str(options.traces) if options.traces else None,
            "trace": run.trace,
            "servers": run.servers,
            "modelled_stops": run.modelled_stops,
        }
        answers = repeated("scheduler", {**task, "parts": False}, options.repetitions)
        dissected = fresh("scheduler", {**task, "parts": True})
        whole = spread_of(answer["whole"] for answer in answers)
        alone = spread_of(answer["simulation"] for answer in answers)
        jobs = answers[0]["jobs"]
        speed.rows.append(
            (
                run.title,
                jobs,
                dissected["met"],
                answers[0]["records"],
                whole,
                jobs / whole.median,
                alone,
                jobs / alone.median,
                spread_of(answer["peak_mebibytes"] for answer in answers),
            )
        )
        columns.append(dissected)
        parts.columns = (*parts.columns, run.heading)
    for part in columns[0]["parts"]:
        shares = (100 * column["parts"][part] / sum(column["parts"].values()) for column in columns)
        parts.rows.append((part, *shares))
    parts.rows.append(("all of it, CPU s", *(sum(c["parts"].values()) for c in columns)))
    parts.notes.append("the stopwatch's own time is estimated and taken out")
    yield speed
    yield parts


def measure(task: Answer) -> Answer:
    """Run one workload."""
    imported = time.process_time()
    traces = None if task["traces"] is None else Path(task["traces"])
    world = traced_world(
        traces, task["trace"], task["servers"], modelled_stops=task["modelled_stops"]
    )
    commands = world.commands
    read = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        log = SqliteLog(Path(folder) / "log.resilin", durable=False)
        simulation = Simulation(log, commands, world.physics)
        stopwatch = _Stopwatch()
        if task["parts"]:
            _put_into(simulation, log, stopwatch)
        simulation.run()
        log.commit()
        ended = time.process_time()
        answer: Answer = {
            "jobs": len(world.trace.jobs),
            "records": log.end_offset() + 1,
            "whole": ended,
            "simulation": ended - read,
            "peak_mebibytes": peak_memory_mebibytes(),
        }
        if task["parts"]:
            history = History()
            for entry in log.read():
                history.fold(entry)
            answer["met"] = summarize(history).met
            answer["parts"] = {
                "start and imports": imported,
                "reading the workload": read - imported,
                **stopwatch.parts(ended - read),
            }
        log.close()
    return answer


@dataclass(slots=True)
class _Stopwatch:
    """Adds up the CPU time of calls by part, less what measuring itself takes."""

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a stopwatch around every call."""
        seconds, calls, clock = self.seconds, self.calls, time.process_time
        seconds.setdefault(part, 0.0)
        calls.setdefault(part, 0)

        def watched(*arguments: Any) -> Any:  # noqa: ANN401 (whatever the function takes)
            began = clock()
            try:
                return function(*arguments)
            finally:
                seconds[part] += clock() - began
                calls[part] += 1

        return watched

    def parts(self, whole_seconds: float) -> dict[str, float]:
        """Return the seconds of all parts, and what is left of the whole."""
        within, around = _cost_of_a_call()
        result = {
            part: max(0.0, seconds - within * self.calls[part])
            for part, seconds in self.seconds.items()
        }
        rest = whole_seconds - sum(self.seconds.values())
        rest -= (around - within) * sum(self.calls.values())
        return {**result, "kernel, clock and loop (the rest)": max(0.0, rest)}


def _cost_of_a_call(calls: int = 20_000) -> tuple[float, float]:
    """Return what watching a call adds to its part, and to the whole run."""
    probe = _Stopwatch()
    watched = probe.around("nothing", _nothing)
    began = time.process_time()
    for _ in range(calls):
        _nothing(None)
    bare = time.process_time() - began
    began = time.process_time()
    for _ in range(calls):
        watched(None)
    whole = time.process_time() - began
    return probe.seconds["nothing"] / calls, (whole - bare) / calls


def _nothing(argument: object) -> None:
    """Do nothing, at the price of a call."""


def _put_into(simulation: Simulation, log: SqliteLog, stopwatch: _Stopwatch) -> None:
    """Put the stopwatch around the parts of a run; none of them calls another."""

    def watch(owner: object, method: str, part: str) -> None:
        setattr(owner, method, stopwatch.around(part, getattr(owner, method)))

    hosts = {name: instance.host for name, (instance,) in simulation.instances.items()}
    for name, host in hosts.items():
        watch(host, "poll", f"deciding: {name if name in DECIDERS else 'the other four'}")
    for name, host in hosts.items():
        watch(host, "fold", f"folding: {name}")
    for (instance,) in simulation.instances.values():
        watch(instance, "accept", "taking in commands and reports")
    watch(log, "append", "log: encoding and appending")
    for method in ("carry_out", "next_seconds"):
        watch(simulation.cluster, method, "simulated cluster")
    _watch_iteration(simulation.cluster, "reports", "simulated cluster", stopwatch)


def _watch_iteration(owner: object, method: str, part: str, stopwatch: _Stopwatch) -> None:
    """Put the stopwatch around every step of what a method yields."""
    original = getattr(owner, method)
    end = object()

    def steps(*arguments: Any) -> Iterator[Any]:  # noqa: ANN401 (whatever the method takes)
        iterator = original(*arguments)
        step = stopwatch.around(part, lambda: next(iterator, end))
        while (item := step()) is not end:
            yield item

    setattr(owner, method, steps)


if __name__ == "__main__":
    answer_task(measure)
