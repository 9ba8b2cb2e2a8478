"""Submitting jobs to a live cell: ids, repeats, and what each was answered."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from resilin.cli.answers import SUBMITTED, answer_parts, described_verdict, unanimous
from resilin.cli.errors import InputError
from resilin.cli.live import CellFold, LiveCell, Reply, ask
from resilin.cli.output import Table, note
from resilin.contracts import events as ev
from resilin.contracts.base import Identifier
from resilin.contracts.commands import SubmitJob
from resilin.contracts.job_specification import JobSpecification

__all__ = ["described_replies", "reply_parts", "submissions", "submit"]

# Room for "submit-" before it: a command's id is as long as a job's at most.
LONGEST_ID = 190

_identifier: TypeAdapter[str] = TypeAdapter(Identifier)


def submissions(cell: str, jobs: Sequence[JobSpecification], job_id: str | None) -> list[SubmitJob]:
    """Write a command for each job.

    Args:
        cell: The cell's name.
        jobs: The jobs.
        job_id: The id of the only job, so that a repeat is known as one; None to choose ids.

    Raises:
        InputError: If the id cannot be one, or there are more jobs than one.
    """
    if job_id is not None:
        if len(jobs) != 1:
            raise InputError(f"--id names one job, and the file holds {len(jobs)}: leave it out")
        _check(job_id)
    return [_submission(cell, job, job_id) for job in jobs]


def _submission(cell: str, job: JobSpecification, job_id: str | None) -> SubmitJob:
    chosen = job_id or f"{job.metadata.name[:180]}-{secrets.token_hex(3)}"
    return SubmitJob(cell=cell, command_id=f"submit-{chosen}", job_id=chosen, job=job)


def _check(job_id: str) -> None:
    try:
        _identifier.validate_python(job_id)
    except ValidationError:
        raise InputError(
            f"--id {job_id!r}: an id may hold only letters, digits and _ . : / -, a letter or"
            " digit first"
        ) from None
    if len(job_id) > LONGEST_ID:
        raise InputError(f"--id: is longer than {LONGEST_ID} characters")


def submit(
    live: LiveCell,
    commands: Sequence[SubmitJob],
    *,
    repeatable: bool,
    timeout_seconds: float | None,
) -> list[Reply]:
    """Submit jobs and wait for the answers.

    Args:
        live: The cell.
        commands: The jobs.
        repeatable: Whether the only job's id was chosen by its submitter: if the log holds it
            already, nothing is sent and its answer is the one that it was given.
        timeout_seconds: How long to wait; None not at all.

    Raises:
        InputError: If the id is that of another job.
    """
    if not repeatable:
        return ask(live, commands, timeout_seconds=timeout_seconds)
    (command,) = commands
    known = _earlier(live, command, timeout_seconds or 0.0)
    if known is None:
        replies = ask(live, commands, timeout_seconds=timeout_seconds)
        if replies[0].problem is None:
            return replies
        # Sent before, but taken only now: while the cell was down, or by two at once.
        known = _earlier(live, command, timeout_seconds or 0.0)
        if known is None:
            return replies
    note(f"job {command.job_id} was submitted before; nothing changes")
    return [known]


def _earlier(live: LiveCell, command: SubmitJob, timeout_seconds: float) -> Reply | None:
    """Find a job that was submitted before, and wait for its answer."""
    fold = CellFold()
    reply: Reply | None = None
    for entry in live.follow(timeout_seconds=timeout_seconds):
        if entry is None:
            if reply is None or not reply.open:
                break
        elif fold.fold(entry):
            for event in entry.record.events:
                if isinstance(event, ev.JobSubmitted) and event.job_id == command.job_id:
                    reply = _taken(command, event)
                elif reply is not None and getattr(event, "job_id", None) == command.job_id:
                    reply.note_answer(event, entry.record.timestamp)
    return reply


def _taken(command: SubmitJob, event: ev.JobSubmitted) -> Reply:
    if event.job != command.job:
        raise InputError(
            f"--id {command.job_id}: is the id of another job, submitted before: choose another"
        )
    return Reply(command, event.source.offset, event)


# --- what came back ------------------------------------------------------------------------


def described_replies(live: LiveCell, replies: Sequence[Reply]) -> dict[str, Any]:
    """Describe what came back, for programs."""
    jobs = [_described(reply) for reply in replies]
    return {"cell": live.name, "admitted": unanimous(jobs), "jobs": jobs}


def _described(reply: Reply) -> dict[str, Any]:
    command = reply.command
    assert isinstance(command, SubmitJob), "only submissions are described here"  # noqa: S101 (invariant)
    taken = reply.fact if isinstance(reply.fact, ev.JobSubmitted) else None
    deadline = None if taken is None else taken.deadline_seconds
    return {
        "name": command.job.metadata.name,
        "job_id": command.job_id,
        "command_id": command.command_id,
        "position": reply.position,
        "deadline_seconds": deadline,
        **_verdict(reply, deadline),
    }


def _verdict(reply: Reply, deadline_seconds: float | None) -> dict[str, Any]:
    if reply.problem is not None:
        return {"admitted": False, "reason": "CommandRejected", "message": reply.problem}
    match reply.answer:
        case ev.JobAdmitted() | ev.JobRejected() as verdict:
            return described_verdict(
                verdict,
                deadline_seconds=deadline_seconds,
                now_seconds=reply.answered_at_seconds,
            )
        case ev.JobCancelled():
            message = "it was cancelled before it was answered"
            return {"admitted": False, "reason": "Cancelled", "message": message}
        case _:
            return {"admitted": None, "message": _waits(reply)}


def _waits(reply: Reply) -> str:
    if reply.profiled:
        return "nothing is known of its throughput, so it is being tried out first"
    if reply.fact is not None:
        return "it was taken in, and waits for admission's decision"
    return (
        f"it is kept as message {reply.position} of jobs.commands, and answered once the cell"
        " runs and comes to it"
    )


def reply_parts(answer: dict[str, Any]) -> list[str | Table]:
    """Put it into sentences and figures."""
    return [part for job in answer["jobs"] for part in answer_parts(job, SUBMITTED)]
