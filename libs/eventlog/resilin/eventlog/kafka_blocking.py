"""Kafka behind the synchronous ports: for the command line, tools and tests.

A loop in a thread of its own drives the asyncio classes. Connections are made when they are
first needed, so a tool that only reads never writes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from resilin.contracts.record import LogEntry, Record
from resilin.contracts.topics import CELL_EVENTS, SNAPSHOTS
from resilin.eventlog.kafka_async import (
    AsyncTopicWriter,
    KafkaLogWriter,
    KafkaSnapshots,
    decoded_entry,
)
from resilin.eventlog.kafka_partition import (
    KafkaConnection,
    LogUnavailableError,
    PartitionReader,
)
from resilin.eventlog.port import Message, Snapshot

__all__ = ["KafkaLog", "KafkaTopic"]

T = TypeVar("T")

_TIMEOUT_SECONDS = 30.0


class _LoopThread:
    """An event loop in a thread of its own, for those who cannot wait asynchronously."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, *stops: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stop what runs on the loop, and the loop; may be called again."""
        if self._loop.is_closed():
            return
        self.run(_stopped(stops))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _stopped(stops: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    await asyncio.gather(*(stop() for stop in stops), return_exceptions=True)
    # What an unreachable broker left waiting would wait for ever.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Partition:
    """One partition read synchronously, by any number of readings at a time."""

    def __init__(self, loop: _LoopThread, reader: PartitionReader) -> None:
        self._loop = loop
        self._reader = reader
        self._started = False

    async def _ready(self) -> PartitionReader:
        if not self._started:
            await self._reader.start()
            self._started = True
        return self._reader

    @property
    def place(self) -> str:
        return self._reader.place

    def end_offset(self) -> int:
        return self._loop.run(self._end()) - 1

    async def _end(self) -> int:
        return await (await self._ready()).end()

    def earliest(self) -> int:
        return self._loop.run(self._earliest())

    async def _earliest(self) -> int:
        return (await (await self._ready()).bounds()).earliest

    def between(self, after: int, last: int) -> Iterator[Message]:
        """Yield the messages above ``after`` up to ``last``."""
        while after < last:
            messages, after = self._loop.run(self._next(after, last))
            yield from (message for message in messages if message.offset <= last)

    async def _next(self, after: int, last: int) -> tuple[list[Message], int]:
        """Return messages above ``after``, and the offset up to which there are no others."""
        reader = await self._ready()
        if await reader.position() != after + 1:  # another reading was here in between
            reader.seek(after + 1)
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            messages = await reader.fetch(1.0)
            position = await reader.position() - 1
            if messages or position >= last:
                return messages, position
        raise LogUnavailableError(f"{reader.place}: no answer in {_TIMEOUT_SECONDS:g} s")

    async def stop(self) -> None:
        await self._reader.stop()


class KafkaLog:
    """An :class:`EventLog` and a :class:`SnapshotStore` on Kafka.

    Args:
        connection: The brokers, or only their addresses.
        cell: The cell.
        partition: The cell's partition of both topics.
        topic: The topic of the log.
        snapshots_topic: The topic of snapshots.

    All that asks brokers may raise a :class:`FatalLogError`.
    """

    def __init__(
        self,
        connection: KafkaConnection | str,
        cell: str,
        partition: int = 0,
        *,
        topic: str = CELL_EVENTS.name,
        snapshots_topic: str = SNAPSHOTS.name,
    ) -> None:
        connection = _connection(connection)
        self._cell = cell
        self._loop = _LoopThread()
        self._partition = _Partition(self._loop, PartitionReader(connection, topic, partition))
        self._writer = KafkaLogWriter(connection, cell, partition, topic=topic)
        self._snapshots = KafkaSnapshots(connection, cell, partition, topic=snapshots_topic)
        self._writing = False
        self._snapshotting = False

    def append(self, record: Record) -> int:
        """See :meth:`EventLog.append`."""
        if not self._writing:
            self._loop.run(self._writer.start())
            self._writing = True
        return self._loop.run(self._writer.append(record))

    def read(self, after: int = -1) -> Iterator[LogEntry]:
        """See :meth:`EventLog.read`.

        Raises:
            LogTruncatedError: If entries above ``after`` are gone.
        """
        last = self._partition.end_offset()
        return (
            decoded_entry(message, self._cell, self._partition.place)
            for message in self._partition.between(after, last)
        )

    def end_offset(self) -> int:
        """See :meth:`EventLog.end_offset`."""
        return self._partition.end_offset()

    def save(self, service: str, snapshot: Snapshot) -> None:
        """See :meth:`SnapshotStore.save`."""
        self._loop.run(self._open_snapshots().save(service, snapshot))

    def load(self, service: str) -> Snapshot | None:
        """See :meth:`SnapshotStore.load`."""
        return self._loop.run(self._open_snapshots().load(service))

    def _open_snapshots(self) -> KafkaSnapshots:
        if not self._snapshotting:
            self._loop.run(self._snapshots.start())
            self._snapshotting = True
        return self._snapshots

    def close(self) -> None:
        """Disconnect."""
        self._loop.close(self._writer.stop, self._snapshots.stop, self._partition.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class KafkaTopic:
    """A :class:`MessageTopic` on Kafka.

    Args:
        connection: The brokers, or only their addresses.
        name: The topic.
        partition: The cell's partition.
    """

    def __init__(self, connection: KafkaConnection | str, name: str, partition: int = 0) -> None:
        connection = _connection(connection)
        self._loop = _LoopThread()
        self._partition = _Partition(self._loop, PartitionReader(connection, name, partition))
        self._writer = AsyncTopicWriter(connection, name, partition)
        self._writing = False

    def produce(self, value: bytes, key: bytes | None = None) -> int:
        """See :meth:`MessageTopic.produce`."""
        if not self._writing:
            self._loop.run(self._writer.start())
            self._writing = True
        return self._loop.run(self._writer.produce(value, key))

    def read(self, after: int = -1) -> Iterator[Message]:
        """See :meth:`MessageTopic.read`."""
        last = self._partition.end_offset()
        if after < last:
            after = max(after, self._partition.earliest() - 1)
        return self._partition.between(after, last)

    def end_offset(self) -> int:
        """See :meth:`MessageTopic.end_offset`."""
        return self._partition.end_offset()

    def close(self) -> None:
        """Disconnect."""
        self._loop.close(self._writer.stop, self._partition.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _connection(given: KafkaConnection | str) -> KafkaConnection:
    return KafkaConnection(given) if isinstance(given, str) else given
