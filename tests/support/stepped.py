"""Live services under a clock that stands still while there is anything to do.

So a live cell meets every moment exactly, as the simulation does, and the two can be compared
record by record.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resilin.admission.state import AdmissionState
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.topics import JOBS_COMMANDS
from resilin.embedded.cell import EmbeddedCell
from resilin.kernel.fencing import Fence
from resilin.runtime.service import LiveService
from resilin.simulation.backend import SimulatedBackend
from resilin.simulation.simulation import TimedCommand

__all__ = ["SteppedClock", "decisions", "drive"]

_LOOK_SECONDS = 0.01
_STABLE_LOOKS = 4
_QUIET_SECONDS = 60.0


class SteppedClock:
    """A clock that only :meth:`advance` moves."""

    def __init__(self, now_seconds: float) -> None:
        self._now = now_seconds

    def now_seconds(self) -> float:
        return self._now

    def advance(self, now_seconds: float) -> None:
        self._now = max(now_seconds, self._now)

    def wall_seconds(self, seconds: float) -> float:
        return _LOOK_SECONDS

    async def sleep_until(self, moment_seconds: float) -> None:
        while self._now < moment_seconds:
            await asyncio.sleep(_LOOK_SECONDS)


@dataclass
class _Quiet:
    """Tells whether nothing is going on any more."""

    services: Sequence[LiveService[object]]
    backend: SimulatedBackend
    clock: SteppedClock

    def state(self) -> tuple[object, ...]:
        offsets = {service.host.folded.offset for service in self.services}
        settled = len(offsets) == 1 and all(service.host.may_append for service in self.services)
        due = self.backend.next_seconds() <= self.clock.now_seconds()
        return (settled and not due, *sorted(offsets))


async def _settle(quiet: _Quiet, taken: Callable[[], bool], running: asyncio.Task[None]) -> None:
    last: tuple[object, ...] = ()
    stable = 0
    until = asyncio.get_running_loop().time() + _QUIET_SECONDS
    while stable < _STABLE_LOOKS:
        await asyncio.sleep(_LOOK_SECONDS)
        if running.done():
            running.result()
        now = quiet.state()
        stable = stable + 1 if now == last and now[0] and taken() else 0
        last = now
        assert asyncio.get_running_loop().time() < until, f"the cell never came to rest: {now}"


async def drive(
    cell: EmbeddedCell,
    backend: SimulatedBackend,
    clock: SteppedClock,
    commands: Sequence[TimedCommand],
    produce: Callable[[bytes], int],
    *,
    partition: int = 0,
) -> None:
    """Run a live cell through the commands and to the end of the last job."""
    running = asyncio.create_task(cell.run())
    admission = next(service for service in cell.services if service.service == "admission")
    source = f"{JOBS_COMMANDS.name}/{partition}"
    produced = -1

    def state() -> AdmissionState:
        found = admission.host.folded.state
        assert isinstance(found, AdmissionState)
        return found

    def taken() -> bool:
        return state().positions.get(source, -1) >= produced

    quiet = _Quiet(cell.services, backend, clock)
    waiting = list(commands)
    while True:
        await _settle(quiet, taken, running)
        if not waiting and not state().cell.jobs:
            break
        timers = [service.host.next_timer() for service in cell.services]
        moments = [timer for timer in timers if timer is not None]
        moments.append(backend.next_seconds())
        if waiting:
            moments.append(waiting[0].at_seconds)
        moment = min(moments)
        assert moment < math.inf, "nothing is left to happen, and a job has not ended"
        clock.advance(moment)
        while waiting and waiting[0].at_seconds <= clock.now_seconds():
            produced = produce(waiting.pop(0).command.model_dump_json().encode())
    cell.stop()
    await running


def decisions(entries: Sequence[LogEntry]) -> list[tuple[object, ...]]:
    """Every decision that changes something: who decided, when, and what, in order."""
    fence = Fence()
    found: list[tuple[object, ...]] = []
    for entry in entries:
        if not fence.admit(entry) or entry.record.nature != "decision":
            continue
        found += [
            (entry.record.service, entry.record.timestamp, event)
            for event in entry.record.events
            if not isinstance(event, ev.AllocationPlanned) or event.changes
        ]
    return found
