"""What admission remembers beside the cell: open questions, and what it has taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from resilin.cell.state import CellState, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import SourcePosition

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
        recent_commands: Ids of the commands taken, oldest first.
        recent_jobs: Ids of the jobs submitted, oldest first.
        recent_submissions: Idempotency ids of the jobs submitted, oldest first.
    """

    cell: CellState = field(default_factory=CellState)
    to_answer: dict[str, None] = field(default_factory=dict)
    to_cancel: dict[str, None] = field(default_factory=dict)
    to_move: dict[str, float] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    recent_commands: dict[str, None] = field(default_factory=dict)
    recent_jobs: dict[str, None] = field(default_factory=dict)
    recent_submissions: dict[str, None] = field(default_factory=dict)

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
    match event:
        case ev.JobSubmitted():
            state.to_answer[event.job_id] = None
            _remember(state.recent_jobs, event.job_id)
            submission = event.job.metadata.submission_id
            if submission is not None:
                _remember(state.recent_submissions, submission)
        case ev.CancellationRequested():
            state.to_cancel[event.job_id] = None
        case ev.DeadlineChangeRequested():
            state.to_move[event.job_id] = event.deadline_seconds
        case ev.JobAdmitted() | ev.JobRejected():
            state.to_answer.pop(event.job_id, None)
        case ev.JobCancelled():
            _forget(state, event.job_id)
        case ev.JobCompleted() | ev.JobFailed():
            _forget(state, event.job_id)
        case ev.DeadlineChanged() | ev.DeadlineChangeRejected():
            state.to_move.pop(event.job_id, None)
        case _:
            pass
    state.cell = evolve_cell(state.cell, event, entry)
    return state


def _forget(state: AdmissionState, job_id: str) -> None:
    state.to_answer.pop(job_id, None)
    state.to_cancel.pop(job_id, None)
    state.to_move.pop(job_id, None)


def _remember(window: dict[str, None], item: str) -> None:
    window[item] = None
    if len(window) > REMEMBERED:
        del window[next(iter(window))]
