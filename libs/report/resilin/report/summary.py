"""The summary of a run: the figures that schedulers are compared by (ElasticFlow §6.1)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from resilin.cell.state import Phase
from resilin.report.history import History

__all__ = ["Summary", "summarize"]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures.

    Attributes:
        policy: The allocation policy.
        jobs: Jobs submitted.
        admitted: Jobs that were let in.
        declined: Jobs that were refused.
        met: Jobs with a deadline that were done by then.
        late: Jobs with a deadline that were let in and were not done by then.
        promised: Jobs whose deadline was promised.
        broken_promises: Promised jobs that were late.
        completed: Jobs that were done at all.
        resizes: Changes of a running job's worker count, suspensions included.
        migrations: Moves of a running job at the same size.
        mean_completion_seconds: Mean time from submission to completion.
        p99_completion_seconds: The 99th percentile of the same.
        makespan_seconds: From the first submission to the last completion.
        cluster_efficiency: Equation 8, averaged over the makespan.
        gpu_utilization: Share of GPU time that jobs held over the makespan.
        records: Records in the log.
    """

    policy: str
    jobs: int
    admitted: int
    declined: int
    met: int
    late: int
    promised: int
    broken_promises: int
    completed: int
    resizes: int
    migrations: int
    mean_completion_seconds: float
    p99_completion_seconds: float
    makespan_seconds: float
    cluster_efficiency: float
    gpu_utilization: float
    records: int

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def summarize(history: History) -> Summary:
    """Sum a history up."""
    jobs = list(history.jobs.values())
    # A job cancelled before admission answered was never let in.
    answered = [job for job in jobs if job.answered_at_seconds is not None]
    let_in = [job for job in answered if job.outcome is not Phase.REJECTED]
    times = sorted(job.completion_seconds for job in jobs if job.completion_seconds is not None)
    late = [
        job
        for job in let_in
        if job.deadline_seconds is not None and not job.met and job.outcome is not Phase.CANCELLED
    ]
    start = min((job.submitted_at_seconds for job in jobs), default=0.0)
    end = max((job.ended_at_seconds or start for job in jobs), default=start)
    efficiency, utilization = _averages(history, start, end)
    return Summary(
        policy=history.policy,
        jobs=len(jobs),
        admitted=len(let_in),
        declined=sum(job.outcome is Phase.REJECTED for job in jobs),
        met=sum(job.met for job in jobs),
        late=len(late),
        promised=sum(job.promised for job in jobs),
        broken_promises=sum(job.promised for job in late),
        completed=len(times),
        resizes=sum(job.resizes for job in jobs),
        migrations=sum(job.migrations for job in jobs),
        mean_completion_seconds=sum(times) / len(times) if times else 0.0,
        p99_completion_seconds=times[-1 - len(times) // 100] if times else 0.0,
        makespan_seconds=end - start,
        cluster_efficiency=efficiency,
        gpu_utilization=utilization,
        records=history.records,
    )


def _averages(history: History, start: float, end: float) -> tuple[float, float]:
    """Average efficiency and utilisation over time, from start to end."""
    if end <= start or not history.moments:
        return 0.0, 0.0
    efficient = busy = there = 0.0
    closing = history.moments[-1].at_seconds
    ends = [(one, other.at_seconds) for one, other in pairwise(history.moments)]
    for moment, until in [*ends, (history.moments[-1], max(end, closing))]:
        seconds = min(until, end) - max(moment.at_seconds, start)
        if seconds > 0:
            efficient += moment.efficiency * seconds
            busy += moment.busy * seconds
            there += moment.gpus * seconds
    return efficient / (end - start), busy / there if there else 0.0
