"""The log on a real Kafka keeps the contract of logs, and stops where it cannot go on."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.eventlog.contract import (
    DurableContract,
    LogContract,
    SnapshotContract,
    filled,
    record_of,
)
from tests.eventlog.topic_contract import TopicContract
from tests.support.kafka import delete_records, make_topic
from tests.support.servers import local_broker_running

from resilin.contracts.events import WorkerLost
from resilin.contracts.record import CorruptRecordError, LogEntry
from resilin.contracts.topics import CELL_EVENTS, SNAPSHOTS
from resilin.eventlog.kafka import (
    AsyncTopicReader,
    AsyncTopicWriter,
    KafkaConnection,
    KafkaLog,
    KafkaLogReader,
    KafkaLogWriter,
    KafkaSnapshots,
    KafkaTopic,
    LogTruncatedError,
    LogUnavailableError,
    LogWriteError,
)
from resilin.eventlog.port import Message, MessageTooLargeError, Snapshot
from resilin.runtime.local_broker import LocalBroker, free_ports

T = TypeVar("T")

PATIENCE_SECONDS = 240


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a story that would otherwise wait for ever if it fails."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await coroutine

    return asyncio.run(bounded())


async def read_until(reader: KafkaLogReader, offset: int) -> list[LogEntry]:
    entries: list[LogEntry] = []
    while reader.position() < offset:
        entries += await reader.read(1.0)
    return entries


async def send_raw(
    bootstrap: str, topic: str, *values: bytes, transactional_id: str | None = None
) -> None:
    """Write what our own writer never would."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", transactional_id=transactional_id
    )
    await producer.start()
    try:
        if transactional_id is not None:
            await producer.begin_transaction()
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
        if transactional_id is not None:
            await producer.commit_transaction()
    finally:
        await producer.stop()


@pytest.fixture
def events(bootstrap: str) -> str:
    """A topic of its own for one test's log, with the catalogue's limits."""
    return make_topic(
        bootstrap, "events", retention_ms="-1", max_message_bytes=str(CELL_EVENTS.message_bytes_max)
    )


@pytest.fixture
def snapshots(bootstrap: str) -> str:
    return make_topic(
        bootstrap,
        "snapshots",
        cleanup_policy="compact",
        max_message_bytes=str(SNAPSHOTS.message_bytes_max),
    )


# --- the contracts -------------------------------------------------------------------------


class KafkaHarness:
    def __init__(self, bootstrap: str, events: str, snapshots: str) -> None:
        self._bootstrap = bootstrap
        self._events = events
        self._snapshots = snapshots
        self._open: list[KafkaLog] = []

    def writer(self) -> KafkaLog:
        log = KafkaLog(self._bootstrap, "main", topic=self._events, snapshots_topic=self._snapshots)
        self._open.append(log)
        return log

    def reader(self) -> KafkaLog:
        return self.writer()

    def snapshots(self) -> KafkaLog:
        return self.writer()

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


@pytest.fixture
def harness(bootstrap: str, events: str, snapshots: str) -> Iterator[KafkaHarness]:
    harness = KafkaHarness(bootstrap, events, snapshots)
    yield harness
    harness.close()


class TestKafkaLog(LogContract):
    pass


class TestKafkaSnapshots(SnapshotContract):
    pass


class TestKafkaDurability:
    """What can be asked of a log whose records nobody can change or remove one by one."""

    test_closing = DurableContract.test_everything_is_there_again_after_closing
    test_refusing = DurableContract.test_what_could_not_be_read_back_is_not_appended


class KafkaTopicHarness:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._names = [make_topic(bootstrap, name) for name in ("one", "two")]
        self._open: list[KafkaTopic] = []

    def topic(self, place: int = 0) -> KafkaTopic:
        self._open.append(KafkaTopic(self._bootstrap, self._names[place]))
        return self._open[-1]

    def other_topic(self) -> KafkaTopic:
        return self.topic(1)

    def close(self) -> None:
        for topic in self._open:
            topic.close()


