"""The archive in a real PostgreSQL: each entry once, whatever comes in between."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.support.events import admitted, placed, submitted
from tests.support.log import HandMadeLog, a_cell
from tests.support.runs import KINDS, recorded

from resilin.archive import Archive, ArchiveUnavailableError, migrate, store
from resilin.archive.projection import OpenRows, fold
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.report.history import History

DOCUMENT = Path(__file__).parents[2] / "docs" / "archive.md"
TABLES = ("positions", "jobs", "allocations", "throughput", "servers")


@asynccontextmanager
async def a_database(server_url: str) -> AsyncIterator[str]:
    """An empty database of its own on the tests' server."""
    name = f"archive_{uuid.uuid4().hex}"
    server = await asyncpg.connect(server_url)
    try:
        await server.execute(f"CREATE DATABASE {name}")
        yield f"{server_url.rpartition('/')[0]}/{name}"
        await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await server.close()


async def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    connection = await asyncpg.connect(url)
    try:
        return {
            table: sorted(
                (tuple(row) for row in await connection.fetch(f"SELECT * FROM {table}")),  # noqa: S608 (names of this module)
                key=repr,
            )
            for table in TABLES
        }
    finally:
        await connection.close()


async def archived_at_once(server_url: str, entries: Sequence[LogEntry]) -> dict[str, Any]:
    """The rows of a log that was written in one batch into a database of its own."""
    async with a_database(server_url) as url, await Archive.open(url) as archive:
        await archive.writer().write(entries)
        return await contents(url)


def batches(entries: Sequence[LogEntry], seed: int) -> list[Sequence[LogEntry]]:
    """A log in batches of random sizes, as a reader may return it."""
    chance, found, start = random.Random(seed), [], 0
    while start < len(entries):
        size = chance.choice((1, 1, 3, 20, 100))
        found.append(entries[start : start + size])
        start += size
    return found


# --- the rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_are_those_of_the_log(postgres_url: str, kind: str) -> None:
    entries = recorded(kind)
    rows = OpenRows()
    changes, history = fold(rows, entries), History.of(entries)

    async def story() -> None:
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:
            writer = archive.writer()
            assert await writer.position("main") == -1
            await writer.write(entries)
            assert await writer.position("main") == entries[-1].offset
            found = await contents(url)
            assert len(found["jobs"]) == len(history.jobs) == len(changes.jobs)
            assert len(found["allocations"]) == len(changes.allocations)
            assert len(found["throughput"]) == len(changes.throughput)
            connection = await asyncpg.connect(url)
            for row in await connection.fetch("SELECT * FROM jobs ORDER BY submitted_offset"):
                told = changes.jobs[row["job_id"], row["submitted_offset"]]
                for field in ("outcome", "submitted_at", "finished_at", "gpu_seconds", "resizes"):
                    assert row[field] == getattr(told, field)
                assert row["outcome"] == history.jobs[row["job_id"]].outcome
            await connection.close()

    asyncio.run(story())


def test_the_batches_do_not_matter(postgres_url: str) -> None:
    entries = recorded("failures")

    async def story() -> None:
        wanted = await archived_at_once(postgres_url, entries)
        for seed in range(3):
            async with a_database(postgres_url) as url, await Archive.open(url) as archive:
                writer = archive.writer()
                for batch in batches(entries, seed):
                    await writer.write(batch)
                    assert await writer.position("main") == batch[-1].offset
                assert await contents(url) == wanted

    asyncio.run(story())


def test_a_repeat_changes_nothing(postgres_url: str) -> None:
    """Batches that overlap, a log that is fed again from its start, by the same and by another."""
    entries = recorded("noise")

    async def story() -> None:
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:
            writer = archive.writer()
            for start in range(0, len(entries), 40):
                await writer.write(entries[max(0, start - 25) : start + 40])
            once = await contents(url)
            assert once == await archived_at_once(postgres_url, entries)
            await writer.write(entries)
            for batch in batches(entries, 1):
                await archive.writer().write(batch)
            assert await contents(url) == once

    asyncio.run(story())


def test_every_start_reads_back_what_it_needs(postgres_url: str) -> None:
    """A process that restarts after every batch leaves the rows of one that never does."""
    entries = recorded("failures")

    async def story() -> None:
        wanted = await archived_at_once(postgres_url, entries)
        async with a_database(postgres_url) as url:
            for batch in batches(entries, 5):
                async with await Archive.open(url) as archive:
                    position = await archive.writer().position("main")
                    await archive.writer().write([it for it in batch if it.offset > position])
            assert await contents(url) == wanted

    asyncio.run(story())


class CrashError(Exception):
    """The process dies here."""


