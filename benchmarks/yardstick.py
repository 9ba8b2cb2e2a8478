"""How good the plans are: deadlines met beside what any scheduler could meet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Answer, Options, Table, answer_task, fresh
from benchmarks.worlds import BUILT_IN, World, traced_world
from resilin.contracts.job_specification import Elastic
from resilin.eventlog.memory import MemoryLog
from resilin.planning.bound import DeadlineJob, most_deadlines_upper_bound
from resilin.planning.capacity import CapacityProfile
from resilin.planning.curves import ThroughputCurve
from resilin.report.history import History
from resilin.report.summary import summarize
from resilin.simulation.simulation import Simulation

__all__ = ["measure", "tables"]

CELLS = ((BUILT_IN, 16), ("195job.csv", 16), ("195job.csv", 8), ("195job.csv", 4))


def tables(options: Options) -> Iterator[Table]:
    """Run every workload with free and with modelled stops, and bound it."""
    table = Table(
        "Yardstick: deadlines met under our policy and, at most, under any scheduler",
        (
            "workload",
            "jobs",
            "met, stops free",
            "met, stops modelled",
            "late",
            "met in hindsight, at least",
            "bound",
            "in time alone on the cluster",
            "bound, CPU s",
        ),
    )
    for trace, servers in CELLS:
        title = f"{trace.removesuffix('.csv')} on {servers * 8} GPUs"
        if trace != BUILT_IN and options.traces is None:
            table.notes.append(f"left out: {title}: RESILIN_TRACES is not set")
            continue
        traces = str(options.traces) if options.traces else None
        answer = fresh("yardstick", {"traces": traces, "trace": trace, "servers": servers})
        if "problem" in answer:
            table.notes.append(f"left out: {title}: {answer['problem']}")
            continue
        table.rows.append((title, *answer["figures"]))
    yield table


def measure(task: Answer) -> Answer:
    """Run one workload twice, and bound it."""
    try:
        import scipy.optimize  # noqa: F401 (asked for before the work begins)
    except ImportError:
        return {"problem": "the bound needs scipy: pip install 'resilin[bound]'"}
    traces = None if task["traces"] is None else Path(task["traces"])
    met, late = [], 0
    for modelled_stops in (False, True):
        world = traced_world(traces, task["trace"], task["servers"], modelled_stops=modelled_stops)
        history = History()
        Simulation(MemoryLog(), world.commands, world.physics, observe=history.fold).run()
        summary = summarize(history)
        met.append(summary.met)
        late += summary.late
    began = time.process_time()
    bound = most_deadlines_upper_bound(
        _deadline_jobs(world),
        CapacityProfile(world.trace.jobs[0].submitted_at_seconds, world.cluster.gpus),
    )
    seconds = time.process_time() - began
    jobs = len(world.trace.jobs)
    return {"figures": [jobs, *met, late, bound.met, bound.bound, bound.ceiling, seconds]}


def _deadline_jobs(world: World) -> list[DeadlineJob]:
    allowed = Elastic().allows
    jobs = []
    for job in world.trace.jobs:
        curve = world.curves[job.model, job.global_batch]
        rates = {count: curve.rate(count) for count in curve.workers if allowed(count)}
        deadline = job.deadline_seconds
        # A job due at its submission cannot be met by anybody.
        if deadline is not None and deadline > job.submitted_at_seconds and rates:
            jobs.append(
                DeadlineJob(
                    job.job_id,
                    job.submitted_at_seconds,
                    deadline,
                    float(job.iterations),
                    ThroughputCurve.from_mapping(rates),
                )
            )
    return jobs


if __name__ == "__main__":
    answer_task(measure)
