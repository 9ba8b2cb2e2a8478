"""Quotas: the policy hook before the final yes (ElasticFlow §4.4).

A tenant may have so many jobs, and so much promised GPU time, admitted and unfinished at
once. Without it a user could occupy the cell with many jobs of close deadlines.
"""

from __future__ import annotations

from collections.abc import Iterable

from resilin.admission.state import AdmissionState
from resilin.cell.state import JobState
from resilin.planning.policies.policy import Admission
from resilin.planning.view import Plan

__all__ = ["quota_problem"]


def quota_problem(
    state: AdmissionState,
    granted: Iterable[tuple[JobState, Plan]],
    job: JobState,
    answer: Admission,
) -> str | None:
    """Say which limit of its tenant a job would exceed; None if it keeps all.

    Args:
        state: Admission's state.
        granted: Jobs that the decision at hand has admitted before, with their plans.
        job: The job.
        answer: The admission that the policy would give.
    """
    spec = job.job.spec
    cluster = state.cell.configuration.virtual_cluster(spec.virtual_cluster)
    quota = None if cluster is None else cluster.quotas.get(spec.tenant)
    if quota is None:
        return None
    live = [
        (other, other.plan)
        for other in state.cell.jobs.values()
        if other.live and other.job_id not in state.to_cancel
    ]
    plans = [
        plan
        for other, plan in (*live, *granted)
        if other.job.spec.tenant == spec.tenant
        and other.job.spec.virtual_cluster == spec.virtual_cluster
    ]
    if quota.live_jobs is not None and len(plans) >= quota.live_jobs:
        return f"tenant {spec.tenant} may have {quota.live_jobs} live jobs and has {len(plans)}"
    if quota.gpu_seconds is not None:
        promised = sum(_gpu_seconds(plan, state.cell.now_seconds) for plan in plans)
        asked = _gpu_seconds(answer.plan, state.cell.now_seconds)
        if promised + asked > quota.gpu_seconds:
            return (
                f"tenant {spec.tenant} may have {quota.gpu_seconds:.0f} GPU seconds promised,"
                f" has {promised:.0f} and asks for {asked:.0f}"
            )
    return None


def _gpu_seconds(plan: Plan, now_seconds: float) -> float:
    return sum(
        (end - max(start, now_seconds)) * workers
        for start, end, workers in plan
        if end > now_seconds
    )