@pytest.fixture
def topic_harness(bootstrap: str) -> Iterator[KafkaTopicHarness]:
    harness = KafkaTopicHarness(bootstrap)
    yield harness
    harness.close()


class TestKafkaTopic(TopicContract):
    pass


# --- what services do ----------------------------------------------------------------------


def test_a_reader_follows_a_writer_offset_by_offset(bootstrap: str, events: str) -> None:
    async def story() -> None:
        connection = KafkaConnection(bootstrap)
        writer = KafkaLogWriter(connection, "main", topic=events)
        reader = KafkaLogReader(connection, "main", topic=events)
        await writer.start()
        await reader.start(-1)
        assert await reader.end_offset() == reader.position() == -1
        assert await reader.read(0.1) == []
        for number in range(50):
            assert await writer.append(record_of(number)) == number, "offsets have no gaps"
            assert await read_until(reader, number) == [LogEntry(number, record_of(number))]
        assert await reader.end_offset() == reader.position() == 49
        await reader.stop()
        await reader.start(46)
        assert [entry.offset for entry in await read_until(reader, 49)] == [47, 48, 49]
        await reader.start(48)  # moves
        assert [entry.offset for entry in await read_until(reader, 49)] == [49]
        await reader.stop()
        await writer.stop()

    run(story())


def test_writers_at_once_interleave_without_loss_or_repeat(bootstrap: str, events: str) -> None:
    async def story() -> None:
        connection = KafkaConnection(bootstrap)
        writers = [KafkaLogWriter(connection, "main", topic=events) for _ in range(3)]

        async def write(place: int, writer: KafkaLogWriter) -> list[int]:
            await writer.start()
            offsets = [await writer.append(record_of(place * 1_000 + n)) for n in range(40)]
            await writer.stop()
            return offsets

        taken = await asyncio.gather(*(write(*writer) for writer in enumerate(writers)))
        assert sorted(offset for offsets in taken for offset in offsets) == list(range(120))
        reader = KafkaLogReader(connection, "main", topic=events)
        await reader.start(-1)
        entries = await read_until(reader, await reader.end_offset())
        assert [entry.offset for entry in entries] == list(range(120))
        for place, offsets in enumerate(taken):
            own = [e.record.basis for e in entries if e.offset in set(offsets)]
            assert own == [place * 1_000 + n for n in range(40)], "each in its own order"
        await reader.stop()

    run(story())


def test_appends_that_do_not_wait_keep_their_order(bootstrap: str, events: str) -> None:
    async def story() -> None:
        writer = KafkaLogWriter(KafkaConnection(bootstrap), "main", topic=events)
        await writer.start()
        offsets = await asyncio.gather(*(writer.append(record_of(n)) for n in range(500)))
        assert offsets == list(range(500))
        await writer.stop()

    run(story())


def test_offsets_that_hold_no_record_are_passed(bootstrap: str, events: str) -> None:
    """The end of a transaction takes an offset: nobody may wait for an entry there."""

    async def story() -> None:
        from resilin.contracts.record import encode_record

        connection = KafkaConnection(bootstrap)
        raw = [encode_record(record_of(number)) for number in range(2)]
        await send_raw(bootstrap, events, *raw, transactional_id=events)
        reader = KafkaLogReader(connection, "main", topic=events)
        await reader.start(-1)
        assert await reader.end_offset() == 2
        entries = await read_until(reader, 2)
        assert [entry.offset for entry in entries] == [0, 1]
        assert reader.position() == 2
        await reader.stop()

    run(story())
    with KafkaLog(bootstrap, "main", topic=events) as log:
        assert [entry.offset for entry in log.read()] == [0, 1]
        assert log.append(record_of(9)) == 3


# --- where a reader stops ------------------------------------------------------------------


