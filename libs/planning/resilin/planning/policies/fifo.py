"""First in, first out at the size that each job asked for: no elasticity, no promises."""

from __future__ import annotations

from resilin.planning.policies.fixed_size import FixedSize, kept, requested_size
from resilin.planning.policies.policy import AllocationPlan
from resilin.planning.view import ClusterView

__all__ = ["FirstInFirstOut"]


class FirstInFirstOut(FixedSize):
    """Runs jobs in order of submission; the first that does not fit holds up all behind it.

    One that not even all servers could hold holds up nobody: it is refused, and passed over
    where servers were removed after it had come in.
    """

    name = "fifo"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Keep what runs, then start waiting jobs in order until one does not fit.

        Where GPUs were lost, what still fits of what runs is kept, in order as well.
        """
        workers = kept(view)
        left = view.gpus - sum(workers.values())
        for job in view.jobs:
            size = requested_size(job)
            if workers[job.job_id] or size > view.most_gpus:
                continue
            if size > left:
                break
            workers[job.job_id] = size
            left -= size
        return AllocationPlan(workers)
