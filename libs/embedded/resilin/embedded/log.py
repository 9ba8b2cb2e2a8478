"""The log of an embedded cell: one file, written by one process, followed by its services."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.port import EventLog, Snapshot, SnapshotStore

__all__ = ["LocalLog", "LocalLogView", "LogWithSnapshots"]

_CHUNK = 5_000


class LogWithSnapshots(EventLog, SnapshotStore, Protocol):
    """A log and its snapshots in one place."""


class LocalLog:
    """Hands every append to all views at once.

    Args:
        log: Where records are kept.
    """

    def __init__(self, log: LogWithSnapshots) -> None:
        self.log = log
        self._views: list[LocalLogView] = []

    def view(self) -> LocalLogView:
        """Return a view of the log for one service."""
        return LocalLogView(self)

    def attach(self, view: LocalLogView) -> None:
        """Have a view told of every append from now on."""
        self._views.append(view)

    def detach(self, view: LocalLogView) -> None:
        """Tell a view no more."""
        if view in self._views:
            self._views.remove(view)

    def append(self, record: Record) -> int:
        """Append for one service and tell all."""
        offset = self.log.append(record)
        for view in self._views:
            view.arrived(LogEntry(offset, record))
        return offset


class LocalLogView:
    """A :class:`~resilin.runtime.ports.LiveLog` of one service; see there."""

    def __init__(self, shared: LocalLog) -> None:
        self._shared = shared
        self._old: Iterator[LogEntry] = iter(())
        self._new: deque[LogEntry] = deque()
        self._came = asyncio.Event()
        self._position = -1

    def arrived(self, entry: LogEntry) -> None:
        """Take note of an append."""
        self._new.append(entry)
        self._came.set()

    async def start(self, after: int) -> None:
        """See the port. What is there is read first, what comes meanwhile waits its turn."""
        self._shared.detach(self)
        self._new.clear()
        self._position = after
        self._old = self._shared.log.read(after)
        self._shared.attach(self)

    async def read(self, timeout_seconds: float) -> Sequence[LogEntry]:
        """See the port."""
        old = list(islice(self._old, _CHUNK))
        if old:
            self._position = old[-1].offset
            return old
        if not self._new:
            self._came.clear()
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._came.wait()
            except TimeoutError:
                return ()
        entries = list(self._new)
        self._new.clear()
        self._position = entries[-1].offset
        return entries

    async def append(self, record: Record) -> int:
        """See the port."""
        return self._shared.append(record)

    async def end_offset(self) -> int:
        """See the port."""
        return self._shared.log.end_offset()

    def position(self) -> int:
        """See the port."""
        return self._position

    async def load_snapshot(self, service: str) -> Snapshot | None:
        """See the port."""
        return self._shared.log.load(service)

    async def save_snapshot(self, service: str, snapshot: Snapshot) -> None:
        """See the port."""
        self._shared.log.save(service, snapshot)

    async def close(self) -> None:
        """See the port."""
        self._shared.detach(self)