@pytest.mark.parametrize("after", [-1, 0, 3])
def test_history_that_is_gone_is_fatal(bootstrap: str, events: str, after: int) -> None:
    with KafkaLog(bootstrap, "main", topic=events) as log:
        filled(log, 8)
        delete_records(bootstrap, events, before=5)
        with pytest.raises(LogTruncatedError, match="only those from 5 up to 7") as caught:
            list(log.read(after))
        assert caught.value.earliest == 5
        assert [entry.offset for entry in log.read(4)] == [5, 6, 7], "what is left can be read"

    async def story() -> None:
        reader = KafkaLogReader(KafkaConnection(bootstrap), "main", topic=events)
        with pytest.raises(LogTruncatedError, match="begins at offset 5") as caught:
            await reader.start(after)
        assert (caught.value.earliest, caught.value.end) == (5, 8)
        await reader.start(4)
        assert [entry.offset for entry in await read_until(reader, 7)] == [5, 6, 7]
        await reader.stop()

    run(story())


def test_a_log_that_was_emptied_is_no_new_log(bootstrap: str, events: str) -> None:
    with KafkaLog(bootstrap, "main", topic=events) as log:
        filled(log, 3)
        delete_records(bootstrap, events, before=3)
        assert log.end_offset() == 2
        with pytest.raises(LogTruncatedError):
            list(log.read())
        assert list(log.read(2)) == []


def test_a_log_that_ends_before_what_was_folded_is_fatal(bootstrap: str, events: str) -> None:
    async def story() -> None:
        reader = KafkaLogReader(KafkaConnection(bootstrap), "main", topic=events)
        with pytest.raises(LogTruncatedError, match="ends at offset -1, and 7 was already folded"):
            await reader.start(7)
        await reader.stop()

    run(story())


def test_history_deleted_in_front_of_a_reader_is_fatal(bootstrap: str, events: str) -> None:
    with KafkaLog(bootstrap, "main", topic=events) as log:
        filled(log, 8)
    delete_records(bootstrap, events, before=5)

    async def story() -> None:
        reader = KafkaLogReader(KafkaConnection(bootstrap), "main", topic=events)
        await reader._reader.start(0)  # as if the deletion came after the look at the beginning
        for _ in range(2):
            with pytest.raises(LogTruncatedError, match="offset 0 is not there") as caught:
                await reader.read(5.0)
            assert caught.value.earliest == 5
        await reader.stop()

    run(story())


def test_a_corrupt_record_stops_every_reader_at_its_offset(bootstrap: str, events: str) -> None:
    place = rf"{events} \[0\]: offset 2: "
    with KafkaLog(bootstrap, "main", topic=events) as log:
        entries = filled(log, 2)
        run(send_raw(bootstrap, events, b'{"service":1}'))
        entries += filled(log, 2)
        reading = log.read()
        assert [next(reading), next(reading)] == entries[:2]
        with pytest.raises(CorruptRecordError, match=place):
            next(reading)
        assert [entry.offset for entry in log.read(2)] == [3, 4]

    async def story() -> None:
        reader = KafkaLogReader(KafkaConnection(bootstrap), "main", topic=events)
        await reader.start(-1)
        assert await read_until(reader, 1) == entries[:2], "what came before is handed over"
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match=place):
                await reader.read(1.0)
        assert reader.position() == 1
        await reader.stop()

    run(story())


def test_a_record_of_another_cell_is_no_record_of_this_log(bootstrap: str, events: str) -> None:
    with (
        KafkaLog(bootstrap, "main", topic=events) as log,
        KafkaLog(bootstrap, "east", topic=events) as other,
    ):
        filled(log, 1)
        with pytest.raises(CorruptRecordError, match="a record of cell main in the log of cell"):
            list(other.read())
        with pytest.raises(ValueError, match="a record of cell main in the log of cell east"):
            other.append(record_of(1))


