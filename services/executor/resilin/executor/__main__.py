"""The executor as a process on Kafka: `python -m resilin.executor`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from resilin.agent.backend import LocalBackend
from resilin.executor.backend import WorkerBackend
from resilin.executor.decider import ExecutorDecider
from resilin.executor.shell import BackendInput
from resilin.runtime.main import ServiceProcess, run_service
from resilin.runtime.ports import Input
from resilin.runtime.telemetry import TelemetryWriter
from resilin.simulation.backend import SimulatedBackend


def _backend(process: ServiceProcess) -> WorkerBackend:
    settings, clock = process.settings, process.clock
    if settings.executor_backend == "simulated":
        return SimulatedBackend(clock.now_seconds, clock.sleep_until)
    return LocalBackend(
        {settings.executor_server: settings.executor_slots},
        Path(settings.executor_home).absolute(),
        device=settings.executor_device,
        clock=clock.now_seconds,
    )


async def _inputs(process: ServiceProcess) -> Sequence[Input]:
    telemetry = await process.stack.enter_async_context(
        TelemetryWriter(process.connection, process.settings.cell)
    )
    backend = _backend(process)

    async def close() -> None:
        await backend.close(stop_workers=True)

    process.stack.push_async_callback(close)
    return [BackendInput(backend, telemetry.send)]


if __name__ == "__main__":
    sys.exit(run_service(ExecutorDecider(), _inputs))
