"""A log and a snapshot store in memory: for simulation and tests."""

from __future__ import annotations

from collections.abc import Iterator

from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.port import Snapshot

__all__ = ["MemoryLog", "MemorySnapshots"]


class MemoryLog:
    """Keeps the records themselves: they are immutable, so nothing is encoded."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []

    def append(self, record: Record) -> int:
        """See :meth:`EventLog.append`."""
        offset = len(self._entries)
        self._entries.append(LogEntry(offset, record))
        return offset

    def read(self, after: int = -1) -> Iterator[LogEntry]:
        """See :meth:`EventLog.read`."""
        return iter(self._entries[after + 1 :])

    def end_offset(self) -> int:
        """See :meth:`EventLog.end_offset`."""
        return len(self._entries) - 1


class MemorySnapshots:
    """Keeps the newest snapshot of each service."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}

    def save(self, service: str, snapshot: Snapshot) -> None:
        """See :meth:`SnapshotStore.save`."""
        self._snapshots[service] = snapshot

    def load(self, service: str) -> Snapshot | None:
        """See :meth:`SnapshotStore.load`."""
        return self._snapshots.get(service)
