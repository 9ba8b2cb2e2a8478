"""Who should lead: the instance to which the broker gives the cell's partition.

The instances of a service are one consumer group. The broker notices a silent member after
the session timeout and gives its partition to another, which then claims the service in the
log. That is only a hint about liveness: two instances may both believe to lead for a moment,
and the log's epochs decide which of them counts.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from aiokafka import (  # type: ignore[import-untyped]  # it ships no type marker
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    TopicPartition,
    errors,
)
from aiokafka.cluster import ClusterMetadata  # type: ignore[import-untyped]  # as above
from aiokafka.coordinator.assignors.abstract import (  # type: ignore[import-untyped]  # as above
    AbstractPartitionAssignor,
)
from aiokafka.coordinator.protocol import (  # type: ignore[import-untyped]  # as above
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from resilin.contracts.topics import CELL_EVENTS
from resilin.eventlog.kafka import LogUnavailableError
from resilin.runtime.logs import logger

__all__ = ["AlwaysElected", "GroupElection", "LeadAssignor"]

_POLL_SECONDS = 1.0
_LEAVE_SECONDS = 5.0


class AlwaysElected:
    """The election of a service that has one instance only."""

    elected = True

    async def run(self, wake: Callable[[], None]) -> None:  # noqa: ARG002 (the port)
        """See :class:`~resilin.runtime.ports.Election`."""
        await asyncio.Event().wait()


class LeadAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """Gives everything to one member, and leaves it there: who has the lead keeps it.

    Kafka's own sticky assignment balances before it sticks: a standby that joins gets half of
    the topic's partitions, among them, for half of the cells, the one that counts.

    Every lead has a term, one more than the last that any member has heard of. So a member that
    was away and comes back with its old lead does not take it from the one that followed.

    aiokafka keeps a member's state on the class: each member has a class of its own, by
    :meth:`for_one_member`.
    """

    name = "resilin-lead"
    _VERSION = 0
    _MEMBER = struct.Struct(">QQ")  # the term of its lead, 0 for none; the last term it heard of
    _TERM = struct.Struct(">Q")
    _led = 0
    _heard = 0

    @classmethod
    def for_one_member(cls) -> type[LeadAssignor]:
        """Return a class whose state is that of one member of a group."""
        return type(cls.__name__, (cls,), {})

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return what each member gets, by member id: one gets all, the others nothing."""
        led, heard = {}, 0
        for member, metadata in members.items():
            led[member], last = cls._MEMBER.unpack(metadata.user_data)
            heard = max(heard, last)
        leader = min(members, key=lambda member: (-led[member], member))
        kept = led[leader] == heard > 0
        term = cls._TERM.pack(heard if kept else heard + 1)
        topics = sorted({topic for each in members.values() for topic in each.subscription})
        everything = [
            (topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in topics
        ]
        return {
            member: ConsumerProtocolMemberAssignment(
                cls._VERSION, everything if member == leader else [], term
            )
            for member in members
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return what a member tells the group as it joins."""
        return ConsumerProtocolMemberMetadata(
            cls._VERSION, list(topics), cls._MEMBER.pack(cls._led, cls._heard)
        )

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember the term of this assignment, and whether this member leads in it."""
        (cls._heard,) = cls._TERM.unpack(assignment.user_data)
        cls._led = cls._heard if assignment.partitions() else 0


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
            partition_assignment_strategy=[LeadAssignor.for_one_member()],
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
