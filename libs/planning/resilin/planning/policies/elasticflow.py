"""ElasticFlow: deadlines promised at admission, spare GPUs by marginal return.

Beyond the paper: plans live in continuous time, contain the stops they cause, and persist.
A promise *is* a plan that keeps it. A decision either keeps a job's plan or replaces it by
another that keeps the promise too, so no promise depends on finding a plan again.

A change of size that no plan foresaw (spare GPUs given or taken back, a migration that
makes room) costs time as well. Each promise therefore has room for two such stops, its
*allowance*, and spare GPUs are given only to jobs that can afford to lose them again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from resilin.planning.capacity import CapacityProfile
from resilin.planning.filling import (
    NO_WORK,
    fill_at_level,
    minimum_satisfactory_share,
    projected_finish,
    trimmed_plan,
)
from resilin.planning.overload import gpu_seconds_needed
from resilin.planning.policies.policy import Admission, AllocationPlan, Reason, Refusal
from resilin.planning.view import Binding, ClusterView, JobView, Plan

__all__ = ["ElasticFlow"]

# Beyond this many jobs the plans that stand are kept without a look for better ones.
MOST_JOBS_FILLED_ANEW = 256
ROUNDING = 1e-7


class ElasticFlow:
    """The policy of ElasticFlow §4.1, §4.2 and §4.4.

    Like the paper's, :meth:`plan` fills all jobs anew at each event, from what they have
    left: a job that ran on spare GPUs needs a smaller share from then on, and the rest is
    free for others. If that finds no way, the plans that stand are kept.
    """

    name = "elasticflow"

    def judge(self, view: ClusterView, candidate: JobView) -> Admission | Refusal:
        """Algorithm 1: admit if a plan exists that keeps this promise and all others.

        First beside the plans that stand; if the candidate does not fit there, with the
        plans of all guaranteed jobs made anew in order of deadline::

            AdmissionControl(job):
                for each job in order of deadline:
                    if ProgressiveFilling(job) finds no plan: refuse the new job
                admit it
        """
        if candidate.binding is not Binding.GUARANTEED:
            return Admission(promised=False)
        needed = gpu_seconds_needed(candidate, view.now_seconds)
        if needed is not None and needed >= view.smallest_refused_gpu_seconds:
            return Refusal(reachable=True, minimum_workers=None, overloaded=True)
        standing = _standing_plans(view)
        profile = CapacityProfile.after(view.now_seconds, view.promised_gpus, standing.values())
        limit = _promise_limit(view, candidate)
        found = minimum_satisfactory_share(
            candidate, profile, limit, allowance_seconds=_full_allowance(view, candidate)
        )
        if found is not None:
            return _promise(view, candidate, found[1], {})
        plans = _filled_by_deadline(view, (*_guaranteed(view), candidate))
        if plans is not None:
            plan = plans.pop(candidate.job_id)
            moved = {job_id: new for job_id, new in plans.items() if new != standing[job_id]}
            return _promise(view, candidate, plan, moved)
        return _refusal(view, candidate, standing)

    def earliest_deadline(self, view: ClusterView, candidate: JobView) -> float | None:
        """Search the counter-offer: the earliest deadline that :meth:`judge` would accept.

        Looks ahead in doubling steps, then halves to within a second. The answer has been
        judged, so it holds if it is asked for at this moment.
        """
        if candidate.table.sizes[0] > view.promised_gpus:
            return None
        refused_at = max(candidate.deadline_seconds, view.now_seconds)
        step = 60.0
        accepted_at = refused_at + step
        while not self._accepts(view, candidate, accepted_at):
            refused_at, step = accepted_at, step * 2
            accepted_at = refused_at + step
            if step > 1e10:
                return None
        while accepted_at - refused_at > 1.0:
            middle = (accepted_at + refused_at) / 2
            if self._accepts(view, candidate, middle):
                accepted_at = middle
            else:
                refused_at = middle
        return accepted_at

    def _accepts(self, view: ClusterView, candidate: JobView, deadline: float) -> bool:
        return self.judge(view, replace(candidate, deadline_seconds=deadline)).admitted

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Guaranteed shares first, then every spare GPU where it returns most."""
        plans = _standing_plans(view)
        fresh = _filled_by_deadline(view, _guaranteed(view)) if _few(view) else None
        if not _all_kept(view, plans):
            fresh = fresh or _repaired(view, plans)
        elif fresh is not None and not _saves_gpu_time(view, fresh, plans):
            fresh = None
        changed: dict[str, Plan] = {}
        if fresh is not None:
            changed = {
                job_id: plan for job_id, plan in fresh.items() if not _same(plan, plans[job_id])
            }
            plans.update(changed)
        shares = _shares_now(view, plans)
        workers = dict(shares)
        _spread_spare(view, plans, shares, workers)
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


