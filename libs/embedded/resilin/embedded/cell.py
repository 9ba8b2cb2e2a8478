"""A cell in one process: the seven services, each in the shell that it has on Kafka too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from resilin.admission.decider import AdmissionDecider
from resilin.admission.shell import command_input
from resilin.allocator.decider import AllocatorDecider
from resilin.contracts.telemetry import StepSample
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
from resilin.runtime.ports import Input, LiveLog, MessageReader, MessageWriter
from resilin.runtime.service import Companion, LiveService, Observer
from resilin.stability_detector.decider import StabilityDetectorDecider

__all__ = ["EmbeddedCell"]


class EmbeddedCell:
    """All services of a cell in this process.

    Args:
        open_log: Opens the cell's log, once for each service; no other process may append.
        commands: Where clients put commands.
        dead_letters: Where commands go that cannot be read.
        backend: What runs the workers.
        clock: The cell's time.
        cell: The cell's name.
        partition: The partition of the commands' topic that is the cell's.
        observers: Makes those who are told what a service does, by its name.
        companions: What is kept in snapshots with a service's state, by its name; asked for
            after its observers.
        on_dead_letter: Called once for each command that cannot be read.
        snapshot_every_records: Entries between two snapshots of a service.

    Attributes:
        services: The running services.
    """

    def __init__(
        self,
        open_log: Callable[[], LiveLog],
        commands: MessageReader,
        dead_letters: MessageWriter,
        backend: WorkerBackend,
        *,
        clock: Clock,
        cell: str = "main",
        partition: int = 0,
        observers: Callable[[str], Sequence[Observer]] = lambda _: (),
        companions: Callable[[str], Mapping[str, Companion]] = lambda _: {},
        on_dead_letter: Callable[[], None] = lambda: None,
        snapshot_every_records: int = 20_000,
    ) -> None:
        self._backend = backend
        self._samples: list[SampleInput] = []
        letters = DeadLetters(AdmissionDecider.service, cell, dead_letters, on_dead_letter)
        inputs: dict[str, tuple[Decider[Any], list[Input]]] = {}
        for decider in (AllocatorDecider(), PlacementDecider(), LoanManagerDecider()):
            inputs[decider.service] = (decider, [])
        inputs[AdmissionDecider.service] = (
            AdmissionDecider(),
            [command_input(commands, letters, cell=cell, partition=partition)],
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
                log=open_log(),
                election=AlwaysElected(),
                clock=clock,
                inputs=feeds,
                observers=observers(service),
                companions=companions(service),
                snapshot_every_records=snapshot_every_records,
            )
            for service, (decider, feeds) in inputs.items()
        ]

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
