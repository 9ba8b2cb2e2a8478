"""From commands to facts: what was asked, each with the position it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from resilin.admission.state import AdmissionState
from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.values import SourcePosition
from resilin.planning.policies.registry import POLICIES

__all__ = ["ReceivedCommand", "facts_of"]


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


def facts_of(state: AdmissionState, received: ReceivedCommand) -> list[ev.Event]:
    """Return the facts that a command adds; none if they are in the log already.

    A command that cannot apply, or repeats the id of an earlier one, is recorded as
    :class:`~resilin.contracts.events.CommandRejected`: every command leaves a trace.
    """
    command, source = received.command, received.source
    if source.offset <= state.position_of(source):
        return []
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
