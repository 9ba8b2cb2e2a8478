"""Earliest deadline first, no admission control: ElasticFlow's first baseline (§6.1).

::

    in order of deadline: the job gets the largest of its sizes that is free

The paper says that EDF uses "as many GPUs as a job can scale out without decreasing the
throughput", which is the peak of its curve (``edf``). The code that its authors published
gives all GPUs that a curve is known for (``edf-uncapped``): jobs that run past their peak
are slower for it, and finish after more deadlines. Both are common readings, so both are here.
A job whose deadline has passed stays the first: that is what EDF does when there is too much
to do, and why it then meets so few.
"""

from __future__ import annotations

from resilin.planning.policies.policy import AllocationPlan, WithoutPromises
from resilin.planning.view import ClusterView

__all__ = ["EarliestDeadlineFirst"]


class EarliestDeadlineFirst(WithoutPromises):
    """Gives the job with the earliest deadline all it can use, then the next, and so on."""

    def __init__(self, *, capped: bool) -> None:
        """Choose whether a job gets no more workers than make it faster."""
        self._capped = capped
        self.name = "edf" if capped else "edf-uncapped"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Serve the jobs in order of deadline, each with its largest size that is free."""
        left = view.gpus
        workers: dict[str, int] = {}
        for job in sorted(view.jobs, key=lambda job: (job.deadline_seconds, job.order)):
            sizes = job.table if self._capped else job.all_sizes
            workers[job.job_id] = sizes.floor(left)
            left -= workers[job.job_id]
        return AllocationPlan(workers)
