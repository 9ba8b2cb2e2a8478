"""Decoding in one step is a short cut: it must read what decoding event by event reads."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.contracts.record import (
    CorruptRecordError,
    Record,
    _decode_one_by_one,
    decode_record,
    encode_record,
)

from .strategies import plain_values, records

# What one reader may take for a number, a version or a list and another may not.
ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.0, 1.5, 1e300, 10**30, 2**53 + 1),
    *("", "1", "1.0", " 1", "1_0", "true", "inf", "nan", "NodeLost", "Soft"),
    *([], [1], ["1"], [0, 1, 2], [["0", 1, 2]], {}, {"1": 1.0}, {"1.0": 1}, {"s": ["0", 1.0]}),
]


def read(payload: bytes, *, one_by_one: bool) -> tuple[Record | str, list[type]]:
    try:
        record = _decode_one_by_one(payload) if one_by_one else decode_record(payload)
    except CorruptRecordError as error:
        return str(error), []
    return record, [type(event) for event in record.events]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(records, st.data())
def test_one_step_reads_what_event_by_event_reads(record: Record, data: Any) -> None:
    content = json.loads(encode_record(record))
    target: Any = content
    while True:
        keys = range(len(target)) if isinstance(target, list) else list(target)
        key = data.draw(st.sampled_from(keys))
        if not target[key] or not isinstance(target[key], dict | list):
            break
        target = target[key]
    target[key] = data.draw(st.sampled_from([target[key], *ODD_VALUES]) | plain_values)
    payload = json.dumps(content).encode()
    assert read(payload, one_by_one=False) == read(payload, one_by_one=True)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(records, st.sampled_from(["type", "version", "job_id", "generation"]), st.data())
def test_of_a_field_that_is_there_twice_both_read_the_same(
    record: Record, field: str, data: Any
) -> None:
    value = json.dumps(data.draw(st.sampled_from(["NodeLost", "1", 1, 2, None])))
    payload = encode_record(record)
    at_the_front = payload.replace(b'"events":[{', f'"events":[{{"{field}":{value},'.encode())
    at_the_end = payload[: -len(b"}]}")] + f',"{field}":{value}}}]}}'.encode()
    for twice in (at_the_front, at_the_end):
        assert read(twice, one_by_one=False) == read(twice, one_by_one=True)
