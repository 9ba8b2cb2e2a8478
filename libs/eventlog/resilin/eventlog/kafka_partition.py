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
from resilin.contracts.topics import TOPICS
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


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class PartitionWriter:
    """Appends messages to one partition, durably and once each.

    Args:
        connection: The brokers.
        topic: The topic, which must exist.
        partition: Its partition.
        message_bytes_max: The largest message; by default what the catalogue says, 1 MiB for
            a topic that it does not know.
        timeout_seconds: How long a write may take.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        partition: int = 0,
        *,
        message_bytes_max: int | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._connection = connection
        self._partition = TopicPartition(topic, partition)
        self._bytes_max = message_bytes_max or _message_bytes_max(topic)
        self._timeout_seconds = timeout_seconds
        self._producer: AIOKafkaProducer | None = None
        self._failure: str | None = None

    async def start(self) -> None:
        """Connect.

        Raises:
            LogUnavailableError: If no broker answers, or there is no such partition.
        """
        topic, partition = self._partition
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
                known = await self._producer.partitions_for(topic)
                if partition not in known:
                    raise LogUnavailableError(
                        f"{topic} has no partition {partition}, only {sorted(known)}"
                    )
        except BaseException:
            await self.stop()
            raise

    async def send(
        self, value: bytes, key: bytes | None = None, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> int:
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
                    sent = await self._producer.send(
                        topic, value, key, partition=partition, headers=headers
                    )
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
            raise self._write_error(error) from error
        if offset is None or offset < 0:
            # So the brokers answer a repeat of a message so old that they forgot its offset.
            self._failure = "an earlier write was acknowledged without an offset"
            raise LogUnavailableError(f"{topic} [{partition}]: acknowledged without an offset")
        return int(offset)

    def _write_error(self, error: BaseException) -> BaseException:
        place = f"{self._partition.topic} [{self._partition.partition}]"
        match error:
            case TimeoutError():
                return LogUnavailableError(
                    f"{place}: no acknowledgement in {self._timeout_seconds:g} s"
                )
            case errors.MessageSizeTooLargeError():
                return LogWriteError(
                    f"{place}: the brokers refuse a message that the catalogue allows;"
                    f" the topic's max.message.bytes is below {self._bytes_max}"
                )
            case errors.KafkaError() | OSError() if not getattr(error, "retriable", True):
                return LogWriteError(f"{place}: {_said(error)}")
            case errors.KafkaError() | OSError():
                return LogUnavailableError(f"{place}: {_said(error)}")
            case _:
                return error

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
        topic, partition = self._partition
        try:
            async with _explained(
                f"cannot read {topic} at {self._connection.bootstrap}", self._timeout_seconds
            ):
                self._consumer.assign([self._partition])
                self._consumer.seek(self._partition, offset)
                await self._consumer.start()
                await self._must_exist(self._consumer)
        except BaseException:
            await self.stop()
            raise

    async def _must_exist(self, consumer: AIOKafkaConsumer) -> None:
        """Ask before anything else: the client would wait for the partition for ever."""
        topic, partition = self._partition
        while True:
            known = consumer.partitions_for_topic(topic)
            if known is not None:
                break
            if topic not in await consumer.topics():
                raise LogUnavailableError(
                    f"there is no topic {topic} at {self._connection.bootstrap}"
                )
        if partition not in known:
            raise LogUnavailableError(f"{topic} has no partition {partition}, only {sorted(known)}")
