"""The third runner: on Kafka the same commands give the same decisions in the same order."""

from __future__ import annotations

import asyncio

from tests.support.partitions import own_partition
from tests.support.runs import run, spaced_scenario
from tests.support.stepped import SteppedClock, decisions, drive

from resilin.audit.verify import verify
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.embedded.cell import EmbeddedCell
from resilin.eventlog.kafka import (
    AsyncTopicReader,
    AsyncTopicWriter,
    KafkaConnection,
    KafkaLog,
    KafkaTopic,
)
from resilin.runtime.kafka import KafkaLiveLog
from resilin.simulation.backend import SimulatedBackend
from resilin.simulation.simulation import TimedCommand, deciders


def of_cell(commands: list[TimedCommand], cell: str) -> list[TimedCommand]:
    return [
        TimedCommand(each.at_seconds, each.command.model_copy(update={"cell": cell}))
        for each in commands
    ]


def test_a_cell_on_kafka_decides_as_the_simulation_does(bootstrap: str) -> None:
    cell, partition = own_partition(bootstrap)
    physics, commands = spaced_scenario(3)
    simulated = run(commands, physics)
    connection = KafkaConnection(bootstrap)

    async def live() -> None:
        clock = SteppedClock(commands[0].at_seconds)
        backend = SimulatedBackend(clock.now_seconds, clock.sleep_until, physics)
        letters = AsyncTopicWriter(connection, DEADLETTER.name, partition)
        await letters.start()
        logs: list[KafkaLiveLog] = []

        def open_log() -> KafkaLiveLog:
            logs.append(KafkaLiveLog(connection, cell, partition))
            return logs[-1]

        services = EmbeddedCell(
            open_log,
            AsyncTopicReader(connection, JOBS_COMMANDS.name, partition),
            letters,
            backend,
            clock=clock,
            cell=cell,
            partition=partition,
        )
        try:
            with KafkaTopic(connection, JOBS_COMMANDS.name, partition) as topic:
                await drive(
                    services,
                    backend,
                    clock,
                    of_cell(commands, cell),
                    topic.produce,
                    partition=partition,
                )
        finally:
            for log in logs:
                await log.close()
            await letters.stop()

    asyncio.run(live())
    with KafkaLog(connection, cell, partition) as log:
        entries = list(log.read())
    assert decisions(entries) == decisions(simulated)
    assert verify(entries, deciders()).sound
