"""Telemetry from Kafka as the input of a service, leading or standing by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from resilin.contracts.telemetry import StepSample
from resilin.kernel.decider import Decider, Intake
from resilin.runtime.inputs import SampleInput
from resilin.runtime.main import MakeInputs, ServiceProcess
from resilin.runtime.ports import Input
from resilin.runtime.telemetry import telemetry_running

__all__ = ["WatchesTelemetry", "telemetry_inputs"]


class WatchesTelemetry(Decider[Any], Intake[Any, StepSample], Protocol):
    """The core of a service that is fed with samples."""


def telemetry_inputs(decider: WatchesTelemetry) -> MakeInputs:
    """Return what builds the input of such a service.

    Every instance is a consumer group of its own and sees every sample: a standby keeps its
    windows warm and records nothing.
    """

    async def make(process: ServiceProcess) -> Sequence[Input]:
        samples = SampleInput(lambda sample: decider.accept(process.state, sample))
        settings = process.settings
        letters = await process.dead_letters()
        running = await process.stack.enter_async_context(
            telemetry_running(
                process.connection,
                f"resilin-{settings.cell}-{process.service}-{settings.instance}",
                samples.deliver,
                letters.put,
                cell=settings.cell,
            )
        )
        process.background.append(running.failed)
        return [samples]

    return make
