"""Commands that clients leave in a file, as the services read them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.embedded.topics import LocalTopicReader, LocalTopicWriter
from resilin.eventlog.sqlite_topic import SqliteTopic


def test_messages_are_read_from_where_the_log_says(tmp_path: Path) -> None:
    async def story() -> None:
        with SqliteTopic(tmp_path / "topics", JOBS_COMMANDS.name) as topic:
            for value in (b"a", b"b", b"c"):
                topic.produce(value)
            reader = LocalTopicReader(topic)
            await reader.start(0)
            assert [each.value for each in await reader.read(1.0)] == [b"b", b"c"]
            assert await reader.read(0.0) == ()
            await reader.start(1)  # it leads once more
            assert [each.value for each in await reader.read(1.0)] == [b"c"]
            await reader.stop()

    asyncio.run(story())


def test_a_flood_is_read_in_pieces(tmp_path: Path) -> None:
    # It may be far larger than memory: clients write while nobody reads.
    async def story() -> None:
        with SqliteTopic(tmp_path / "topics", JOBS_COMMANDS.name) as topic:
            topic._connection.execute("PRAGMA synchronous = OFF")
            for number in range(700):
                topic.produce(str(number).encode())
            reader = LocalTopicReader(topic)
            await reader.start(-1)
            pieces = [await reader.read(1.0), await reader.read(1.0)]
            assert [len(piece) for piece in pieces] == [500, 200]
            assert [each.offset for piece in pieces for each in piece] == [*range(700)]

    asyncio.run(story())


def test_who_waits_sees_what_another_process_wrote(tmp_path: Path) -> None:
    async def story() -> None:
        with (
            SqliteTopic(tmp_path / "topics", JOBS_COMMANDS.name) as ours,
            SqliteTopic(tmp_path / "topics", JOBS_COMMANDS.name) as theirs,
        ):
            reader = LocalTopicReader(ours)
            await reader.start(-1)
            waiting = asyncio.create_task(reader.read(30.0))
            await asyncio.sleep(0.01)
            theirs.produce(b"a")
            assert [each.value for each in await waiting] == [b"a"]

    asyncio.run(story())


def test_dead_letters_are_written_where_people_look(tmp_path: Path) -> None:
    async def story() -> None:
        with SqliteTopic(tmp_path / "topics", DEADLETTER.name) as topic:
            assert await LocalTopicWriter(topic).produce(b"letter", b"main") == 0
            (letter,) = topic.read()
            assert (letter.key, letter.value) == (b"main", b"letter")

    asyncio.run(story())
