"""One core, three runners: the same commands give the same decisions in the same order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.runs import run, spaced_scenario
from tests.support.stepped import SteppedClock, decisions, drive

from resilin.audit.verify import verify
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.embedded.cell import EmbeddedCell
from resilin.embedded.log import LocalLog
from resilin.embedded.topics import LocalTopicReader, LocalTopicWriter
from resilin.eventlog.sqlite import SqliteLog
from resilin.eventlog.sqlite_topic import SqliteTopic
from resilin.simulation.backend import SimulatedBackend
from resilin.simulation.recorded import run_again
from resilin.simulation.simulation import deciders


@pytest.mark.parametrize("seed", [3, 4])
def test_an_embedded_cell_decides_as_the_simulation_does(seed: int, tmp_path: Path) -> None:
    physics, commands = spaced_scenario(seed)
    simulated = run(commands, physics)
    with SqliteLog(tmp_path / "log.resilin", durable=False) as log:
        topic = SqliteTopic(tmp_path / "topics.sqlite", JOBS_COMMANDS.name)
        letters = SqliteTopic(tmp_path / "topics.sqlite", DEADLETTER.name)

        async def live() -> None:
            clock = SteppedClock(commands[0].at_seconds)
            backend = SimulatedBackend(clock.now_seconds, clock.sleep_until, physics)
            cell = EmbeddedCell(
                LocalLog(log).view,
                LocalTopicReader(topic),
                LocalTopicWriter(letters),
                backend,
                clock=clock,
            )
            await drive(cell, backend, clock, commands, topic.produce)

        asyncio.run(live())
        entries = list(log.read())
    assert decisions(entries) == decisions(simulated)
    assert verify(entries, deciders()).sound
    assert list(letters.read()) == []
    assert decisions(run_again(entries)) == decisions(entries)
