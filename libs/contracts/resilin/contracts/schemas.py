"""Published schemas: JSON Schema, AsyncAPI and the table of events, made from the models.

``python -m resilin.contracts.schemas docs/schemas`` writes them, and the table beside the
folder as ``docs/events.md``; with ``--check`` it only says whether they are up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from resilin.contracts.commands import COMMAND_TYPES, command_adapter
from resilin.contracts.compatibility import Schema
from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.events import EVENT_TYPES, Event
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.record import EVENT_TYPE_BY_NAME, RecordEnvelope
from resilin.contracts.telemetry import StepSample
from resilin.contracts.topics import SERVICES, TOPICS, Topic

__all__ = [
    "CONTRACTS_VERSION",
    "asyncapi_document",
    "commands_schema",
    "documents",
    "event_table",
    "events_schema",
    "job_schema",
    "main",
]

CONTRACTS_VERSION = "0.1.0"
"""The version of the contracts, and of the baseline that a compatible change leaves alone."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ANY_WRITER = "*"


class _Generator(GenerateJsonSchema):
    """Without a title for every field: it would only repeat the field's name."""

    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:  # noqa: ANN401, ARG002 (as inherited)
        return False


# --- JSON Schema ---------------------------------------------------------------------------


def commands_schema() -> Schema:
    """Return the schema of what a client sends on `jobs.commands`."""
    schema = command_adapter.json_schema(schema_generator=_Generator)
    for definition in schema["$defs"].values():
        _require_type(definition)
    return _document("commands", "Command", "What any client may ask for.", schema)


def job_schema() -> Schema:
    """Return the schema of a job specification, as in a YAML file."""
    schema = JobSpecification.model_json_schema(schema_generator=_Generator)
    return _document("job", "TrainingJob", str(schema.pop("description")), schema)


def events_schema() -> Schema:
    """Return the schema of a record of `cell.events`, with every event it may hold.

    ``x-writer`` and ``x-nature`` say who writes an event and whether it is a fact or a
    decision.
    """
    union: Any = Annotated[Union[EVENT_TYPES], Field(discriminator="type")]  # noqa: UP007 (made at run time)
    events = TypeAdapter(union).json_schema(schema_generator=_Generator)
    definitions = events.pop("$defs")
    for definition in definitions.values():
        # Readers ignore what they do not know, so that a later version may add to it.
        definition.pop("additionalProperties", None)
    for name, event_type in EVENT_TYPE_BY_NAME.items():
        _require_type(definitions[name])
        definitions[name]["x-writer"] = event_type.writer
        definitions[name]["x-nature"] = event_type.nature
    record = RecordEnvelope.model_json_schema(schema_generator=_Generator)
    record["properties"]["events"]["items"] = events
    record["$defs"] = definitions
    description = "What a service appended at once: its facts, a decision, or a claim."
    return _document("events", "Record", description, record)


def _require_type(definition: Schema) -> None:
    """Require the field that tells the alternatives apart: its default is for Python only."""
    if "const" in definition.get("properties", {}).get("type", {}):
        definition["required"] = ["type", *definition.get("required", ())]


def _document(name: str, title: str, description: str, schema: Schema) -> Schema:
    head = {
        "$schema": _DIALECT,
        "$id": f"urn:resilin:{name}:{CONTRACTS_VERSION}",
        "title": title,
        "description": description,
    }
    return head | {key: value for key, value in schema.items() if key not in head}


# --- AsyncAPI ------------------------------------------------------------------------------


def asyncapi_document() -> Schema:
    """Return the AsyncAPI 3.0 document: topics, messages, and which service sends what."""
    channels: Schema = {}
    operations: Schema = {}
    messages: Schema = {}
    for topic in TOPICS:
        carried = _carried(topic)
        messages |= {name: message for name, message, _ in carried}
        channels[topic.name] = _channel(topic, [name for name, _, _ in carried])
        for writer in topic.writers:
            sent = [name for name, _, sender in carried if sender in (writer, None)]
            operations[_operation_name(writer, "send", topic)] = _operation(
                writer, "send", topic, sent
            )
        for reader in topic.readers:
            received = [name for name, _, _ in carried]
            operations[_operation_name(reader, "receive", topic)] = _operation(
                reader, "receive", topic, received
            )
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Resilin",
            "version": CONTRACTS_VERSION,
            "description": (
                "What the services of a Resilin cell and its clients say to each other over"
                " Kafka. The tags of an operation name the service that performs it."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _carried(topic: Topic) -> list[tuple[str, Schema, str | None]]:
    """List a topic's messages: name, content, and the one service that sends it, if one."""
    match topic.name:
        case "jobs.commands":
            return [
                (kind.__name__, _message(topic, kind, _ref("commands", kind.__name__)), None)
                for kind in COMMAND_TYPES
            ]
        case "cell.events":
            return [
                (f"{_pascal_case(service)}Record", _record_message(topic, service), service)
                for service in SERVICES
            ]
        case "telemetry.steps":
            return [("StepSample", _message(topic, StepSample, _inline(StepSample)), None)]
        case "deadletter":
            return [("DeadLetter", _message(topic, DeadLetter, _inline(DeadLetter)), None)]
        case _:
            return [("Snapshot", _snapshot_message(topic), None)]


def _message(topic: Topic, model: type[BaseModel], payload: Schema) -> Schema:
    return {
        "name": model.__name__,
        "title": model.__name__,
        "summary": _first_paragraph(model),
        "payload": {"schemaFormat": "application/schema+json;version=2020-12", "schema": payload},
        "bindings": _message_binding(topic),
    }


def _record_message(topic: Topic, service: str) -> Schema:
    own = [name for name, kind in EVENT_TYPE_BY_NAME.items() if kind.writer == service]
    common = [name for name, kind in EVENT_TYPE_BY_NAME.items() if kind.writer == _ANY_WRITER]
    restriction = {
        "properties": {
            # One instance a node writes under the service's name, a slash and its own.
            "service": {"pattern": f"^{service}(/.+)?$"},
            "events": {"items": {"oneOf": [_ref("events", name) for name in [*common, *own]]}},
        }
    }
    payload = {"allOf": [{"$ref": "./events.schema.json"}, restriction]}
    message = _message(topic, RecordEnvelope, payload)
    title = f"{_pascal_case(service)}Record"
    return message | {
        "name": title,
        "title": title,
        "summary": f"What {service} appended at once: " + ", ".join([*own, *common]) + ".",
    }


def _snapshot_message(topic: Topic) -> Schema:
    return {
        "name": "Snapshot",
        "title": "Snapshot",
        "summary": "A service's folded state. Its form is the service's own and may change.",
        "payload": {"type": "object"},
        "bindings": _message_binding(topic),
    }


def _message_binding(topic: Topic) -> Schema:
    key = {"type": "string", "description": topic.key}
    return {"kafka": {"key": key, "bindingVersion": "0.5.0"}}


def _channel(topic: Topic, messages: Sequence[str]) -> Schema:
    settings: Schema = {
        "cleanup.policy": [topic.cleanup],
        "max.message.bytes": topic.message_bytes_max,
    }
    if topic.cleanup == "delete":
        kept = topic.retention_seconds
        settings["retention.ms"] = -1 if kept is None else kept * 1_000
    return {
        "address": topic.name,
        "title": topic.name,
        "summary": topic.carries,
        "description": f"Key: {topic.key}. Partitions: {topic.partitioning}. {topic.note}",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "topicConfiguration": settings,
                "bindingVersion": "0.5.0",
            }
        },
    }


