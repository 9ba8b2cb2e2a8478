"""What if: the commands of a recorded log, to be run again under other circumstances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import CellConfiguration, Curve, StopCost
from resilin.kernel.fencing import Fence
from resilin.simulation.scenario import Cluster
from resilin.simulation.simulation import TimedCommand

__all__ = ["Circumstances", "profiled_curves", "recorded_commands", "under"]

_ABOUT_SERVERS = (cmd.AddServer, cmd.RemoveServer, cmd.CordonServer)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is to be otherwise; None leaves a thing as it was recorded.

    Attributes:
        policy: The policy of every training cluster.
        stop_cost: What a change of a job's GPUs costs.
        reserve_servers: The reserve of every training cluster.
        servers: How many servers, all there from the start.
        gpus_per_server: GPUs in each.
    """

    policy: str | None = None
    stop_cost: StopCost | None = None
    reserve_servers: int | None = None
    servers: int | None = None
    gpus_per_server: int | None = None


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


def profiled_curves(entries: Iterable[LogEntry]) -> list[Curve]:
    """Return what a log's jobs told when they were tried out: it is true in any circumstances."""
    fence = Fence()
    return [
        event.curve
        for entry in entries
        if fence.admit(entry)
        for event in entry.record.events
        if isinstance(event, ev.CurveProfiled)
    ]


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


def under(circumstances: Circumstances, commands: Sequence[TimedCommand]) -> Iterator[TimedCommand]:
    """Yield recorded commands as they would be under other circumstances.

    Other servers come when the first recorded one came, and stay.

    Raises:
        ValueError: If the recorded servers cannot be replaced by equal ones: they differ in
            size and the new size is not given, or not all serve the default virtual cluster.
    """
    cluster = _cluster(circumstances, commands)
    added = False
    for timed in commands:
        command = timed.command
        if isinstance(command, cmd.ConfigureCell):
            settings = _settings(circumstances, command.configuration)
            changed = command.model_copy(update={"configuration": settings})
            yield TimedCommand(timed.at_seconds, changed)
        elif cluster is None or not isinstance(command, _ABOUT_SERVERS):
            yield timed
        elif not added:
            added = True
            for number in range(cluster.servers):
                addition = cmd.AddServer(
                    command_id=f"what-if-add-{number}", server=cluster.server(number)
                )
                yield TimedCommand(timed.at_seconds, addition)


def _cluster(circumstances: Circumstances, commands: Sequence[TimedCommand]) -> Cluster | None:
    """Return the shape of the other cluster; None if the recorded one stays."""
    if circumstances.servers is None and circumstances.gpus_per_server is None:
        return None
    recorded = [
        timed.command.server for timed in commands if isinstance(timed.command, cmd.AddServer)
    ]
    if any(server.virtual_cluster != "default" for server in recorded):
        raise ValueError("its servers serve several virtual clusters: they cannot be replaced")
    sizes = {server.gpus for server in recorded}
    if circumstances.gpus_per_server is None and len(sizes) != 1:
        raise ValueError("its servers differ in size: give the GPUs per server, too")
    return Cluster(
        circumstances.servers or len(recorded), circumstances.gpus_per_server or max(sizes)
    )


def _settings(circumstances: Circumstances, recorded: CellConfiguration) -> CellConfiguration:
    changes: dict[str, Any] = {}
    if circumstances.policy is not None:
        changes["policy"] = circumstances.policy
    if circumstances.reserve_servers is not None:
        changes["reserve_servers"] = circumstances.reserve_servers
    clusters = tuple(
        cluster.model_copy(update=changes) if cluster.kind == "training" else cluster
        for cluster in recorded.virtual_clusters
    )
    cost = recorded.stop_cost if circumstances.stop_cost is None else circumstances.stop_cost
    return recorded.model_copy(update={"virtual_clusters": clusters, "stop_cost": cost})
