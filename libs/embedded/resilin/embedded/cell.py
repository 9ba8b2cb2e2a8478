"""An embedded cell: the seven services in one process, on a log in a file.

Every service runs in the same shell as on Kafka; only the log, the topics and the election
are others. Clients reach it through the file of topics: what is submitted while the cell is
down is answered when it is up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from resilin.admission.decider import AdmissionDecider
from resilin.admission.shell import command_input
from resilin.allocator.decider import AllocatorDecider
from resilin.contracts.telemetry import StepSample
from resilin.embedded.log import LocalLog, LogWithSnapshots
from resilin.eventlog.port import Message, MessageTopic
from resilin.executor.backend import WorkerBackend
from resilin.executor.decider import ExecutorDecider
from resilin.executor.shell import BackendInput
from resilin.kernel.decider import Decider
from resilin.loan_manager.decider import LoanManagerDecider
from resilin.metric_collector.decider import MetricCollectorDecider
from resilin.placement.decider import PlacementDecider
from resilin.runtime.clock import Clock
from resilin.runtime.election import AlwaysElected
from resilin.runtime.inputs import DeadLetters, SampleInput
from resilin.runtime.ports import Input
from resilin.runtime.service import LiveService, Observer
from resilin.stability_detector.decider import StabilityDetectorDecider

__all__ = ["EmbeddedCell"]

_LOOK_SECONDS = 0.05
"""How often the file of topics is looked at: other processes write to it."""


class EmbeddedCell:
    """All services of a cell in this process.

    Args:
        log: The log's file; nobody else may append to it.
        commands: Where clients put commands.
        dead_letters: Where commands go that cannot be read.
        backend: What runs the workers.
        clock: The cell's time.
        cell: The cell's name.
        observers: Makes those who are told what a service does, by its name.
        snapshot_every_records: Entries between two snapshots of a service.

    Attributes:
        services: The running services.
    """

    def __init__(
        self,
        log: LogWithSnapshots,
        commands: MessageTopic,
        dead_letters: MessageTopic,
        backend: WorkerBackend,
        *,
        clock: Clock,
        cell: str = "main",
        observers: Callable[[str], Sequence[Observer]] = lambda _: (),
        snapshot_every_records: int = 20_000,
    ) -> None:
        self._log = LocalLog(log)
        self._backend = backend
        self._samples: list[SampleInput] = []
        self._refused = 0
        letters = DeadLetters(
            AdmissionDecider.service, cell, _TopicWriter(dead_letters), self._count_refusal
        )
        reader = _TopicReader(commands)
        inputs: dict[str, tuple[Decider[Any], list[Input]]] = {}
        for decider in (AllocatorDecider(), PlacementDecider(), LoanManagerDecider()):
            inputs[decider.service] = (decider, [])
        inputs[AdmissionDecider.service] = (
            AdmissionDecider(),
            [command_input(reader, letters, cell=cell)],
        )
        for watcher in (MetricCollectorDecider(), StabilityDetectorDecider()):
            samples = SampleInput(lambda _: None)
            self._samples.append(samples)
            inputs[watcher.service] = (watcher, [samples])
        inputs[ExecutorDecider.service] = (
            ExecutorDecider(),
            [BackendInput(backend, self._send_sample)],
        )
        self.services: list[LiveService[Any]] = [
            LiveService(
                decider,
                cell=cell,
                instance=f"{service}-embedded",
                log=self._log.view(),
                election=AlwaysElected(),
                clock=clock,
                inputs=feeds,
                observers=observers(service),
                snapshot_every_records=snapshot_every_records,
            )
            for service, (decider, feeds) in inputs.items()
        ]

    def _count_refusal(self) -> None:
        self._refused += 1

    async def _send_sample(self, sample: StepSample) -> None:
        for samples in self._samples:
            await samples.deliver(sample)

    def stop(self) -> None:
        """Ask the cell to end in good order; :meth:`run` returns."""
        for service in self.services:
            service.stop()

    @property
    def ready(self) -> bool:
        """Whether every service has folded the log to its end."""
        return all(service.ready.is_set() for service in self.services)

    async def run(self, *, stop_workers: bool = True) -> None:
        """Run until stopped; the error of one service ends all."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for service in self.services:
                    tasks.create_task(service.run())
        except* Exception as group:
            raise group.exceptions[0] from None
        finally:
            await self._backend.close(stop_workers=stop_workers)


class _TopicReader:
    """Looks for new messages in a file that other processes write."""

    def __init__(self, topic: MessageTopic) -> None:
        self._topic = topic
        self._after = -1

    async def start(self, after: int) -> None:
        self._after = after

    async def read(self, timeout_seconds: float) -> Sequence[Message]:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        while True:
            messages = list(self._topic.read(self._after))
            if messages:
                self._after = messages[-1].offset
                return messages
            if loop.time() >= until:
                return ()
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Nothing to let go of: the file belongs to the caller."""


class _TopicWriter:
    """Writes to a topic in a file."""

    def __init__(self, topic: MessageTopic) -> None:
        self._topic = topic

    async def produce(self, value: bytes, key: bytes | None = None) -> int:
        return self._topic.produce(value, key)
