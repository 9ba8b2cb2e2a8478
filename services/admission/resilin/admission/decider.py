"""Admission's decisions: promise, or refuse with the reason and a counter-offer.

    asked (fact)                  answered (decision)
    JobSubmitted             -->  JobAdmitted | JobRejected
                                  or first ProfileRequested, where nothing is known of it
    CancellationRequested    -->  JobCancelled
    DeadlineChangeRequested  -->  DeadlineChanged | DeadlineChangeRejected

One decision answers everything that is open, cancellations first since they give room.
Submissions are judged one by one in order, each against the promises before it: a burst
costs one decision, and one refusal does not refuse its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from resilin.admission.intake import ReceivedCommand, UnreadableCommand, facts_of
from resilin.admission.quota import quota_problem
from resilin.admission.state import AdmissionState, evolve_admission
from resilin.cell.state import JobState, Profile, curve_key
from resilin.cell.view import cluster_view, job_view
from resilin.contracts import events as ev
from resilin.contracts.events import RejectionReason
from resilin.contracts.record import LogEntry
from resilin.planning.policies.policy import Admission, Policy, Refusal
from resilin.planning.policies.registry import POLICIES
from resilin.planning.view import Binding, ClusterView, JobView, Plan

__all__ = ["AdmissionDecider", "Verdict", "judge_submission"]

Verdict = ev.JobAdmitted | ev.JobRejected | ev.ProfileRequested


class AdmissionDecider:
    """The core of the admission service."""

    service = "admission"
    state_type = AdmissionState

    def initial_state(self) -> AdmissionState:
        """Return the state before the first entry."""
        return AdmissionState()

    def evolve(
        self, state: AdmissionState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
    ) -> AdmissionState:
        """Fold one event."""
        return evolve_admission(state, event, entry)

    def accept(
        self, state: AdmissionState, item: ReceivedCommand | UnreadableCommand
    ) -> Sequence[ev.Event]:
        """Return the facts that a command adds."""
        return facts_of(state, item)

    def decide(self, state: AdmissionState) -> Sequence[ev.Event]:
        """Answer everything that is open."""
        if not (state.to_answer or state.to_cancel or state.to_move):
            return ()
        views = _Views(state)
        answers: list[ev.Event] = []
        for job_id in state.to_cancel:
            views.remove(job_id)
            answers.append(ev.JobCancelled(job_id=job_id))
        for job_id, deadline in state.to_move.items():
            if job_id not in state.to_cancel and job_id not in state.to_answer:
                answers.append(_judge_deadline(views, job_id, deadline))
        for job_id in state.to_answer:
            if job_id not in state.to_cancel:
                verdict = judge_submission(views, state.cell.jobs[job_id])
                if verdict is not None:
                    answers.append(verdict)
        return answers

    def next_timer(self, state: AdmissionState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: admission acts on what it is asked."""
        return None


class _Views:
    """The virtual clusters as they will be after the answers given so far."""

    def __init__(self, state: AdmissionState) -> None:
        self.state = state
        self.granted: list[tuple[JobState, Plan]] = []
        self._views: dict[str, ClusterView] = {}
        self._in_profile = {
            _curve_of(job): None
            for job in state.cell.jobs.values()
            if job.awaits_profile and job.job_id not in state.to_cancel
        }

    def start_profile(self, job: JobState) -> bool:
        """Note that a job is to be tried out; False if one with its curve is already."""
        key = _curve_of(job)
        if key in self._in_profile:
            return False
        self._in_profile[key] = None
        return True

    def of(self, name: str) -> ClusterView:
        if name not in self._views:
            view = cluster_view(self.state.cell, name)
            limit = self.state.smallest_refused_gpu_seconds(name, view.promised_gpus)
            self._views[name] = replace(view, smallest_refused_gpu_seconds=limit)
        return self._views[name]

    def policy(self, name: str) -> Policy | None:
        cluster = self.state.cell.configuration.virtual_cluster(name)
        if cluster is None or cluster.kind != "training":
            return None
        return POLICIES.get(cluster.policy)

    def remove(self, job_id: str) -> None:
        job = self.state.cell.jobs.get(job_id)
        if job is not None:
            view = self.of(job.job.spec.virtual_cluster)
            jobs = tuple(other for other in view.jobs if other.job_id != job_id)
            self._views[job.job.spec.virtual_cluster] = replace(view, jobs=jobs)

    def add(self, name: str, newcomer: JobView, moved: dict[str, Plan]) -> None:
        view = self.of(name)
        jobs = tuple(
            replace(job, plan=moved[job.job_id]) if job.job_id in moved else job
            for job in view.jobs
        )
        self._views[name] = replace(view, jobs=(*jobs, newcomer))


