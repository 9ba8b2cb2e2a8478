"""One partition of one topic, written and read through aiokafka: what all Kafka classes share.

Nothing here retries what could have happened: a write whose outcome is unknown is an error,
and after it the writer refuses. The process above ends, starts again and folds the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from aiokafka import (  # type: ignore[import-untyped]  # it ships no type marker
    AIOKafkaConsumer,
    AIOKafkaProducer,
    TopicPartition,
    errors,
)
from aiokafka.helpers import create_ssl_context  # type: ignore[import-untyped]  # as above

from resilin.contracts.record import CorruptRecordError
from resilin.contracts.topics import message_bytes_max
from resilin.eventlog.port import Message, MessageTooLargeError

__all__ = [
    "Bounds",
    "FatalLogError",
    "KafkaConnection",
    "LogTruncatedError",
    "LogUnavailableError",
    "LogWriteError",
    "PartitionReader",
    "PartitionWriter",
]

_MEBIBYTE = 1_048_576
_BATCH_BYTES = 131_072
_RECORDS_MAX = 500
"""How many messages one read returns at most, so that a replay leaves room for others."""

_REQUEST_TIMEOUT_MS = 10_000
"""How long one request may take before the client asks again on a new connection."""

_TIMEOUT_SECONDS = 30.0
"""How long to wait for brokers, their restarts included."""

_STOP_SECONDS = 5.0
_METADATA_SECONDS = 0.05


class FatalLogError(RuntimeError):
    """The process cannot go on with what it knows: end it and fold the log again."""


class LogUnavailableError(FatalLogError):
    """The brokers do not answer, or the outcome of a write is unknown."""


class LogWriteError(FatalLogError):
    """The brokers refused a write."""


class LogTruncatedError(FatalLogError):
    """A partition does not hold what was asked for: history is gone.

    Attributes:
        earliest: The first offset that is left.
        end: The offset after the last one.
    """

    def __init__(self, message: str, *, earliest: int, end: int) -> None:
        super().__init__(message)
        self.earliest = earliest
        self.end = end


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """How to reach the brokers.

    Attributes:
        bootstrap: ``host:port`` of one or more brokers, separated by commas.
        security_protocol: Whether to encrypt, and whether to log in.
        sasl_mechanism: How to log in, if the protocol says so.
        sasl_username: The principal.
        sasl_password: Its password.
        ssl_cafile: The certificate of the authority that signed the brokers' certificates;
            without one, those of the system.
        ssl_certfile: This client's own certificate, where brokers ask for one.
        ssl_keyfile: Its key.
    """

    bootstrap: str
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None

    def client_options(self) -> dict[str, Any]:
        """Return what every aiokafka client takes, ready to be passed on."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.startswith("SASL"):
            options |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self.sasl_password,
            }
        if self.security_protocol.endswith("SSL"):
            options["ssl_context"] = create_ssl_context(
                cafile=self.ssl_cafile, certfile=self.ssl_certfile, keyfile=self.ssl_keyfile
            )
        return options


class Bounds(NamedTuple):
    """What a partition holds: offsets from ``earliest`` up to, and without, ``end``."""

    earliest: int
    end: int


@contextlib.asynccontextmanager
async def _explained(what: str, timeout_seconds: float) -> AsyncIterator[None]:
    """Turn what the client raises, or its silence, into a :class:`LogUnavailableError`."""
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except TimeoutError:
        raise LogUnavailableError(f"{what}: no answer in {timeout_seconds:g} s") from None
    except (errors.KafkaError, OSError) as error:
        raise LogUnavailableError(f"{what}: {_said(error)}") from error


