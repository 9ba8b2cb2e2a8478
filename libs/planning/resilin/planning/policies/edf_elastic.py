"""Earliest deadline first with elastic scaling (ElasticFlow §6.4, a variant there).

ElasticFlow without its admission control: every job comes in, and nothing is promised::

    in order of deadline: the job gets its minimum satisfactory share of what is left over
        time, if it can still be in time
    then those that cannot, in order of deadline, as fast as what is left allows
    spare GPUs go where they return most (Algorithm 2)

What was simplified: the paper does not say what its variant does with a job that can no
longer be in time. To serve it first, as plain EDF does, would make those after it late too.
"""

from __future__ import annotations

import math

from resilin.planning.capacity import CapacityProfile
from resilin.planning.filling import fill_at_level, minimum_satisfactory_share
from resilin.planning.guarantees import by_deadline, share_at
from resilin.planning.marginal_return import spread_spare
from resilin.planning.policies.policy import AllocationPlan, WithoutPromises
from resilin.planning.view import Binding, ClusterView, JobView, Plan

__all__ = ["EarliestDeadlineFirstElastic"]


class EarliestDeadlineFirstElastic(WithoutPromises):
    """Minimum satisfactory shares in order of deadline, whoever comes."""

    name = "edf+elastic"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Fill all jobs with deadlines anew, then spread what is spare."""
        profile = CapacityProfile(view.now_seconds, view.gpus)
        plans: dict[str, Plan] = {}
        late: list[JobView] = []
        for job in by_deadline(view.jobs):
            if job.binding is Binding.BEST_EFFORT:
                continue
            found = minimum_satisfactory_share(job, profile, job.deadline_seconds)
            if found is None:
                late.append(job)
            else:
                plans[job.job_id] = found[1]
                profile.take(found[1])
        for job in late:
            plans[job.job_id] = fill_at_level(job, profile, job.table.largest, math.inf) or ()
            profile.take(plans[job.job_id])
        shares = {job.job_id: share_at(view, plans.get(job.job_id, ())) for job in view.jobs}
        workers = dict(shares)
        spread_spare(view, plans, shares, workers)
        starts = (start for plan in plans.values() for start, _, _ in plan)
        look_again = min((start for start in starts if start > view.now_seconds), default=None)
        return AllocationPlan(workers, look_again_seconds=look_again)
