"""Running one cell of a grid: from its inputs to what became of its jobs."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from resilin.contracts.commands import AddServer, CordonServer, SubmitJob
from resilin.contracts.job_specification import Elastic
from resilin.contracts.values import Server
from resilin.evaluation.grid import Cell
from resilin.evaluation.measures import JobRow
from resilin.evaluation.scenario import Single, Source, Transient
from resilin.eventlog.memory import MemoryLog
from resilin.planning.throughput_model import A100_SERVERS, MODEL_COSTS, predicted_curve
from resilin.report.history import History
from resilin.report.summary import summarize
from resilin.simulation.cluster import Physics
from resilin.simulation.scenario import Cluster, configuration, opening_commands, submissions
from resilin.simulation.simulation import Simulation, TimedCommand
from resilin.workloads import (
    PACKED,
    CurveBook,
    Trace,
    TraceJob,
    WorkloadError,
    built_in_curves,
    generate_trace,
    read_gradient_noise,
    read_profiles,
    read_trace,
)
from resilin.workloads.model_pool import ModelPool

__all__ = ["run_cell"]

SECONDS_PER_HOUR = 3600.0
TRANSIENT_SERVER = "transient"


def run_cell(cell: Cell, traces: Path | None) -> dict[str, Any]:
    """Run a cell.

    Args:
        cell: The cell.
        traces: The folder of traces, where the cell reads one.

    Returns:
        What :meth:`resilin.evaluation.measures.Run.from_json` takes; all of it but the CPU
        time is the same in every process.

    Raises:
        WorkloadError: If a trace or profile cannot be used.
    """
    trace, curves = _workload(cell.source, cell.seed, cell.cluster.gpus_per_server, traces)
    commands = _commands(cell, trace, curves)
    physics = Physics(
        stop_cost=cell.resize_cost.stop_cost,
        seed=cell.seed,
        gradient_noise=_gradient_noise(cell.source, traces),
    )
    history = History()
    began = time.process_time()
    Simulation(MemoryLog(), commands, physics, observe=history.fold).run()
    cpu_seconds = time.process_time() - began
    start = trace.jobs[0].submitted_at_seconds
    rows = [asdict(_row(job, curves, history, start)) for job in trace.jobs]
    end = max((job.ended_at_seconds or start for job in history.jobs.values()), default=start)
    busy = _averages(history, start, end, "busy", max(end - start, 1e-9))
    return {
        "jobs": {name: [row[name] for row in rows] for name in JobRow.__dataclass_fields__},
        "summary": summarize(history).as_dict(),
        "gpu_seconds_held": busy[0] * (end - start) if busy else 0.0,
        "efficiency_by_hour": _averages(history, start, end, "efficiency", SECONDS_PER_HOUR),
        "cpu_seconds": cpu_seconds,
    }


# --- the jobs ------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _workload(
    source: Source, seed: int, gpus_per_server: int, traces: Path | None
) -> tuple[Trace, CurveBook]:
    """Read or make the jobs and curves; the cells of a process mostly share them."""
    curves = _curves(source, gpus_per_server, traces)
    trace = _trace(source, seed, curves, traces)
    jobs = trace.jobs[:: source.every_nth][: source.jobs]
    if source.original_profiles is not None:
        jobs = tuple(_redrawn(jobs, curves, seed))
    if source.deadline_durations is not None:
        jobs = tuple(_with_deadline(job, curves, source.deadline_durations) for job in jobs)
    return replace(trace, jobs=jobs), curves


def _path(traces: Path | None, path: str) -> Path:
    if traces is None:
        raise WorkloadError(path, "lies in the folder of traces, and none is named")
    return traces / path


def _curves(source: Source, gpus_per_server: int, traces: Path | None) -> CurveBook:
    if source.single is not None:
        return _single_curve(source.single, gpus_per_server)
    if source.profiles is not None:
        return read_profiles(_path(traces, source.profiles))
    return built_in_curves(gpus_per_server=gpus_per_server)


def _gradient_noise(
    source: Source, traces: Path | None
) -> Mapping[str, tuple[tuple[float, float], ...]]:
    """Read what makes a larger batch worth less than its samples, where the source knows it."""
    if source.pollux_models is None:
        return {}
    return read_gradient_noise(_path(traces, source.pollux_models))


def _single_curve(single: Single, gpus_per_server: int) -> CurveBook:
    """Predict a single job's curve at every count, as if all its GPUs were in one server."""
    costs = MODEL_COSTS.get(single.model)
    if costs is None:
        raise WorkloadError(
            single.model, f"is no built-in model; there are {', '.join(MODEL_COSTS)}"
        )
    most = max(A100_SERVERS.gpus_per_server, gpus_per_server)
    curve = predicted_curve(
        costs,
        replace(A100_SERVERS, gpus_per_server=most),
        global_batch=single.global_batch,
        worker_counts=range(1, most + 1),
        workers_per_server=most,
    )
    return CurveBook("built-in model", {(single.model, single.global_batch, PACKED): curve})


def _trace(source: Source, seed: int, curves: CurveBook, traces: Path | None) -> Trace:
    if source.single is not None:
        single = source.single
        job = TraceJob(
            job_id="job-0",
            submitted_at_seconds=0.0,
            model=single.model,
            global_batch=single.global_batch,
            iterations=single.iterations,
            deadline_seconds=None,
            requested_workers=single.workers,
            duration_seconds=None,
        )
        return Trace("single", (job,))
    if source.generated is not None:
        made = source.generated
        return generate_trace(
            jobs=made.jobs,
            seed=seed,
            curves=curves,
            mean_interarrival_seconds=made.mean_interarrival_seconds,
            cluster_gpus=made.cluster_gpus,
            best_effort_share=made.best_effort_share,
            load=made.load,
        )
    assert source.file is not None, "the scenario names one source"  # noqa: S101 (checked by Source)
    assert source.format is not None, "a file has a format"  # noqa: S101 (checked by Source)
    models, original = source.pollux_models, source.original_profiles
    return read_trace(
        _path(traces, source.file),
        source.format,
        curves=curves if original is None else read_profiles(_path(traces, original)),
        seed=seed,
        pollux_models=None if models is None else _path(traces, models),
    )


