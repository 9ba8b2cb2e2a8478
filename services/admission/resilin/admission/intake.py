"""From commands to facts: what was asked, each with the position it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from resilin.admission.state import AdmissionState
from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.values import SourcePosition
from resilin.planning.policies.registry import POLICIES

__all__ = ["ReceivedCommand", "UnreadableCommand", "facts_of", "read_command"]

REASON_CHARACTERS = 500
"""The longest reason: a hostile message must not blow up the log that refuses it."""


@dataclass(frozen=True, slots=True)
class ReceivedCommand:
    """A command as it came in.

    Attributes:
        command: The command.
        source: Where it came from.
        received_at_seconds: When; a submission counts from here.
    """

    command: cmd.Command
    source: SourcePosition
    received_at_seconds: float
    unreadable = None

    @property
    def subjects(self) -> tuple[str, ...] | None:
        """What its facts depend on: a submission on its ids alone, anything else on all."""
        command = self.command
        if not isinstance(command, cmd.SubmitJob):
            return None
        submission = command.job.metadata.submission_id
        ids = (f"command {command.command_id}", f"job {command.job_id}")
        return ids if submission is None else (*ids, f"submission {submission}")


@dataclass(frozen=True, slots=True)
class UnreadableCommand:
    """A message that is no command.

    Attributes:
        source: Where it came from.
        unreadable: Why it is none: the field and what is wrong with it.
    """

    source: SourcePosition
    unreadable: str
    subjects: tuple[str, ...] = ()


def read_command(
    payload: bytes, source: SourcePosition, received_at_seconds: float, *, cell: str
) -> ReceivedCommand | UnreadableCommand:
    """Read a message of `jobs.commands`; whatever the bytes, there is an answer."""
    try:
        command = cmd.command_adapter.validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # The union's tag stands first in the path: a user knows it as the command's type.
        path = ".".join(str(part) for part in first["loc"])
        where = f"field {path!r}: " if path else ""
        return UnreadableCommand(source, (where + first["msg"])[:REASON_CHARACTERS])
    except (ValueError, RecursionError) as error:
        return UnreadableCommand(source, str(error)[:REASON_CHARACTERS])
    if command.cell != cell:
        reason = f"field 'cell': this partition is of cell {cell}, not {command.cell}"
        return UnreadableCommand(source, reason[:REASON_CHARACTERS])
    return ReceivedCommand(command, source, received_at_seconds)


def facts_of(
    state: AdmissionState, received: ReceivedCommand | UnreadableCommand
) -> list[ev.Event]:
    """Return the facts that a command adds; none if they are in the log already.

    A command that cannot apply, or repeats the id of an earlier one, is recorded as
    :class:`~resilin.contracts.events.CommandRejected`: every command leaves a trace.
    """
    source = received.source
    if source.offset <= state.position_of(source):
        return []
    if isinstance(received, UnreadableCommand):
        # It leaves a trace too, so that the log says how far the topic was read.
        name = f"unreadable:{source.topic}:{source.partition}:{source.offset}"
        return [ev.CommandRejected(source=source, command_id=name, message=received.unreadable)]
    command = received.command
    if command.command_id in state.recent_commands:
        problem: str | None = f"command {command.command_id} was already taken"
    else:
        problem = _PROBLEMS[type(command)](state, command)
    origin = {"source": source, "command_id": command.command_id}
    if problem is not None:
        return [ev.CommandRejected(message=problem, **origin)]
    match command:
        case cmd.SubmitJob():
            return [
                ev.JobSubmitted(
                    job_id=command.job_id,
                    job=command.job,
                    submitted_at_seconds=received.received_at_seconds,
                    deadline_seconds=command.job.spec.deadline_seconds(
                        received.received_at_seconds
                    ),
                    **origin,
                )
            ]
        case cmd.CancelJob():
            return [ev.CancellationRequested(job_id=command.job_id, **origin)]
        case cmd.ChangeDeadline():
            return [
                ev.DeadlineChangeRequested(
                    job_id=command.job_id, deadline_seconds=command.deadline_seconds, **origin
                )
            ]
        case cmd.AddServer():
            return [ev.ServerAdded(server=command.server, **origin)]
        case cmd.RemoveServer():
            return [ev.ServerRemoved(server_id=command.server_id, **origin)]
        case cmd.CordonServer():
            return [
                ev.ServerCordoned(server_id=command.server_id, cordoned=command.cordoned, **origin)
            ]
        case cmd.ConfigureCell():
            return [ev.CellConfigured(configuration=command.configuration, **origin)]
        case cmd.ImportCurves():
            return [
                ev.CurvesImported(
                    curves=command.curves, curve_source=command.curve_source, **origin
                )
            ]


def _submission_problem(state: AdmissionState, command: cmd.SubmitJob) -> str | None:
    if command.job_id in state.recent_jobs:
        return f"job {command.job_id} was already submitted: choose another job id"
    submission = command.job.metadata.submission_id
    if submission is not None and submission in state.recent_submissions:
        return f"submission {submission} was already taken"
    return None


def _job_problem(state: AdmissionState, command: cmd.CancelJob | cmd.ChangeDeadline) -> str | None:
    job = state.cell.jobs.get(command.job_id)
    if job is None or job.phase.terminal:
        return f"job {command.job_id} is not live: it is unknown or has ended"
    return None


def _addition_problem(state: AdmissionState, command: cmd.AddServer) -> str | None:
    known = state.cell.servers.get(command.server.server_id)
    if known is not None and not known.removed:
        return f"server {command.server.server_id} is in the cell already"
    if known is not None and known.server != command.server:
        return f"server {command.server.server_id} was in the cell with another shape: rename it"
    return None


def _server_problem(
    state: AdmissionState, command: cmd.RemoveServer | cmd.CordonServer
) -> str | None:
    known = state.cell.servers.get(command.server_id)
    if known is None or known.removed:
        return f"server {command.server_id} is not in the cell"
    return None


def _configuration_problem(state: AdmissionState, command: cmd.ConfigureCell) -> str | None:  # noqa: ARG001 (the table's signature)
    for cluster in command.configuration.virtual_clusters:
        if cluster.policy not in POLICIES:
            known = ", ".join(POLICIES)
            return f"virtual cluster {cluster.name}: no policy {cluster.policy}; known: {known}"
    return None


def _no_problem(state: AdmissionState, command: cmd.ImportCurves) -> str | None:  # noqa: ARG001 (the table's signature)
    return None


_PROBLEMS: dict[type, Callable[..., str | None]] = {
    cmd.SubmitJob: _submission_problem,
    cmd.CancelJob: _job_problem,
    cmd.ChangeDeadline: _job_problem,
    cmd.AddServer: _addition_problem,
    cmd.RemoveServer: _server_problem,
    cmd.CordonServer: _server_problem,
    cmd.ConfigureCell: _configuration_problem,
    cmd.ImportCurves: _no_problem,
}