def _saves_gpu_time(
    view: ClusterView, fresh: Mapping[str, Plan], standing: Mapping[str, Plan]
) -> bool:
    """Say whether new plans need less GPU time, the stops they cause at once counted twice.

    Without this a burst of events would move a job back and forth at each of them.
    """
    saved = 0.0
    for job in _guaranteed(view):
        new, old = fresh[job.job_id], standing[job.job_id]
        saved += _gpu_time(old) - _gpu_time(new)
        if _share_now(view, new) != _share_now(view, old):
            saved -= 2 * job.table.stop_at[_share_now(view, new)] * _share_now(view, new)
    return saved > 0


def _gpu_time(plan: Plan) -> float:
    return sum((end - start) * workers for start, end, workers in plan)


def _share_now(view: ClusterView, plan: Plan) -> int:
    return plan[0][2] if plan and plan[0][0] <= view.now_seconds else 0


def _same(one: Plan, other: Plan) -> bool:
    """Say whether two plans differ by rounding only."""
    return len(one) == len(other) and all(
        workers == theirs and abs(start - begin) < ROUNDING and abs(end - finish) < ROUNDING
        for (start, end, workers), (begin, finish, theirs) in zip(one, other, strict=True)
    )


def _guaranteed(view: ClusterView) -> list[JobView]:
    return [job for job in view.jobs if job.binding is Binding.GUARANTEED]


def _by_deadline(jobs: Iterable[JobView]) -> list[JobView]:
    return sorted(jobs, key=lambda job: (job.deadline_seconds, job.order))


def _promise_limit(view: ClusterView, job: JobView) -> float:
    return job.deadline_seconds - view.margin_seconds


def _full_allowance(view: ClusterView, job: JobView) -> float:
    """Room for two unforeseen stops: spare GPUs gained and lost again, or a migration."""
    return 2 * job.table.stop_at[job.table.floor(view.promised_gpus)]


def _filled(view: ClusterView, job: JobView, profile: CapacityProfile) -> Plan | None:
    """Fill one job with its full allowance, or with no less than its plan still has."""
    full = _full_allowance(view, job)
    limit = _promise_limit(view, job)
    found = minimum_satisfactory_share(job, profile, limit, allowance_seconds=full)
    if found is None and job.plan and full:
        left = _allowance_left(view, job)
        if left < full:
            found = minimum_satisfactory_share(job, profile, limit, allowance_seconds=left)
    return None if found is None else found[1]


def _allowance_left(view: ClusterView, job: JobView) -> float:
    """What an admitted job's plan has left of its allowance, in whole stops."""
    full, limit = _full_allowance(view, job), _promise_limit(view, job)
    for allowance in (full, full / 2):
        finish = projected_finish(job, job.plan, view.now_seconds, allowance_seconds=allowance)
        if finish <= limit:
            return allowance
    return 0.0


def _standing_plans(view: ClusterView) -> dict[str, Plan]:
    """What the guaranteed plans still hold: the past and the unneeded tail are cut off."""
    plans = {}
    for job in view.jobs:
        if job.binding is Binding.GUARANTEED:
            finish = projected_finish(
                job, job.plan, view.now_seconds, allowance_seconds=_full_allowance(view, job)
            )
            plans[job.job_id] = trimmed_plan(job.plan, view.now_seconds, finish)
    return plans


def _filled_by_deadline(view: ClusterView, jobs: Iterable[JobView]) -> dict[str, Plan] | None:
    """Algorithm 1: fill all jobs anew in order of deadline; None if one cannot be."""
    profile = CapacityProfile(view.now_seconds, view.promised_gpus)
    plans: dict[str, Plan] = {}
    for job in _by_deadline(jobs):
        plan = _filled(view, job, profile)
        if plan is None:
            return None
        profile.take(plan)
        plans[job.job_id] = plan
    return plans


def _promise(
    view: ClusterView, candidate: JobView, plan: Plan, moved: Mapping[str, Plan]
) -> Admission:
    return Admission(
        promised=True,
        share=max((workers for _, _, workers in plan), default=0),
        finish_seconds=projected_finish(candidate, plan, view.now_seconds),
        plan=plan,
        plans_moved=moved,
    )