def _redrawn(jobs: Sequence[TraceJob], curves: CurveBook, seed: int) -> Iterator[TraceJob]:
    """Give jobs other models; two of them run for the same time on the requested workers."""
    draws = random.Random(f"models/{seed}")  # noqa: S311 (a workload, no secret)
    pool = ModelPool(curves)
    for job in jobs:
        drawn = pool.draw(draws.random(), job.requested_workers)
        if drawn is None or job.duration_seconds is None:
            raise WorkloadError(
                curves.source,
                f"job {job.job_id!r} cannot be given a model: no curve knows so few workers as "
                f"{job.requested_workers}, or the trace does not tell its duration",
            )
        model, batch, workers = drawn
        iterations = int(job.duration_seconds * curves[model, batch].rate(workers))
        yield replace(
            job,
            model=model,
            global_batch=batch,
            iterations=max(1, iterations),
            requested_workers=workers,
        )


def _duration(job: TraceJob, curves: CurveBook) -> float:
    """Return a job's duration on the workers that it asked for."""
    if job.duration_seconds is not None:
        return job.duration_seconds
    return job.iterations / curves[job.model, job.global_batch].rate(job.requested_workers)


def _with_deadline(job: TraceJob, curves: CurveBook, durations: float) -> TraceJob:
    deadline = job.submitted_at_seconds + durations * _duration(job, curves)
    return replace(job, deadline_seconds=deadline)


# --- the commands --------------------------------------------------------------------------


def _commands(cell: Cell, trace: Trace, curves: CurveBook) -> list[TimedCommand]:
    """Return all commands of a run, in order of time."""
    start = trace.jobs[0].submitted_at_seconds
    settings = configuration(cell.policy, cell.resize_cost.stop_cost)
    shape = Cluster(cell.cluster.servers, cell.cluster.gpus_per_server)
    commands = opening_commands(start, shape, settings, curves)
    commands += [_sized(job, curves, cell.source) for job in trace.jobs]
    if cell.cluster.transient is not None:
        end = start + sum(_duration(job, curves) for job in trace.jobs)
        commands += _comings_and_goings(cell.cluster.transient, start, end)
    return sorted(commands, key=lambda command: command.at_seconds)


def _sized(job: TraceJob, curves: CurveBook, source: Source) -> TimedCommand:
    """Return a job's submission; its sizes are powers of two, or all that are profiled."""
    timed = submissions([job])[0]
    if source.sizes == "powers-of-two" and source.single is None:
        return timed
    command = timed.command
    assert isinstance(command, SubmitJob), "a submission submits"  # noqa: S101 (invariant)
    elastic = Elastic(
        requested_replicas=job.requested_workers,
        allowed_replicas=curves[job.model, job.global_batch].workers,
    )
    spec = command.job.spec.model_copy(update={"elastic": elastic})
    changed = command.job.model_copy(update={"spec": spec})
    return TimedCommand(timed.at_seconds, command.model_copy(update={"job": changed}))


def _comings_and_goings(transient: Transient, start: float, end: float) -> Iterator[TimedCommand]:
    """Yield the commands by which a transient server comes and goes, until all is done."""
    server = Server(server_id=TRANSIENT_SERVER, gpus=transient.gpus)
    yield TimedCommand(start, AddServer(command_id="transient", server=server))
    now, number, present = start, 0, True
    while now < end:
        now += transient.present_seconds if present else transient.absent_seconds
        present = not present
        number += 1
        yield TimedCommand(
            now,
            CordonServer(
                command_id=f"transient-{number}", server_id=TRANSIENT_SERVER, cordoned=not present
            ),
        )


# --- the result ----------------------------------------------------------------------------


def _row(job: TraceJob, curves: CurveBook, history: History, start: float) -> JobRow:
    told = history.jobs[job.job_id]
    return JobRow(
        job_id=job.job_id,
        submitted_seconds=job.submitted_at_seconds - start,
        gpu_seconds=job.requested_workers * _duration(job, curves),
        iterations=job.iterations,
        has_deadline=job.deadline_seconds is not None,
        outcome=told.outcome.value,
        met=told.met,
        completion_seconds=told.completion_seconds,
    )


def _averages(history: History, start: float, end: float, figure: str, width: float) -> list[float]:
    """Average a figure of the cluster over each stretch of time of one width, start to end."""
    if end <= start or not history.moments:
        return []
    stretches = max(1, math.ceil((end - start) / width - 1e-9))
    sums = [0.0] * stretches
    ends = [*(after.at_seconds for _, after in pairwise(history.moments)), end]
    for moment, until in zip(history.moments, ends, strict=True):
        value, since = float(getattr(moment, figure)), max(moment.at_seconds, start)
        until = min(until, end)
        if not value or until <= since:
            continue
        last = min(int((until - start) / width), stretches - 1)
        for place in range(int((since - start) / width), last + 1):
            left = start + place * width
            right = left + width if place < stretches - 1 else end
            sums[place] += value * max(0.0, min(until, right) - max(since, left))
    return [
        total / (min(start + (place + 1) * width, end) - start - place * width)
        for place, total in enumerate(sums)
    ]