def _must_exist(partition: TopicPartition, known: set[int] | None) -> None:
    if not known:
        raise LogUnavailableError(f"there is no topic {partition.topic}")
    if partition.partition not in known:
        raise LogUnavailableError(
            f"{partition.topic} has no partition {partition.partition}, only {sorted(known)}"
        )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class PartitionWriter:
    """Appends messages to one partition, durably and once each.

    Args:
        connection: The brokers.
        topic: The topic, which must exist.
        partition: Its partition.
        bytes_max: The largest message; by default what the catalogue says of the topic.
        timeout_seconds: How long a write may take.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        partition: int = 0,
        *,
        bytes_max: int | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._connection = connection
        self._partition = TopicPartition(topic, partition)
        self._bytes_max = bytes_max or message_bytes_max(topic)
        self._timeout_seconds = timeout_seconds
        self._producer: AIOKafkaProducer | None = None
        self._failure: str | None = None

    async def start(self) -> None:
        """Connect.

        Raises:
            LogUnavailableError: If no broker answers, or there is no such partition.
        """
        topic = self._partition.topic
        self._producer = AIOKafkaProducer(
            **self._connection.client_options(),
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=min(_BATCH_BYTES, self._bytes_max),
            max_request_size=self._bytes_max,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        try:
            async with _explained(
                f"cannot write {topic} at {self._connection.bootstrap}", self._timeout_seconds
            ):
                await self._producer.start()
                # Asked before anything else: the client would wait for a topic that is not there.
                cluster = await self._producer.client.fetch_all_metadata()
                _must_exist(self._partition, cluster.partitions_for_topic(topic))
        except BaseException:
            await self.stop()
            raise

    async def send(self, value: bytes, key: bytes | None = None) -> int:
        """Append one message; return its offset when all brokers in sync have it.

        Raises:
            MessageTooLargeError: If the topic does not take it; nothing was written.
            LogUnavailableError: If the outcome is unknown, or an earlier one was.
            LogWriteError: If the brokers refuse it.
        """
        topic, partition = self._partition
        if self._producer is None or self._failure is not None:
            raise LogUnavailableError(
                f"{topic} [{partition}]: not written:"
                f" {self._failure or 'the writer is not started'}"
            )
        try:
            async with asyncio.timeout(self._timeout_seconds):
                try:
                    sent = await self._producer.send(topic, value, key, partition=partition)
                except errors.MessageSizeTooLargeError:
                    raise MessageTooLargeError(
                        f"{topic}: a message of {len(value)} bytes; with its head it may have"
                        f" at most {self._bytes_max}"
                    ) from None
                offset = (await sent).offset
        except MessageTooLargeError:
            raise
        except BaseException as error:
            self._failure = f"an earlier write ended with {_said(error)}"
            if isinstance(error, (errors.KafkaError, OSError)):
                raise self._write_error(error) from error
            raise
        if offset is None or offset < 0:
            # So the brokers answer a repeat of a message so old that they forgot its offset.
            self._failure = "an earlier write was acknowledged without an offset"
            raise LogUnavailableError(f"{topic} [{partition}]: acknowledged without an offset")
        return int(offset)

    def _write_error(self, error: BaseException) -> FatalLogError:
        place = f"{self._partition.topic} [{self._partition.partition}]"
        if isinstance(error, TimeoutError):
            return LogUnavailableError(
                f"{place}: no acknowledgement in {self._timeout_seconds:g} s"
            )
        if isinstance(error, errors.MessageSizeTooLargeError):
            return LogWriteError(
                f"{place}: the brokers refuse a message that the catalogue allows;"
                f" the topic's max.message.bytes is below {self._bytes_max}"
            )
        if isinstance(error, errors.KafkaError) and not error.retriable:
            return LogWriteError(f"{place}: {_said(error)}")
        return LogUnavailableError(f"{place}: {_said(error)}")

    async def stop(self) -> None:
        """Disconnect; what is under way is given a moment."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS if self._failure is None else 0.1):
                await producer.stop()
        except TimeoutError:
            # It waits for brokers for ever, and would send again whenever they come back.
            await _give_up(producer)


async def _give_up(producer: AIOKafkaProducer) -> None:
    sender = producer._sender.sender_task  # noqa: SLF001 (the library has no way to give up)
    if sender is not None:
        sender.cancel()
    await producer.client.close()


