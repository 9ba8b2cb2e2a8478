"""The servers that tests run against are there and empty."""

from __future__ import annotations

import asyncio

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient


def test_the_broker_answers_and_makes_no_topic_unasked(bootstrap: str) -> None:
    async def topics() -> list[str]:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            await client.describe_topics(["never-made"])
            return await client.list_topics()
        finally:
            await client.close()

    assert "never-made" not in asyncio.run(topics())


def test_the_database_answers(postgres_url: str) -> None:
    async def answer() -> object:
        connection = await asyncpg.connect(postgres_url)
        try:
            return await connection.fetchval("select 6 * 7")
        finally:
            await connection.close()

    assert asyncio.run(answer()) == 42
