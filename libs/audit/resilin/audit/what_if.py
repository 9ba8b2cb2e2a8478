"""What if: the commands of a recorded log, to be run again under other circumstances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.kernel.fencing import Fence
from resilin.simulation.simulation import TimedCommand

__all__ = ["recorded_commands"]


def recorded_commands(entries: Iterable[LogEntry]) -> Iterator[TimedCommand]:
    """Yield the commands that a log took in, each with the time at which it was taken."""
    fence = Fence()
    for entry in entries:
        if not fence.admit(entry):
            continue
        for event in entry.record.events:
            command = _command(event)
            if command is not None:
                yield TimedCommand(entry.record.timestamp, command)


def _command(event: ev.Event | ev.UnknownEvent) -> cmd.Command | None:
    match event:
        case ev.JobSubmitted():
            return cmd.SubmitJob(command_id=event.command_id, job_id=event.job_id, job=event.job)
        case ev.CancellationRequested():
            return cmd.CancelJob(command_id=event.command_id, job_id=event.job_id)
        case ev.DeadlineChangeRequested():
            return cmd.ChangeDeadline(
                command_id=event.command_id,
                job_id=event.job_id,
                deadline_seconds=event.deadline_seconds,
            )
        case ev.ServerAdded():
            return cmd.AddServer(command_id=event.command_id, server=event.server)
        case ev.ServerRemoved():
            return cmd.RemoveServer(command_id=event.command_id, server_id=event.server_id)
        case ev.ServerCordoned():
            return cmd.CordonServer(
                command_id=event.command_id, server_id=event.server_id, cordoned=event.cordoned
            )
        case ev.CellConfigured():
            return cmd.ConfigureCell(command_id=event.command_id, configuration=event.configuration)
        case ev.CurvesImported():
            return cmd.ImportCurves(
                command_id=event.command_id, curves=event.curves, curve_source=event.curve_source
            )
        case _:
            return None
