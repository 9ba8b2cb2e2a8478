"""Tiresias: least attained service in two dimensions, in three queues; and with Gittins indices.

Source: Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning (NSDI 2019)
§3.2, with the thresholds of Amoeba §6.2. A baseline of ElasticFlow §6.1.

::

    attained service of a job = its GPUs x the time it had them
    queue 0 below 10,000 GPU seconds, queue 1 below 200,000, queue 2 above
    in order of queue, within one in order of submission:
        the job gets the GPUs that it asked for, if they are free
    a job that has waited 8 times as long as it ever ran counts as in queue 0

``tiresias-gittins`` orders each queue by the Gittins index instead, which uses what is known
of how much service jobs need: of all finished jobs that needed more than the job has had, the
share that is done within a step ahead, over what the step is expected to cost, at the step at
which that is highest; steps end where the queue does.

What was simplified: the promotion lasts for one run (a job that is preempted must wait that
long again), and its factor is ours, as the paper leaves it to the operator; the distribution
is that of the jobs the cell finished last, and until there are some, the order is that of
submission. Placement by profiled skew is the placement service's.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from resilin.planning.policies.fixed_size import FixedSize, packed
from resilin.planning.policies.policy import AllocationPlan
from resilin.planning.view import ClusterView, JobView

__all__ = ["Tiresias", "TiresiasGittins", "in_order", "next_change", "queue_of"]

THRESHOLDS = (10_000.0, 200_000.0)
"""GPU seconds at which a job leaves queue 0, and queue 1 (Amoeba §6.2)."""

PROMOTION = 8.0
"""A job that has waited so many times as long as it ever ran is not to starve."""

LEAST_STEP_SECONDS = 1.0
"""Nothing is looked at more often than that."""


class Tiresias(FixedSize):
    """Discretized two-dimensional least attained service."""

    name = "tiresias"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Serve the queues in order; a job of a later one makes room at once."""
        workers = packed(view, in_order(view))
        return AllocationPlan(workers, look_again_seconds=next_change(view, workers))


class TiresiasGittins(FixedSize):
    """The queues of Tiresias, each in order of Gittins index."""

    name = "tiresias-gittins"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Serve the queues in order, and in each those most likely to be done soon first."""
        needs = _Needs(view.finished_gpu_seconds)

        def key(job: JobView) -> tuple[int, float, int]:
            queue, attained = _standing(view, job)
            end = THRESHOLDS[queue] if queue < len(THRESHOLDS) else math.inf
            return queue, -needs.gittins_index(attained, end), job.order

        workers = packed(view, sorted(view.jobs, key=key))
        return AllocationPlan(workers, look_again_seconds=next_change(view, workers))


def in_order(view: ClusterView) -> list[JobView]:
    """Return the jobs in order of queue, ties in order of submission."""
    return sorted(view.jobs, key=lambda job: (queue_of(view, job), job.order))


def queue_of(view: ClusterView, job: JobView) -> int:
    """Return the queue that a job is in."""
    return _standing(view, job)[0]


def _standing(view: ClusterView, job: JobView) -> tuple[int, float]:
    """Return a job's queue and the attained service that it is judged by."""
    attained = job.attained_gpu_seconds
    if job.workers:
        before = job.executed_seconds - (view.now_seconds - job.since_seconds)
        if _starved(job.waited_seconds, before):
            attained = job.run_gpu_seconds
    elif _starved(view.now_seconds - job.since_seconds, job.executed_seconds):
        attained = 0.0
    return bisect_right(THRESHOLDS, attained), attained


def _starved(waited_seconds: float, executed_seconds: float) -> bool:
    return executed_seconds > 0 and waited_seconds >= PROMOTION * executed_seconds


def next_change(view: ClusterView, workers: dict[str, int]) -> float | None:
    """Return when the next job changes its queue under a plan; None if none will."""
    moments = []
    for job in view.jobs:
        queue, attained = _standing(view, job)
        count = workers[job.job_id]
        if count and queue < len(THRESHOLDS):
            moments.append((THRESHOLDS[queue] - attained) / count)
        elif not count and queue and not job.workers:
            waited = view.now_seconds - job.since_seconds
            moments.append(PROMOTION * job.executed_seconds - waited)
        elif not count and queue:
            moments.append(PROMOTION * job.executed_seconds)
    if not moments or all(workers.values()):
        return None
    return view.now_seconds + max(min(moments), LEAST_STEP_SECONDS)


class _Needs:
    """How much service jobs need, by those that are finished."""

    def __init__(self, finished: Sequence[float]) -> None:
        self._needs = sorted(finished)
        self._sums = [0.0, *accumulate(self._needs)]

    def gittins_index(self, attained: float, end: float) -> float:
        """Return the highest chance to be done within a step, per GPU second spent on it.

        Args:
            attained: What the job has had.
            end: Where its queue ends: no step goes further.
        """
        first = bisect_right(self._needs, attained)
        last = bisect_right(self._needs, end)
        longer = len(self._needs) - first
        best = 0.0
        for done in range(first + 1, last + 1):
            step = self._needs[done - 1] - attained
            spent = self._sums[done] - self._sums[first] - (done - first) * attained
            spent += (len(self._needs) - done) * step
            best = max(best, (done - first) / spent)
        return best if longer else 0.0
