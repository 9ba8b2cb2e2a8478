"""Snapshots: what was folded comes back equal, or is refused."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.values import Allocation, training_allocation
from resilin.kernel.fencing import Fence, Lease
from resilin.kernel.host import Folded
from resilin.kernel.snapshot import SnapshotError, dump, load, state_hash


class Mood(StrEnum):
    CALM = "calm"
    BUSY = "busy"


@dataclass(slots=True)
class Part:
    mood: Mood = Mood.CALM
    plan: tuple[tuple[float, float, int], ...] = ()
    allocation: Allocation | None = None
    job: JobSpecification | None = None


@dataclass(slots=True)
class State:
    next_seconds: float = float("inf")
    ratio: float | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    sizes: dict[int, float] = field(default_factory=dict)
    order: dict[str, None] = field(default_factory=dict)
    gpus: dict[str, tuple[int, ...]] = field(default_factory=dict)


JOB = JobSpecification.model_validate(
    {
        "metadata": {"name": "a"},
        "spec": {
            "model": "m",
            "globalBatch": 8,
            "workload": {"totalSamples": 100},
            "deadline": "2h",
        },
    }
)
FULL = State(
    next_seconds=12.5,
    ratio=0.1 + 0.2,
    parts={
        "b": Part(Mood.BUSY, ((0.0, float("inf"), 2),), training_allocation(3, 100)),
        "a": Part(job=JOB),
    },
    sizes={8: 1e-300, 1: 5e-324, 4: -0.0},
    order={"z": None, "é\u2028🦎": None, "a": None},
    gpus={"s-2": (1, 0), "s-1": ()},
)


def folded(state: State, offset: int = 41) -> Folded[State]:
    fence = Fence({"counter": Lease(3, 40, 17), "executor/node-1": Lease(1, -1, 0)})
    return Folded(state, fence, offset, 1_000.5)


floats = st.floats(allow_nan=False)
states = st.builds(
    State,
    next_seconds=floats,
    ratio=st.none() | floats,
    parts=st.dictionaries(
        st.text(max_size=5),
        st.builds(
            Part,
            mood=st.sampled_from(Mood),
            plan=st.lists(st.tuples(floats, floats, st.integers(0, 9)), max_size=2).map(tuple),
            job=st.sampled_from([None, JOB]),
        ),
        max_size=3,
    ),
    sizes=st.dictionaries(st.integers(-(2**70), 2**70), floats, max_size=3),
    order=st.dictionaries(st.text(max_size=5), st.none(), max_size=5),
    gpus=st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 9)).map(tuple), max_size=3),
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(states, st.integers(-1, 2**63), floats)
@example(FULL, 41, 1.0)
@example(State(), -1, float("-inf"))
def test_what_was_folded_comes_back(state: State, offset: int, timestamp: float) -> None:
    before = Folded(state, Fence({"counter": Lease(1, offset, 0)}), offset, timestamp)
    payload = dump(before, State)
    after = load(payload, State)
    assert after == before
    assert repr(after) == repr(before), "types, signs of zero and the order of dicts too"
    assert dump(after, State) == payload
    assert state_hash(after.state, State) == state_hash(state, State)


def test_the_start_of_a_log_comes_back() -> None:
    start = Folded(State(), Fence())
    assert load(dump(start, State), State) == start


def test_a_loaded_state_shares_nothing_with_the_dumped_one() -> None:
    before = folded(State(order={"a": None}))
    after = load(dump(before, State), State)
    after.state.order["b"] = None
    after.fence.leases["counter"].basis += 1
    assert before == folded(State(order={"a": None}))


def test_not_a_number_comes_back() -> None:
    after = load(dump(folded(State(ratio=float("nan"))), State), State)
    assert after.state.ratio is not None
    assert math.isnan(after.state.ratio)


# --- the hash ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        State(next_seconds=12.0),
        State(order={"b": None, "a": None}),
        State(sizes={1: 1.0}),
        State(sizes={1: -0.0}),
        State(gpus={"s": (0,)}),
        State(parts={"a": Part()}),
        State(parts={"a": Part(Mood.BUSY)}),
        State(ratio=0.0),
    ],
)
def test_states_that_differ_have_another_hash(other: State) -> None:
    one = State(order={"a": None, "b": None}, sizes={1: 0.0})
    assert state_hash(one, State) != state_hash(other, State)


def test_equal_numbers_have_one_hash() -> None:
    whole = State(next_seconds=5, sizes={1: 2})
    assert state_hash(whole, State) == state_hash(State(next_seconds=5.0, sizes={1: 2.0}), State)


PROGRAM = """
from dataclasses import dataclass, field
from resilin.kernel.fencing import Fence, Lease
from resilin.kernel.host import Folded
from resilin.kernel.snapshot import dump, state_hash
import hashlib

