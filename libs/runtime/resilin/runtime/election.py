"""Who should lead: the instance to which the broker gives the cell's partition.

The instances of a service are one consumer group. The broker notices a silent member after
the session timeout and gives its partition to another, which then claims the service in the
log. That is only a hint about liveness: two instances may both believe to lead for a moment,
and the log's epochs decide which of them counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiokafka import (  # type: ignore[import-untyped]  # it ships no type marker
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (  # type: ignore[import-untyped]  # as above
    StickyPartitionAssignor,
)

from resilin.contracts.topics import CELL_EVENTS
from resilin.runtime.logs import logger

__all__ = ["AlwaysElected", "GroupElection"]


class AlwaysElected:
    """The election of a service that has one instance only."""

    elected = True

    async def start(self, wake: Callable[[], None]) -> None:
        """See :class:`~resilin.runtime.ports.Election`."""

    async def close(self) -> None:
        """Step back."""
        self.elected = False


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
        self._consumer: AIOKafkaConsumer | None = None
        self._wake: Callable[[], None] = lambda: None
        self.elected = False

    async def start(self, wake: Callable[[], None]) -> None:
        """See :class:`~resilin.runtime.ports.Election`."""
        self._wake = wake
        self._consumer = AIOKafkaConsumer(
            group_id=self._group,
            session_timeout_ms=self._session_milliseconds,
            heartbeat_interval_ms=max(100, self._session_milliseconds // 4),
            rebalance_timeout_ms=self._session_milliseconds,
            # Nothing is read through this consumer, so not reading must not count as dead.
            max_poll_interval_ms=2**31 - 1,
            partition_assignment_strategy=[StickyPartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset="latest",
            **self._options,
        )
        self._consumer.subscribe([self._partition.topic], listener=_Listener(self))
        await self._consumer.start()

    async def close(self) -> None:
        """Leave the group: the others need not wait for the session timeout."""
        self.elected = False
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note of what the broker gave this member."""
        held = list(partitions)
        if self._consumer is not None and held:
            self._consumer.pause(*held)
        elected = self._partition in held
        if elected is not self.elected:
            logger().info("election", elected=elected)
        self.elected = elected
        self._wake()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, election: GroupElection) -> None:
        self._election = election

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Wait for what comes instead: mostly the same."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._election.assigned(assigned)
