"""Earliest deadline first, elastic up to the peak of each job's curve, no admission control."""

from __future__ import annotations

from resilin.planning.policies.policy import Admission, AllocationPlan, Refusal
from resilin.planning.view import ClusterView, JobView

__all__ = ["EarliestDeadlineFirst"]


class EarliestDeadlineFirst:
    """Gives the job with the earliest deadline all it can use, then the next, and so on."""

    name = "edf"

    def judge(self, view: ClusterView, candidate: JobView) -> Admission | Refusal:  # noqa: ARG002 (the interface)
        """Let every job in, without a promise."""
        return Admission(promised=False)

    def earliest_deadline(self, view: ClusterView, candidate: JobView) -> float | None:  # noqa: ARG002 (the interface)
        """Return nothing: without promises there is none to offer."""
        return None

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Serve the jobs in order of deadline, each with its largest size that is free."""
        left = view.gpus
        workers: dict[str, int] = {}
        for job in sorted(view.jobs, key=lambda job: (job.deadline_seconds, job.order)):
            workers[job.job_id] = job.table.floor(left)
            left -= workers[job.job_id]
        return AllocationPlan(workers)