def test_a_crash_in_the_middle_of_a_batch_leaves_no_trace(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = recorded("failures")
    chance = random.Random(7)
    crashes = 0
    write_rows = store._upsert

    async def crashing(connection: Any, table: Any, *rest: Any) -> None:
        nonlocal crashes
        await write_rows(connection, table, *rest)
        if chance.random() < 0.1:
            crashes += 1
            raise CrashError(table.name)

    async def story() -> None:
        wanted = await archived_at_once(postgres_url, entries)
        monkeypatch.setattr(store, "_upsert", crashing)
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:
            writer, position = archive.writer(), -1
            while position < entries[-1].offset:
                before = await contents(url)
                try:
                    await writer.write([it for it in entries if it.offset > position][:50])
                except CrashError:
                    assert await contents(url) == before
                position = await writer.position("main")
            assert await contents(url) == wanted
        assert crashes > 3

    asyncio.run(story())


def test_two_writers_at_once_write_each_entry_once(postgres_url: str) -> None:
    entries = recorded("costly stops")

    async def feed(url: str, seed: int) -> None:
        async with await Archive.open(url) as archive:
            writer = archive.writer()
            for batch in batches(entries, seed):
                await writer.write(batch)
                await asyncio.sleep(0)

    async def story() -> None:
        wanted = await archived_at_once(postgres_url, entries)
        async with a_database(postgres_url) as url:
            async with asyncio.TaskGroup() as tasks:
                for seed in range(4):
                    tasks.create_task(feed(url, seed))
            assert await contents(url) == wanted

    asyncio.run(story())


def test_cells_do_not_mix(postgres_url: str) -> None:
    def of(cell: str) -> list[LogEntry]:
        log = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0,)}))
        return [LogEntry(it.offset, _in_cell(it, cell)) for it in log.entries]

    def _in_cell(entry: LogEntry, cell: str) -> Any:
        return type(entry.record)(
            **{name: getattr(entry.record, name) for name in entry.record.__slots__}
            | {"cell": cell}
        )

    async def story() -> None:
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:
            writer = archive.writer()
            for start in range(0, len(of("x")), 4):
                for cell in ("x", "y"):
                    await writer.write(of(cell)[start : start + 4])
            found = await contents(url)
            one, other = ([row[1:] for row in found["jobs"] if row[0] == it] for it in ("x", "y"))
            assert one == other
            assert len(one) == 1
            assert await writer.position("x") == await writer.position("y") == of("x")[-1].offset
            with pytest.raises(ValueError, match="several cells"):
                await writer.write([*of("x"), *of("y")])

    asyncio.run(story())


def test_no_entries_change_nothing(postgres_url: str) -> None:
    async def story() -> None:
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:
            await archive.writer().write([])
            assert not any((await contents(url)).values())

    asyncio.run(story())


def test_hostile_text_and_far_deadlines_are_archived(postgres_url: str) -> None:
    log = a_cell().given(submitted("a", deadline=1e11), admitted("a"))
    failed = ev.JobFailed(
        job_id="a", generation=1, reason="CannotStart", message="'; DROP\0 \U0001f4a5"
    )
    log.at(-1e14).given(failed)

    async def story() -> None:
        found = await archived_at_once(postgres_url, log.entries)
        ((*row,),) = found["jobs"]
        assert "'; DROP\N{REPLACEMENT CHARACTER} \U0001f4a5" in row

    asyncio.run(story())


# --- when the database is away -------------------------------------------------------------


def test_a_database_that_is_not_there_is_said_so() -> None:
    async def story() -> None:
        with pytest.raises(ArchiveUnavailableError):
            await Archive.open("postgresql://postgres@127.0.0.1:1/none")

    asyncio.run(story())


def test_a_connection_lost_in_a_batch_is_an_error_and_the_next_write_goes_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = recorded("noise")
    middle = len(entries) // 2

    async def cut_off(url: str) -> None:
        server = await asyncpg.connect(postgres_url)
        await server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
            url.rpartition("/")[2],
        )
        await server.close()

    async def story() -> None:
        wanted = await archived_at_once(postgres_url, entries)
        write_rows = store._upsert
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:

            async def cut_off_first(*arguments: Any) -> None:
                await cut_off(url)
                await write_rows(*arguments)

            writer = archive.writer()
            await writer.write(entries[:middle])
            with monkeypatch.context() as patch:
                patch.setattr(store, "_upsert", cut_off_first)
                with pytest.raises(ArchiveUnavailableError):
                    await writer.write(entries[middle:])
            assert await writer.position("main") == entries[middle - 1].offset
            await writer.write(entries[middle:])
            # Between two batches a connection may come and go unseen, or not.
            await cut_off(url)
            with contextlib.suppress(ArchiveUnavailableError):
                await writer.write(entries)
            await writer.write(entries)
            assert await contents(url) == wanted

    asyncio.run(story())


