"""The allocator's decisions: one whole plan a virtual cluster, whenever something changed.

    something changed in a virtual cluster, or the plan's own next step is due
        --> AllocationPlanned: the counts that change, plans made anew, when to look again

A decision that changes nothing is recorded too: it says that the allocator has looked, and
that lets anyone ask why nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from resilin.cell.state import CellState, evolve_cell
from resilin.cell.view import cluster_view, job_view
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import training_allocation
from resilin.planning.filling import projected_finish
from resilin.planning.policies.policy import AllocationPlan, Policy
from resilin.planning.policies.registry import POLICIES

__all__ = ["AllocatorDecider", "AllocatorState"]

# What changes the question that a policy answers: jobs, capacity, speed or settings.
_TRIGGERS = (
    ev.JobAdmitted,
    ev.JobCancelled,
    ev.JobCompleted,
    ev.JobFailed,
    ev.DeadlineChanged,
    ev.WorkerLost,
    ev.NodeJoined,
    ev.NodeLost,
    ev.ServerAdded,
    ev.ServerRemoved,
    ev.ServerCordoned,
    ev.ServerLoaned,
    ev.ServerReclaimed,
    ev.CellConfigured,
    ev.CurvesImported,
    ev.CurveProfiled,
    ev.ThroughputMeasured,
)

# What tells how far a job is; plans stand unless it has fallen behind its own.
_PROGRESS = (ev.GenerationSwitched, ev.ProgressReported, ev.WorkersReleased)


@dataclass(slots=True)
class AllocatorState:
    """The folded state of the allocator.

    Attributes:
        cell: Jobs and servers.
        triggered_at_offset: The newest entry that changed the question.
        answered_basis: The basis of the newest plan; what came after it is not answered.
        look_again_seconds: When each virtual cluster's plan has its next step.
    """

    cell: CellState = field(default_factory=CellState)
    triggered_at_offset: int = -1
    answered_basis: int = -1
    look_again_seconds: dict[str, float] = field(default_factory=dict)


class AllocatorDecider:
    """The core of the allocator service."""

    service = "allocator"
    state_type = AllocatorState

    def initial_state(self) -> AllocatorState:
        """Return the state before the first entry."""
        return AllocatorState()

    def evolve(
        self, state: AllocatorState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
    ) -> AllocatorState:
        """Fold one event."""
        if isinstance(event, ev.AllocationPlanned):
            state.answered_basis = entry.record.basis
            if event.look_again_seconds is None:
                state.look_again_seconds.pop(event.virtual_cluster, None)
            else:
                state.look_again_seconds[event.virtual_cluster] = event.look_again_seconds
        elif isinstance(event, ev.CellConfigured):
            # A cluster that is gone is not planned again: its timer would fire for ever.
            for name in [*state.look_again_seconds]:
                if event.configuration.virtual_cluster(name) is None:
                    del state.look_again_seconds[name]
        state.cell = evolve_cell(state.cell, event, entry)
        if (
            isinstance(event, _TRIGGERS)
            or (isinstance(event, ev.ClockTicked) and entry.record.service == self.service)
            or (isinstance(event, _PROGRESS) and _behind(state.cell, event.job_id))
        ):
            state.triggered_at_offset = entry.offset
        return state

    def decide(self, state: AllocatorState) -> Sequence[ev.Event]:
        """Plan every training cluster anew if something changed."""
        if state.triggered_at_offset <= state.answered_basis:
            return ()
        return [
            _planned(
                state.cell,
                cluster.name,
                POLICIES[cluster.policy],
                state.look_again_seconds.get(cluster.name),
            )
            for cluster in state.cell.configuration.virtual_clusters
            if cluster.kind == "training"
        ]

    def next_timer(self, state: AllocatorState) -> float | None:
        """Return when a plan has its next step."""
        return min(state.look_again_seconds.values(), default=None)


def _behind(cell: CellState, job_id: str) -> bool:
    """Say whether a job is so late that its plan no longer keeps its promise."""
    job = cell.jobs.get(job_id)
    if job is None or not job.promised or not job.live or job.deadline_seconds is None:
        return False
    view = job_view(cell, job)
    if view is None:
        return False
    return projected_finish(view, job.plan, cell.now_seconds) > job.deadline_seconds


def _planned(
    cell: CellState, virtual_cluster: str, policy: Policy, due_seconds: float | None
) -> ev.AllocationPlanned:
    view = cluster_view(
        cell, virtual_cluster, due_seconds=due_seconds, with_batches=policy.adapts_batches
    )
    plan = policy.plan(view)
    return ev.AllocationPlanned(
        virtual_cluster=virtual_cluster,
        changes=_changes(cell, plan),
        plans=dict(plan.plans),
        look_again_seconds=plan.look_again_seconds,
    )


def _changes(cell: CellState, plan: AllocationPlan) -> tuple[ev.AllocationChange, ...]:
    """Name every count or batch that changes, and the jobs on the other side of each change."""
    changed = {
        job_id: workers
        for job_id, workers in plan.workers.items()
        if workers != cell.jobs[job_id].wanted_workers or _new_batch(cell, plan, job_id)
    }
    gain = tuple(job for job, n in changed.items() if n > cell.jobs[job].wanted_workers)
    give = tuple(job for job, n in changed.items() if n < cell.jobs[job].wanted_workers)
    return tuple(
        ev.AllocationChange(
            job_id=job_id,
            allocation=training_allocation(
                workers,
                plan.global_batches.get(job_id, cell.jobs[job_id].job.spec.global_batch),
                learning_rate_factor=plan.learning_rate_factors.get(job_id, 1.0),
            ),
            reason=plan.reasons.get(job_id, "policy"),
            because=give if job_id in gain else gain,
        )
        for job_id, workers in changed.items()
    )


def _new_batch(cell: CellState, plan: AllocationPlan, job_id: str) -> bool:
    job = cell.jobs[job_id]
    submitted = job.job.spec.global_batch
    return plan.global_batches.get(job_id, submitted) != (job.wanted_batch or submitted)
