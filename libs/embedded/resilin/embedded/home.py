"""The process of a cell at home: what is in its folder, its services, health and metrics."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from resilin.contracts.commands import AddServer, Command, ConfigureCell
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.contracts.values import CellConfiguration, Server, StopCost
from resilin.embedded.cell import EmbeddedCell
from resilin.embedded.folder import Home
from resilin.embedded.log import LocalLog
from resilin.embedded.topics import LocalTopicReader, LocalTopicWriter
from resilin.eventlog.sqlite import SqliteLog
from resilin.eventlog.sqlite_topic import SqliteTopic
from resilin.executor.backend import WorkerBackend
from resilin.kernel.software import SOFTWARE
from resilin.runtime.clock import Clock
from resilin.runtime.http import http_running
from resilin.runtime.metrics import ServiceMetrics
from resilin.runtime.service import Observer

__all__ = ["CELL", "SERVER_ID", "run_home"]

CELL = "main"
SERVER_ID = "local"
"""This machine, in a cell of its own."""
PROMISE_MARGIN_SECONDS = 10.0
"""Spared of every promise, on the wall: to start a worker takes seconds, never quite the same."""


async def run_home(
    home: Home,
    make_backend: Callable[[Clock], WorkerBackend],
    *,
    slots: int,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock,
) -> None:
    """Run the cell of a home until SIGTERM or SIGINT.

    Args:
        home: The folder.
        make_backend: Makes what runs the workers.
        slots: Slots of this machine, if the cell is new.
        host: Where health and metrics listen.
        port: Their port; 0 takes a free one.
        clock: The cell's time.

    Raises:
        HomeBusyError: If another process runs a cell there.
    """
    async with AsyncExitStack() as stack:
        observers: dict[str, ServiceMetrics] = {}

        def observe(service: str) -> list[Observer]:
            observers[service] = ServiceMetrics(
                service,
                instance=f"{service}-embedded",
                cell=CELL,
                version=SOFTWARE,
                clock=clock,
            )
            return [observers[service]]

        stack.enter_context(home.held())
        standing: dict[str, EmbeddedCell] = {}
        bound = await stack.enter_async_context(_serving(host, port, observers, standing))
        home.announce(bound)
        log = stack.enter_context(SqliteLog(home.log))
        commands = stack.enter_context(SqliteTopic(home.topics, JOBS_COMMANDS.name))
        letters = stack.enter_context(SqliteTopic(home.topics, DEADLETTER.name))
        if log.end_offset() < 0:
            # Twice, if the process is killed before the first record: a repeat changes nothing.
            for command in _opening(slots, PROMISE_MARGIN_SECONDS / clock.wall_seconds(1.0)):
                commands.produce(command.model_dump_json().encode())
        cell = standing["cell"] = EmbeddedCell(
            LocalLog(log).view,
            LocalTopicReader(commands),
            LocalTopicWriter(letters),
            make_backend(clock),
            clock=clock,
            cell=CELL,
            observers=observe,
            companions=lambda service: {"metrics": observers[service].of_cell},
            on_dead_letter=lambda: observers["admission"].dead_letter(),
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, cell.stop)
        await cell.run()


def _opening(slots: int, margin_seconds: float) -> list[Command]:
    configuration = CellConfiguration(
        stop_cost=StopCost.modelled(), promise_margin_seconds=margin_seconds
    )
    return [
        ConfigureCell(command_id="configure", configuration=configuration),
        AddServer(command_id="add-server", server=Server(server_id=SERVER_ID, gpus=slots)),
    ]


@asynccontextmanager
async def _serving(
    host: str,
    port: int,
    observers: dict[str, ServiceMetrics],
    standing: dict[str, EmbeddedCell],
) -> AsyncIterator[int]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Together(observers))

    def stands() -> dict[str, Any]:
        cell = standing.get("cell")
        if cell is None:
            return {"ready": False}
        return {
            "ready": cell.ready,
            "offsets": {each.service: each.host.folded.offset for each in cell.services},
        }

    async with http_running(host, port, standing=stands, registry=registry) as bound:
        yield bound


class _Together(Collector):
    """The metrics of all services of a process, each family once."""

    def __init__(self, observers: dict[str, ServiceMetrics]) -> None:
        self._observers = observers

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for metrics in self._observers.values():
            for family in metrics.collect():
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples += family.samples
        yield from families.values()
