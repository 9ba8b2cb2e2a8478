"""The executor as a process on Kafka: `python -m resilin.executor`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from resilin.executor.decider import ExecutorDecider
from resilin.executor.shell import BackendInput
from resilin.runtime.main import ServiceProcess, run_service
from resilin.runtime.ports import Input
from resilin.runtime.telemetry import TelemetryWriter
from resilin.simulation.backend import SimulatedBackend


async def _inputs(process: ServiceProcess) -> Sequence[Input]:
    clock = process.clock
    telemetry = await process.stack.enter_async_context(TelemetryWriter(process.connection))
    backend = SimulatedBackend(clock.now_seconds, clock.sleep_until)
    return [BackendInput(backend, telemetry.send)]


if __name__ == "__main__":
    sys.exit(run_service(ExecutorDecider(), _inputs))
