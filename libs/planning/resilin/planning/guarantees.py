"""Guaranteed plans: Algorithm 1 over all promises of a virtual cluster (ElasticFlow §4.1).

A promise *is* a plan that keeps it. Plans live in continuous time, contain the stops they
cause, and persist: a decision either keeps a job's plan or replaces it by another that
keeps the promise too, so no promise depends on finding a plan again.

A change of size that no plan foresaw (spare GPUs given or taken back, a migration that
makes room) costs time as well. Each promise therefore has room for two such stops, its
*allowance*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from resilin.planning.capacity import CapacityProfile
from resilin.planning.filling import (
    fill_at_level,
    minimum_satisfactory_share,
    projected_finish,
    trimmed_plan,
)
from resilin.planning.view import Binding, ClusterView, JobView, Plan

__all__ = [
    "all_kept",
    "by_deadline",
    "cut_back",
    "filled_by_deadline",
    "full_allowance",
    "gpu_seconds",
    "guaranteed",
    "promise_limit",
    "repaired_plans",
    "same_plan",
    "saves_gpu_time",
    "share_at",
    "shares_now",
    "standing_plans",
    "standing_profile",
    "with_allowances",
]

ROUNDING = 1e-7


def guaranteed(view: ClusterView) -> list[JobView]:
    """Return the jobs whose deadline is promised, in order of submission."""
    return [job for job in view.jobs if job.binding is Binding.GUARANTEED]


def by_deadline(jobs: Iterable[JobView]) -> list[JobView]:
    """Return jobs in order of deadline, ties in order of submission."""
    return sorted(jobs, key=lambda job: (job.deadline_seconds, job.order))


def promise_limit(view: ClusterView, job: JobView) -> float:
    """Return by when a promise is planned to be kept: the deadline less the margin."""
    return job.deadline_seconds - view.margin_seconds


def full_allowance(view: ClusterView, job: JobView) -> float:
    """Room for two unforeseen stops: spare GPUs gained and lost again, or a migration."""
    return 2 * job.table.stop_at[job.table.floor(view.promised_gpus)]


def standing_plans(view: ClusterView) -> dict[str, Plan]:
    """What the guaranteed plans still hold: the past and the unneeded tail are cut off."""
    plans = {}
    for job in view.jobs:
        if job.binding is Binding.GUARANTEED:
            finish = projected_finish(
                job, job.plan, view.now_seconds, allowance_seconds=full_allowance(view, job)
            )
            plans[job.job_id] = trimmed_plan(job.plan, view.now_seconds, finish)
    return plans


@lru_cache(maxsize=1)
def standing_profile(view: ClusterView) -> tuple[Mapping[str, Plan], CapacityProfile]:
    """Return the plans that stand, and what they leave for promises; neither is to be changed.

    Of the newest view it is known: a counter-offer asks for it a score of times, and refusals
    of a burst of submissions all see the same view.
    """
    plans = standing_plans(view)
    return plans, CapacityProfile.after(view.now_seconds, view.promised_gpus, plans.values())


def cut_back(
    view: ClusterView, standing: Mapping[str, Plan], changed: Mapping[str, Plan]
) -> dict[str, Plan]:
    """Return the standing plans whose unneeded tails ``changed`` plans were made into.

    A plan in the log keeps its tail while nobody else wants it: a job that ran on spare GPUs
    would change its plan at every event. But a tail that is given to another is gone, or a job
    that loses time would come back to it, and two promises would count on the same GPUs.
    """
    tails = {}
    for job in guaranteed(view):
        if job.job_id not in changed and job.plan:
            needed = standing[job.job_id]
            end = needed[-1][1] if needed else view.now_seconds
            tail = tuple(segment for segment in job.plan if segment[1] > end + ROUNDING)
            if tail:
                tails[job.job_id] = ((max(tail[0][0], end), *tail[0][1:]), *tail[1:])
    if not tails:
        return {}
    claimed = (*{**standing, **changed}.values(), *tails.values())
    profile = CapacityProfile.after(view.now_seconds, view.promised_gpus, claimed)
    return {} if profile.least() >= 0 else {job_id: standing[job_id] for job_id in tails}


def filled_by_deadline(view: ClusterView, jobs: Iterable[JobView]) -> dict[str, Plan] | None:
    """Algorithm 1: fill all jobs anew in order of deadline; None if one cannot be."""
    profile = CapacityProfile(view.now_seconds, view.promised_gpus)
    plans: dict[str, Plan] = {}
    for job in by_deadline(jobs):
        plan = _filled(view, job, profile)
        if plan is None:
            return None
        profile.take(plan)
        plans[job.job_id] = plan
    return plans


def _filled(view: ClusterView, job: JobView, profile: CapacityProfile) -> Plan | None:
    """Fill one job with its full allowance, or with no less than its plan still has."""
    full = full_allowance(view, job)
    limit = promise_limit(view, job)
    found = minimum_satisfactory_share(job, profile, limit, allowance_seconds=full)
    if found is None and job.plan and full:
        left = _allowance_left(view, job)
        if left < full:
            found = minimum_satisfactory_share(job, profile, limit, allowance_seconds=left)
    return None if found is None else found[1]


def _allowance_left(view: ClusterView, job: JobView) -> float:
    """What an admitted job's plan has left of its allowance, in whole stops."""
    full, limit = full_allowance(view, job), promise_limit(view, job)
    for allowance in (full, full / 2):
        finish = projected_finish(job, job.plan, view.now_seconds, allowance_seconds=allowance)
        if finish <= limit:
            return allowance
    return 0.0


