"""`resilin node`: the servers of the live cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from pydantic import ValidationError

from resilin.cell import gpu_sets
from resilin.cell.state import CellState, ServerState
from resilin.cli.administration import carry_out, change_options, command_id, read_identifier
from resilin.cli.asking import confirmed, yes_option
from resilin.cli.documents import problem_of
from resilin.cli.errors import ExitCode, InputError
from resilin.cli.live import LiveAddress, live_options, open_live
from resilin.cli.output import OutputFormat, Table, emit, example, output_option
from resilin.contracts.commands import AddServer, Command, CordonServer, RemoveServer
from resilin.contracts.values import Server

__all__ = ["command"]


@click.group("node", epilog=example("resilin node list", "resilin node cordon server-0003"))
def command() -> None:
    """List, add, remove and cordon the servers of the live cell."""


@command.command("list", epilog=example("resilin node list -o wide"))
@live_options
@output_option
def list_nodes(*, address: LiveAddress, output_format: OutputFormat) -> None:
    """List the servers: whether they are up, and how many of their GPUs are busy."""
    with open_live(address) as live:
        fold = live.fold()
        name = live.name
    cell = fold.cell
    busy = _busy(cell)
    servers = [
        _described(server, busy.get(server_id, 0))
        for server_id, server in cell.servers.items()
        if not server.removed or server_id in busy
    ]
    wide = output_format == "wide"
    rows = [
        [
            server["server_id"],
            server["status"],
            str(server["gpus"]),
            str(server["gpus_busy"]),
            server["virtual_cluster"],
            *([server["rack"] or "-", str(server["incarnation"])] if wide else ()),
        ]
        for server in servers
    ]
    more = ("rack", "incarnation") if wide else ()
    columns = ("server", "status", "GPUs", "busy", "virtual cluster", *more)
    answer = {"cell": name, "offset": fold.offset, "servers": servers}
    nothing = f"{name}: no server; `resilin node add` brings one in"
    emit(output_format, answer, [Table(columns, rows, right=(2, 3)) if rows else nothing])


def _busy(cell: CellState) -> dict[str, int]:
    busy: dict[str, int] = {}
    for job in cell.jobs.values():
        for server, _ in gpu_sets.each(job.held):
            busy[server] = busy.get(server, 0) + 1
    return busy


def _described(server: ServerState, busy: int) -> dict[str, Any]:
    return {
        "server_id": server.server.server_id,
        "status": _status(server),
        "gpus": server.server.gpus,
        "gpus_busy": busy,
        "virtual_cluster": server.virtual_cluster,
        "rack": server.server.rack,
        "incarnation": server.incarnation,
    }


def _status(server: ServerState) -> str:
    if server.removed:
        return "leaving"
    if not server.joined:
        return "down"
    return "cordoned" if server.cordoned else "ready"


# --- changes -------------------------------------------------------------------------------


server_argument = click.argument("server_id", metavar="SERVER", callback=read_identifier)


@command.command("add", epilog=example("resilin node add server-0004 --gpus 8 --rack rack-1"))
@server_argument
@click.option("--gpus", type=click.IntRange(1, 1024), required=True, help="Its GPUs, or slots.")
@click.option("--rack", default="", help="Its rack.")
@click.option(
    "--virtual-cluster",
    callback=read_identifier,
    default="default",
    show_default=True,
    help="The virtual cluster that it belongs to.",
)
@change_options
def add(
    *,
    server_id: str,
    gpus: int,
    rack: str,
    virtual_cluster: str,
    **where: Any,  # noqa: ANN401 (what every change takes)
) -> int:
    """Bring a server into the cell; it is used once its node has joined."""

    def build(cell: str) -> Command:
        server = Server(server_id=server_id, gpus=gpus, rack=rack, virtual_cluster=virtual_cluster)
        chosen = command_id(f"add-{server_id}")
        return AddServer(cell=cell, command_id=chosen, server=server)

    return _change(build, f"server {server_id} belongs to the cell", **where)


@command.command("remove", epilog=example("resilin node remove server-0004"))
@server_argument
@yes_option
@change_options
def remove(*, server_id: str, yes: bool, **where: Any) -> int:  # noqa: ANN401 (what every change takes)
    """Take a server out of the cell: no new work, and gone once its workers have left."""
    if not confirmed(f"Take {server_id} out of the cell?", yes=yes):
        return ExitCode.NO

    def build(cell: str) -> Command:
        chosen = command_id(f"remove-{server_id}")
        return RemoveServer(cell=cell, command_id=chosen, server_id=server_id)

    return _change(build, f"server {server_id} leaves the cell", **where)


@command.command("cordon", epilog=example("resilin node cordon server-0003"))
@server_argument
@change_options
def cordon(*, server_id: str, **where: Any) -> int:  # noqa: ANN401 (what every change takes)
    """Give a server no new work; jobs leave it as they are placed anew."""
    return _change(
        lambda cell: _cordon(cell, server_id, cordoned=True),
        f"server {server_id} gets no new work",
        **where,
    )


@command.command("uncordon", epilog=example("resilin node uncordon server-0003"))
@server_argument
@change_options
def uncordon(*, server_id: str, **where: Any) -> int:  # noqa: ANN401 (what every change takes)
    """Take a server that was cordoned back into use."""
    return _change(
        lambda cell: _cordon(cell, server_id, cordoned=False),
        f"server {server_id} may get work",
        **where,
    )


def _cordon(cell: str, server_id: str, *, cordoned: bool) -> Command:
    chosen = command_id(f"{'' if cordoned else 'un'}cordon-{server_id}")
    return CordonServer(cell=cell, command_id=chosen, server_id=server_id, cordoned=cordoned)


def _change(
    build: Callable[[str], Command],
    what: str,
    *,
    timeout_seconds: float,
    address: LiveAddress,
    output_format: OutputFormat,
) -> int:
    try:
        command = build(address.cell)
    except ValidationError as error:
        raise InputError(problem_of(error, "a server")[1]) from None
    with open_live(address) as live:
        return carry_out(
            live,
            [command],
            what,
            timeout_seconds=timeout_seconds,
            output_format=output_format,
        )
