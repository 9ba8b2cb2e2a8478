"""The log in memory keeps the contract of all logs."""

from __future__ import annotations

import pytest

from resilin.eventlog.memory import MemoryLog, MemorySnapshots

from .contract import LogContract, SnapshotContract


class MemoryHarness:
    def __init__(self) -> None:
        self._log = MemoryLog()
        self._snapshots = MemorySnapshots()

    def writer(self) -> MemoryLog:
        return self._log

    def reader(self) -> MemoryLog:
        return self._log

    def snapshots(self) -> MemorySnapshots:
        return self._snapshots


@pytest.fixture
def harness() -> MemoryHarness:
    return MemoryHarness()


class TestMemoryLog(LogContract):
    pass


class TestMemorySnapshots(SnapshotContract):
    pass