def saves_gpu_time(
    view: ClusterView, fresh: Mapping[str, Plan], standing: Mapping[str, Plan]
) -> bool:
    """Say whether new plans need less GPU time, the stops they cause at once counted twice.

    Without this a burst of events would move a job back and forth at each of them.
    """
    saved = 0.0
    for job in guaranteed(view):
        new, old = fresh[job.job_id], standing[job.job_id]
        saved += gpu_seconds(old) - gpu_seconds(new)
        if share_at(view, new) != share_at(view, old):
            saved -= 2 * job.table.stop_at[share_at(view, new)] * share_at(view, new)
    return saved > 0


def same_plan(one: Plan, other: Plan) -> bool:
    """Say whether two plans differ by rounding only."""
    return len(one) == len(other) and all(
        workers == theirs and abs(start - begin) < ROUNDING and abs(end - finish) < ROUNDING
        for (start, end, workers), (begin, finish, theirs) in zip(one, other, strict=True)
    )


def all_kept(view: ClusterView, plans: Mapping[str, Plan]) -> bool:
    """Say whether every plan still keeps its promise and all fit into what works now."""
    for job in view.jobs:
        if job.binding is Binding.GUARANTEED and not _keeps_promise(view, job):
            return False
    return CapacityProfile.after(view.now_seconds, view.gpus, plans.values()).least() >= 0


def repaired_plans(view: ClusterView, standing: Mapping[str, Plan]) -> dict[str, Plan]:
    """Make guaranteed plans anew after capacity, throughput or progress was lost.

    Best, all promises can be kept with new plans and their allowances. Else the promises
    that still hold keep their plans, and the jobs that were harmed share what is left: a
    promise that holds is not traded for others. Only where not even the plans that hold
    fit into what works now, all are served by deadline.
    """
    jobs = guaranteed(view)
    kept = filled_by_deadline(view, jobs)
    if kept is not None:
        return kept
    unharmed = {job.job_id: standing[job.job_id] for job in jobs if _keeps_promise(view, job)}
    fits = CapacityProfile.after(view.now_seconds, view.gpus, unharmed.values()).least() >= 0
    return _rescued(view, unharmed if fits else {})


def with_allowances(view: ClusterView, plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """Give plans room for unforeseen stops again, if they have used it up and GPUs are free.

    Without it a job keeps its promise and can never grow again: a start that took longer than
    it was reckoned to, or a rescue to the last second, would hold it down for good. What a job
    has at this moment does not change.
    """
    renewed = dict(plans)
    for job in by_deadline(guaranteed(view)):
        full, plan = full_allowance(view, job), renewed[job.job_id]
        now = view.now_seconds
        if not math.isinf(projected_finish(job, plan, now, allowance_seconds=full)):
            continue
        others = (other for job_id, other in renewed.items() if job_id != job.job_id)
        profile = CapacityProfile.after(now, view.promised_gpus, others)
        found = minimum_satisfactory_share(
            job, profile, promise_limit(view, job), allowance_seconds=full
        )
        if found is not None and share_at(view, found[1]) == share_at(view, plan):
            renewed[job.job_id] = found[1]
    return renewed


def _rescued(view: ClusterView, unharmed: Mapping[str, Plan]) -> dict[str, Plan]:
    """Around ``unharmed``, by deadline: first who can be in time, then who will be late."""
    plans = dict(unharmed)
    profile = CapacityProfile.after(view.now_seconds, view.gpus, plans.values())
    late: list[JobView] = []
    for job in by_deadline(guaranteed(view)):
        if job.job_id in plans:
            continue
        found = minimum_satisfactory_share(job, profile, job.deadline_seconds)
        if found is None:
            late.append(job)
        else:
            plans[job.job_id] = found[1]
            profile.take(found[1])
    for job in late:  # they still matter: as soon as possible, then
        plans[job.job_id] = fill_at_level(job, profile, job.table.largest, math.inf) or ()
        profile.take(plans[job.job_id])
    return plans


def _keeps_promise(view: ClusterView, job: JobView) -> bool:
    return projected_finish(job, job.plan, view.now_seconds) <= job.deadline_seconds


def shares_now(view: ClusterView, plans: Mapping[str, Plan]) -> dict[str, int]:
    """The guaranteed workers of this moment, cut by deadline if there are not enough GPUs."""
    shares = {job.job_id: 0 for job in view.jobs}
    left = view.gpus
    for job in by_deadline(guaranteed(view)):
        shares[job.job_id] = job.table.floor(min(share_at(view, plans[job.job_id]), left))
        left -= shares[job.job_id]
    return shares


def share_at(view: ClusterView, plan: Plan) -> int:
    """Return the workers that a plan has at the view's moment."""
    return plan[0][2] if plan and plan[0][0] <= view.now_seconds else 0


def gpu_seconds(plan: Plan) -> float:
    """Return the GPU time that a plan takes."""
    return sum((end - start) * workers for start, end, workers in plan)
