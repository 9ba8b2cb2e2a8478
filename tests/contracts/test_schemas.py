"""The published schemas: up to date, complete, and true of what is really written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from resilin.contracts import schemas
from resilin.contracts.commands import COMMAND_TYPES, Command, command_adapter
from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.events import EVENT_TYPES, Event
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.record import EVENT_TYPE_BY_NAME, encode_record
from resilin.contracts.topics import SERVICES, TOPICS
from resilin.contracts.values import SourcePosition

from .strategies import commands, events, models
from .test_record import record_of

DOCUMENTATION = Path(__file__).parents[2] / "docs"


def definition(document: dict[str, Any], name: str) -> jsonschema.Draft202012Validator:
    """A validator for one definition of a document."""
    part = {"$ref": f"#/$defs/{name}", "$defs": document["$defs"]}
    return jsonschema.Draft202012Validator(part)


# --- the files -----------------------------------------------------------------------------


def test_the_committed_schemas_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    status = schemas.main([str(DOCUMENTATION / "schemas"), "--check"])
    assert status == 0, capsys.readouterr().err


def test_the_command_writes_once_and_notices_drift(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs" / "schemas"
    assert schemas.main([str(folder), "--check"]) == 1
    assert not folder.exists()
    assert schemas.main([str(folder)]) == 0
    assert schemas.main([str(folder), "--check"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(schemas.documents())
    capsys.readouterr()

    for path in [*folder.iterdir(), folder.parent / "events.md"]:
        kept = path.read_text(encoding="utf-8")
        path.write_text(kept + " ", encoding="utf-8")
        assert schemas.main([str(folder), "--check"]) == 1
        message = capsys.readouterr().err
        assert str(path) in message
        assert len(message.splitlines()) == 1
        assert schemas.main([str(folder)]) == 0
        assert path.read_text(encoding="utf-8") == kept


@pytest.mark.parametrize(
    "document", [schemas.commands_schema(), schemas.events_schema(), schemas.job_schema()]
)
def test_every_schema_is_a_schema(document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(document)


# --- what the schemas say ------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(commands)
def test_commands_follow_their_schema(command: Command) -> None:
    content = json.loads(command_adapter.dump_json(command))
    definition(schemas.commands_schema(), command.type).validate(content)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(events)
def test_events_follow_their_schema(event: Event) -> None:
    content = json.loads(encode_record(record_of(event)))["events"][0]
    definition(schemas.events_schema(), type(event).__name__).validate(content)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(models(JobSpecification))
def test_jobs_follow_their_schema(job: JobSpecification) -> None:
    content = json.loads(job.model_dump_json())
    jsonschema.Draft202012Validator(schemas.job_schema()).validate(content)


def test_a_record_follows_its_schema_and_a_wrong_one_does_not() -> None:
    validator = jsonschema.Draft202012Validator(schemas.events_schema())
    content = json.loads(encode_record(record_of()))
    validator.validate(content)
    for wrong in (
        {"events": []},
        {"events": [{"type": "ClockTicked"}]},
        {"events": [{"version": 1, "due_seconds": 1.0}]},
        {"epoch": -1},
        {"service": "a b"},
    ):
        assert list(validator.iter_errors(content | wrong)), wrong


def test_a_command_without_a_type_follows_no_schema() -> None:
    validator = jsonschema.Draft202012Validator(schemas.commands_schema())
    command = {"commandId": "c", "jobId": "j"}
    assert not list(validator.iter_errors(command | {"type": "CancelJob"}))
    assert list(validator.iter_errors(command))
    assert list(validator.iter_errors(command | {"type": "CancelJob", "why": "changed my mind"}))


def test_readers_of_events_may_meet_fields_of_a_later_version() -> None:
    assert '"additionalProperties": false' not in schemas.documents()["events.schema.json"]
    assert '"additionalProperties": false' in schemas.documents()["commands.schema.json"]


def test_every_event_type_says_who_writes_it() -> None:
    definitions = schemas.events_schema()["$defs"]
    for event_type in EVENT_TYPES:
        told = definitions[event_type.__name__]
        assert (told["x-writer"], told["x-nature"]) == (event_type.writer, event_type.nature)


# --- topics and AsyncAPI -------------------------------------------------------------------


def test_the_services_are_the_writers_of_events() -> None:
    assert {kind.writer for kind in EVENT_TYPES} == {"*", *SERVICES}


def test_topics_are_told_apart_by_name_and_known_by_service() -> None:
    names = [topic.name for topic in TOPICS]
    assert names == list(dict.fromkeys(names))
    for topic in TOPICS:
        assert set(topic.readers) <= set(SERVICES)
        assert set(topic.writers) <= {"any client", *SERVICES}
        assert topic.cleanup == "delete" or topic.retention_seconds is None


def test_the_log_keeps_everything_that_a_command_may_hold() -> None:
    sizes = {topic.name: topic.message_bytes_max for topic in TOPICS}
    # A fact holds its command with other names for some fields; base64 grows by a third.
    assert sizes["cell.events"] >= 2 * sizes["jobs.commands"]
    assert sizes["deadletter"] >= sizes["jobs.commands"] * 4 / 3 + 10_000


def references(part: object) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        return own + [found for inner in part.values() for found in references(inner)]
    if isinstance(part, list):
        return [found for inner in part for found in references(inner)]
    return []


def test_every_reference_leads_somewhere() -> None:
    documents = {name: json.loads(text) for name, text in schemas.documents().items()}
    for name, document in documents.items():
        for reference in references(document):
            file, _, path = reference.partition("#")
            target = documents[file.removeprefix("./") or name]
            for part in path.split("/")[1:]:
                target = target[part]


def test_asyncapi_tells_every_message_and_who_sends_and_receives_it() -> None:
    document = schemas.asyncapi_document()
    assert set(document["channels"]) == {topic.name for topic in TOPICS}
    commands_channel = document["channels"]["jobs.commands"]
    assert list(commands_channel["messages"]) == [kind.__name__ for kind in COMMAND_TYPES]
    for topic in TOPICS:
        for action, parties in (("send", topic.writers), ("receive", topic.readers)):
            told = [
                operation["tags"][0]["name"]
                for operation in document["operations"].values()
                if operation["action"] == action
                and operation["channel"]["$ref"] == f"#/channels/{topic.name}"
            ]
            assert told == list(parties)


def test_asyncapi_lets_every_service_send_its_own_events_only() -> None:
    document = schemas.asyncapi_document()
    for service in SERVICES:
        (sent,) = document["operations"][f"{service}.send.cell.events"]["messages"]
        message = document["components"]["messages"][sent["$ref"].rpartition("/")[2]]
        told = [reference.rpartition("/")[2] for reference in references(message)[1:]]
        own = [name for name, kind in EVENT_TYPE_BY_NAME.items() if kind.writer in ("*", service)]
        assert sorted(told) == sorted(own)


def test_the_log_is_never_compacted_and_never_expires() -> None:
    binding = schemas.asyncapi_document()["channels"]["cell.events"]["bindings"]["kafka"]
    assert binding["topicConfiguration"]["cleanup.policy"] == ["delete"]
    assert binding["topicConfiguration"]["retention.ms"] == -1


def test_a_dead_letter_keeps_any_bytes() -> None:
    letter = DeadLetter.model_validate(
        {
            "service": "admission",
            "source": SourcePosition(topic="jobs.commands", offset=3),
            "reason": "no JSON",
            "payload": "/wD+",
        }
    )
    assert letter.payload == b"\xff\x00\xfe"
    assert DeadLetter.model_validate_json(letter.model_dump_json()) == letter


# --- the table of events -------------------------------------------------------------------


def test_the_table_has_a_row_for_every_event() -> None:
    rows = [line.split(" | ") for line in schemas.event_table().splitlines() if " | " in line][2:]
    assert [row[0].removeprefix("| ") for row in rows] == list(EVENT_TYPE_BY_NAME)
    assert all(len(row) == 5 for row in rows)
    (rejected,) = [row for row in rows if row[0] == "| JobRejected"]
    assert rejected[1:3] == ["admission", "decision"]
    assert rejected[3].startswith("`job_id`, `reason`, `message`, `earliest_deadline_seconds`?")
