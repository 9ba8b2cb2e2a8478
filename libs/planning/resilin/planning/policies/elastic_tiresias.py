"""Elastic-Tiresias: two rules on top of Tiresias (Amoeba §6.2).

::

    plan as Tiresias does
    R1  more than N jobs are pending: all but those of queue 0 run on half of what they asked for
    R2  none is pending and GPUs are idle: one step at a time to the job whose relative gain
        (t(p + 1) - t(p)) / t(p) is largest

Both rules are applied to the plan before it is committed, so no job is resized twice.

What was simplified: the paper does not say what N is; here it is 0, so every pending job
counts. Worker counts are the sizes that a job may have, so a step may add several workers; its gain
is then taken per worker added. A step that a running job would not win back (its stop, twice
over, against what is left to do) is not taken.
"""

from __future__ import annotations

import heapq

from resilin.planning.policies.fixed_size import FixedSize, packed, requested_size
from resilin.planning.policies.policy import AllocationPlan
from resilin.planning.policies.tiresias import in_order, next_change, queue_of
from resilin.planning.view import ClusterView, JobView

__all__ = ["ElasticTiresias"]

MOST_PENDING = 0
"""N: with more jobs pending than this, running jobs are halved."""


class ElasticTiresias(FixedSize):
    """Tiresias that halves jobs when others wait, and grows them when nobody does."""

    name = "elastic-tiresias"

    def least_workers(self, job: JobView) -> int:
        """Return the fewest workers that a rule may give."""
        return _half(job)

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Plan as Tiresias does, then apply R1 or R2."""
        ordered = in_order(view)
        workers = packed(view, ordered)
        pending = sum(not count for count in workers.values())
        if pending > MOST_PENDING:
            sizes = {
                job.job_id: _half(job) if queue_of(view, job) else requested_size(job)
                for job in ordered
            }
            workers = packed(view, ordered, sizes=sizes)
        if all(workers.values()):
            _grow(view, workers)
        return AllocationPlan(workers, look_again_seconds=next_change(view, workers))


def _half(job: JobView) -> int:
    return job.all_sizes.floor(requested_size(job) // 2) or job.all_sizes.sizes[0]


def _grow(view: ClusterView, workers: dict[str, int]) -> None:
    """R2: raise ``workers`` by the largest relative gain while GPUs are idle."""
    idle = view.gpus - sum(workers.values())
    queue: list[tuple[float, int, int, JobView]] = []

    def offer(job: JobView) -> None:
        sizes, count = job.all_sizes, workers[job.job_id]
        size = sizes.next_above(count)
        if size is not None and _wins_back(job, count, size):
            gain = sizes.rate_at[size] / sizes.rate_at[count] - 1
            heapq.heappush(queue, (-gain / (size - count), job.order, size, job))

    for job in view.jobs:
        offer(job)
    while queue:
        *_, size, job = heapq.heappop(queue)
        added = size - workers[job.job_id]
        if added <= idle:
            idle -= added
            workers[job.job_id] = size
            offer(job)


def _wins_back(job: JobView, count: int, size: int) -> bool:
    """Say whether a step saves more than twice its stop; what the job has costs none."""
    sizes = job.all_sizes
    if size <= job.workers:
        return True
    saved = job.remaining_iterations * (1 / sizes.rate_at[count] - 1 / sizes.rate_at[size])
    return saved > 2 * sizes.stop_at[size]
