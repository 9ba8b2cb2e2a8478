"""The port between the executor and whatever runs its workers.

A backend carries out instructions and reports what happened. It may be a simulated cluster
or real processes; it decides nothing and keeps no state that it could not find again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from resilin.contracts.events import Event
from resilin.contracts.telemetry import StepSample
from resilin.executor.decider import ExecutorState, Instruction

__all__ = ["Report", "WorkerBackend"]

Report = Event | StepSample
"""What a backend reports: facts for the log, or telemetry."""


class WorkerBackend(Protocol):
    """Carries out the executor's instructions on behalf of one executor at a time."""

    async def take_over(self, state: ExecutorState, now_seconds: float) -> None:
        """Begin, or begin again: adopt or end what an earlier executor left, announce nodes.

        Called when this executor starts to lead, before any instruction. What was lost in
        between is reported like any other loss.
        """
        ...

    def carry_out(
        self, state: ExecutorState, instructions: Sequence[Instruction], now_seconds: float
    ) -> None:
        """Bring workers to what the log says; repeats and outdated instructions are harmless.

        Returns at once: what takes time goes on in the background and is reported.
        """
        ...

    async def reports(self) -> Sequence[Report]:
        """Wait until there is something to report, and return it in order.

        Cancelled whenever the executor has something else to do; nothing may be lost by that.
        A report is handed over once; if the log did not take it in (the executor was fenced),
        the next :meth:`take_over` finds what it told.
        """
        ...

    async def close(self, *, stop_workers: bool) -> None:
        """End the backend; workers go on without it unless they are to be stopped."""
        ...
