"""Earliest deadline first behind an admission control (ElasticFlow §6.4, a variant there).

::

    a job with a guaranteed deadline is refused if EDF, played through with what is there now,
        would finish it late, or make another late that is in time without it
    in order of deadline: the job gets all GPUs that a curve is known for, past the peak too

EDF is played through as the cell would run it, with the stops of each change of size. What
was simplified: the paper says neither how its variant decides nor on which sizes. An admitted
job is not promised anything: moves that make room for others are not foreseen here, and cost
time. One that is late after all goes behind those that are not, lest it make them late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from resilin.planning.policies.policy import (
    Admission,
    AllocationPlan,
    Refusal,
    WithoutPromises,
)
from resilin.planning.view import Binding, ClusterView, JobView

__all__ = ["EarliestDeadlineFirstWithAdmission", "finish_times"]

NO_WORK = 1e-6
# A second of precision is enough for a counter-offer.
PRECISION_SECONDS = 1.0


class EarliestDeadlineFirstWithAdmission(WithoutPromises):
    """EDF on all GPUs that it can get, for the jobs that it can finish in time."""

    name = "edf+admission"

    def judge(self, view: ClusterView, candidate: JobView) -> Admission | Refusal:
        """Let a job in if EDF would finish it, and all others, as well as without it."""
        answer = super().judge(view, candidate)
        if not answer.admitted or candidate.binding is not Binding.GUARANTEED:
            return answer
        late = [job for job in _late(view, view.jobs) if job is not candidate]
        late_then = _late(view, (*view.jobs, candidate))
        harmed = [job for job in late_then if job not in late]
        if not harmed:
            return answer
        if _late(view, (candidate,)):
            return Refusal(reachable=False, minimum_workers=None)
        before = sorted(
            (job for job in view.jobs if job.deadline_seconds <= candidate.deadline_seconds),
            key=lambda job: -job.remaining_iterations / job.table.rate_at[job.table.largest],
        )
        return Refusal(
            reachable=True,
            minimum_workers=_fewest_workers(view, candidate),
            blocking=tuple(job.job_id for job in before[:3]),
        )

    def earliest_deadline(self, view: ClusterView, candidate: JobView) -> float | None:
        """Find a deadline that :meth:`judge` accepts, the earliest to within a second."""
        if candidate.binding is not Binding.GUARANTEED:
            return None
        refused = max(candidate.deadline_seconds, view.now_seconds)
        last = replace(candidate, deadline_seconds=math.inf)
        accepted = finish_times(view, (*view.jobs, last))[last.job_id]
        accepted = max(accepted, refused) + view.margin_seconds + PRECISION_SECONDS
        if math.isinf(accepted) or not self._accepts(view, candidate, accepted):
            return None
        while accepted - refused > PRECISION_SECONDS:
            middle = (accepted + refused) / 2
            if self._accepts(view, candidate, middle):
                accepted = middle
            else:
                refused = middle
        return accepted

    def _accepts(self, view: ClusterView, candidate: JobView, deadline: float) -> bool:
        return self.judge(view, replace(candidate, deadline_seconds=deadline)).admitted

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Serve the jobs in order of deadline, each with all the sizes it has."""
        left = view.gpus
        workers: dict[str, int] = {}
        for job in sorted(view.jobs, key=lambda job: _turn(job, view.now_seconds)):
            workers[job.job_id] = job.all_sizes.floor(left)
            left -= workers[job.job_id]
        return AllocationPlan(workers)


def _turn(job: JobView, now_seconds: float) -> tuple[bool, Binding, float, int]:
    overdue = job.deadline_seconds < now_seconds
    return overdue, job.binding, job.deadline_seconds, job.order


def _late(view: ClusterView, jobs: Sequence[JobView]) -> list[JobView]:
    finish = finish_times(view, jobs)
    return [
        job
        for job in jobs
        if job.binding is Binding.GUARANTEED
        and finish[job.job_id] + view.margin_seconds > job.deadline_seconds
    ]


def _fewest_workers(view: ClusterView, job: JobView) -> int | None:
    for size in job.table.sizes:
        seconds = job.table.stop_at[size] + job.remaining_iterations / job.table.rate_at[size]
        if view.now_seconds + seconds + view.margin_seconds <= job.deadline_seconds:
            return size
    return None


def finish_times(view: ClusterView, jobs: Sequence[JobView]) -> dict[str, float]:
    """Play EDF through, no job coming any more; say when each job is done.

    Between two completions nothing changes, so that is what it steps by.
    """
    now = view.now_seconds
    queue = sorted(jobs, key=lambda job: _turn(job, now))
    left = {job.job_id: job.remaining_iterations for job in queue}
    workers = {job.job_id: job.workers for job in queue}
    ready = {job.job_id: job.resumes_at_seconds for job in queue}
    finish = dict.fromkeys(left, math.inf)
    while queue:
        gpus = view.gpus
        ends, soonest = math.inf, queue[0]
        for job in queue:
            size = job.all_sizes.floor(gpus)
            gpus -= size
            if size != workers[job.job_id]:
                workers[job.job_id] = size
                ready[job.job_id] = now + (job.all_sizes.stop_at[size] if size else 0.0)
            if size:
                begins = max(now, ready[job.job_id])
                done = begins + left[job.job_id] / job.all_sizes.rate_at[size]
                if done < ends:
                    ends, soonest = done, job
        if ends == math.inf:
            break
        for job in queue:
            size = workers[job.job_id]
            if size:
                trained = max(0.0, ends - max(now, ready[job.job_id]))
                left[job.job_id] -= trained * job.all_sizes.rate_at[size]
        now = ends
        left[soonest.job_id] = 0.0
        for job in queue:
            if left[job.job_id] <= NO_WORK:
                finish[job.job_id] = now
        queue = [job for job in queue if left[job.job_id] > NO_WORK]
    return finish