def test_cells_have_partitions_of_their_own(bootstrap: str, snapshots: str) -> None:
    from dataclasses import replace

    topic = make_topic(bootstrap, "cells", partitions=2)
    with (
        KafkaLog(bootstrap, "main", 0, topic=topic) as log,
        KafkaLog(bootstrap, "east", 1, topic=topic) as other,
    ):
        assert log.append(record_of(1)) == other.append(replace(record_of(2), cell="east")) == 0
        assert [entry.record.cell for entry in log.read()] == ["main"]
        assert [entry.record.cell for entry in other.read()] == ["east"]


# --- where a writer stops ------------------------------------------------------------------


def large_record(size: int) -> Any:
    lost = WorkerLost(job_id="j", generation=1, iterations_done=0.0, message="x" * size)
    return record_of(0, lost)


def test_a_record_up_to_the_catalogues_limit_is_taken_and_one_above_is_fatal(
    bootstrap: str, events: str
) -> None:
    limit = CELL_EVENTS.message_bytes_max
    with KafkaLog(bootstrap, "main", topic=events) as log:
        largest = large_record(limit - 1_000)
        assert log.append(largest) == 0
        with pytest.raises(LogWriteError, match=f"at most {limit}"):
            log.append(large_record(limit))
        assert [entry.record for entry in log.read()] == [largest]


def test_brokers_that_take_less_than_the_catalogue_are_a_fatal_mistake(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "small", max_message_bytes="2000")
    with KafkaLog(bootstrap, "main", topic=topic) as log:
        assert log.append(record_of(0)) == 0
        with pytest.raises(LogWriteError, match=r"max\.message\.bytes is below"):
            log.append(large_record(5_000))
        with pytest.raises(LogUnavailableError, match="not written: an earlier write ended with"):
            log.append(record_of(1))
        assert len(list(log.read())) == 1


def test_an_append_given_up_is_one_of_unknown_outcome(bootstrap: str, events: str) -> None:
    async def story() -> None:
        writer = KafkaLogWriter(KafkaConnection(bootstrap), "main", topic=events)
        await writer.start()
        append = asyncio.create_task(writer.append(record_of(0)))
        await asyncio.sleep(0)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        with pytest.raises(LogUnavailableError, match="an earlier write ended with Cancelled"):
            await writer.append(record_of(1))
        await writer.stop()

    run(story())


@pytest.mark.parametrize(
    ("name", "partition", "said"),
    [("nowhere", 0, "nowhere"), (None, 3, r"has no partition 3, only \[0\]")],
)
def test_what_does_not_exist_is_said_at_once(
    bootstrap: str, events: str, name: str | None, partition: int, said: str
) -> None:
    log = KafkaLog(bootstrap, "main", partition, topic=name or events)
    with pytest.raises(LogUnavailableError, match=said):
        list(log.read())
    with pytest.raises(LogUnavailableError, match=said):
        log.append(record_of(1))
    log.close()


def test_no_broker_at_all_is_said_at_once() -> None:
    (port,) = free_ports(1)
    with KafkaLog(f"127.0.0.1:{port}", "main") as log:
        with pytest.raises(LogUnavailableError, match=f"cannot read cell.events at .*:{port}"):
            log.end_offset()
        with pytest.raises(LogUnavailableError, match=f"cannot write cell.events at .*:{port}"):
            log.append(record_of(1))


# --- snapshots -----------------------------------------------------------------------------


