"""The recorded world: a log follows from its commands and its world alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.runs import KINDS, recorded, run, scenario

from resilin.audit.verify import verify
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.eventlog.memory import MemoryLog
from resilin.simulation.cluster import Physics
from resilin.simulation.recorded import RecordedWorld, run_again
from resilin.simulation.simulation import Simulation, deciders
from resilin.simulation.what_if import Circumstances, recorded_commands, under


def decided(entries: Sequence[LogEntry]) -> list[tuple[float, ev.Event | ev.UnknownEvent]]:
    return [
        (entry.record.timestamp, event)
        for entry in entries
        if entry.record.nature == "decision"
        for event in entry.record.events
    ]


def facts_of(entries: Sequence[LogEntry], *kinds: type[ev.Event]) -> list[Any]:
    events = (event for entry in entries for event in entry.record.events)
    return [event for event in events if isinstance(event, kinds)]


def generation_of(event: Any) -> tuple[str, int]:
    return event.job_id, event.generation


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_world_gives_the_same_decisions(kind: str, seed: int) -> None:
    entries = recorded(kind, seed)
    repeated = run_again(entries)
    assert decided(repeated) == decided(entries)
    assert verify(repeated, deciders()).sound


def test_what_was_measured_is_measured_again() -> None:
    noise = dict.fromkeys(("resnet50", "bert", "gpt2", "vgg16"), ((0.0, 40.0), (0.3, 400.0)))
    physics = Physics(gradient_noise=noise, throughput_noise=0.1)
    entries = run(scenario(policy="pollux"), physics)
    repeated = run_again(entries)
    assert decided(repeated) == decided(entries)
    for measured in (ev.GradientNoiseMeasured, ev.ThroughputMeasured):
        facts = facts_of(entries, measured)
        assert facts
        assert facts_of(repeated, measured) == facts


def test_where_all_is_decided_otherwise_it_ends_with_the_log() -> None:
    # Nobody ever trains, and plans are looked at again and again.
    entries = [
        entry
        for entry in recorded("costly stops", 1)
        if not facts_of([entry], ev.GenerationSwitched, ev.JobCompleted)
    ]
    repeated = run_again(entries)
    assert not facts_of(repeated, ev.JobCompleted)
    assert repeated[-1].record.timestamp <= entries[-1].record.timestamp


def test_nothing_happens_that_was_not_asked_for() -> None:
    # Decided otherwise, its world stands still sooner or later; and nobody is told of
    # workers that were never started.
    entries = recorded("costly stops", 1)
    commands = list(under(Circumstances(policy="fifo"), list(recorded_commands(entries))))
    log = MemoryLog()
    Simulation(log, commands, RecordedWorld(entries)).run()
    otherwise = list(log.read())
    assert decided(otherwise) != decided(entries)
    assert verify(otherwise, deciders()).sound
    placed = facts_of(otherwise, ev.JobPlaced, ev.JobMigrated)
    switched = facts_of(otherwise, ev.GenerationSwitched)
    assert switched
    assert {generation_of(event) for event in switched} < {generation_of(event) for event in placed}
