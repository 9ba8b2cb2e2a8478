"""Spare GPUs by marginal return: Algorithm 2 in continuous time (ElasticFlow §4.2)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from resilin.planning.filling import NO_WORK, projected_finish
from resilin.planning.guarantees import gpu_seconds, promise_limit
from resilin.planning.view import Binding, ClusterView, JobView, Plan

__all__ = ["spread_spare"]


def spread_spare(
    view: ClusterView,
    plans: Mapping[str, Plan],
    shares: Mapping[str, int],
    workers: dict[str, int],
) -> None:
    """Algorithm 2 in continuous time: raise ``workers`` step by step while GPUs are spare.

    The paper's priority of one more GPU is the GPU time saved over the job's life. A GPU
    held for a moment does ``gain`` iterations that the plan then need not do at its own
    ``efficiency``, iterations per GPU second; so ``gain / efficiency`` is the GPU time
    saved per GPU time spent. Less remaining time counts too, by its root: what ends sooner
    frees GPUs sooner::

        ResourceAllocation(jobs):
            every job has its guaranteed share
            while GPUs are spare: give the step with the largest return

    Jobs without a promise that have nothing come first with their smallest size, soft
    deadlines before none, so that nobody starves beside a job that merely runs faster.
    """
    spare = view.gpus - sum(workers.values())
    queue: list[tuple[float, float, int, int, JobView]] = []

    def offer(job: JobView, size: int | None) -> None:
        current = workers[job.job_id]
        if size is None or not _worth_it(view, job, plans, shares[job.job_id], current, size):
            return
        if current == 0 and job.binding is not Binding.GUARANTEED:
            key = (float(job.binding) - 3.0, min(job.deadline_seconds, 1e15))
        else:
            key = (0.0, _price(job, plans.get(job.job_id, ()), current, size))
        heapq.heappush(queue, (*key, job.order, size, job))

    for job in view.jobs:
        # Who seems to be done has not said so yet, and keeps what it has until then.
        if job.remaining_iterations > NO_WORK or job.workers:
            offer(job, _next_size(job, workers[job.job_id]))
    while spare > 0 and queue:
        *_, size, job = heapq.heappop(queue)
        current = workers[job.job_id]
        if size - current <= spare:
            spare -= size - current
            workers[job.job_id] = size
            offer(job, _next_size(job, size))
        elif size == job.workers:
            # It cannot keep all it has: perhaps a part of it.
            smaller = job.table.next_above(current)
            if smaller is not None and smaller < size:
                offer(job, smaller)


def _next_size(job: JobView, current: int) -> int | None:
    """Return the next step up: what the job has already costs no stop, so that in one step.

    Without a promise it starts small all the same: others may have nothing.
    """
    rate_at = job.table.rate_at
    starts = current == 0 and job.binding is not Binding.GUARANTEED
    has_more = current < job.workers <= job.table.largest
    if has_more and not starts and rate_at[job.workers] > rate_at[current]:
        return job.workers
    return job.table.next_above(current)


def _price(job: JobView, plan: Plan, current: int, size: int) -> float:
    """The root of the remaining seconds over the step's return; the smallest goes first."""
    table = job.table
    gain = (table.rate_at[size] - table.rate_at[current]) / (size - current)
    planned = gpu_seconds(plan)
    smallest = table.sizes[0]
    efficiency = (
        job.remaining_iterations / planned if planned else table.rate_at[smallest] / smallest
    )
    remaining_seconds = job.remaining_iterations / table.rate_at[table.largest]
    return math.sqrt(remaining_seconds) * efficiency / gain


def _worth_it(
    view: ClusterView,
    job: JobView,
    plans: Mapping[str, Plan],
    share: int,
    current: int,
    size: int,
) -> bool:
    """Say whether a step finishes the job sooner after its stop, and endangers no promise."""
    table = job.table
    # Keeping what it has costs no stop, but what is left of one that is under way.
    keeps = size == job.workers
    stop = max(0.0, job.resumes_at_seconds - view.now_seconds) if keeps else table.stop_at[size]
    if table.rate_at[size] <= table.rate_at[current]:
        return False
    if size > job.workers and job.remaining_iterations <= NO_WORK:
        return False
    if stop == 0:
        return True
    if current > 0 and size > job.workers:
        # It must win back its stop twice: a later event may well take the GPUs again.
        saved = job.remaining_iterations / table.rate_at[current]
        saved -= job.remaining_iterations / table.rate_at[size]
        if saved < 2 * stop:
            return False
    if job.binding is not Binding.GUARANTEED:
        return True
    unforeseen = stop if keeps else stop + table.stop_at[share]
    finish = projected_finish(
        job, plans[job.job_id], view.now_seconds, allowance_seconds=unforeseen
    )
    return finish <= promise_limit(view, job)
