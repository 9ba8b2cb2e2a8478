"""Creates a cluster's topics from the catalogue, and checks those that are there.

``python -m resilin.runtime.create_topics --bootstrap HOST:PORT``, as often as one likes. What
differs is said, not changed: who set it otherwise may have had a reason. Only partitions for
further cells are added.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiokafka.admin import (  # type: ignore[import-untyped]  # it ships no type marker
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from aiokafka.admin.config_resource import (  # type: ignore[import-untyped]  # as above
    ConfigResource,
    ConfigResourceType,
)
from aiokafka.errors import (  # type: ignore[import-untyped]  # as above
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    for_code,
)

from resilin.contracts.topics import TOPICS, Topic
from resilin.eventlog.kafka import KafkaConnection
from resilin.runtime.kafka import connection_of
from resilin.runtime.settings import ServiceSettings

__all__ = ["TopicSetupError", "create_topics", "main"]

_TELEMETRY_PARTITIONS = 4
_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1


class TopicSetupError(RuntimeError):
    """Topics could not be created, or are not what the catalogue says; one line for each."""


async def create_topics(
    connection: KafkaConnection,
    cells: int = 1,
    telemetry_partitions: int = _TELEMETRY_PARTITIONS,
    replication_factor: int = 1,
) -> list[str]:
    """Have every topic of the catalogue; return the names of those that were created.

    Args:
        connection: The brokers.
        cells: How many cells there are: that many partitions have the topics with one a cell.
        telemetry_partitions: How many partitions telemetry gets. Those of a topic that is
            there stay: other partitions would break the order of a job's samples.
        replication_factor: How many brokers keep each message. Of three, two must have it
            before it counts as written.

    Raises:
        TopicSetupError: If brokers refuse, do not answer, or a topic is not as it should be.
    """
    admin = AIOKafkaAdminClient(**connection.client_options())
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await admin.start()
            wanted = {topic.name: topic.partitions(cells, telemetry_partitions) for topic in TOPICS}
            created = await _create(admin, wanted, replication_factor)
            await _extend(admin, wanted)
            problems = [*await _replication(admin, replication_factor), *await _differences(admin)]
    except TimeoutError:
        raise TopicSetupError(
            f"{connection.bootstrap}: topics were not ready in {_TIMEOUT_SECONDS:g} s"
        ) from None
    except (KafkaError, OSError) as error:
        raise TopicSetupError(f"{connection.bootstrap}: {error}") from error
    finally:
        await admin.close()
    if problems:
        raise TopicSetupError("\n".join(problems))
    return created


async def _create(
    admin: AIOKafkaAdminClient, partitions: Mapping[str, int], replication_factor: int
) -> list[str]:
    there = set(await admin.list_topics())
    missing = [
        NewTopic(
            topic.name,
            partitions[topic.name],
            replication_factor,
            topic_configs=topic.settings | _replicas_in_sync(replication_factor),
        )
        for topic in TOPICS
        if topic.name not in there
    ]
    if not missing:
        return []
    response = await admin.create_topics(missing)
    created = []
    for name, code, *message in response.topic_errors:
        error = for_code(code)
        if error is NoError:
            created.append(name)
        elif error is not TopicAlreadyExistsError:  # somebody else was as quick
            raise TopicSetupError(f"{name}: {' '.join(filter(None, message)) or error.__name__}")
    return sorted(created)


def _replicas_in_sync(replication_factor: int) -> dict[str, str]:
    return {"min.insync.replicas": str(max(1, replication_factor - 1))}


async def _extend(admin: AIOKafkaAdminClient, partitions: Mapping[str, int]) -> None:
    """Add partitions for further cells, and wait until all partitions can be used."""
    found = await _found(admin)
    fewer = {
        topic.name: NewPartitions(partitions[topic.name])
        for topic in TOPICS
        if topic.one_a_cell and len(found[topic.name]) < partitions[topic.name]
    }
    if fewer:
        await admin.create_partitions(fewer)
    while fewer:
        found = await _found(admin)
        if all(len(found[name]) >= partitions[name] for name in fewer):
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _found(admin: AIOKafkaAdminClient) -> dict[str, list[Any]]:
    """Return the partitions of every topic, once all have a leader."""
    names = [topic.name for topic in TOPICS]
    while True:
        found = {
            described["topic"]: described["partitions"]
            for described in await admin.describe_topics(names)
            if described["partitions"]
            and all(partition["leader"] >= 0 for partition in described["partitions"])
        }
        if len(found) == len(names):
            return found
        await asyncio.sleep(_POLL_SECONDS)


async def _replication(admin: AIOKafkaAdminClient, wanted: int) -> list[str]:
    return [
        f"{name}: replication factor is {fewest}, should be {wanted}"
        for name, partitions in (await _found(admin)).items()
        if (fewest := min(len(partition["replicas"]) for partition in partitions)) < wanted
    ]


async def _differences(admin: AIOKafkaAdminClient) -> list[str]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in TOPICS]
    described = {
        name: {entry[0]: entry[1] for entry in entries}
        for response in await admin.describe_configs(asked)
        for _, _, _, name, entries in response.resources
    }
    return [line for topic in TOPICS for line in _differing(topic, described[topic.name])]


def _differing(topic: Topic, found: Mapping[str, str]) -> Iterator[str]:
    for name, value in topic.settings.items():
        if found.get(name) != value:
            yield f"{topic.name}: {name} is {found.get(name)}, should be {value}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the topics; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m resilin.runtime.create_topics",
        description=(
            "Create the topics of the catalogue and check those that are there. How to log in is"
            " taken from RESILIN_SECURITY_PROTOCOL and its like, as by the services."
        ),
    )
    settings = ServiceSettings()
    parser.add_argument("--bootstrap", default=settings.bootstrap, help="default: %(default)s")
    parser.add_argument("--cells", type=int, default=1, help="how many cells (%(default)s)")
    parser.add_argument(
        "--telemetry-partitions",
        type=int,
        default=_TELEMETRY_PARTITIONS,
        help="partitions of telemetry.steps, if it is created (%(default)s)",
    )
    parser.add_argument(
        "--replication-factor", type=int, default=1, help="copies of each message (%(default)s)"
    )
    options = parser.parse_args(arguments)
    settings = settings.model_copy(update={"bootstrap": options.bootstrap})
    try:
        created = asyncio.run(
            create_topics(
                connection_of(settings),
                options.cells,
                options.telemetry_partitions,
                options.replication_factor,
            )
        )
    except TopicSetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"created: {', '.join(created) or 'nothing, all topics are there'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
