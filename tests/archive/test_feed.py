"""The archive follows the log, and a database that is away ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.kernel.counter import claim_of, record_of

from resilin.archive import feed as module
from resilin.archive.feed import feed_archive
from resilin.archive.store import ArchiveUnavailableError
from resilin.contracts.record import LogEntry


class Database:
    """Stands for PostgreSQL: away as often as it is told, in the middle or at once.

    Attributes:
        away: How often nobody answers.
        cut_off: How many batches fail halfway.
    """

    def __init__(self) -> None:
        self.away = 0
        self.cut_off = 0
        self.kept: list[int] = []
        self.open = 0
        self.error: Exception | None = None

    async def connect(self, url: str) -> Any:
        assert url == "postgresql://somewhere"
        if self.away:
            self.away -= 1
            raise ArchiveUnavailableError("nobody answers")
        return self

    async def __aenter__(self) -> Database:
        self.open += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open -= 1

    def writer(self) -> Database:
        return self

    async def position(self, cell: str) -> int:
        return self.kept[-1] if self.kept else -1

    async def write(self, entries: Sequence[LogEntry]) -> None:
        if self.error is not None:
            raise self.error
        if self.cut_off:
            self.cut_off -= 1
            raise ArchiveUnavailableError("cut off")
        self.kept += [entry.offset for entry in entries]


class Log:
    def __init__(self, length: int) -> None:
        self.entries = [LogEntry(0, claim_of(1))]
        self.entries += [LogEntry(at, record_of(basis=at - 1)) for at in range(1, length)]
        self.starts: list[int] = []
        self.error: Exception | None = None

    async def start(self, after: int) -> None:
        self.starts.append(after)
        self._next = after + 1

    async def read(self, timeout_seconds: float) -> Sequence[LogEntry]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        entries = self.entries[self._next : self._next + 2]
        self._next += len(entries)
        return entries


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database()

    class Opener:
        open = staticmethod(database.connect)

    monkeypatch.setattr(module, "Archive", Opener)
    return database


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the feed waited before it tried again."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def wait(seconds: float) -> None:
        if seconds:
            waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(module.asyncio, "sleep", wait)
    return waits


def feed(log: Log, database: Database) -> None:
    """Feed until all is kept, then cancel."""

    async def story() -> None:
        async with asyncio.timeout(30):
            feeding = asyncio.create_task(feed_archive("postgresql://somewhere", log, "main"))
            while len(database.kept) < len(log.entries) and not feeding.done():
                await asyncio.sleep(0)
            if feeding.done():
                feeding.result()
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    asyncio.run(story())


def test_the_log_is_kept_from_where_the_archive_stands(
    database: Database, waits: list[float]
) -> None:
    database.kept = [0, 1, 2]
    log = Log(7)
    feed(log, database)
    assert log.starts == [2]
    assert database.kept == [*range(7)]
    assert database.open == 0


def test_a_database_that_is_away_is_asked_again_less_and_less_often(
    database: Database, waits: list[float]
) -> None:
    database.away = 8
    feed(Log(3), database)
    assert database.kept == [0, 1, 2]
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_database_that_goes_away_in_the_middle_is_caught_up_with(
    database: Database, waits: list[float]
) -> None:
    database.cut_off = 3
    log = Log(5)
    feed(log, database)
    assert database.kept == [*range(5)]
    assert log.starts == [-1, -1, -1, -1]
    assert waits == [2.0, 2.0, 2.0]
    assert database.open == 0


def test_an_error_of_the_log_is_not_the_databases(database: Database, waits: list[float]) -> None:
    log = Log(3)
    log.error = OSError("the log is gone")
    with pytest.raises(OSError, match="the log is gone"):
        feed(log, database)
    assert database.open == 0


def test_rows_that_the_database_refuses_are_loud(database: Database, waits: list[float]) -> None:
    database.error = ValueError("no such column")
    with pytest.raises(ValueError, match="no such column"):
        feed(Log(3), database)
