"""The record codec: what is written is read back, and nothing else is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resilin.contracts import record as record_module
from resilin.contracts.events import (
    EVENT_TYPES,
    AllocationPlanned,
    ClockTicked,
    Event,
    JobSubmitted,
    NodeLost,
    ServerAdded,
    UnknownEvent,
)
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.record import (
    CorruptRecordError,
    Record,
    decode_record,
    encode_record,
)
from resilin.contracts.upcasters import UPCASTERS, upcast
from resilin.contracts.values import Server, SourcePosition

from .strategies import models, plain_values, records, unknown_events


def record_of(*events: Event | UnknownEvent, **header: Any) -> Record:
    content: dict[str, Any] = {
        "service": "executor",
        "cell": "main",
        "epoch": 1,
        "basis": 7,
        "nature": "facts",
        "timestamp": 5.0,
        "events": events or (ClockTicked(due_seconds=1.0),),
    }
    return Record(**(content | header))


def payload_of(*events: dict[str, Any], **header: Any) -> bytes:
    content = json.loads(encode_record(record_of()))
    return json.dumps(content | {"events": list(events)} | header).encode()


# --- round trips ---------------------------------------------------------------------------


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
def test_every_event_type_is_read_back_as_it_was_written(event_type: type[Event]) -> None:
    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(models(event_type))
    def check(event: Event) -> None:
        record = record_of(event)
        decoded = decode_record(encode_record(record))
        assert decoded == record
        assert type(decoded.events[0]) is event_type

    check()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(records)
def test_records_are_read_back_and_equal_records_have_equal_bytes(record: Record) -> None:
    payload = encode_record(record)
    decoded = decode_record(payload)
    assert decoded == record
    assert encode_record(decoded) == payload
    json.loads(payload, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_best_effort_submission_is_read_back() -> None:
    job = JobSpecification.model_validate(
        {
            "metadata": {"name": "a"},
            "spec": {"model": "m", "globalBatch": 1, "workload": {"totalIterations": 1}},
        }
    )
    event = JobSubmitted(
        source=SourcePosition(topic="jobs.commands", offset=0),
        command_id="c",
        job_id="j",
        job=job,
        submitted_at_seconds=0.0,
        deadline_seconds=None,
    )
    assert decode_record(encode_record(record_of(event))).events == (event,)


def test_equal_headers_have_equal_bytes_whatever_their_number_type() -> None:
    assert encode_record(record_of(timestamp=5)) == encode_record(record_of(timestamp=5.0))


@pytest.mark.parametrize(
    "header",
    [
        {"service": ""},
        {"service": "no spaces"},
        {"cell": "a\nb"},
        {"epoch": -1},
        {"basis": -2},
        {"nature": "opinion"},
        {"timestamp": float("nan")},
        {"timestamp": float("inf")},
    ],
    ids=str,
)
def test_what_could_not_be_read_back_is_not_written(header: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(header))):
        encode_record(record_of(**header))


def test_a_record_without_events_is_not_written() -> None:
    with pytest.raises(ValueError, match="no event"):
        encode_record(Record("executor", "main", 1, 7, "facts", 5.0, ()))


def test_a_plan_cannot_reach_into_infinity() -> None:
    with pytest.raises(ValueError, match="finite"):
        AllocationPlanned(virtual_cluster="v", plans={"j": ((0.0, float("inf"), 1),)})


# --- what a later version wrote ------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(unknown_events())
@example(
    UnknownEvent(
        type="FutureText",
        version=2,
        content={"type": "FutureText", "version": 2, "text": 'é " \\ / \u2028 \x7f \x00 🦎'},
    )
)
@example(
    UnknownEvent(
        type="FutureNumbers",
        version=1,
        content={"type": "FutureNumbers", "numbers": [1e-7, 1e16, 5e-324, -0.0, 10**30, 1.0, 1]},
    )
)
def test_an_unknown_event_is_kept_byte_for_byte(event: UnknownEvent) -> None:
    # As the later version wrote it: with the serializer of the models.
    written = UnknownContent(content=event.content).model_dump_json()
    content = written[len('{"content":') : -1]
    payload = encode_record(record_of()).partition(b'"events":')[0]
    payload += b'"events":[' + content.encode() + b"]}"

    decoded = decode_record(payload)

    assert isinstance(decoded.events[0], UnknownEvent)
    assert decoded.events[0].content == event.content
    assert encode_record(decoded) == payload


class UnknownContent(record_module.EventModel):
    content: dict[str, Any]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.sampled_from(EVENT_TYPES), st.integers(2, 9), plain_values)
def test_a_later_version_of_a_known_type_is_kept_whole(
    event_type: type[Event], version: int, value: object
) -> None:
    content = {"type": event_type.__name__, "version": version, "new": value}
    payload = payload_of(content)
    decoded = decode_record(payload)
    assert decoded.events == (
        UnknownEvent(type=event_type.__name__, version=version, content=content),
    )
    assert decode_record(encode_record(decoded)) == decoded


def test_fields_that_a_later_version_added_are_ignored_at_any_depth() -> None:
    event = ServerAdded(
        source=SourcePosition(topic="jobs.commands", offset=0),
        command_id="c",
        server=Server(server_id="s", gpus=8),
    )
    content = event.model_dump(mode="json")
    content["colour"] = "red"
    content["source"]["epoch"] = 3
    content["server"]["zone"] = "north"
    assert decode_record(payload_of(content)).events == (event,)


# --- upcasting -----------------------------------------------------------------------------


class NodeLostNow(NodeLost):
    """`NodeLost` as it might be one day: in version 3, with a reason."""

    version: int = 3
    reason: str


def _rename(content: dict[str, Any]) -> dict[str, Any]:
    renamed = {name: value for name, value in content.items() if name != "cause"}
    return {**renamed, "reason": content["cause"]}


FAKE_UPCASTERS = {
    ("NodeLost", 1): lambda content: {**content, "cause": "unknown"},
    ("NodeLost", 2): _rename,
}


@pytest.fixture
def a_later_node_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(record_module.EVENT_TYPE_BY_NAME, "NodeLost", NodeLostNow)
    for step, upcaster in FAKE_UPCASTERS.items():
        monkeypatch.setitem(UPCASTERS, step, upcaster)


def test_upcasters_are_chained_from_whatever_version_was_written() -> None:
    first = {"type": "NodeLost", "version": 1, "server_id": "s"}
    second = {"type": "NodeLost", "version": 2, "server_id": "s", "cause": "fire"}
    third = {"type": "NodeLost", "version": 3, "server_id": "s", "reason": "fire"}
    assert upcast(first, 3, FAKE_UPCASTERS) == {**third, "reason": "unknown"}
    assert upcast(second, 3, FAKE_UPCASTERS) == third
    assert upcast(third, 3, FAKE_UPCASTERS) is third
    assert first["version"] == 1, "an upcaster leaves its input alone"


def test_an_event_without_a_version_is_of_version_1() -> None:
    upcasted = upcast({"type": "NodeLost", "server_id": "s"}, 3, FAKE_UPCASTERS)
    assert upcasted == {"type": "NodeLost", "version": 3, "server_id": "s", "reason": "unknown"}


@pytest.mark.usefixtures("a_later_node_lost")
def test_a_record_of_an_older_version_decodes_to_the_newest() -> None:
    old = {"type": "NodeLost", "version": 1, "server_id": "s", "incarnation": 1}
    new = NodeLostNow(server_id="s", incarnation=1, reason="unknown")
    assert decode_record(payload_of(old)).events == (new,)
    assert decode_record(encode_record(record_of(new))).events == (new,)


@pytest.mark.usefixtures("a_later_node_lost")
def test_what_an_upcaster_cannot_work_with_is_a_corrupt_record() -> None:
    without_cause = {"type": "NodeLost", "version": 2, "server_id": "s", "incarnation": 1}
    with pytest.raises(CorruptRecordError, match="NodeLost of version 2"):
        decode_record(payload_of(without_cause))


# --- corrupt bytes -------------------------------------------------------------------------

TICK: dict[str, Any] = {"type": "ClockTicked", "version": 1, "due_seconds": 1.0}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "record"),
        (b"null", "record"),
        (b"[]", "record"),
        (b"\xff\xfe", "record"),
        (payload_of(), "events"),
        (payload_of(TICK, service=""), "service"),
        (payload_of(TICK, service="a b"), "service"),
        (payload_of(TICK, service="\u00e9"), "service"),
        (payload_of(TICK, epoch=-1), "epoch"),
        (payload_of(TICK, epoch="one"), "epoch"),
        (payload_of(TICK, basis=-2), "basis"),
        (payload_of(TICK, nature="fact"), "nature"),
        (payload_of(TICK, timestamp=float("nan")), "timestamp"),
        (payload_of(TICK, timestamp=None), "timestamp"),
        (payload_of(TICK, events=7), "events"),
        (payload_of(TICK, events=[7]), "events.0"),
        (payload_of({"version": 1}), "no type"),
        (payload_of({"type": 3}), "no type"),
        (payload_of({**TICK, "version": 0}), "version"),
        (payload_of({**TICK, "version": True}), "version"),
        (payload_of({**TICK, "version": "1"}), "version"),
        (payload_of({**TICK, "version": None}), "version"),
        (payload_of({"type": "Future", "version": -1}), "version"),
        (payload_of({"type": "ClockTicked"}), "ClockTicked.due_seconds"),
        (payload_of({**TICK, "due_seconds": "soon"}), "ClockTicked.due_seconds"),
        (payload_of({**TICK, "due_seconds": float("inf")}), "ClockTicked.due_seconds"),
        (payload_of(TICK)[:-1], "record"),
        (payload_of(TICK) + b"x", "record"),
        (b"[" * 100_000, "record"),
        (b'{"events":[' + b'{"a":' * 100_000, "record"),
        (payload_of(TICK).replace(b"5.0", b"1" * 5_000), "record"),
        (payload_of(TICK).replace(b'"epoch": 1', b'"epoch": ' + b"1" * 5_000), "record"),
    ],
)
def test_a_corrupt_record_is_refused_by_the_name_of_its_field(payload: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError) as refusal:
        decode_record(payload)
    assert message in str(refusal.value)


def decodes_or_is_corrupt(payload: bytes) -> None:
    """Either the payload is a record that can be written again, or it is called corrupt."""
    try:
        decoded = decode_record(payload)
    except CorruptRecordError:
        return
    rewritten = encode_record(decoded)
    assert encode_record(decode_record(rewritten)) == rewritten


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
@example(payload_of(TICK).replace(b"5.0", b"1" * 4_200))
@example(payload_of(TICK).replace(b'"epoch": 1', b'"epoch": ' + b"1" * 4_200))
@example(payload_of({"type": "Future", "huge": 10**4_200}))
@example(payload_of({"type": "Future", "half a pair": "\ud800"}))
@example(payload_of({"type": "Future", "deep": 0}).replace(b"0}", b"[" * 190 + b"]" * 190 + b"}"))
@example(payload_of({"type": "Future", "deep": 0}).replace(b"0}", b"[" * 196 + b"]" * 196 + b"}"))
def test_no_bytes_raise_another_error(payload: bytes) -> None:
    decodes_or_is_corrupt(payload)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(records, st.data())
def test_no_damage_to_a_records_bytes_raises_another_error(record: Record, data: Any) -> None:
    payload = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(payload)))
        length = data.draw(st.integers(0, 4))
        payload[place : place + length] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"NaN", b"null", b"-1", b'"', b"{}", b"1e999"])
        )
    decodes_or_is_corrupt(bytes(payload))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(records, plain_values, st.data())
def test_no_value_in_a_wrong_place_raises_another_error(
    record: Record, value: object, data: Any
) -> None:
    content = json.loads(encode_record(record))
    target: Any = content
    while True:
        key = data.draw(
            st.sampled_from(range(len(target)) if isinstance(target, list) else list(target))
        )
        if not target[key] or not isinstance(target[key], dict | list) or data.draw(st.booleans()):
            break
        target = target[key]
    target[key] = value
    decodes_or_is_corrupt(json.dumps(content).encode())
