"""One file, seven readers: each sees every record once, in order, whoever appended it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.kernel.counter import claim_of, record_of

from resilin.contracts.record import LogEntry
from resilin.embedded import log as module
from resilin.embedded.log import LocalLog, LocalLogView
from resilin.eventlog.port import Snapshot
from resilin.eventlog.sqlite import SqliteLog


async def read_all(view: LocalLogView) -> list[int]:
    entries: list[LogEntry] = []
    while found := await view.read(0.01):
        entries += found
    return [entry.offset for entry in entries]


def written(path: Path, records: int) -> SqliteLog:
    log = SqliteLog(path / "log.resilin", durable=False)
    log.append(claim_of(1))
    for basis in range(records - 1):
        log.append(record_of(basis=basis))
    return log


def test_what_is_there_comes_first_and_what_comes_meanwhile_after_it(tmp_path: Path) -> None:
    async def story() -> None:
        with written(tmp_path, 5) as file:
            log = LocalLog(file)
            one, two = log.view(), log.view()
            await one.start(-1)
            await two.start(2)
            await two.append(record_of(basis=4))
            assert await one.end_offset() == 5
            assert (one.position(), two.position()) == (-1, 2)
            assert await read_all(one) == [0, 1, 2, 3, 4, 5]
            assert await read_all(two) == [3, 4, 5]
            assert (one.position(), two.position()) == (5, 5)

    asyncio.run(story())


def test_a_long_log_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 3)

    async def story() -> None:
        with written(tmp_path, 7) as file:
            view = LocalLog(file).view()
            await view.start(-1)
            assert [len(await view.read(1.0)) for _ in range(3)] == [3, 3, 1]
            assert await view.read(0.01) == ()

    asyncio.run(story())


def test_who_waits_is_woken_by_an_append(tmp_path: Path) -> None:
    async def story() -> None:
        with written(tmp_path, 1) as file:
            log = LocalLog(file)
            reader, writer = log.view(), log.view()
            await reader.start(0)
            waiting = asyncio.create_task(reader.read(60.0))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await writer.append(record_of(basis=0))
            async with asyncio.timeout(30):
                (entry,) = await waiting
            assert entry.offset == 1

    asyncio.run(story())


def test_a_view_may_be_opened_again_and_be_closed(tmp_path: Path) -> None:
    async def story() -> None:
        with written(tmp_path, 3) as file:
            log = LocalLog(file)
            view = log.view()
            await view.start(-1)
            await view.start(0)
            await view.append(record_of(basis=2))
            assert await read_all(view) == [1, 2, 3]
            await view.close()
            log.append(record_of(basis=3))
            assert await read_all(view) == []
            await view.close()

    asyncio.run(story())


def test_snapshots_are_kept_beside_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        with written(tmp_path, 1) as file:
            view = LocalLog(file).view()
            assert await view.load_snapshot("counter") is None
            await view.save_snapshot("counter", Snapshot(0, b"state"))
            assert await view.load_snapshot("counter") == Snapshot(0, b"state")

    asyncio.run(story())
