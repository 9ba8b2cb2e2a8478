"""ElasticFlow: deadlines promised at admission, spare GPUs by marginal return.

The two algorithms are :mod:`resilin.planning.guarantees` (with the filling of one job in
:mod:`resilin.planning.filling`) and :mod:`resilin.planning.marginal_return`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from resilin.planning.capacity import CapacityProfile
from resilin.planning.filling import (
    fill_at_level,
    minimum_satisfactory_share,
    projected_finish,
)
from resilin.planning.guarantees import (
    all_kept,
    cut_back,
    filled_by_deadline,
    full_allowance,
    guaranteed,
    promise_limit,
    repaired_plans,
    same_plan,
    saves_gpu_time,
    shares_now,
    standing_plans,
    standing_profile,
    with_allowances,
)
from resilin.planning.marginal_return import spread_spare
from resilin.planning.overload import gpu_seconds_needed, shortest_window
from resilin.planning.policies.policy import Admission, AllocationPlan, Reason, Refusal
from resilin.planning.view import Binding, ClusterView, JobView, Plan

__all__ = ["ElasticFlow"]

# Beyond this many jobs the plans that stand are kept without a look for better ones.
MOST_JOBS_FILLED_ANEW = 256
# Added to a counter-offer, so that rounding does not refuse it when it is asked for.
ROUNDING_UP_SECONDS = 1e-3


class ElasticFlow:
    """The policy of ElasticFlow §4.1, §4.2 and §4.4.

    Like the paper's, :meth:`plan` fills all jobs anew at each event, from what they have
    left: a job that ran on spare GPUs needs a smaller share from then on, and the rest is
    free for others. If that finds no way, the plans that stand are kept.
    """

    name = "elasticflow"
    adapts_batches = False

    def judge(self, view: ClusterView, candidate: JobView) -> Admission | Refusal:
        """Algorithm 1: admit if a plan exists that keeps this promise and all others.

        First beside the plans that stand; if the candidate does not fit there, and the jobs
        are few, with the plans of all guaranteed jobs made anew in order of deadline::

            AdmissionControl(job):
                for each job in order of deadline:
                    if ProgressiveFilling(job) finds no plan: refuse the new job
                admit it
        """
        if candidate.binding is not Binding.GUARANTEED:
            return Admission(promised=False)
        if _too_large_in_overload(view, candidate):
            return Refusal(reachable=True, minimum_workers=None, overloaded=True)
        found = _fitted(view, candidate)
        if found is None:
            return _refusal(view, candidate)
        return _promise(view, candidate, *found)

    def earliest_deadline(self, view: ClusterView, candidate: JobView) -> float | None:
        """Find the counter-offer: the earliest deadline that :meth:`judge` would accept.

        As many workers as the plans that stand leave free, from now on, finish the job at a
        time that can be promised. Plans made anew may allow an earlier one: that is searched
        by halving to within a second, while there are few enough jobs to do so at once. The
        answer has been judged, so it holds if it is asked for at this moment.
        """
        _, profile = standing_profile(view)
        soonest = fill_at_level(
            candidate,
            profile,
            candidate.table.largest,
            math.inf,
            allowance_seconds=full_allowance(view, candidate),
        )
        window = shortest_window(candidate, view.smallest_refused_gpu_seconds)
        if soonest is None or window is None:
            return None
        finish = max(soonest[-1][1], view.now_seconds + window)
        accepted_at = finish + view.margin_seconds + ROUNDING_UP_SECONDS
        if not _accepts(view, candidate, accepted_at):
            return None
        refused_at = max(candidate.deadline_seconds, view.now_seconds)
        while _few(view) and accepted_at - refused_at > 1.0:
            middle = (accepted_at + refused_at) / 2
            if _accepts(view, candidate, middle):
                accepted_at = middle
            else:
                refused_at = middle
        return accepted_at

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Guaranteed shares first, then every spare GPU where it returns most."""
        standing = standing_plans(view)
        fresh = filled_by_deadline(view, guaranteed(view)) if _few(view) else None
        if not all_kept(view, standing):
            fresh = fresh or repaired_plans(view, standing)
        elif fresh is not None and not saves_gpu_time(view, fresh, standing):
            fresh = None
        plans = standing if fresh is None else fresh
        if _few(view):
            plans = with_allowances(view, plans)
        changed = {
            job_id: plan for job_id, plan in plans.items() if not same_plan(plan, standing[job_id])
        }
        if changed:
            changed.update(cut_back(view, standing, changed))
        plans = {**standing, **changed}
        shares = shares_now(view, plans)
        workers = dict(shares)
        spread_spare(view, plans, shares, workers)
        reasons: dict[str, Reason] = {}
        for job in view.jobs:
            count = workers[job.job_id]
            if count < job.workers:
                reasons[job.job_id] = "makes-room"
            elif count > job.workers:
                share = shares[job.job_id]
                reasons[job.job_id] = "guaranteed-share" if count <= share else "spare-capacity"
        starts = (start for plan in plans.values() for start, _, _ in plan)
        look_again = min((start for start in starts if start > view.now_seconds), default=None)
        return AllocationPlan(workers, changed, reasons, look_again)


