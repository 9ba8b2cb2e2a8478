"""Topics of their own for tests on a shared broker."""

from __future__ import annotations

import asyncio
import uuid

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

__all__ = ["delete_records", "make_topic"]


def make_topic(bootstrap: str, name: str = "test", *, partitions: int = 1, **configs: str) -> str:
    """Create a topic with a name that no other test uses, and return the name.

    Settings are written with ``_`` for ``.``: ``max_message_bytes="1048576"``.
    """
    unique = f"{name}.{uuid.uuid4().hex[:12]}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    asyncio.run(_make_topic(bootstrap, NewTopic(unique, partitions, 1, topic_configs=settings)))
    return unique


async def _make_topic(bootstrap: str, topic: NewTopic) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        response = await client.create_topics([topic])
        errors = [error for error in response.topic_errors if error[1]]
        assert not errors, errors
    finally:
        await client.close()


def delete_records(bootstrap: str, topic: str, before: int, partition: int = 0) -> None:
    """Delete the beginning of a partition, as retention would."""
    asyncio.run(_delete_records(bootstrap, TopicPartition(topic, partition), before))


async def _delete_records(bootstrap: str, partition: TopicPartition, before: int) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        await client.delete_records({partition: RecordsToDelete(before)})
    finally:
        await client.close()
