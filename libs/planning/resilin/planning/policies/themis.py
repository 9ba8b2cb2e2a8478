"""Themis: finish-time fairness, by leases.

Source: Mahajan et al., Themis: Fair and Efficient GPU Cluster Scheduling (NSDI 2020) §3 and
§5. A baseline of ElasticFlow §6.1, which follows the implementation in Gavel (OSDI 2020, §4.2).

::

    rho of a job = the time it will have taken, over the time that it would have taken alone
                   on its share of the cluster, one part of as many as there are jobs
    at the end of each lease, in order of rho, the worst off first:
        the job gets the GPUs that it asked for, if they are free

What was simplified: no auction, since the allocator knows the throughput that jobs would
bid with; all leases end together, after the six minutes of Gavel's rounds, and who comes
waits for that; how many jobs there are is taken at the moment of planning, not as a mean
over the job's life; a share smaller than the job is shared in time.
"""

from __future__ import annotations

from resilin.planning.policies.fixed_size import FixedSize, lease_plan, requested_size
from resilin.planning.policies.policy import AllocationPlan
from resilin.planning.view import ClusterView, JobView

__all__ = ["Themis", "finish_time_fairness"]

LEASE_SECONDS = 360.0


class Themis(FixedSize):
    """Leases GPUs to those that are treated worst."""

    name = "themis"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Serve the jobs in order of finish-time fairness when the leases are over."""
        worst_first = sorted(
            view.jobs, key=lambda job: (-finish_time_fairness(view, job), job.order)
        )
        return lease_plan(view, worst_first, LEASE_SECONDS)


def finish_time_fairness(view: ClusterView, job: JobView) -> float:
    """Return rho: above 1 a job is worse off than with a cluster of its own, its share."""
    size = requested_size(job)
    rate = job.all_sizes.rate_at[size]
    shared = view.now_seconds - job.submitted_at_seconds + job.remaining_iterations / rate
    shared_by = size * len(view.jobs) / max(1, view.most_gpus)
    alone = max(job.total_iterations, job.remaining_iterations) / rate * max(1.0, shared_by)
    return shared / alone
