"""A service process on Kafka: settings, logs, health, metrics, signals, and one live service.

Ends with 0 after SIGTERM or SIGINT, with 1 after any error: whoever supervises the process
starts it again, and it finds its state in the log.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from resilin.contracts.topics import DEADLETTER
from resilin.eventlog.kafka import AsyncTopicReader, AsyncTopicWriter, KafkaConnection
from resilin.kernel.decider import Decider
from resilin.kernel.host import Role
from resilin.kernel.software import SOFTWARE
from resilin.runtime.clock import Clock, WallClock
from resilin.runtime.election import GroupElection
from resilin.runtime.http import http_running
from resilin.runtime.inputs import DeadLetters
from resilin.runtime.kafka import KafkaLiveLog, connection_of
from resilin.runtime.logs import configure_logs, logger
from resilin.runtime.metrics import ServiceMetrics
from resilin.runtime.ports import Input
from resilin.runtime.service import LiveService
from resilin.runtime.settings import ServiceSettings

__all__ = ["MakeInputs", "ServiceProcess", "run_service"]


@dataclass
class ServiceProcess:
    """What a service's main has at hand to build its inputs from.

    Attributes:
        service: The service's name.
        settings: From the environment.
        clock: The cell's time.
        connection: The brokers.
        stack: What is to be closed when the process ends.
        metrics: The process's metrics.
        background: Tasks beside the service; the end of one by an error ends the process.
    """

    service: str
    settings: ServiceSettings
    clock: Clock
    connection: KafkaConnection
    stack: AsyncExitStack
    metrics: ServiceMetrics
    background: list[Awaitable[object]] = field(default_factory=list)
    live: LiveService[Any] | None = None

    @property
    def state(self) -> Any:  # noqa: ANN401 (the service's)
        """The state folded so far."""
        assert self.live is not None, "inputs run after the service is made"  # noqa: S101 (invariant)
        return self.live.host.folded.state

    def topic_reader(self, topic: str) -> AsyncTopicReader:
        """Return a reader of the cell's partition of a topic; its input starts and stops it."""
        return AsyncTopicReader(self.connection, topic, self.settings.partition)

    async def dead_letters(self) -> DeadLetters:
        """Return where what cannot be read is put aside."""
        writer = AsyncTopicWriter(self.connection, DEADLETTER.name, self.settings.partition)
        await writer.start()
        self.stack.push_async_callback(writer.stop)
        return DeadLetters(self.service, self.settings.cell, writer, self.metrics.dead_letter)


MakeInputs = Callable[[ServiceProcess], Awaitable[Sequence[Input]]]


async def _no_inputs(process: ServiceProcess) -> Sequence[Input]:  # noqa: ARG001 (the signature)
    return ()


def run_service(decider: Decider[Any], make_inputs: MakeInputs = _no_inputs) -> int:
    """Run one service until it is told to end; return the exit status."""
    try:
        settings = ServiceSettings()
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            name = "RESILIN_" + "_".join(str(part) for part in problem["loc"]).upper()
            print(f"{name}: {problem['msg']}", file=sys.stderr)  # noqa: T201 (no log yet)
        return 2
    configure_logs(
        settings.log_level,
        service=decider.service,
        instance=settings.instance,
        cell=settings.cell,
    )
    try:
        asyncio.run(_run(decider, settings, make_inputs))
    except Exception:
        logger().exception("ended by an error")
        return 1
    return 0


async def _run(decider: Decider[Any], settings: ServiceSettings, make_inputs: MakeInputs) -> None:
    connection = connection_of(settings)
    clock = WallClock(settings.time_scale, settings.time_origin_seconds)
    metrics = ServiceMetrics(
        decider.service,
        instance=settings.instance,
        cell=settings.cell,
        version=SOFTWARE,
        clock=clock,
        per_job=settings.per_job_metrics,
    )
    async with AsyncExitStack() as stack:
        log = KafkaLiveLog(connection, settings.cell, settings.partition)
        stack.push_async_callback(log.close)
        process = ServiceProcess(decider.service, settings, clock, connection, stack, metrics)
        live: LiveService[Any] = LiveService(
            decider,
            cell=settings.cell,
            instance=settings.instance,
            log=log,
            election=GroupElection(
                connection.client_options(),
                service=decider.service,
                cell=settings.cell,
                partition=settings.partition,
                session_timeout_seconds=settings.session_timeout_seconds,
            ),
            clock=clock,
            inputs=await make_inputs(process),
            observers=[metrics],
            companions={"metrics": metrics.of_cell},
            snapshot_every_records=settings.snapshot_every_records,
        )
        process.live = live
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, live.stop)
        port = await stack.enter_async_context(
            http_running(
                settings.http_host,
                settings.http_port,
                standing=lambda: _standing(live),
                registry=metrics.registry,
            )
        )
        logger().info("started", http_port=port, bootstrap=settings.bootstrap)
        await _together(live, process.background)


async def _together(live: LiveService[Any], background: Sequence[Awaitable[object]]) -> None:
    """Run the service and what goes on beside it; the first to end ends all."""
    tasks = [asyncio.ensure_future(live.run()), *map(asyncio.ensure_future, background)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        if not tasks[0].done():
            raise RuntimeError("something beside the service ended by itself")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _standing(live: LiveService[Any]) -> dict[str, Any]:
    host = live.host
    return {
        "ready": live.ready.is_set(),
        "service": host.service,
        "role": host.role.value,
        "leading": host.role is Role.LEADING,
        "epoch": host.folded.fence.epoch(host.service),
        "offset": host.folded.offset,
    }
