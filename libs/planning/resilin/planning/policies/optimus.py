"""Optimus: GPUs by marginal gain, in rounds; elastic, and not aware of deadlines.

Source: Peng et al., Optimus: an Efficient Dynamic Resource Scheduler for Deep Learning
Clusters (EuroSys 2018) §4.1. A baseline of Pollux, FaPES and NEARCHUS.

::

    at the end of each round of ten minutes
        each job gets its smallest size, those with least left to do first
        while GPUs are idle: the step that shortens its job's remaining time most per GPU

What was simplified: workers only, no parameter servers; the remaining work and the
throughput are known, where Optimus fits the loss curve and a throughput model while a job
runs; its placement is the placement service's. In the midst of a round a job that comes
gets its smallest size of what is idle, and what a job that ends leaves stays idle.
"""

from __future__ import annotations

import heapq

from resilin.planning.policies.fixed_size import kept, packed
from resilin.planning.policies.policy import AllocationPlan, WithoutPromises
from resilin.planning.view import ClusterView, JobView

__all__ = ["Optimus"]

ROUND_SECONDS = 600.0


class Optimus(WithoutPromises):
    """Divides the GPUs by how much remaining time each of them saves."""

    name = "optimus"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Divide anew when the round is over; start those that come in between small."""
        shortest = sorted(view.jobs, key=lambda job: (_seconds(job, job.table.largest), job.order))
        smallest = {job.job_id: job.table.sizes[0] for job in view.jobs}
        if view.due:
            workers = packed(view, shortest, sizes=smallest)
            _grow(view, workers)
            ends = view.now_seconds + ROUND_SECONDS if any(workers.values()) else None
        else:
            workers = packed(view, shortest, kept(view), smallest)
            ends = view.due_seconds
        return AllocationPlan(workers, look_again_seconds=ends)


def _seconds(job: JobView, size: int) -> float:
    return job.remaining_iterations / job.table.rate_at[size]


def _grow(view: ClusterView, workers: dict[str, int]) -> None:
    idle = view.gpus - sum(workers.values())
    queue: list[tuple[float, int, int, JobView]] = []

    def offer(job: JobView) -> None:
        count = workers[job.job_id]
        size = job.table.next_above(count) if count else None
        if size is not None:
            saved = (_seconds(job, count) - _seconds(job, size)) / (size - count)
            heapq.heappush(queue, (-saved, job.order, size, job))

    for job in view.jobs:
        offer(job)
    while queue:
        *_, size, job = heapq.heappop(queue)
        added = size - workers[job.job_id]
        if added <= idle:
            idle -= added
            workers[job.job_id] = size
            offer(job)
