"""Who should lead: the instance to which the broker gives the cell's partition.

The instances of a service are one consumer group. The broker notices a silent member after
the session timeout and gives its partition to another, which then claims the service in the
log. That is only a hint about liveness: two instances may both believe to lead for a moment,
and the log's epochs decide which of them counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from aiokafka import (  # type: ignore[import-untyped]  # it ships no type marker
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    TopicPartition,
    errors,
)
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (  # type: ignore[import-untyped]  # as above
    StickyPartitionAssignor,
)

from resilin.contracts.topics import CELL_EVENTS
from resilin.eventlog.kafka import LogUnavailableError
from resilin.runtime.logs import logger

__all__ = ["AlwaysElected", "GroupElection"]

_POLL_SECONDS = 1.0
_LEAVE_SECONDS = 5.0


class AlwaysElected:
    """The election of a service that has one instance only."""

    elected = True

    async def run(self, wake: Callable[[], None]) -> None:  # noqa: ARG002 (the port)
        """See :class:`~resilin.runtime.ports.Election`."""
        await asyncio.Event().wait()


class GroupElection:
    """Election by membership of a consumer group.

    Args:
        client_options: How to reach the broker.
        service: The service.
        cell: The cell.
        partition: The cell's partition.
        session_timeout_seconds: A member not heard of for this long is replaced.
    """

    def __init__(
        self,
        client_options: dict[str, object],
        *,
        service: str,
        cell: str,
        partition: int,
        session_timeout_seconds: float,
    ) -> None:
        self._options = client_options
        self._group = f"resilin-{cell}-{service}"
        self._partition = TopicPartition(CELL_EVENTS.name, partition)
        self._session_milliseconds = int(session_timeout_seconds * 1000)
        self._wake: Callable[[], None] = lambda: None
        self.elected = False

    async def run(self, wake: Callable[[], None]) -> None:
        """See :class:`~resilin.runtime.ports.Election`."""
        self._wake = wake
        consumer = AIOKafkaConsumer(
            group_id=self._group,
            session_timeout_ms=self._session_milliseconds,
            # A member learns by its heartbeat that another has left.
            heartbeat_interval_ms=max(100, min(1000, self._session_milliseconds // 4)),
            rebalance_timeout_ms=self._session_milliseconds,
            partition_assignment_strategy=[StickyPartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset="latest",
            **self._options,
        )
        consumer.subscribe([self._partition.topic], listener=_Listener(consumer, self._assigned))
        try:
            await consumer.start()
            while True:
                # For its errors alone, and so that the member counts as alive: after an error
                # that nobody takes note of the client would not join again.
                await consumer.getmany(timeout_ms=round(_POLL_SECONDS * 1000))
        except errors.KafkaError as error:
            raise LogUnavailableError(f"election of {self._group}: {error!r}") from error
        finally:
            self.elected = False
            # Leaves the group: the others need not wait for the session timeout. While brokers
            # are away it takes its time, or lets the end of its own tasks out as ours.
            with suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await consumer.stop()
            await consumer._client.close()  # noqa: SLF001 (it is left open then)

    def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        elected = self._partition in partitions
        if elected is not self.elected:
            logger().info("election", elected=elected)
        self.elected = elected
        self._wake()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        assigned: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._consumer = consumer
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Wait for what comes instead: mostly the same."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Take note of what the broker gave this member; nothing is read."""
        partitions = list(assigned)
        self._consumer.pause(*partitions)
        self._assigned(partitions)
