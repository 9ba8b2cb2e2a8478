"""What admission remembers beside the cell: open questions, and what it has taken."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from resilin.cell.state import CellState, evolve_cell
from resilin.cell.view import job_view
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import SourcePosition
from resilin.planning.overload import WINDOW_SECONDS, gpu_seconds_needed, smallest_refused
from resilin.planning.view import Binding

__all__ = ["AdmissionState", "evolve_admission"]

# How many ids are remembered to recognise a repeat. A client that repeats a command does
# so within minutes; the window only has to be longer than that.
REMEMBERED = 200_000


@dataclass(slots=True)
class AdmissionState:
    """The folded state of admission.

    Attributes:
        cell: Jobs and servers.
        to_answer: Submitted jobs without an answer, in order.
        to_cancel: Jobs whose cancellation was asked for.
        to_move: New deadlines that were asked for, by job.
        positions: The last offset taken of each source, by ``topic/partition``.
        asked: When and for how much GPU time promises were asked for in the last hours, by
            virtual cluster.
        asked_since_seconds: When the first promise was asked for, by virtual cluster.
        recent_commands: Ids of the commands taken, oldest first.
        recent_jobs: Ids of the jobs submitted, oldest first.
        recent_submissions: Idempotency ids of the jobs submitted, oldest first.
    """

    cell: CellState = field(default_factory=CellState)
    to_answer: dict[str, None] = field(default_factory=dict)
    to_cancel: dict[str, None] = field(default_factory=dict)
    to_move: dict[str, float] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    asked: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    asked_since_seconds: dict[str, float] = field(default_factory=dict)
    recent_commands: dict[str, None] = field(default_factory=dict)
    recent_jobs: dict[str, None] = field(default_factory=dict)
    recent_submissions: dict[str, None] = field(default_factory=dict)

    def smallest_refused_gpu_seconds(self, virtual_cluster: str, gpus: int) -> float:
        """Return the GPU time from which on a job gets no promise at this moment."""
        settings = self.cell.configuration.virtual_cluster(virtual_cluster)
        since = self.asked_since_seconds.get(virtual_cluster)
        if settings is None or settings.admission != "most-jobs" or since is None:
            return math.inf
        if self.cell.now_seconds - since < WINDOW_SECONDS:
            return math.inf
        return smallest_refused(gpus, [needed for _, needed in self.asked.get(virtual_cluster, [])])

    def position_of(self, source: SourcePosition) -> int:
        """Return the last offset taken of a source; -1 for none."""
        return self.positions.get(f"{source.topic}/{source.partition}", -1)


def evolve_admission(
    state: AdmissionState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
) -> AdmissionState:
    """Fold one event."""
    if isinstance(event, ev.FactFromCommand):
        source = event.source
        state.positions[f"{source.topic}/{source.partition}"] = source.offset
        _remember(state.recent_commands, event.command_id)
    unknown = _without_curve(state) if isinstance(event, ev.CurveProfiled) else []
    state.cell = evolve_cell(state.cell, event, entry)
    for job_id in unknown:
        _note_demand(state, job_id)
    match event:
        case ev.JobSubmitted():
            _note_demand(state, event.job_id)
            state.to_answer[event.job_id] = None
            _remember(state.recent_jobs, event.job_id)
            submission = event.job.metadata.submission_id
            if submission is not None:
                _remember(state.recent_submissions, submission)
        case ev.CancellationRequested() if _is_open(state, event.job_id):
            state.to_cancel[event.job_id] = None
        case ev.DeadlineChangeRequested() if _is_open(state, event.job_id):
            state.to_move[event.job_id] = event.deadline_seconds
        case ev.JobAdmitted():
            state.to_answer.pop(event.job_id, None)
        case ev.JobRejected() | ev.JobCancelled() | ev.JobCompleted() | ev.JobFailed():
            _forget(state, event.job_id)
        case ev.DeadlineChanged() | ev.DeadlineChangeRejected():
            state.to_move.pop(event.job_id, None)
        case _:
            pass
    return state


def _without_curve(state: AdmissionState) -> list[str]:
    """Return the jobs without an answer of which no throughput is known."""
    return [
        job_id
        for job_id in state.to_answer
        if (job := state.cell.jobs.get(job_id)) is not None and job_view(state.cell, job) is None
    ]


def _note_demand(state: AdmissionState, job_id: str) -> None:
    """Note what a job asks for, once it can be told."""
    job = state.cell.jobs.get(job_id)
    view = None if job is None else job_view(state.cell, job)
    if job is None or view is None or view.binding is not Binding.GUARANTEED:
        return
    now = state.cell.now_seconds
    name = job.job.spec.virtual_cluster
    state.asked_since_seconds.setdefault(name, now)
    needed = gpu_seconds_needed(view, now)
    if needed is not None:
        asked = state.asked.setdefault(name, [])
        asked.append((now, needed))
        while asked[0][0] <= now - WINDOW_SECONDS:
            del asked[0]


def _is_open(state: AdmissionState, job_id: str) -> bool:
    """Say whether a job has not ended: its end may have overtaken what was asked of it."""
    job = state.cell.jobs.get(job_id)
    return job is not None and not job.phase.terminal


def _forget(state: AdmissionState, job_id: str) -> None:
    state.to_answer.pop(job_id, None)
    state.to_cancel.pop(job_id, None)
    state.to_move.pop(job_id, None)


def _remember(window: dict[str, None], item: str) -> None:
    window[item] = None
    if len(window) > REMEMBERED:
        del window[next(iter(window))]