def _few(view: ClusterView) -> bool:
    """Say whether filling all jobs anew is little work; it grows with the square of them."""
    return len(view.jobs) <= MOST_JOBS_FILLED_ANEW


def _too_large_in_overload(view: ClusterView, candidate: JobView) -> bool:
    needed = gpu_seconds_needed(candidate, view.now_seconds)
    return needed is not None and needed >= view.smallest_refused_gpu_seconds


def _fitted(view: ClusterView, candidate: JobView) -> tuple[Plan, dict[str, Plan]] | None:
    """Find a plan that keeps a promise to the candidate, and the plans that move for it."""
    standing, profile = standing_profile(view)
    limit = promise_limit(view, candidate)
    found = minimum_satisfactory_share(
        candidate, profile, limit, allowance_seconds=full_allowance(view, candidate)
    )
    if found is not None:
        return found[1], {}
    if not _few(view):
        return None
    plans = filled_by_deadline(view, (*guaranteed(view), candidate))
    if plans is None:
        return None
    plan = plans.pop(candidate.job_id)
    return plan, {job_id: new for job_id, new in plans.items() if new != standing[job_id]}


def _accepts(view: ClusterView, candidate: JobView, deadline_seconds: float) -> bool:
    """Say whether :meth:`ElasticFlow.judge` would promise another deadline."""
    asked = replace(candidate, deadline_seconds=deadline_seconds)
    return not _too_large_in_overload(view, asked) and _fitted(view, asked) is not None


def _promise(
    view: ClusterView, candidate: JobView, plan: Plan, moved: Mapping[str, Plan]
) -> Admission:
    standing, _ = standing_profile(view)
    cut = cut_back(view, standing, {**moved, candidate.job_id: plan})
    return Admission(
        promised=True,
        share=max((workers for _, _, workers in plan), default=0),
        finish_seconds=projected_finish(candidate, plan, view.now_seconds),
        plan=plan,
        plans_moved={**moved, **cut},
    )


def _refusal(view: ClusterView, candidate: JobView) -> Refusal:
    empty = CapacityProfile(view.now_seconds, view.promised_gpus)
    limit = promise_limit(view, candidate)
    alone = minimum_satisfactory_share(
        candidate, empty, limit, allowance_seconds=full_allowance(view, candidate)
    )
    if alone is None:
        return Refusal(reachable=False, minimum_workers=None, blocking=())
    held = sorted(
        (-_gpu_seconds_between(plan, view.now_seconds, limit), job_id)
        for job_id, plan in standing_profile(view)[0].items()
    )
    blocking = tuple(job_id for seconds, job_id in held[:3] if seconds < 0)
    return Refusal(reachable=True, minimum_workers=alone[0], blocking=blocking)


def _gpu_seconds_between(plan: Plan, start: float, end: float) -> float:
    return sum(
        max(0.0, min(until, end) - max(since, start)) * workers for since, until, workers in plan
    )
