"""Topics are created once, as the catalogue says, and checked ever after."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.support.servers import local_broker_running

from resilin.contracts.topics import TOPICS
from resilin.eventlog.kafka import KafkaConnection, KafkaLog, KafkaTopic
from resilin.runtime import create_topics as module
from resilin.runtime.create_topics import TopicSetupError, create_topics
from resilin.runtime.local_broker import LocalBroker, free_ports

T = TypeVar("T")

NAMES = sorted(topic.name for topic in TOPICS)


@pytest.fixture(scope="module")
def empty_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker without any topic; each test deletes those it made."""
    with local_broker_running(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def connection(empty_broker: LocalBroker) -> Iterator[KafkaConnection]:
    yield KafkaConnection(empty_broker.bootstrap)
    administer(empty_broker.bootstrap, _delete_all)


def administer(bootstrap: str, what: Any) -> Any:
    async def story() -> Any:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            return await what(client)
        finally:
            await client.close()

    return asyncio.run(story())


async def _delete_all(client: AIOKafkaAdminClient) -> None:
    await client.delete_topics(await client.list_topics())
    while await client.list_topics():
        await asyncio.sleep(0.1)


async def _partitions(client: AIOKafkaAdminClient) -> dict[str, int]:
    return {t["topic"]: len(t["partitions"]) for t in await client.describe_topics()}


async def _settings(client: AIOKafkaAdminClient) -> dict[str, dict[str, str]]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in NAMES]
    return {
        resource[3]: {entry[0]: entry[1] for entry in resource[4]}
        for response in await client.describe_configs(asked)
        for resource in response.resources
    }


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def test_topics_are_created_as_the_catalogue_says_and_only_once(
    connection: KafkaConnection,
) -> None:
    assert run(create_topics(connection, telemetry_partitions=3)) == NAMES
    assert run(create_topics(connection)) == []
    partitions = administer(connection.bootstrap, _partitions)
    assert partitions == {name: 3 if name == "telemetry.steps" else 1 for name in NAMES}
    settings = administer(connection.bootstrap, _settings)
    for topic in TOPICS:
        assert topic.settings.items() <= settings[topic.name].items()
    with (
        KafkaLog(connection, "main") as log,
        KafkaTopic(connection, "jobs.commands") as commands,
    ):
        assert list(log.read()) == []
        assert commands.produce(b"{}") == 0


def test_several_at_once_do_not_disturb_each_other(connection: KafkaConnection) -> None:
    async def story() -> list[list[str]]:
        return await asyncio.gather(*(create_topics(connection) for _ in range(3)))

    assert sorted(name for created in run(story()) for name in created) == NAMES


def test_a_further_cell_gets_partitions_and_telemetry_keeps_its_own(
    connection: KafkaConnection,
) -> None:
    run(create_topics(connection, cells=1, telemetry_partitions=2))
    run(create_topics(connection, cells=3, telemetry_partitions=5))
    partitions = administer(connection.bootstrap, _partitions)
    assert partitions == {name: 2 if name == "telemetry.steps" else 3 for name in NAMES}
    run(create_topics(connection, cells=1))
    assert administer(connection.bootstrap, _partitions) == partitions, "nothing is taken away"


def test_a_topic_that_is_not_as_it_should_be_is_named_with_each_setting(
    connection: KafkaConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    async def by_hand(client: AIOKafkaAdminClient) -> None:
        settings = {"retention.ms": "1000", "cleanup.policy": "compact"}
        await client.create_topics([NewTopic("cell.events", 1, 1, topic_configs=settings)])

    administer(connection.bootstrap, by_hand)
    with pytest.raises(TopicSetupError) as caught:
        run(create_topics(connection))
    assert str(caught.value).splitlines() == [
        "cell.events: cleanup.policy is compact, should be delete",
        "cell.events: max.message.bytes is 104857600, should be 16777216",
        "cell.events: retention.ms is 1000, should be -1",
    ]
    assert module.main(["--bootstrap", connection.bootstrap]) == 1
    assert "retention.ms is 1000, should be -1" in capsys.readouterr().err


def test_fewer_copies_than_asked_for_are_named(connection: KafkaConnection) -> None:
    run(create_topics(connection))
    with pytest.raises(TopicSetupError, match="snapshots: replication factor is 1, should be 3"):
        run(create_topics(connection, replication_factor=3))


def test_what_brokers_refuse_is_said(
    connection: KafkaConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TopicSetupError, match="replication factor"):
        run(create_topics(connection, replication_factor=3))
    (port,) = free_ports(1)
    assert module.main(["--bootstrap", f"127.0.0.1:{port}"]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_the_command_says_what_it_did(
    connection: KafkaConnection, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert module.main(["--bootstrap", connection.bootstrap, "--cells", "2"]) == 0
    assert capsys.readouterr().err == f"created: {', '.join(NAMES)}\n"
    assert module.main(["--bootstrap", connection.bootstrap, "--cells", "2"]) == 0
    assert capsys.readouterr().err == "created: nothing, all topics are there\n"
