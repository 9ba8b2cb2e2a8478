"""A cell's log, its snapshots and the topics beside it, for services: asyncio on Kafka.

The log is one partition. Its reader belongs to no consumer group: where to go on from is part
of the folded state, never an offset that brokers keep.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import zlib

from resilin.contracts.record import (
    CorruptRecordError,
    LogEntry,
    Record,
    decode_record,
    encode_record,
)
from resilin.contracts.topics import CELL_EVENTS, SNAPSHOTS
from resilin.eventlog.kafka_partition import (
    KafkaConnection,
    LogTruncatedError,
    LogWriteError,
    PartitionReader,
    PartitionWriter,
)
from resilin.eventlog.port import Message, MessageTooLargeError, Snapshot

__all__ = [
    "AsyncTopicReader",
    "AsyncTopicWriter",
    "KafkaLogReader",
    "KafkaLogWriter",
    "KafkaSnapshots",
    "decoded_entry",
]

_log = logging.getLogger(__name__)

_OFFSET = struct.Struct(">q")
_LOAD_SECONDS = 30.0


class KafkaLogWriter:
    """Appends records to the partition of a cell.

    Args:
        connection: The brokers.
        cell: The cell; a record of another is refused.
        partition: The cell's partition.
        topic: The topic of the log.
        timeout_seconds: How long an append may take.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        cell: str,
        partition: int = 0,
        *,
        topic: str = CELL_EVENTS.name,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._cell = cell
        self._writer = PartitionWriter(
            connection,
            topic,
            partition,
            bytes_max=CELL_EVENTS.message_bytes_max,
            timeout_seconds=timeout_seconds,
        )

    async def start(self) -> None:
        """Connect; see :meth:`PartitionWriter.start`."""
        await self._writer.start()

    async def append(self, record: Record) -> int:
        """Append one record atomically and durably; return its offset.

        Raises:
            ValueError: If the record could not be read back; nothing was written.
            FatalLogError: On anything else. Whether the record is in the log is then for the
                log to say: end the process and fold it.
        """
        if record.cell != self._cell:
            raise ValueError(f"a record of cell {record.cell} in the log of cell {self._cell}")
        try:
            return await self._writer.send(encode_record(record), self._cell.encode())
        except MessageTooLargeError as error:
            raise LogWriteError(str(error)) from None

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()


def decoded_entry(message: Message, cell: str, place: str) -> LogEntry:
    """Read the record in a message of the log.

    Raises:
        CorruptRecordError: If it is none, or one of another cell; the text names the place.
    """
    try:
        record = decode_record(message.value)
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{place}: offset {message.offset}: {error}") from None
    if record.cell != cell:
        raise CorruptRecordError(
            f"{place}: offset {message.offset}: a record of cell {record.cell} in the log of cell"
            f" {cell}; was a process given the wrong partition?"
        )
    return LogEntry(message.offset, record)


class KafkaLogReader:
    """Reads the partition of a cell, in order and without a gap in history.

    Args:
        connection: The brokers.
        cell: The cell.
        partition: The cell's partition.
        topic: The topic of the log.
        fetch_max_wait_ms: How long brokers hold a request for want of records.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        cell: str,
        partition: int = 0,
        *,
        topic: str = CELL_EVENTS.name,
        fetch_max_wait_ms: int = 50,
    ) -> None:
        self._cell = cell
        self._reader = PartitionReader(
            connection, topic, partition, fetch_max_wait_ms=fetch_max_wait_ms
        )
        self._corrupt: CorruptRecordError | None = None
        self._position = -1

    async def start(self, after: int = -1) -> None:
        """Read from the first entry above ``after``; may be called again to move.

        Raises:
            LogTruncatedError: If entries above ``after`` are gone, or the log ends before it.
            LogUnavailableError: If no broker answers, or there is no such partition.
        """
        await self._reader.start(after + 1)
        self._corrupt = None
        self._position = after
        earliest, end = await self._reader.bounds()
        if after + 1 < earliest:
            raise LogTruncatedError(
                f"{self._reader.place}: history is gone: the log begins at offset {earliest}, and"
                f" {after + 1} was to be read next",
                earliest=earliest,
                end=end,
            )
        if after + 1 > end:
            raise LogTruncatedError(
                f"{self._reader.place}: history is gone: the log ends at offset {end - 1}, and"
                f" {after} was already folded",
                earliest=earliest,
                end=end,
            )

    async def read(self, timeout_seconds: float) -> list[LogEntry]:
        """Return the next entries in order; none if none came within the time.

        Raises:
            CorruptRecordError: At the first entry that is no record, naming topic, partition
                and offset; what came before it is returned first.
            LogTruncatedError: If history was deleted in front of the reader.
            LogUnavailableError: If the client gave up.
        """
        if self._corrupt is not None:
            raise self._corrupt
        entries: list[LogEntry] = []
        try:
            for message in await self._reader.fetch(timeout_seconds):
                entry = decoded_entry(message, self._cell, self._reader.place)
                entries.append(entry)
        except CorruptRecordError as error:
            self._corrupt = error
            if not entries:
                raise
            self._position = entries[-1].offset
        else:
            self._position = await self._reader.position() - 1
        return entries

    async def end_offset(self) -> int:
        """Return the offset of the last entry as of now, -1 for an empty log."""
        return await self._reader.end() - 1

    def position(self) -> int:
        """Return the offset up to which the log has been read.

        At or above what :meth:`end_offset` said, everything up to there has been returned.
        Compare by this: the last offset need not be that of an entry.
        """
        return self._position

    async def stop(self) -> None:
        """Disconnect."""
        await self._reader.stop()


class KafkaSnapshots:
    """The newest snapshot of each service, in a compacted topic.

    A message's key is ``service/cell``; its value is the offset in eight bytes, the highest
    first, and the payload compressed by zlib.

    Args:
        connection: The brokers.
        cell: The cell.
        partition: The cell's partition.
        topic: The topic of snapshots.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        cell: str,
        partition: int = 0,
        *,
        topic: str = SNAPSHOTS.name,
    ) -> None:
        self._cell = cell
        self._writer = PartitionWriter(
            connection, topic, partition, bytes_max=SNAPSHOTS.message_bytes_max
        )
        self._reader = PartitionReader(connection, topic, partition)

    async def start(self) -> None:
        """Connect; see :meth:`PartitionWriter.start`."""
        await self._writer.start()
        await self._reader.start()

    async def save(self, service: str, snapshot: Snapshot) -> None:
        """Keep this snapshot in place of the service's last one, if the topic takes it."""
        # Elsewhere: compressing a large state takes longer than a service may stand still.
        packed = await asyncio.to_thread(zlib.compress, snapshot.payload, 1)
        try:
            await self._writer.send(_OFFSET.pack(snapshot.offset) + packed, self._key(service))
        except MessageTooLargeError as error:
            # Only a cache: the next restart folds from the last snapshot that did fit.
            _log.warning(
                "the snapshot of %s at %d is not kept: %s", service, snapshot.offset, error
            )

    async def load(self, service: str) -> Snapshot | None:
        """Return the service's newest snapshot; none if it is damaged."""
        key = self._key(service)
        newest: bytes | None = None
        earliest, end = await self._reader.bounds()
        self._reader.seek(earliest)
        async with asyncio.timeout(_LOAD_SECONDS):
            while await self._reader.position() < end:
                for message in await self._reader.fetch(1.0):
                    if message.key == key:
                        newest = message.value
        return None if newest is None else await asyncio.to_thread(_unpacked, newest)

    def _key(self, service: str) -> bytes:
        return f"{service}/{self._cell}".encode()

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()
        await self._reader.stop()


