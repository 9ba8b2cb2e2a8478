"""Progressive filling: one job into a capacity profile (ElasticFlow §4.1, Algorithm 1).

The paper's inner function, in time slots::

    ProgressiveFilling(job i):
        for j in 1 .. G:                       # the level
            for every slot t until the deadline:
                x_i(t) <- min(j, free(t))
            if the slots' iterations sum up to the remaining work: done
        no level is enough: the job cannot be satisfied

Here a slot is a segment of the profile, ``x`` is rounded down to a size the job may have,
and a change of size costs the time the job stands still: a plan that ignored that would
not be kept. The smallest level that is enough is the job's minimum satisfactory share.
"""

from __future__ import annotations

import math

from resilin.planning.capacity import CapacityProfile
from resilin.planning.view import JobView, Plan, Segment

__all__ = ["fill_at_level", "minimum_satisfactory_share", "projected_finish", "trimmed_plan"]

# Work below this many iterations is none: it is what floating point leaves over.
NO_WORK = 1e-6


def fill_at_level(
    job: JobView,
    profile: CapacityProfile,
    level: int,
    limit_seconds: float,
    *,
    allowance_seconds: float = 0.0,
) -> Plan | None:
    """Fill a job forwards with at most ``level`` workers at any moment.

    Args:
        job: The job as it is at the profile's start.
        profile: Free GPUs.
        level: The most workers at any moment.
        limit_seconds: When the job must be finished.
        allowance_seconds: Time to stand still that the plan must have room for, beyond the
            stops it contains.

    Returns:
        The plan, from the profile's start to the job's finish; None if the job is not
        finished by the limit.
    """
    table = job.table
    rate_at, stop_at, floor_at = table.rate_at, table.stop_at, table.floor_at
    cap = table.floor(level)
    times, free = profile.times, profile.free
    last = len(times) - 1
    left, owed = job.remaining_iterations, allowance_seconds
    workers, ready = job.workers, job.resumes_at_seconds
    plan: list[Segment] = []
    since, planned = times[0], 0
    for position, start in enumerate(times):
        if start >= limit_seconds:
            return None
        end = times[position + 1] if position < last else math.inf
        available = free[position]
        size = cap if available >= cap else (floor_at[available] if available > 0 else 0)
        if size != workers:
            workers = size
            ready = start + stop_at[size]
        if size != planned:
            if planned:
                plan.append((since, start, planned))
            since, planned = start, size
        if not size:
            continue
        begin = ready if ready > start else start
        if begin + owed < end:
            begin += owed
            owed = 0.0
            finish = begin + left / rate_at[size]
            if finish <= end:
                if finish > limit_seconds:
                    return None
                plan.append((since, finish, size))
                return tuple(plan)
            left -= (end - begin) * rate_at[size]
        elif begin < end:
            owed -= end - begin
    return None


def minimum_satisfactory_share(
    job: JobView,
    profile: CapacityProfile,
    limit_seconds: float,
    *,
    allowance_seconds: float = 0.0,
) -> tuple[int, Plan] | None:
    """Find the smallest level that finishes the job by ``limit_seconds``.

    Returns:
        The level in workers and its plan; (0, ()) for a job with no work left; None if no
        level is enough.
    """
    if job.remaining_iterations <= NO_WORK:
        return 0, ()
    window = limit_seconds - profile.times[0] - allowance_seconds
    if window <= 0:
        return None
    rate_at = job.table.rate_at
    for size in job.table.sizes:
        if rate_at[size] * window < job.remaining_iterations:
            continue  # not even the whole window at this level is enough
        plan = fill_at_level(job, profile, size, limit_seconds, allowance_seconds=allowance_seconds)
        if plan is not None:
            return size, plan
    return None


def projected_finish(
    job: JobView, plan: Plan, now_seconds: float, *, allowance_seconds: float = 0.0
) -> float:
    """Return when a job finishes that follows ``plan`` from now on; infinite if it does not.

    Args:
        job: The job as it is now.
        plan: Its plan; what lies before now is over.
        now_seconds: The moment.
        allowance_seconds: Time it stands still beyond the stops of the plan.
    """
    table = job.table
    left, owed = job.remaining_iterations, allowance_seconds
    if left <= NO_WORK:
        return now_seconds
    workers, ready = job.workers, job.resumes_at_seconds
    until = now_seconds
    for start, end, size in plan:
        if end <= now_seconds:
            continue
        start = max(start, now_seconds)
        if start > until:
            workers = 0  # a gap: the job is suspended meanwhile
        known = size <= table.largest and table.rate_at[size] > 0
        if size != workers:
            workers = size
            ready = start + (table.stop_at[size] if known else 0.0)
        begin = max(start, ready)
        rate = table.rate_at[size] if known else 0.0
        if not known:
            pass  # the curve was replaced since the plan was made: nothing is promised of it
        elif begin + owed < end:
            begin += owed
            owed = 0.0
            finish = begin + left / rate
            # A plan ends where its work does, so rounding decides about the last instant.
            if finish <= end + 1e-6:
                return min(finish, end)
            left -= (end - begin) * rate
        elif begin < end:
            owed -= end - begin
        until = end
    return math.inf


def trimmed_plan(plan: Plan, now_seconds: float, finish_seconds: float) -> Plan:
    """Cut off what is over and what lies past the projected finish."""
    return tuple(
        (max(start, now_seconds), min(end, finish_seconds), workers)
        for start, end, workers in plan
        if end > now_seconds and start < finish_seconds
    )
