"""Shortest job first at the size that each job asked for: no elasticity, no promises.

The textbook rule, with what makes it unfair in practice left to it: lengths are known (from
the throughput curves), a running job is not stopped for a shorter one, and a long job waits
while shorter ones keep coming::

    of the waiting jobs, the one that would run shortest is next;
    if it does not fit, nobody overtakes it
"""

from __future__ import annotations

from resilin.planning.policies.fixed_size import FixedSize, kept, requested_size
from resilin.planning.policies.policy import AllocationPlan
from resilin.planning.view import ClusterView, JobView

__all__ = ["ShortestJobFirst"]


class ShortestJobFirst(FixedSize):
    """Starts waiting jobs in order of the time that they would run."""

    name = "sjf"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Keep what runs, then start the shortest waiting jobs until one does not fit."""
        workers = kept(view)
        left = view.gpus - sum(workers.values())
        waiting = [
            job
            for job in view.jobs
            if not workers[job.job_id] and requested_size(job) <= view.most_gpus
        ]
        for job in sorted(waiting, key=lambda job: (_seconds(job), job.order)):
            size = requested_size(job)
            if size > left:
                break
            workers[job.job_id] = size
            left -= size
        return AllocationPlan(workers)


def _seconds(job: JobView) -> float:
    return job.remaining_iterations / job.all_sizes.rate_at[requested_size(job)]
