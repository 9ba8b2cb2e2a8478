"""What holds for every service: it folds any log whatever, and says who it is."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.events import (
    admitted,
    completed,
    curves_imported,
    measured,
    placed,
    planned,
    progressed,
    submitted,
    switched,
)
from tests.support.log import HandMadeLog, a_cell, folded
from tests.support.strategies import any_entries, any_events

from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry, Record
from resilin.contracts.topics import SERVICES
from resilin.kernel.decider import Decider
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded
from resilin.kernel.snapshot import dump, load, state_hash
from resilin.simulation.simulation import deciders

each_service = pytest.mark.parametrize("name", SERVICES)


def core_of(name: str) -> Decider[Any]:
    return next(decider for decider in deciders() if decider.service == name)


def fold(core: Decider[Any], entries: list[LogEntry]) -> Any:
    state = core.initial_state()
    for entry in entries:
        for event in entry.record.events:
            state = core.evolve(state, event, entry)
    return state


def test_there_are_the_seven_services() -> None:
    assert sorted(decider.service for decider in deciders()) == sorted(SERVICES)


@each_service
@given(entries=any_entries())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_evolve_is_total(name: str, entries: list[LogEntry]) -> None:
    """Any events in any order, of jobs and servers that exist or do not: never an error."""
    core = core_of(name)
    state = fold(core, entries)
    core.next_timer(state)
    assert isinstance(state, core.state_type)


@each_service
@given(entries=any_entries())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_state_can_be_kept_and_read_back(name: str, entries: list[LogEntry]) -> None:
    core = core_of(name)
    whole = Folded(fold(core, entries), Fence(), offset=len(entries) - 1, timestamp=1.0)
    payload = dump(whole, core.state_type)
    again = load(payload, core.state_type)
    assert again == whole
    assert dump(again, core.state_type) == payload


@each_service
@given(entries=any_entries(), event=any_events, cut=st.floats(0.0, 1.0))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_folding_on_from_a_kept_state_is_folding_on(
    name: str, entries: list[LogEntry], event: ev.Event | ev.UnknownEvent, cut: float
) -> None:
    core = core_of(name)
    position = int(cut * len(entries))
    begun = fold(core, entries[:position])
    kept = dump(Folded(begun, Fence()), core.state_type)
    state = load(kept, core.state_type).state
    last = LogEntry(999, Record("executor", "main", 1, 998, "facts", 5e4, (event,)))
    for entry in [*entries[position:], last]:
        for one in entry.record.events:
            state = core.evolve(state, one, entry)
    assert state_hash(state, core.state_type) == state_hash(
        fold(core, [*entries, last]), core.state_type
    )


@each_service
def test_every_fold_starts_from_a_state_of_its_own(name: str) -> None:
    core = core_of(name)
    empty = state_hash(core.initial_state(), core.state_type)
    log = a_cell().given(submitted("a"), admitted("a"), planned({"a": 1}))
    assert state_hash(folded(log, core), core.state_type) != empty or name == "stability-detector"
    assert state_hash(core.initial_state(), core.state_type) == empty


@each_service
def test_on_an_empty_log_nothing_is_decided_and_no_timer_runs(name: str) -> None:
    core = core_of(name)
    state = core.initial_state()
    assert list(core.decide(state)) == []
    assert core.next_timer(state) is None


ODD: list[ev.Event] = [
    placed("a", 2, {"s1": ()}),
    placed("a", 2, {"s1": (3, 3, 3)}),
    placed("a", 2, {}),
    switched("a", 1, 1_000_000),
    measured("a", 1, 3, 1e300),
    measured("a", 1, 1, 1e-300),
    measured("a", 1, 1, 1e300),
    curves_imported(linear={1: 1e-300, 2: 1e300}),
    curves_imported(linear={3: 1.0}),
    progressed("a", 1, 1e15),
    completed("a", 1, 0.0),
    planned({"a": 1_000_000}, plans={"a": [(9.0, 1.0, 4), (0.0, 0.0, 0)]}, look_again=-1.0),
]


@each_service
def test_evolve_survives_events_that_no_service_should_write(name: str) -> None:
    before = a_cell().given(submitted("a", deadline=60.0), admitted("a", (0.0, 50.0, 2)))
    before.given(planned({"a": 2}), placed("a", 1, {"s1": (0, 1)}), switched("a", 1, 2))
    for events in itertools.permutations(ODD, 2):
        log = HandMadeLog()
        log.entries = [*before.entries]
        log.at(1.0).given(*events).at(2.0).given(progressed("a", 1, 1.0), progressed("a", 2, 1.0))
        folded(log, core_of(name))