class PartitionReader:
    """Reads one partition from any offset on, outside of any consumer group.

    Args:
        connection: The brokers.
        topic: The topic, which must exist.
        partition: Its partition.
        fetch_max_wait_ms: How long brokers hold a request for want of messages. It bounds no
            latency: they answer at once when a message comes.
        timeout_seconds: How long to wait for an answer that brokers owe.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        partition: int = 0,
        *,
        fetch_max_wait_ms: int = 50,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._connection = connection
        self._partition = TopicPartition(topic, partition)
        self._fetch_max_wait_ms = fetch_max_wait_ms
        self._timeout_seconds = timeout_seconds
        self._consumer: AIOKafkaConsumer | None = None
        self.place = f"{topic} [{partition}]"

    async def start(self, offset: int = 0) -> None:
        """Connect, and read from an offset on; a reader that is connected only moves.

        Raises:
            LogUnavailableError: If no broker answers, or there is no such partition.
        """
        if self._consumer is not None:
            self.seek(offset)
            return
        self._consumer = AIOKafkaConsumer(
            **self._connection.client_options(),
            group_id=None,
            enable_auto_commit=False,
            # Neither end is a place to go on from unasked: that would step over history.
            auto_offset_reset="none",
            check_crcs=True,
            fetch_max_wait_ms=self._fetch_max_wait_ms,
            max_partition_fetch_bytes=4 * _MEBIBYTE,
            max_poll_records=_RECORDS_MAX,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        topic = self._partition.topic
        try:
            async with _explained(
                f"cannot read {topic} at {self._connection.bootstrap}", self._timeout_seconds
            ):
                await self._consumer.start()
                self._consumer.assign([self._partition])
                self._consumer.seek(self._partition, offset)
                await self._found(self._consumer)
        except BaseException:
            await self.stop()
            raise

    async def _found(self, consumer: AIOKafkaConsumer) -> None:
        """Wait until the client knows the partition, if there is one."""
        topic = self._partition.topic
        while (known := consumer.partitions_for_topic(topic)) is None:
            if topic not in await consumer.topics():
                break
            await asyncio.sleep(_METADATA_SECONDS)
        _must_exist(self._partition, known)

    def seek(self, offset: int) -> None:
        """Go on from this offset."""
        self._started().seek(self._partition, offset)

    async def bounds(self) -> Bounds:
        """Ask what the partition holds now."""
        consumer = self._started()
        async with _explained(self.place, self._timeout_seconds):
            first = await consumer.beginning_offsets([self._partition])
            end = await consumer.end_offsets([self._partition])
        return Bounds(first[self._partition], end[self._partition])

    async def end(self) -> int:
        """Ask for the offset after the last message."""
        consumer = self._started()
        async with _explained(self.place, self._timeout_seconds):
            end = await consumer.end_offsets([self._partition])
        return int(end[self._partition])

    async def position(self) -> int:
        """Return the next offset to be read: past messages returned, and past gaps."""
        return int(await self._started().position(self._partition))

    async def fetch(self, timeout_seconds: float) -> list[Message]:
        """Return the next messages in order; none if none came within the time.

        Raises:
            LogTruncatedError: If the partition does not hold the offset to read next.
            CorruptRecordError: If bytes were damaged on disk or on their way.
            LogUnavailableError: If the client gave up.
        """
        consumer = self._started()
        try:
            fetched = await consumer.getmany(
                self._partition, timeout_ms=max(1, round(timeout_seconds * 1_000))
            )
        except errors.OffsetOutOfRangeError as error:
            position = await self.position()
            if error.args != ({self._partition: position},):
                return []  # an answer to what was asked before the last seek
            earliest, end = await self.bounds()
            raise LogTruncatedError(
                f"{self.place}: offset {position} is not there, only those from {earliest} up to"
                f" {end - 1}",
                earliest=earliest,
                end=end,
            ) from None
        except errors.CorruptRecordException as error:
            raise CorruptRecordError(
                f"{self.place}: offset {await self.position()} or soon after: {_said(error)}"
            ) from error
        except errors.KafkaError as error:
            raise LogUnavailableError(f"{self.place}: {_said(error)}") from error
        if not fetched and consumer._fetcher.error_future.done():  # noqa: SLF001 (says so nowhere else)
            raise LogUnavailableError(f"{self.place}: the client stopped fetching")
        return [
            Message(found.offset, found.key, found.value if found.value is not None else b"")
            for found in fetched.get(self._partition, ())
        ]

    def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise LogUnavailableError(f"{self.place}: the reader is not started")
        return self._consumer

    async def stop(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await consumer.stop()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            # While brokers are away the client lets the end of its own tasks out as ours.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            await consumer._client.close()  # noqa: SLF001 (it is left open then)
