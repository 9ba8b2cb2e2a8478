"""Whatever bytes stand in `jobs.commands`: one answer, short, and a fact that fits the log."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.strategies import models
from tests.support.events import add_server, submit
from tests.support.log import a_cell, folded

from resilin.admission.decider import AdmissionDecider
from resilin.admission.intake import (
    REASON_CHARACTERS,
    ReceivedCommand,
    UnreadableCommand,
    facts_of,
    read_command,
)
from resilin.admission.state import AdmissionState
from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.record import Record, decode_record, encode_record
from resilin.contracts.topics import CELL_EVENTS, JOBS_COMMANDS
from resilin.contracts.values import SourcePosition
from resilin.runtime.inputs import BATCH_BYTES

SOURCE = SourcePosition(topic="jobs.commands", offset=7)


def read(payload: bytes) -> ReceivedCommand | UnreadableCommand:
    return read_command(payload, SOURCE, 1_000.0, cell="main")


def recorded(*facts: ev.Event) -> bytes:
    """The record of these facts, which must be readable again."""
    record = Record("admission", "main", 1, 0, "facts", 1_000.0, facts)
    written = encode_record(record)
    assert decode_record(written) == record
    return written


STATE: AdmissionState = folded(a_cell(), AdmissionDecider())


def answered(payload: bytes) -> ReceivedCommand | UnreadableCommand:
    """Read a message and take it in, as the service does; nothing may be raised."""
    item = read(payload)
    facts = facts_of(STATE, item)
    assert len(facts) == 1
    recorded(*facts)
    if isinstance(item, UnreadableCommand):
        assert 0 < len(item.unreadable) <= REASON_CHARACTERS
        assert isinstance(facts[0], ev.CommandRejected)
    assert item.source == SOURCE
    return item


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=12), children, max_size=4)
    ),
    max_leaves=12,
)
commands = st.sampled_from(cmd.COMMAND_TYPES).flatmap(models)


@given(st.binary(max_size=300))
def test_any_bytes_have_an_answer(payload: bytes) -> None:
    answered(payload)


@given(json_values)
def test_any_json_has_an_answer(value: object) -> None:
    assert isinstance(answered(json.dumps(value).encode()), UnreadableCommand)


@given(commands, st.data())
def test_a_command_with_something_wrong_in_it_has_an_answer(
    command: cmd.Command, data: st.DataObject
) -> None:
    content = json.loads(command.model_dump_json())
    where = content
    while True:
        field = data.draw(st.sampled_from(sorted(where)) | st.text(max_size=12))
        if isinstance(where.get(field), dict) and where[field] and data.draw(st.booleans()):
            where = where[field]
            continue
        where[field] = data.draw(json_values)
        break
    answered(json.dumps(content).encode())


@given(commands)
def test_every_command_is_read_as_it_was_written(command: cmd.Command) -> None:
    command = command.model_copy(update={"cell": "main"})
    item = answered(command.model_dump_json().encode())
    assert isinstance(item, ReceivedCommand)
    assert item.command == command


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b'"' + b"x" * 1_000_000,
        b'{"type": "SubmitJob", "' + b"k" * 500_000 + b'": 1}',
        b'{"type": "' + b"T" * 900_000 + b'"}',
        b'{"type": "CancelJob", "command_id": "\\ud800", "job_id": "a"}',
        b'{"type": "CancelJob", "command_id": "c\\u0000", "job_id": "a"}',
        b'{"type": "ChangeDeadline", "command_id": "c", "job_id": "a", "deadline_seconds": 1e999}',
        b'{"type": "ChangeDeadline", "command_id": "c", "job_id": "a", "deadline_seconds": NaN}',
        b"1" * 100_000,
    ],
    ids=lambda payload: f"{payload[:12]!r} {len(payload)}",
)
def test_hostile_messages_have_short_answers(payload: bytes) -> None:
    assert isinstance(answered(payload), UnreadableCommand)


def test_the_answer_names_the_field() -> None:
    content = json.loads(submit("a").model_dump_json()) | {"jobId": 7}
    item = read(json.dumps(content).encode())
    assert isinstance(item, UnreadableCommand)
    assert item.unreadable.startswith("field 'SubmitJob.jobId': ")


def test_a_command_of_another_cell_is_no_command_here() -> None:
    item = read(submit("a").model_copy(update={"cell": "west"}).model_dump_json().encode())
    assert isinstance(item, UnreadableCommand)
    assert "west" in item.unreadable


# --- what goes together --------------------------------------------------------------------


def test_a_submission_depends_on_its_ids_alone() -> None:
    one, two = read(submit("a").model_dump_json().encode()), read(b"garbage")
    assert one.subjects == ("command submit-a", "job a")
    assert two.subjects == ()


def test_two_submissions_with_an_id_in_common_do_not_go_together() -> None:
    first = submit("a", command_id="c-1")
    named = first.job.metadata.model_copy(update={"submission_id": "s-1"})
    with_submission = first.job.model_copy(update={"metadata": named})
    others = [
        submit("a", command_id="c-2"),
        submit("b", command_id="c-1"),
        submit("b", command_id="c-2").model_copy(update={"job": with_submission}),
    ]
    taken = read(first.model_copy(update={"job": with_submission}).model_dump_json().encode())
    assert taken.subjects is not None
    for other in others:
        subjects = read(other.model_dump_json().encode()).subjects
        assert subjects is not None
        assert {*subjects} & {*taken.subjects}


def test_anything_else_goes_alone() -> None:
    assert read(add_server("s9").model_dump_json().encode()).subjects is None


# --- what fits -----------------------------------------------------------------------------


def test_the_facts_of_the_largest_batch_fit_a_record() -> None:
    # A number may be written in fewer characters than the log writes it in.
    content = json.loads(submit("a").model_dump_json())
    content["job"]["spec"]["worker"] = {
        "entrypoint": "train.py:Job",
        "hyperparameters": {f"h{number}": "@" for number in range(256)},
    }
    written = json.dumps(content, separators=(",", ":")).replace('"@"', "1e15").encode()
    facts = facts_of(STATE, read(written))
    assert isinstance(facts[0], ev.JobSubmitted)
    growth = len(recorded(*facts)) / len(written)
    assert growth * BATCH_BYTES < CELL_EVENTS.message_bytes_max
    assert growth * JOBS_COMMANDS.message_bytes_max < CELL_EVENTS.message_bytes_max
