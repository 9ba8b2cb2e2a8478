"""The live log on Kafka: one writer and one reader of the cell's partition, and its snapshots."""

from __future__ import annotations

from collections.abc import Sequence

from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.kafka import (
    KafkaConnection,
    KafkaLogReader,
    KafkaLogWriter,
    KafkaSnapshots,
)
from resilin.eventlog.port import Snapshot
from resilin.runtime.settings import ServiceSettings

__all__ = ["KafkaLiveLog", "connection_of"]

_FETCH_MAX_WAIT_MS = 50


def connection_of(settings: ServiceSettings) -> KafkaConnection:
    """Return how to reach the brokers."""
    password = settings.sasl_password
    return KafkaConnection(
        settings.bootstrap,
        security_protocol=settings.security_protocol,
        sasl_mechanism=settings.sasl_mechanism,
        sasl_username=settings.sasl_username,
        sasl_password=None if password is None else password.get_secret_value(),
        ssl_cafile=settings.ssl_cafile,
    )


class KafkaLiveLog:
    """A :class:`~resilin.runtime.ports.LiveLog` on Kafka; see there.

    Args:
        connection: The brokers.
        cell: The cell.
        partition: Its partition.
    """

    def __init__(self, connection: KafkaConnection, cell: str, partition: int = 0) -> None:
        self._reader = KafkaLogReader(
            connection, cell, partition, fetch_max_wait_ms=_FETCH_MAX_WAIT_MS
        )
        self._writer = KafkaLogWriter(connection, cell, partition)
        self._snapshots = KafkaSnapshots(connection, cell, partition)
        self._connected = False

    async def start(self, after: int) -> None:
        """See the port."""
        await self._connect()
        await self._reader.start(after)

    async def _connect(self) -> None:
        if not self._connected:
            self._connected = True
            await self._writer.start()
            await self._snapshots.start()

    async def read(self, timeout_seconds: float) -> Sequence[LogEntry]:
        """See the port."""
        return await self._reader.read(timeout_seconds)

    async def append(self, record: Record) -> int:
        """See the port."""
        return await self._writer.append(record)

    async def end_offset(self) -> int:
        """See the port."""
        return await self._reader.end_offset()

    def position(self) -> int:
        """See the port."""
        return self._reader.position()

    async def load_snapshot(self, service: str) -> Snapshot | None:
        """See the port."""
        await self._connect()
        return await self._snapshots.load(service)

    async def save_snapshot(self, service: str, snapshot: Snapshot) -> None:
        """See the port."""
        await self._snapshots.save(service, snapshot)

    async def close(self) -> None:
        """See the port."""
        await self._reader.stop()
        await self._snapshots.stop()
        await self._writer.stop()