# --- migrations ----------------------------------------------------------------------------


def test_many_processes_migrate_once(postgres_url: str) -> None:
    async def open_and_close(url: str) -> None:
        await (await Archive.open(url)).close()

    async def story() -> None:
        async with a_database(postgres_url) as url:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(6):
                    tasks.create_task(open_and_close(url))
            connection = await asyncpg.connect(url)
            applied = await connection.fetch("SELECT version, name FROM archive_migrations")
            steps = [(step.version, step.name) for step in migrate.migrations()]
            assert [tuple(row) for row in applied] == steps
            assert await migrate.migrate(connection) == []
            await connection.close()

    asyncio.run(story())


def test_a_failing_migration_leaves_the_database_as_it_was(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = migrate.Migration(len(migrate.migrations()) + 1, "broken", "CREATE TABLE x (); NO")
    steps = [*migrate.migrations(), broken]

    async def story() -> None:
        async with a_database(postgres_url) as url:
            with monkeypatch.context() as patch:
                patch.setattr(migrate, "migrations", lambda: steps)
                with pytest.raises(asyncpg.PostgresSyntaxError):
                    await Archive.open(url)
            connection = await asyncpg.connect(url)
            tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
            assert await connection.fetchval(tables) == 0
            await connection.close()
            await (await Archive.open(url)).close()

    asyncio.run(story())


def test_a_database_of_a_later_version_is_left_alone(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = migrate.Migration(len(migrate.migrations()) + 1, "later", "CREATE TABLE later ()")
    steps = [*migrate.migrations(), later]

    async def story() -> None:
        async with a_database(postgres_url) as url:
            with monkeypatch.context() as patch:
                patch.setattr(migrate, "migrations", lambda: steps)
                await (await Archive.open(url)).close()
            with pytest.raises(migrate.MigrationError, match="update the code"):
                await Archive.open(url)

    asyncio.run(story())


# --- the document --------------------------------------------------------------------------

QUERIES = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def test_every_query_of_the_document_answers(postgres_url: str) -> None:
    entries = [*recorded("noise")]
    assert len(QUERIES) >= 4

    async def story() -> None:
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:
            await archive.writer().write(entries)
            connection = await asyncpg.connect(url)
            for query in QUERIES:
                assert await connection.fetch(query), query
            await connection.close()

    asyncio.run(story())


def test_the_document_tells_every_column(postgres_url: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")

    async def story() -> None:
        async with a_database(postgres_url) as url, await Archive.open(url):
            connection = await asyncpg.connect(url)
            columns = await connection.fetch(
                "SELECT table_name, column_name FROM information_schema.columns"
                " WHERE table_schema = 'public' AND table_name <> 'archive_migrations'"
            )
            await connection.close()
            assert {row["table_name"] for row in columns} == set(TABLES)
            for table, column in columns:
                assert f"`{table}`" in text
                assert f"`{column}`" in text, f"{table}.{column} is not documented"

    asyncio.run(story())


def test_migrations_are_numbered_without_a_gap() -> None:
    with pytest.raises(migrate.MigrationError, match="0002"):
        migrate.numbered({"0001_one.sql": "", "0003_three.sql": ""})
    with pytest.raises(migrate.MigrationError, match=r"readme\.txt"):
        migrate.numbered({"readme.txt": ""})
    steps = migrate.numbered({"0002_two.sql": "b", "0001_one.sql": "a"})
    assert [(step.version, step.name, step.sql) for step in steps] == [
        (1, "one", "a"),
        (2, "two", "b"),
    ]


def test_a_migration_that_was_changed_is_noticed() -> None:
    (step,) = migrate.numbered({"0001_one.sql": "a"})
    assert migrate.pending([step], {}) == [step]
    assert migrate.pending([step], {1: step.digest}) == []
    with pytest.raises(migrate.MigrationError, match="other content"):
        migrate.pending([step], {1: "0"})


def test_an_offset_is_where_the_rows_stand(postgres_url: str) -> None:
    """Records that do not count move the position too."""
    log = HandMadeLog().given(submitted("a"))
    log.add(submitted("b"), epoch=9)

    async def story() -> None:
        async with a_database(postgres_url) as url, await Archive.open(url) as archive:
            writer = archive.writer()
            await writer.write(log.entries)
            assert await writer.position("main") == log.entries[-1].offset
            assert len((await contents(url))["jobs"]) == 1

    asyncio.run(story())
