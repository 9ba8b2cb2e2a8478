"""One service alive in a test: a log in memory, an election by hand, an input that is a list."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from resilin.contracts.record import LogEntry, Record
from resilin.embedded.log import LocalLog, LocalLogView
from resilin.eventlog.memory import MemoryLog, MemorySnapshots
from resilin.eventlog.port import Snapshot
from resilin.kernel.fencing import Fence
from resilin.runtime.service import LiveService

__all__ = ["ByHand", "Listed", "Seen", "SharedLog", "View", "counted", "running", "until"]

PATIENCE_SECONDS = 30.0


async def until(true: Callable[[], object]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(0.002)


class _Store(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.snapshots = MemorySnapshots()

    def save(self, service: str, snapshot: Snapshot) -> None:
        self.snapshots.save(service, snapshot)

    def load(self, service: str) -> Snapshot | None:
        return self.snapshots.load(service)


class SharedLog(LocalLog):
    """A log in memory; tests write to it as other services would."""

    def __init__(self) -> None:
        super().__init__(_Store())

    @property
    def entries(self) -> list[LogEntry]:
        return list(self.log.read())

    def view(self) -> View:
        return View(self)


class View(LocalLogView):
    """What one service sees of a log; a test may hold it up or have it fail.

    Attributes:
        reads: Cleared to hold up what is read, as if the process were frozen.
        starts: Where it was opened, each time.
        appends: How many records were appended through it.
    """

    def __init__(self, shared: LocalLog) -> None:
        super().__init__(shared)
        self.reads = asyncio.Event()
        self.reads.set()
        self.starts: list[int] = []
        self._returned = -1
        self.appends = 0
        self.read_error: BaseException | None = None
        self.append_error: Exception | None = None

    async def start(self, after: int) -> None:
        self.starts.append(after)
        self._returned = after
        await super().start(after)

    async def read(self, timeout_seconds: float) -> Sequence[LogEntry]:
        await self.reads.wait()
        entries = await super().read(min(timeout_seconds, 0.02))
        if self.read_error is not None:
            raise self.read_error
        if not self.reads.is_set():
            await self.reads.wait()  # frozen while it waited
        self._returned = entries[-1].offset if entries else self._returned
        return entries

    def position(self) -> int:
        return self._returned

    async def append(self, record: Record) -> int:
        if self.append_error is not None:
            raise self.append_error
        self.appends += 1
        return await super().append(record)


class ByHand:
    """An election whose outcome the test says."""

    def __init__(self, *, elected: bool = True) -> None:
        self.elected = elected
        self.error: Exception | None = None
        self.stood_back = False
        self._wake: Callable[[], None] = lambda: None

    async def run(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        if self.error is not None:
            raise self.error
        try:
            await asyncio.Event().wait()
        finally:
            self.stood_back = True

    def elect(self, *, elected: bool = True) -> None:
        self.elected = elected
        self._wake()


class Listed:
    """An input that is a list; it hands on one item after the other."""

    def __init__(self, *items: Any) -> None:
        self.items = deque(items)
        self.calls: list[str] = []
        self.folds: list[int] = []
        self.error: BaseException | None = None
        self.returns = False
        self._wake: Callable[[], None] = lambda: None

    def put(self, *items: Any) -> None:
        self.items += items
        self._wake()

    async def run(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        if self.error is not None:
            raise self.error
        if not self.returns:
            await asyncio.Event().wait()

    async def lead(self, state: Any, now_seconds: float) -> None:
        self.calls.append("lead")

    async def follow(self) -> None:
        self.calls.append("follow")

    async def next_batch(self, state: Any, now_seconds: float) -> Sequence[Any]:
        return [self.items[0]] if self.items else []

    def taken(self) -> None:
        self.items.popleft()

    def folded(self, state: Any, entry: LogEntry, now_seconds: float) -> None:
        self.folds.append(entry.offset)


class Seen:
    """An observer that counts what it is told."""

    def __init__(self) -> None:
        self.replays: list[int] = []
        self.decisions = 0
        self.mismatches = 0
        self.snapshots = 0
        self.roles: list[bool] = []

    def folded(self, entry: LogEntry, *, counted: bool) -> None:
        pass

    def appended(self, record: Record, seconds: float) -> None:
        pass

    def decided(self, seconds: float) -> None:
        self.decisions += 1

    def replayed(self, records: int, seconds: float) -> None:
        self.replays.append(records)

    def role(self, *, leading: bool, epoch: int) -> None:
        self.roles.append(leading)

    def lag(self, records: int) -> None:
        pass

    def snapshot(self, size_bytes: int, seconds: float) -> None:
        self.snapshots += 1

    def mismatch(self) -> None:
        self.mismatches += 1


@asynccontextmanager
async def running(*services: LiveService[Any]) -> AsyncIterator[None]:
    """Run services meanwhile, and end them in good order."""
    tasks = [asyncio.create_task(service.run()) for service in services]
    try:
        for service, task in zip(services, tasks, strict=True):
            ready = asyncio.create_task(service.ready.wait())
            await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if task.done():
                task.result()
        yield
    finally:
        for service in services:
            service.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*tasks)


def counted(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the entries that count."""
    fence = Fence()
    return [entry for entry in entries if fence.admit(entry)]
