"""What a run is measured by: figures of one result, of all its jobs or of one class of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from resilin.report.readable import readable_count, readable_duration, readable_share

__all__ = ["MEASURES", "JobClass", "JobRow", "Measure", "Run", "percentile"]


@dataclass(frozen=True, slots=True)
class JobRow:
    """What became of one job.

    Attributes:
        job_id: Its identity.
        submitted_seconds: Its submission, since the first one.
        gpu_seconds: Its size: the workers that it asked for times its duration on them.
        iterations: Its work.
        has_deadline: Whether it has one.
        outcome: Its last phase.
        met: Whether it has a deadline and was done by then.
        completion_seconds: From submission to completion; None if it was not done.
    """

    job_id: str
    submitted_seconds: float
    gpu_seconds: float
    iterations: int
    has_deadline: bool
    outcome: str
    met: bool
    completion_seconds: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one cell of a grid.

    Attributes:
        jobs: The jobs, in order of submission.
        summary: The figures that every report has (:mod:`resilin.report.summary`).
        gpu_seconds_held: GPU time that jobs held, over the makespan.
        efficiency_by_hour: Cluster efficiency, averaged over each hour of the makespan.
        cpu_seconds: CPU time of the simulation alone.
    """

    jobs: tuple[JobRow, ...]
    summary: Mapping[str, Any]
    gpu_seconds_held: float
    efficiency_by_hour: tuple[float, ...]
    cpu_seconds: float

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Run:
        """Build a run from what a cell wrote.

        Raises:
            KeyError: If a part of it is missing.
            TypeError: If a part of it is not what it should be.
            ValueError: As before.
        """
        columns = stored["jobs"]
        names = JobRow.__dataclass_fields__
        rows = zip(*(columns[name] for name in names), strict=True)
        return cls(
            jobs=tuple(JobRow(*row) for row in rows),
            summary=dict(stored["summary"]),
            gpu_seconds_held=float(stored["gpu_seconds_held"]),
            efficiency_by_hour=tuple(float(value) for value in stored["efficiency_by_hour"]),
            cpu_seconds=float(stored["cpu_seconds"]),
        )


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of like size.

    Attributes:
        name: What they are called.
        from_gpu_seconds: The least size, included.
        below_gpu_seconds: The largest size, excluded.
    """

    name: str
    from_gpu_seconds: float
    below_gpu_seconds: float

    def holds(self, job: JobRow) -> bool:
        """Say whether a job belongs to it."""
        return self.from_gpu_seconds <= job.gpu_seconds < self.below_gpu_seconds


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure.

    Attributes:
        label: What people call it.
        readable: How to write it for them.
        of: Computes it from the run and the jobs that it is asked of; None where there is
            nothing to compute it from.
        better: 1 if more is better, -1 if less is, 0 if it is neither.
        of_jobs: Whether it can be asked of some of the jobs only.
        repeatable: Whether the same inputs give the same figure on every machine.
    """

    label: str
    readable: Callable[[float], str]
    of: Callable[[Run, Sequence[JobRow]], float | None]
    better: int = 0
    of_jobs: bool = False
    repeatable: bool = True


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the least value that a share of all do not exceed; None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _times(jobs: Sequence[JobRow]) -> list[float]:
    return [job.completion_seconds for job in jobs if job.completion_seconds is not None]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _met_share(_: Run, jobs: Sequence[JobRow]) -> float | None:
    bound = [job for job in jobs if job.has_deadline]
    return sum(job.met for job in bound) / len(bound) if bound else None


def _median(_: Run, jobs: Sequence[JobRow]) -> float | None:
    times = sorted(_times(jobs))
    if not times:
        return None
    middle = len(times) // 2
    return times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2


def _best_effort_mean(_: Run, jobs: Sequence[JobRow]) -> float | None:
    return _mean(_times([job for job in jobs if not job.has_deadline]))


def _throughput(run: Run, jobs: Sequence[JobRow]) -> float | None:
    done = sum(job.iterations for job in jobs if job.completion_seconds is not None)
    makespan = float(run.summary["makespan_seconds"])
    return done / makespan if makespan > 0 else None


def _jobs_per_cpu_second(run: Run, jobs: Sequence[JobRow]) -> float | None:
    return len(jobs) / run.cpu_seconds if run.cpu_seconds > 0 else None


def _summarized(name: str) -> Callable[[Run, Sequence[JobRow]], float | None]:
    return lambda run, _: float(run.summary[name])


def _early_efficiency(run: Run, _: Sequence[JobRow]) -> float | None:
    return _mean(run.efficiency_by_hour[:100])


def _number(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _gpu_hours(value: float) -> str:
    return f"{value:,.0f} GPU h"


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "jobs": Measure("Jobs", readable_count, lambda _, jobs: len(jobs), of_jobs=True),
        "admitted": Measure("Admitted", readable_count, _summarized("admitted")),
        "declined": Measure(
            "Declined",
            readable_count,
            lambda _, jobs: sum(job.outcome == "rejected" for job in jobs),
            of_jobs=True,
        ),
        "completed": Measure(
            "Completed", readable_count, lambda _, jobs: len(_times(jobs)), 1, of_jobs=True
        ),
        "met": Measure(
            "Deadlines met",
            readable_count,
            lambda _, jobs: sum(job.met for job in jobs),
            1,
            of_jobs=True,
        ),
        "met_share": Measure("Deadlines met (share)", readable_share, _met_share, 1, of_jobs=True),
        "late": Measure("Late", readable_count, _summarized("late"), -1),
        "broken_promises": Measure(
            "Broken promises", readable_count, _summarized("broken_promises"), -1
        ),
        "mean_completion_seconds": Measure(
            "Mean completion",
            readable_duration,
            lambda _, jobs: _mean(_times(jobs)),
            -1,
            of_jobs=True,
        ),
        "median_completion_seconds": Measure(
            "Median completion", readable_duration, _median, -1, of_jobs=True
        ),
        "p95_completion_seconds": Measure(
            "95th percentile completion",
            readable_duration,
            lambda _, jobs: percentile(_times(jobs), 0.95),
            -1,
            of_jobs=True,
        ),
        "best_effort_mean_completion_seconds": Measure(
            "Mean completion, best effort", readable_duration, _best_effort_mean, -1, of_jobs=True
        ),
        "makespan_seconds": Measure(
            "Makespan", readable_duration, _summarized("makespan_seconds"), -1
        ),
        "iterations_per_second": Measure("Iterations per second", _number, _throughput, 1),
        "cluster_efficiency": Measure(
            "Cluster efficiency", readable_share, _summarized("cluster_efficiency"), 1
        ),
        "cluster_efficiency_100_hours": Measure(
            "Cluster efficiency, first 100 h", readable_share, _early_efficiency, 1
        ),
        "gpu_utilization": Measure(
            "GPU utilisation", readable_share, _summarized("gpu_utilization")
        ),
        "gpu_hours": Measure("GPU time", _gpu_hours, lambda run, _: run.gpu_seconds_held / 3600),
        "resizes": Measure("Resizes", readable_count, _summarized("resizes")),
        "migrations": Measure("Migrations", readable_count, _summarized("migrations")),
        "cpu_seconds": Measure(
            "CPU time of the run",
            readable_duration,
            lambda run, _: run.cpu_seconds,
            -1,
            repeatable=False,
        ),
        "jobs_per_cpu_second": Measure(
            "Jobs per CPU second", _number, _jobs_per_cpu_second, 1, repeatable=False
        ),
    }
)
"""The figures by name."""
