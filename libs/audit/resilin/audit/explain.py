"""Explain: what happened to a job and why, naming the other party, from the log alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from resilin.cell import gpu_sets
from resilin.contracts import events as ev
from resilin.contracts.durations import duration_text
from resilin.contracts.record import LogEntry
from resilin.kernel.fencing import Fence

__all__ = ["Statement", "explain_job"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that happened to a job.

    Attributes:
        offset: The record that says so.
        at_seconds: When.
        service: Who says so.
        what: The fact or decision, as a sentence.
        because: Why, as a sentence; empty where there is nothing to add.
    """

    offset: int
    at_seconds: float
    service: str
    what: str
    because: str = ""


_REASONS = {
    "guaranteed-share": "its promise needs them",
    "spare-capacity": "GPUs are spare, and it gains most from them",
    "makes-room": "others need GPUs",
    "policy": "the policy says so",
    "capacity-lost": "capacity was lost",
}


def explain_job(entries: Iterable[LogEntry], job_id: str) -> Iterator[Statement]:
    """Yield what a log says about a job, in order."""
    fence = Fence()
    workers = 0
    submitted_at_seconds: float | None = None
    for entry in entries:
        if not fence.admit(entry):
            continue
        for event in entry.record.events:
            if isinstance(event, ev.AllocationPlanned):
                for change in event.changes:
                    if change.job_id == job_id:
                        yield _statement(entry, *_allocation(change, workers))
                        workers = change.allocation.workers
                if job_id in event.plans:
                    yield _statement(
                        entry,
                        "its plan was made anew, its deadline stands",
                        "what it has left is less, or more, than its plan foresaw",
                    )
            elif isinstance(event, ev.JobAdmitted) and job_id in event.plans_moved:
                yield _statement(
                    entry,
                    "its plan moved, its promise stands",
                    f"job {event.job_id} was admitted beside it",
                )
            elif getattr(event, "job_id", None) == job_id:
                if isinstance(event, ev.JobSubmitted):
                    submitted_at_seconds = event.submitted_at_seconds
                said = _said(event, submitted_at_seconds)
                if said is not None:
                    yield _statement(entry, *said)


def _statement(entry: LogEntry, what: str, because: str = "") -> Statement:
    record = entry.record
    return Statement(entry.offset, record.timestamp, record.service, what, because)


def _allocation(change: ev.AllocationChange, before: int) -> tuple[str, str]:
    now = change.allocation.workers
    what = f"is to have {now} workers instead of {before}"
    others = ", ".join(change.because[:5])
    reason = _REASONS[change.reason]
    if not others:
        return what, reason
    verb = "gives room" if now > before else "takes them"
    return what, f"{reason}; {others} {verb}"


def _said(
    event: ev.Event | ev.UnknownEvent, submitted_at_seconds: float | None
) -> tuple[str, str] | None:
    match event:
        case ev.JobSubmitted(deadline_seconds=deadline):
            until = "no deadline"
            if deadline is not None:
                until = f"a deadline {_when(deadline, submitted_at_seconds)}"
            return f"was submitted with {until}", f"command {event.command_id}"
        case ev.JobAdmitted(promised=True, finish_seconds=float(finish)):
            return (
                f"was promised: its plan ends {_when(finish, submitted_at_seconds)}",
                f"{event.minimum_satisfactory_share} workers are its minimum satisfactory share",
            )
        case ev.JobAdmitted():
            return "was admitted without a promise", ""
        case ev.JobRejected():
            return f"was refused: {event.reason}", _refusal(event, submitted_at_seconds)
        case ev.ProfileRequested():
            return "is to be tried out before its answer", "nothing is known of its throughput"
        case ev.CurveProfiled():
            rates = event.curve.iterations_per_second
            made = ", ".join(f"{rates[count]:.3f} with {count}" for count in sorted(rates))
            return "was tried out", f"iterations/s: {made}"
        case ev.ProfileFailed():
            return f"could not be tried out: {event.reason}", event.message
        case ev.JobMigrated():
            why = "to make room" if event.for_job is None else f"to make room for {event.for_job}"
            return f"moves to {_where(event.gpus)}", why
        case ev.JobPlaced():
            return f"is placed on {_where(event.gpus)}", ""
        case ev.JobSuspended():
            return "is suspended", ""
        case ev.GenerationSwitched():
            return (
                f"trains with {event.workers} workers",
                f"stood still for {event.stopped_seconds:.1f} s",
            )
        case ev.WorkerLost():
            return f"fell back to iteration {event.iterations_done:.0f}", event.message
        case ev.WorkerReplaced():
            where = f"{event.server_id}/{event.gpu_index}"
            return f"had its worker on {where} replaced", event.message
        case ev.ThroughputMeasured():
            return (
                f"makes {event.iterations_per_second:.3f} iterations/s with {event.workers}",
                "measured while running",
            )
        case ev.DeadlineChanged():
            when = _when(event.deadline_seconds, submitted_at_seconds)
            return f"has a new deadline: {when}", ""
        case ev.DeadlineChangeRejected():
            return "keeps its old deadline", _refusal(event, submitted_at_seconds)
        case ev.JobCancelled():
            return "was cancelled", ""
        case ev.JobCompleted():
            return "is done", ""
        case ev.JobFailed():
            return f"failed: {event.reason}", event.message
        case _:
            return None


def _refusal(
    refused: ev.JobRejected | ev.DeadlineChangeRejected, submitted_at_seconds: float | None
) -> str:
    offer = refused.earliest_deadline_seconds
    if offer is None:
        return refused.message
    # Rounded up, so that it would be accepted as it stands.
    when = _when(offer, submitted_at_seconds, math.ceil)
    return f"{refused.message}; the earliest deadline would be {when}"


def _when(
    moment_seconds: float,
    submitted_at_seconds: float | None,
    whole: Callable[[float], int] = round,
) -> str:
    """Say when something is, seen from the job's submission."""
    if submitted_at_seconds is None:
        # The services write no such log, but a fold must not fail on any.
        return f"at {moment_seconds:.0f} s"
    after = whole(moment_seconds - submitted_at_seconds)
    side = "before" if after < 0 else "after"
    return f"{duration_text(abs(after))} {side} its submission"


def _where(gpus: dict[str, tuple[int, ...]]) -> str:
    return f"{gpu_sets.count(gpus)} GPUs of {', '.join(gpus)}"