def _operation(who: str, action: str, topic: Topic, messages: Sequence[str]) -> Schema:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{topic.name}"},
        "summary": f"{who}: {action} {topic.name}",
        "tags": [{"name": who}],
        "messages": [{"$ref": f"#/channels/{topic.name}/messages/{name}"} for name in messages],
    }


def _operation_name(who: str, action: str, topic: Topic) -> str:
    return f"{who.replace(' ', '-')}.{action}.{topic.name}"


def _ref(document: str, definition: str) -> Schema:
    return {"$ref": f"./{document}.schema.json#/$defs/{definition}"}


def _inline(model: type[BaseModel]) -> Schema:
    """Return a small model's schema without references, which would need a file of its own."""
    schema = model.model_json_schema(schema_generator=_Generator)
    definitions = schema.pop("$defs", {})

    def resolved(part: Any) -> Any:  # noqa: ANN401 (any part of a schema)
        if isinstance(part, list):
            return [resolved(inner) for inner in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return resolved(definitions[part["$ref"].rpartition("/")[2]])
        return {name: resolved(inner) for name, inner in part.items()}

    return {name: resolved(part) for name, part in schema.items()}


def _pascal_case(service: str) -> str:
    return "".join(part.capitalize() for part in service.split("-"))


# --- the table of events -------------------------------------------------------------------


def event_table() -> str:
    """Return the table of all events, as Markdown."""
    lines = [
        "# Events",
        "",
        "Every event of a cell's log, with the one service that writes it. Made from the models"
        " by `python -m resilin.contracts.schemas docs/schemas`; do not edit.",
        "",
        "A fact entered from outside: a command, a report, a measurement, a timer. A decision"
        " can be recomputed from the log up to its record's basis. A field marked `?` may be"
        " absent. The fields' types are in [events.schema.json](schemas/events.schema.json).",
        "",
        "| Type | Writer | Fact or decision | Fields | Meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines.extend(_event_row(name, event_type) for name, event_type in EVENT_TYPE_BY_NAME.items())
    return "\n".join(lines) + "\n"


def _event_row(name: str, event_type: type[Event]) -> str:
    fields = [
        f"`{field}`" if info.is_required() else f"`{field}`?"
        for field, info in event_type.model_fields.items()
        if field not in ("type", "version")
    ]
    writer = "any service" if event_type.writer == _ANY_WRITER else event_type.writer
    nature = "claim" if event_type.nature == "kernel" else event_type.nature
    meaning = " ".join((event_type.__doc__ or "").split()).replace("``", "`").replace("|", "\\|")
    return f"| {name} | {writer} | {nature} | {', '.join(fields)} | {meaning} |"


def _first_paragraph(model: type[BaseModel]) -> str:
    paragraph = (model.__doc__ or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


# --- the command ---------------------------------------------------------------------------


def documents() -> dict[str, str]:
    """Return the content of each file in the folder of schemas, by its name."""
    contents = {
        "asyncapi.json": asyncapi_document(),
        "commands.schema.json": commands_schema(),
        "events.schema.json": events_schema(),
        "job.schema.json": job_schema(),
    }
    return {
        name: json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        for name, content in contents.items()
    }


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    for name, text in documents().items():
        yield folder / name, text
    yield folder.parent / "events.md", event_table()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or check them; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m resilin.contracts.schemas",
        description="Write the published schemas, and the table of events beside their folder.",
    )
    parser.add_argument("folder", type=Path, help="the folder of schemas, such as docs/schemas")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    stale = [
        (path, text)
        for path, text in _files(folder)
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if options.check:
        for path, _ in stale:
            sys.stderr.write(f"{path}: not up to date; run {parser.prog} {options.folder}\n")
        return 1 if stale else 0
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in stale:
        path.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