def judge_submission(views: _Views, job: JobState) -> Verdict | None:
    """Answer one submission against the promises given so far, and count it among them.

    None if it has to wait for a profile, its own or that of a job with the same curve.
    """
    name = job.job.spec.virtual_cluster
    policy = views.policy(name)
    if policy is None:
        return _rejected(
            job,
            RejectionReason.NO_SUCH_VIRTUAL_CLUSTER,
            f"virtualCluster {name!r} does not exist or takes no training jobs",
        )
    candidate = job_view(views.state.cell, job)
    if candidate is None:
        return _without_curve(views, job)
    view = views.of(name)
    answer = policy.judge(view, candidate)
    if isinstance(answer, Refusal):
        return _refused(policy, view, job, candidate, answer)
    problem = quota_problem(views.state, views.granted, job, answer)
    if problem is not None:
        return _rejected(job, RejectionReason.QUOTA_EXCEEDED, problem)
    moved = dict(answer.plans_moved)
    views.add(name, replace(candidate, plan=answer.plan), moved)
    views.granted.append((job, answer.plan))
    return ev.JobAdmitted(
        job_id=job.job_id,
        promised=answer.promised,
        minimum_satisfactory_share=answer.share,
        finish_seconds=answer.finish_seconds,
        plan=answer.plan,
        plans_moved=moved,
    )


def _without_curve(views: _Views, job: JobState) -> Verdict | None:
    """Answer a submission of which no throughput is known: have it tried out, if it can be."""
    spec = job.job.spec
    if spec.worker is not None and job.profile is Profile.NONE:
        return ev.ProfileRequested(job_id=job.job_id) if views.start_profile(job) else None
    if job.profile is Profile.REQUESTED:
        return None
    if job.profile is Profile.FAILED:
        return _rejected(job, RejectionReason.PROFILE_FAILED, job.profile_problem)
    return _rejected(
        job,
        RejectionReason.CURVE_UNKNOWN,
        f"no throughput is known for model {spec.model} with globalBatch"
        f" {spec.global_batch} at a worker count it allows: import or profile a curve",
    )


def _curve_of(job: JobState) -> str:
    return curve_key(job.job.spec.model, job.job.spec.global_batch)


def _refused(
    policy: Policy, view: ClusterView, job: JobState, candidate: JobView, refusal: Refusal
) -> ev.JobRejected:
    earliest = policy.earliest_deadline(view, candidate)
    if refusal.too_large:
        reason = RejectionReason.LARGER_THAN_CELL
        message = (
            f"it needs {refusal.minimum_workers} workers at once, and all servers together have"
            f" {view.most_gpus} GPUs: ask for fewer, or add servers"
        )
    elif refusal.overloaded:
        reason = RejectionReason.CELL_OVERLOADED
        message = (
            "more is asked for than the cell has, and this job is among the largest: submit it"
            " with deadlinePolicy Soft or BestEffort, or again when there is less to do"
        )
    elif refusal.reachable:
        reason = RejectionReason.CAPACITY_PROMISED
        message = (
            f"{refusal.minimum_workers} workers would do in an empty cell, but the capacity"
            f" is promised to {', '.join(refusal.blocking) or 'others'}"
        )
    else:
        reason = RejectionReason.DEADLINE_UNREACHABLE
        message = "not even an empty cell could finish it by its deadline"
    return _rejected(job, reason, message, earliest, refusal.minimum_workers)


def _rejected(
    job: JobState,
    reason: RejectionReason,
    message: str,
    earliest_deadline_seconds: float | None = None,
    minimum_workers: int | None = None,
) -> ev.JobRejected:
    return ev.JobRejected(
        job_id=job.job_id,
        reason=reason,
        message=message,
        earliest_deadline_seconds=earliest_deadline_seconds,
        minimum_workers=minimum_workers,
    )


def _judge_deadline(views: _Views, job_id: str, deadline_seconds: float) -> ev.Event:
    """Answer a change of deadline like a submission of what is left of the job."""
    job = views.state.cell.jobs[job_id]
    name = job.job.spec.virtual_cluster
    policy, candidate = views.policy(name), job_view(views.state.cell, job)
    if policy is None or candidate is None or candidate.binding is Binding.BEST_EFFORT:
        return ev.DeadlineChangeRejected(
            job_id=job_id, message="the job has no deadline: cancel it and submit it anew"
        )
    views.remove(job_id)
    asked = replace(candidate, deadline_seconds=deadline_seconds)
    # Overload decides who gets a promise, not whether one that was given may move.
    view = replace(views.of(name), smallest_refused_gpu_seconds=math.inf)
    answer = policy.judge(view, asked)
    if isinstance(answer, Admission):
        moved = dict(answer.plans_moved)
        views.add(name, replace(asked, plan=answer.plan), moved)
        return ev.DeadlineChanged(
            job_id=job_id, deadline_seconds=deadline_seconds, plan=answer.plan, plans_moved=moved
        )
    earliest = policy.earliest_deadline(view, asked)
    views.add(name, candidate, {})
    why = "not even an empty cell could finish it by then"
    if answer.reachable:
        why = "the capacity until then is promised"
    return ev.DeadlineChangeRejected(
        job_id=job_id,
        message=f"{why}; the old deadline stands",
        earliest_deadline_seconds=earliest,
    )