def _refusal(view: ClusterView, candidate: JobView, standing: Mapping[str, Plan]) -> Refusal:
    empty = CapacityProfile(view.now_seconds, view.promised_gpus)
    limit = _promise_limit(view, candidate)
    alone = minimum_satisfactory_share(
        candidate, empty, limit, allowance_seconds=_full_allowance(view, candidate)
    )
    if alone is None:
        return Refusal(reachable=False, minimum_workers=None, blocking=())
    held = sorted(
        (-_gpu_seconds(plan, view.now_seconds, limit), job_id) for job_id, plan in standing.items()
    )
    blocking = tuple(job_id for seconds, job_id in held[:3] if seconds < 0)
    return Refusal(reachable=True, minimum_workers=alone[0], blocking=blocking)


def _gpu_seconds(plan: Plan, start: float, end: float) -> float:
    return sum(
        max(0.0, min(until, end) - max(since, start)) * workers for since, until, workers in plan
    )


def _all_kept(view: ClusterView, plans: Mapping[str, Plan]) -> bool:
    """Say whether every plan still keeps its promise and all fit into what works now."""
    for job in view.jobs:
        if job.binding is Binding.GUARANTEED and not _keeps_promise(view, job):
            return False
    return CapacityProfile.after(view.now_seconds, view.gpus, plans.values()).least() >= 0


def _repaired(view: ClusterView, standing: Mapping[str, Plan]) -> dict[str, Plan]:
    """Make guaranteed plans anew after capacity, throughput or progress was lost.

    Best, all promises can be kept with new plans. Else the promises that still hold keep
    their plans, and the jobs that were harmed share what is left by deadline. Where not
    even the plans that hold fit into what works now, all are served by deadline.
    """
    jobs = _guaranteed(view)
    kept = _filled_by_deadline(view, jobs)
    if kept is not None:
        return kept
    unharmed = {job.job_id: standing[job.job_id] for job in jobs if _keeps_promise(view, job)}
    profile = CapacityProfile.after(view.now_seconds, view.gpus, unharmed.values())
    plans = unharmed
    if profile.least() < 0:
        profile = CapacityProfile(view.now_seconds, view.gpus)
        plans = {}
    for job in _by_deadline(jobs):
        if job.job_id not in plans:
            plans[job.job_id] = _as_good_as_possible(job, profile)
            profile.take(plans[job.job_id])
    return plans


def _keeps_promise(view: ClusterView, job: JobView) -> bool:
    return projected_finish(job, job.plan, view.now_seconds) <= job.deadline_seconds


def _as_good_as_possible(job: JobView, profile: CapacityProfile) -> Plan:
    """By its deadline if there is a way; a job that will be late still matters: soon, then."""
    found = minimum_satisfactory_share(job, profile, job.deadline_seconds)
    if found is not None:
        return found[1]
    return fill_at_level(job, profile, job.table.largest, math.inf) or ()


def _shares_now(view: ClusterView, plans: Mapping[str, Plan]) -> dict[str, int]:
    """The guaranteed workers of this moment, cut by deadline if there are not enough GPUs."""
    shares = {job.job_id: 0 for job in view.jobs}
    left = view.gpus
    for job in _by_deadline(_guaranteed(view)):
        shares[job.job_id] = job.table.floor(min(_share_now(view, plans[job.job_id]), left))
        left -= shares[job.job_id]
    return shares


def _spread_spare(
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
        if job.remaining_iterations > NO_WORK:
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
    """Return the next step up: what the job has already costs no stop, so that in one step."""
    if current < job.workers <= job.table.largest and job.table.rate_at[job.workers] > 0:
        return job.workers
    return job.table.next_above(current)


def _price(job: JobView, plan: Plan, current: int, size: int) -> float:
    """The root of the remaining seconds over the step's return; the smallest goes first."""
    table = job.table
    gain = (table.rate_at[size] - table.rate_at[current]) / (size - current)
    planned = _gpu_time(plan)
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
    stop = table.stop_at[size]
    if table.rate_at[size] <= table.rate_at[current]:
        return False
    if size == job.workers or stop == 0:
        return True
    if current > 0 and size > job.workers:
        # It must win back its stop twice: a later event may well take the GPUs again.
        saved = job.remaining_iterations / table.rate_at[current]
        saved -= job.remaining_iterations / table.rate_at[size]
        if saved < 2 * stop:
            return False
    if job.binding is not Binding.GUARANTEED:
        return True
    unforeseen = stop + table.stop_at[share]
    finish = projected_finish(
        job, plans[job.job_id], view.now_seconds, allowance_seconds=unforeseen
    )
    return finish <= _promise_limit(view, job)
