"""What an allocation policy is.

A policy sees an immutable view of its virtual cluster and answers two questions, each as a
pure function: may this job come in (:meth:`Policy.judge`), and how many workers does every
job have from now on (:meth:`Policy.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from resilin.planning.view import ClusterView, JobView, Plan

__all__ = ["Admission", "AllocationPlan", "Policy", "Reason", "Refusal", "WithoutPromises"]

Reason = Literal["guaranteed-share", "spare-capacity", "makes-room", "policy", "capacity-lost"]


@dataclass(frozen=True, slots=True)
class Admission:
    """The job may come in.

    Attributes:
        promised: Whether its deadline is promised.
        share: Its minimum satisfactory share in workers; 0 without a promise.
        finish_seconds: When its plan finishes it; None without a promise.
        plan: The witness of the promise.
        plans_moved: New plans of other jobs, which keep their own promises.
    """

    promised: bool
    share: int = 0
    finish_seconds: float | None = None
    plan: Plan = ()
    plans_moved: Mapping[str, Plan] = field(default_factory=dict)

    @property
    def admitted(self) -> bool:
        """Always true; tells the two answers apart."""
        return True


@dataclass(frozen=True, slots=True)
class Refusal:
    """The job's deadline cannot be promised.

    Attributes:
        reachable: Whether an empty cluster could meet the deadline.
        minimum_workers: The fewest workers that would meet it in an empty cluster.
        blocking: The jobs whose promises stand in the way, those with most GPU time in the
            asked window first.
        overloaded: Whether it was refused for its size alone, to leave room for many others.
        too_large: Whether it needs more GPUs at once than all servers have.
    """

    reachable: bool
    minimum_workers: int | None
    blocking: tuple[str, ...] = ()
    overloaded: bool = False
    too_large: bool = False

    @property
    def admitted(self) -> bool:
        """Always false; tells the two answers apart."""
        return False


@dataclass(frozen=True, slots=True)
class AllocationPlan:
    """Workers for every job of the view from now on.

    Attributes:
        workers: The count for each job, 0 for none.
        plans: New guaranteed plans, for the jobs whose plan changes.
        reasons: Why, for the jobs whose count changes.
        look_again_seconds: When the plan itself has its next step.
        global_batches: The global batch of the jobs that are to train with another than they
            came with.
        learning_rate_factors: Against the submitter's own rate, for these jobs.
    """

    workers: Mapping[str, int]
    plans: Mapping[str, Plan] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    look_again_seconds: float | None = None
    global_batches: Mapping[str, int] = field(default_factory=dict)
    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)


class Policy(Protocol):
    """An allocation policy."""

    @property
    def adapts_batches(self) -> bool:
        """Whether it chooses batches, and its views need ``batch_tables`` for that."""
        ...

    @property
    def name(self) -> str:
        """The name by which a virtual cluster chooses it."""
        ...

    def judge(self, view: ClusterView, candidate: JobView) -> Admission | Refusal:
        """Say whether ``candidate``, which is not in the view, may come in."""
        ...

    def earliest_deadline(self, view: ClusterView, candidate: JobView) -> float | None:
        """Return the earliest deadline at which :meth:`judge` would admit the candidate."""
        ...

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Divide the GPUs among the view's jobs, from its moment on."""
        ...


class WithoutPromises:
    """The base of policies without promises: a late job runs on, and its deadline is missed.

    Only a job that could never run is refused: its smallest size is more than all servers
    have, working or not.
    """

    adapts_batches = False

    def judge(self, view: ClusterView, candidate: JobView) -> Admission | Refusal:
        """Let the job in, without a promise, if it fits the cluster at all."""
        smallest = self.least_workers(candidate)
        # Before the first server nothing is known of the cluster's size: who comes waits.
        if smallest > view.most_gpus > 0:
            return Refusal(reachable=False, minimum_workers=smallest, too_large=True)
        return Admission(promised=False)

    def earliest_deadline(self, view: ClusterView, candidate: JobView) -> float | None:  # noqa: ARG002 (the interface)
        """Return nothing: without promises there is none to offer."""
        return None

    def least_workers(self, job: JobView) -> int:
        """Return the fewest workers that the policy would run a job with."""
        return job.table.sizes[0]
