"""What policies without elasticity share: requested sizes, packing in order, rounds, leases.

A round is a stretch of time in which running jobs keep their GPUs. A policy that shares GPUs
in time plans anew when its round is over; in between, idle GPUs are given out. With leases
nothing is given out in between either: all end together, at multiples of their length on the
cell's clock, and who comes waits for that. Policies have no state: that a round or a lease is
over is told by ``view.due_seconds``, the moment that the plan in force had asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from resilin.planning.policies.policy import AllocationPlan, WithoutPromises
from resilin.planning.view import ClusterView, JobView

__all__ = [
    "FixedSize",
    "kept",
    "lease_ends",
    "lease_plan",
    "packed",
    "requested_size",
    "round_plan",
]


def requested_size(job: JobView) -> int:
    """Return the size that a job asked for: the next allowed one below, else its smallest."""
    sizes = job.all_sizes
    return sizes.floor(job.requested_workers) or sizes.sizes[0]


class FixedSize(WithoutPromises):
    """The base of policies that run each job on the workers that it asked for, or not at all."""

    def least_workers(self, job: JobView) -> int:
        """Return the size that the job asked for."""
        return requested_size(job)


def kept(view: ClusterView) -> dict[str, int]:
    """Return the workers that running jobs keep; where GPUs were lost, the first that fit."""
    left = view.gpus
    workers: dict[str, int] = {}
    for job in view.jobs:
        workers[job.job_id] = job.workers if job.workers <= left else 0
        left -= workers[job.job_id]
    return workers


def packed(
    view: ClusterView,
    ordered: Iterable[JobView],
    workers: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Give jobs their sizes in order; one that does not fit is passed over.

    Args:
        view: The cluster.
        ordered: The jobs, those to be served first first.
        workers: What jobs have already, and keep.
        sizes: Sizes other than the requested ones.
    """
    plan = dict.fromkeys((job.job_id for job in view.jobs), 0) if workers is None else {**workers}
    left = view.gpus - sum(plan.values())
    for job in ordered:
        size = requested_size(job) if sizes is None else sizes[job.job_id]
        if not plan[job.job_id] and size <= left:
            plan[job.job_id] = size
            left -= size
    return plan


def round_plan(
    view: ClusterView, ordered: Iterable[JobView], round_seconds: float
) -> AllocationPlan:
    """Share GPUs in time: by order when the round is over, else idle GPUs only.

    While nobody waits there is nothing to share, and no round begins.
    """
    workers = packed(view, ordered, None if view.due else kept(view))
    if not _somebody_waits(view, workers):
        return AllocationPlan(workers)
    ends = view.now_seconds + round_seconds
    if not view.due and view.due_seconds is not None:
        ends = view.due_seconds
    return AllocationPlan(workers, look_again_seconds=ends)


def lease_ends(view: ClusterView) -> bool:
    """Say whether leases end at this moment."""
    return view.due_seconds is not None and view.now_seconds >= view.due_seconds


def lease_plan(
    view: ClusterView, ordered: Iterable[JobView], lease_seconds: float
) -> AllocationPlan:
    """Lease GPUs by order where leases end; else everything stays as it is.

    While nobody waits the leases are renewed by themselves.
    """
    ends = lease_ends(view)
    workers = packed(view, ordered) if ends else kept(view)
    if not _somebody_waits(view, workers):
        return AllocationPlan(workers)
    if view.due_seconds is not None and not ends:
        return AllocationPlan(workers, look_again_seconds=view.due_seconds)
    next_end = (math.floor(view.now_seconds / lease_seconds) + 1) * lease_seconds
    return AllocationPlan(workers, look_again_seconds=next_end)


def _somebody_waits(view: ClusterView, workers: Mapping[str, int]) -> bool:
    """Say whether a job waits that would fit; for another only new GPUs make a difference."""
    return any(not workers[job.job_id] and requested_size(job) <= view.gpus for job in view.jobs)