@dataclass(slots=True)
class State:
    words: dict[str, tuple[float, ...]] = field(default_factory=dict)

state = State({word: (float(len(word)), 0.1) for word in ("gpu", "cell", "job", "node")})
folded = Folded(state, Fence({name: Lease(1, 2, 3) for name in ("b", "a")}), 7, 1.5)
print(hashlib.sha256(dump(folded, State)).hexdigest(), state_hash(state, State), hash("seed"))
"""


def test_snapshots_and_hashes_are_the_same_under_two_hash_seeds() -> None:
    outputs = []
    for seed in ("1", "2"):
        result = subprocess.run(  # noqa: S603 (our own program)
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(result.stdout.split())
    (first, second) = outputs
    assert first[2] != second[2], "the seeds made no difference: the test shows nothing"
    assert first[:2] == second[:2]


# --- refusals ------------------------------------------------------------------------------


@dataclass(slots=True)
class Inner:
    names: frozenset[str] = frozenset()


@dataclass(slots=True)
class WithSet:
    inner: dict[str, tuple[Inner, ...]] = field(default_factory=dict)


def test_a_state_that_holds_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="WithSet holds a set"):
        dump(Folded(WithSet(), Fence()), WithSet)
    with pytest.raises(TypeError, match="WithSet holds a set"):
        state_hash(WithSet(), WithSet)


@pytest.mark.parametrize(
    "changes",
    [{"ratio": "half"}, {"sizes": {"one": 1.0}}, {"gpus": {"s": [1]}}, {"next_seconds": "soon"}],
)
def test_a_value_that_would_not_come_back_is_refused(changes: dict[str, Any]) -> None:
    state = State(**changes)
    with pytest.raises(ValueError, match=next(iter(changes))):
        dump(folded(state), State)
    with pytest.raises(ValueError, match=next(iter(changes))):
        state_hash(state, State)


def test_a_snapshot_of_another_state_is_refused() -> None:
    @dataclass(slots=True)
    class LaterState:
        next_seconds: float = float("inf")
        mood: str = ""

    with pytest.raises(SnapshotError, match="not of this version's LaterState"):
        load(dump(folded(FULL), State), LaterState)


def with_folded(**changes: object) -> bytes:
    content = json.loads(dump(folded(State()), State))
    content["folded"] |= changes
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"null", "not of this version's State"),
        (b"[]", "not of this version's State"),
        (b"{}", "not of this version's State"),
        (with_folded(offset="here"), "field 'offset'"),
        (with_folded(state=None), "field 'state'"),
        (with_folded(state={"sizes": {"one": 1.0}}), "field 'state.sizes.one"),
        (with_folded(fence={"leases": {"counter": {}}}), "field 'fence.leases.counter.epoch'"),
    ],
)
def test_a_damaged_snapshot_is_refused(payload: bytes, message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        load(payload, State)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_no_damage_raises_another_error(data: Any) -> None:
    payload = bytearray(dump(folded(FULL), State))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(payload)))
        length = data.draw(st.integers(0, 4))
        payload[place : place + length] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"null", b"-1", b'"', b"{}", b"1e999"])
        )
    try:
        loaded = load(bytes(payload), State)
    except SnapshotError:
        return
    assert isinstance(loaded.state, State)
