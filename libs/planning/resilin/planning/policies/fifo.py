"""First in, first out at the size that each job asked for: no elasticity, no promises."""

from __future__ import annotations

from resilin.planning.policies.policy import Admission, AllocationPlan, Refusal
from resilin.planning.view import ClusterView, JobView

__all__ = ["FirstInFirstOut"]


class FirstInFirstOut:
    """Runs jobs in order of submission; the first that does not fit holds up all behind it."""

    name = "fifo"

    def judge(self, view: ClusterView, candidate: JobView) -> Admission | Refusal:  # noqa: ARG002 (the interface)
        """Let every job in, without a promise."""
        return Admission(promised=False)

    def earliest_deadline(self, view: ClusterView, candidate: JobView) -> float | None:  # noqa: ARG002 (the interface)
        """Return nothing: without promises there is none to offer."""
        return None

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Keep what runs, then start waiting jobs in order until one does not fit.

        Where GPUs were lost, what still fits of what runs is kept, in order as well.
        """
        left = view.gpus
        workers: dict[str, int] = {}
        for job in view.jobs:
            workers[job.job_id] = job.workers if job.workers <= left else 0
            left -= workers[job.job_id]
        for job in view.jobs:
            if workers[job.job_id]:
                continue
            size = job.table.floor(job.requested_workers) or job.table.sizes[0]
            if size > left:
                break
            workers[job.job_id] = size
            left -= size
        return AllocationPlan(workers)