def _unpacked(value: bytes) -> Snapshot | None:
    try:
        (offset,) = _OFFSET.unpack_from(value)
        return Snapshot(offset, zlib.decompress(value[_OFFSET.size :]))
    except (struct.error, zlib.error) as error:
        _log.warning("a damaged snapshot is passed over: %s", error)
        return None


class AsyncTopicReader:
    """Reads one partition of a topic beside the log: commands, dead letters.

    Such a topic forgets. A reader that comes too late goes on with what is left, and says so.

    Args:
        connection: The brokers.
        topic: The topic.
        partition: The cell's partition.
        fetch_max_wait_ms: How long brokers hold a request for want of messages.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        partition: int = 0,
        *,
        fetch_max_wait_ms: int = 50,
    ) -> None:
        self._reader = PartitionReader(
            connection, topic, partition, fetch_max_wait_ms=fetch_max_wait_ms
        )

    async def start(self, after: int = -1) -> None:
        """Read from the first message above ``after`` that is left; may be called again.

        Raises:
            LogUnavailableError: If no broker answers, or there is no such partition.
            LogTruncatedError: If the topic ends before ``after``: it is not the one that was
                read before, and what its offsets mean is unknown.
        """
        await self._reader.start(after + 1)
        earliest, end = await self._reader.bounds()
        if after + 1 > end:
            raise LogTruncatedError(
                f"{self._reader.place}: the topic ends at offset {end - 1}, and {after} was"
                " already taken; was it deleted and made anew?",
                earliest=earliest,
                end=end,
            )
        if after + 1 < earliest:
            self._skip(after + 1, earliest)

    def _skip(self, wanted: int, earliest: int) -> None:
        if wanted > 0:
            _log.warning(
                "%s: messages from %d to %d were deleted before they were read",
                self._reader.place,
                wanted,
                earliest - 1,
            )
        self._reader.seek(earliest)

    async def read(self, timeout_seconds: float) -> list[Message]:
        """Return the next messages in order; none if none came within the time."""
        try:
            return await self._reader.fetch(timeout_seconds)
        except LogTruncatedError as error:
            position = await self._reader.position()
            if position > error.end:
                raise
            self._skip(position, error.earliest)
            return []

    async def end_offset(self) -> int:
        """Return the offset of the last message as of now, -1 for an empty topic."""
        return await self._reader.end() - 1

    async def stop(self) -> None:
        """Disconnect."""
        await self._reader.stop()


class AsyncTopicWriter:
    """Writes one partition of a topic beside the log.

    Args:
        connection: The brokers.
        topic: The topic.
        partition: The cell's partition.
    """

    def __init__(self, connection: KafkaConnection, topic: str, partition: int = 0) -> None:
        self._writer = PartitionWriter(connection, topic, partition)

    async def start(self) -> None:
        """Connect; see :meth:`PartitionWriter.start`."""
        await self._writer.start()

    async def produce(self, value: bytes, key: bytes | None = None) -> int:
        """Append one message durably; return its offset.

        Raises:
            MessageTooLargeError: If the topic does not take messages of this size.
            FatalLogError: On anything else; the message may be in the topic or not.
        """
        return await self._writer.send(value, key)

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()