def test_snapshots_are_keyed_by_service_and_cell_so_that_compaction_keeps_one_each(
    bootstrap: str, snapshots: str
) -> None:
    async def story() -> Sequence[Any]:
        for cell in ("main", "east"):
            store = KafkaSnapshots(KafkaConnection(bootstrap), cell, topic=snapshots)
            await store.start()
            for offset in range(2):
                await store.save("executor/node-1", Snapshot(offset, b"state of " + cell.encode()))
            loaded = await store.load("executor/node-1")
            assert loaded == Snapshot(1, b"state of " + cell.encode())
            await store.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        partition = TopicPartition(snapshots, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found: list[Any] = []
        while len(found) < 4:
            found += (await consumer.getmany(timeout_ms=1_000)).get(partition, [])
        await consumer.stop()
        return found

    found = run(story())
    assert [message.key for message in found] == [
        b"executor/node-1/main",
        b"executor/node-1/main",
        b"executor/node-1/east",
        b"executor/node-1/east",
    ]
    assert found[1].value[:8] == (1).to_bytes(8, "big")
    assert zlib.decompress(found[1].value[8:]) == b"state of main"


@pytest.mark.parametrize("value", [b"", b"1234", b"12345678", b"12345678 not compressed"])
def test_a_damaged_snapshot_is_no_snapshot(
    bootstrap: str, snapshots: str, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        KafkaLog(bootstrap, "main", snapshots_topic=snapshots) as store,
        KafkaTopic(bootstrap, snapshots) as topic,
    ):
        store.save("allocator", Snapshot(1, b"good"))
        topic.produce(value, b"allocator/main")
        assert store.load("allocator") is None
        assert "a damaged snapshot" in caplog.text
        store.save("allocator", Snapshot(2, b"good again"))
        assert store.load("allocator") == Snapshot(2, b"good again")


def test_a_snapshot_too_large_is_a_warning(
    bootstrap: str, snapshots: str, caplog: pytest.LogCaptureFixture
) -> None:
    import random

    noise = random.Random(1).randbytes(SNAPSHOTS.message_bytes_max + 1)
    with KafkaLog(bootstrap, "main", snapshots_topic=snapshots) as store:
        store.save("allocator", Snapshot(1, b"small"))
        with caplog.at_level(logging.WARNING):
            store.save("allocator", Snapshot(2, noise))
        assert "the snapshot of allocator at 2 is not kept" in caplog.text
        assert store.load("allocator") == Snapshot(1, b"small")
        store.save("allocator", Snapshot(3, noise[:5_000_000]))
        assert store.load("allocator") == Snapshot(3, noise[:5_000_000])


# --- topics beside the log -----------------------------------------------------------------


def test_a_topic_forgets_and_its_reader_goes_on_and_says_so(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = make_topic(bootstrap, "commands")
    with KafkaTopic(bootstrap, name) as topic:
        for number in range(8):
            topic.produce(b"%d" % number)
        delete_records(bootstrap, name, before=5)
        assert [message.offset for message in topic.read()] == [5, 6, 7]
        assert [message.offset for message in topic.read(2)] == [5, 6, 7]

    async def story() -> None:
        reader = AsyncTopicReader(KafkaConnection(bootstrap), name)
        await reader.start(-1)
        assert not caplog.text, "who never read anything missed nothing"
        await reader.start(2)
        assert "messages from 3 to 4 were deleted before they were read" in caplog.text
        found: list[Message] = []
        while len(found) < 3:
            found += await reader.read(1.0)
        assert [message.offset for message in found] == [5, 6, 7]
        assert await reader.end_offset() == 7
        with pytest.raises(LogTruncatedError, match="deleted and made anew"):
            await reader.start(20)
        await reader.stop()

    with caplog.at_level(logging.WARNING, logger="resilin"):
        run(story())


def test_messages_deleted_in_front_of_a_topics_reader_are_passed(bootstrap: str) -> None:
    name = make_topic(bootstrap, "commands")

    async def story() -> None:
        connection = KafkaConnection(bootstrap)
        writer, reader = AsyncTopicWriter(connection, name), AsyncTopicReader(connection, name)
        await writer.start()
        for number in range(8):
            assert await writer.produce(b"%d" % number, b"main") == number
        await asyncio.to_thread(delete_records, bootstrap, name, 5)
        await reader._reader.start(2)  # as if the deletion came after the look at the beginning
        found: list[Message] = []
        while len(found) < 3:
            found += await reader.read(1.0)
        assert [message.offset for message in found] == [5, 6, 7]
        with pytest.raises(MessageTooLargeError, match="at most 1048576"):
            await writer.produce(b"x" * 2**21)
        assert await writer.produce(b"goes on") == 8
        await reader.stop()
        await writer.stop()

    run(story())


# --- brokers that come and go --------------------------------------------------------------


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker that a test may kill."""
    with local_broker_running(tmp_path / "kafka") as broker:
        yield broker


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_restarts_loses_nothing(own_broker: LocalBroker, how: str) -> None:
    """A writer goes on or raises; whatever was acknowledged is in the log, once and in order."""
    events = make_topic(own_broker.bootstrap, "events", retention_ms="-1")

    async def story() -> None:
        connection = KafkaConnection(own_broker.bootstrap)
        reader = KafkaLogReader(connection, "main", topic=events)
        await reader.start(-1)
        acknowledged: dict[int, int] = {}
        seen: list[LogEntry] = []
        stopping = asyncio.Event()

        async def write() -> None:
            number = 0
            while not stopping.is_set():
                writer = KafkaLogWriter(connection, "main", topic=events)
                try:
                    await writer.start()
                    while not stopping.is_set():
                        number += 1
                        acknowledged[await writer.append(record_of(number))] = number
                except LogUnavailableError:
                    continue  # another instance takes over
                finally:
                    await writer.stop()

        async def read() -> None:
            while not stopping.is_set():
                seen.extend(await reader.read(0.2))

        tasks = [asyncio.create_task(write()), asyncio.create_task(read())]
        for _ in range(2):
            before = len(acknowledged)
            while len(acknowledged) < before + 50:
                await asyncio.sleep(0.05)
            getattr(own_broker, how)()
            await asyncio.sleep(1)
            own_broker.start()
        before = len(acknowledged)
        while len(acknowledged) < before + 50:
            await asyncio.sleep(0.05)
        stopping.set()
        await asyncio.gather(*tasks)
        seen.extend(await read_until(reader, await reader.end_offset()))
        await reader.stop()

        offsets = [entry.offset for entry in seen]
        assert offsets == list(range(len(seen)))
        basis = {entry.offset: entry.record.basis for entry in seen}
        assert {offset: basis[offset] for offset in acknowledged} == acknowledged
        assert len(set(basis.values())) == len(seen), "nothing is there twice"

    run(story())


def test_readers_let_go_of_a_broker_that_is_gone(own_broker: LocalBroker) -> None:
    events = make_topic(own_broker.bootstrap, "events")

    async def story() -> None:
        connection = KafkaConnection(own_broker.bootstrap)
        readers = [KafkaLogReader(connection, "main", topic=events) for _ in range(5)]
        for reader in readers:
            await reader.start(-1)
        own_broker.kill()
        for reader in readers:
            assert await reader.read(0.1) == [], "a reader waits for brokers to come back"
            await reader.stop()

    run(story())


def test_a_writer_gives_up_on_a_broker_that_is_gone(own_broker: LocalBroker) -> None:
    events = make_topic(own_broker.bootstrap, "events")

    async def story() -> None:
        connection = KafkaConnection(own_broker.bootstrap)
        writer = KafkaLogWriter(connection, "main", topic=events, timeout_seconds=1)
        await writer.start()
        assert await writer.append(record_of(0)) == 0
        own_broker.kill()
        with pytest.raises(LogUnavailableError, match="no acknowledgement in 1 s"):
            await writer.append(record_of(1))
        with pytest.raises(LogUnavailableError, match="not written"):
            await writer.append(record_of(2))
        await writer.stop()

    run(story())
    own_broker.start()
    with KafkaLog(own_broker.bootstrap, "main", topic=events) as log:
        assert [entry.record.basis for entry in log.read()] == [0], "nothing came late"
