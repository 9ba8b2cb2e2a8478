"""What a released version wrote is read by this one.

``released/<version>/`` holds the schemas of each release, ``released/records.jsonl`` records
of every event type. A release adds a folder (a copy of ``docs/schemas``) and lines for new
event types; nothing in there is ever changed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resilin.contracts import schemas
from resilin.contracts.compatibility import Schema, breaking_changes
from resilin.contracts.events import UnknownEvent
from resilin.contracts.record import decode_record, encode_record

RELEASED = Path(__file__).parent / "released"
VERSIONS = sorted(path.name for path in RELEASED.iterdir() if path.is_dir())
DOCUMENTS = ("commands.schema.json", "events.schema.json", "job.schema.json")
GOLDEN = (RELEASED / "records.jsonl").read_bytes().splitlines()


def released(version: str, name: str) -> Schema:
    document: Schema = json.loads((RELEASED / version / name).read_text(encoding="utf-8"))
    return document


# --- this version against the released ones ------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_released_breaks(version: str, name: str) -> None:
    current = json.loads(schemas.documents()[name])
    problems = breaking_changes(released(version, name), current)
    assert not problems, (
        f"incompatible with {version}: {'; '.join(problems)}. Add instead of changing, or raise"
        " the event's version and register an upcaster from the old one."
    )


def test_a_baseline_exists() -> None:
    assert "0.1.0" in VERSIONS


@pytest.mark.parametrize("line", GOLDEN, ids=range(len(GOLDEN)))
def test_a_released_record_is_still_read_and_loses_nothing(line: bytes) -> None:
    record = decode_record(line)
    rewritten = encode_record(record)
    assert decode_record(rewritten) == record
    assert_keeps(json.loads(line), json.loads(rewritten), "record")


def assert_keeps(old: Any, new: Any, path: str) -> None:
    """Everything in ``old`` is in ``new``, unchanged; ``new`` may hold more fields."""
    if isinstance(old, dict):
        for name, value in old.items():
            assert name in new or value is None, f"{path}.{name} was lost"
            if name in new:
                assert_keeps(value, new[name], f"{path}.{name}")
    elif isinstance(old, list):
        assert len(old) == len(new), path
        for place, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            assert_keeps(old_item, new_item, f"{path}[{place}]")
    else:
        assert old == new, path


def test_the_released_records_hold_every_released_event_type() -> None:
    held = {event["type"] for line in GOLDEN for event in json.loads(line)["events"]}
    for version in VERSIONS:
        document = released(version, "events.schema.json")
        types = [name for name, part in document["$defs"].items() if "x-writer" in part]
        assert len(types) >= 38
        assert not [name for name in types if name not in held]


def test_the_released_records_are_known_but_for_those_of_the_future() -> None:
    unknown = [
        event.type
        for line in GOLDEN
        for event in decode_record(line).events
        if isinstance(event, UnknownEvent)
    ]
    assert unknown == ["WeatherForecast", "ClockTicked"]


# --- the checker itself --------------------------------------------------------------------

Change = Callable[[dict[str, Any]], None]


def remove_field(event: str, field: str) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        del definitions[event]["properties"][field]
        required = definitions[event]["required"]
        definitions[event]["required"] = [name for name in required if name != field]

    return change


def change_field(event: str, field: str, **changes: Any) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        definitions[event]["properties"][field].update(changes)

    return change


def replace_field(event: str, field: str, schema: Schema) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        definitions[event]["properties"][field] = schema

    return change


def add_required(event: str, field: str) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        definitions[event]["properties"].setdefault(field, {"type": "string"})
        definitions[event]["required"].append(field)

    return change


def mark(event: str, key: str, value: str) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        definitions[event][key] = value

    return change


def change_definition(name: str, **changes: Any) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        definitions[name].update(changes)

    return change


def rename(event: str, new: str) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        definitions[new] = definitions.pop(event)
        definitions[new]["properties"]["type"].update(const=new, default=new)

    return change


def together(*changes: Change) -> Change:
    def change(definitions: dict[str, Any]) -> None:
        for one in changes:
            one(definitions)

    return change


def problems_after(change: Change, upcasters: tuple[tuple[str, int], ...] = ()) -> list[str]:
    before = schemas.events_schema()
    after = copy.deepcopy(before)
    change(after["$defs"])
    return breaking_changes(before, after, upcasters)


NUMBER_OR_NULL = {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}

BREAKING = [
    (rename("JobPlaced", "JobPutSomewhere"), "JobPlaced: the type is gone"),
    (lambda definitions: definitions.pop("NodeLost"), "NodeLost: the type is gone"),
    (remove_field("JobPlaced", "gpus"), "JobPlaced.gpus: the field was removed"),
    (remove_field("JobAdmitted", "plan"), "JobAdmitted.plan: the field was removed"),
    (remove_field("SourcePosition", "offset"), ".source.offset: the field was removed"),
    (remove_field("TrainingSpecification", "tenant"), ".spec.tenant: the field was removed"),
    (add_required("NodeLost", "reason"), "NodeLost.reason: the field is now required"),
    (add_required("JobAdmitted", "plan"), "JobAdmitted.plan: the field is now required"),
    (add_required("Server", "zone"), ".server.zone: the field is now required"),
    (
        change_field("JobSuspended", "generation", type="string"),
        "JobSuspended.generation: its type was integer, is string",
    ),
    (
        change_field("ProgressReported", "iterations_done", type="integer"),
        "ProgressReported.iterations_done: its type was number, is integer",
    ),
    (
        replace_field("JobAdmitted", "finish_seconds", {"type": "number", "default": None}),
        "JobAdmitted.finish_seconds: no longer takes null",
    ),
    (
        change_definition("RejectionReason", enum=["QuotaExceeded"]),
        "JobRejected.reason: the value 'CapacityPromised' was removed",
    ),
    (
        change_field("CurvesImported", "curve_source", enum=["imported", "model"]),
        "CurvesImported.curve_source: the value 'profiled' was removed",
    ),
    (
        change_field("CommandRejected", "message", enum=["no"]),
        "CommandRejected.message: is now one of ['no']",
    ),
    (
        change_field("JobSuspended", "generation", minimum=2),
        "JobSuspended.generation: its lower bound rose",
    ),
    (
        change_field("UtilizationMeasured", "utilization_ratio", exclusiveMinimum=0),
        "UtilizationMeasured.utilization_ratio: its lower bound rose",
    ),
    (
        change_field("UtilizationMeasured", "utilization_ratio", maximum=0.5),
        "UtilizationMeasured.utilization_ratio: its upper bound sank",
    ),
    (
        change_field("JobSuspended", "generation", maximum=10),
        "JobSuspended.generation: its upper bound sank",
    ),
    (change_field("NodeLost", "server_id", maxLength=20), "NodeLost.server_id: maxLength was 200"),
    (change_field("NodeLost", "server_id", minLength=2), "NodeLost.server_id: minLength was 1"),
    (change_field("WorkerLost", "message", maxLength=20), "WorkerLost.message: maxLength was unl"),
    (change_field("NodeLost", "server_id", pattern="^s"), "NodeLost.server_id: pattern was"),
    (
        change_field("JobPlaced", "gpus", additionalProperties={"type": "integer"}),
        "JobPlaced.gpus.*: its type was array, is integer",
    ),
    (
        change_field("JobPlaced", "gpus", additionalProperties=False),
        "JobPlaced.gpus.*: additionalProperties is now restricted",
    ),
    (
        change_field("JobPlaced", "gpus", propertyNames={"pattern": "^s"}),
        "JobPlaced.gpus.(names): propertyNames is now restricted",
    ),
    (
        lambda definitions: definitions["JobAdmitted"]["properties"]["plan"]["items"][
            "prefixItems"
        ].pop(),
        "JobAdmitted.plan[]: had 3 places, has 2",
    ),
    (
        change_field("CurvesImported", "curves", items={"type": "string"}),
        "CurvesImported.curves[]: its type was object, is string",
    ),
    (change_field("CurvesImported", "curve_source", default="model"), "its default was 'imported'"),
    (change_field("CellConfiguration", "virtualClusters", default=[]), "its default was [{"),
    (
        lambda definitions: definitions["CellConfiguration"]["properties"]["virtualClusters"][
            "default"
        ][0].update(policy="fifo"),
        "configuration.virtualClusters: its default was",
    ),
    (mark("JobAdmitted", "x-writer", "allocator"), "JobAdmitted: x-writer was admission"),
    (mark("JobAdmitted", "x-nature", "fact"), "JobAdmitted: x-nature was decision, is fact"),
    (
        change_field("NodeLost", "version", default=2),
        "NodeLost: no upcaster from version 1 to 2",
    ),
    (change_field("NodeLost", "version", default=0), "NodeLost: version 1 went back to 0"),
]


@pytest.mark.parametrize(("change", "problem"), BREAKING, ids=[text for _, text in BREAKING])
def test_the_checker_finds_a_breaking_change(change: Change, problem: str) -> None:
    problems = problems_after(change)
    assert [found for found in problems if problem in found], problems


ADDITIVE: dict[str, Change] = {
    "nothing": lambda definitions: None,
    "a type": lambda definitions: definitions.update(
        Cheered=copy.deepcopy(definitions["NodeLost"])
        | {"properties": {"type": {"const": "Cheered"}, "version": {"default": 1}}}
    ),
    "a field": replace_field("NodeLost", "reason", {"type": "string", "default": ""}),
    "a field of a value": replace_field("Server", "zone", {"type": "string", "default": ""}),
    "null": replace_field("ClockTicked", "due_seconds", NUMBER_OR_NULL | {"default": 0.0}),
    "an enum value": lambda definitions: definitions["RejectionReason"]["enum"].insert(0, "Tired"),
    "a field of a default": lambda definitions: definitions["CellConfiguration"]["properties"][
        "virtualClusters"
    ]["default"][0].update(colour="red"),
    "fractions": change_field("JobSuspended", "generation", type="number"),
    "a wider bound": together(
        change_field("JobSuspended", "generation", minimum=0),
        change_field("UtilizationMeasured", "utilization_ratio", maximum=2),
        change_field("NodeLost", "server_id", maxLength=300, minLength=0),
    ),
    "no bound": lambda definitions: definitions["NodeLost"]["properties"]["server_id"].pop(
        "pattern"
    ),
    "one field less required": lambda definitions: definitions["NodeLost"]["required"].remove(
        "server_id"
    ),
    "a description": change_definition("NodeLost", description="Gone.", title="Lost"),
}


@pytest.mark.parametrize("change", ADDITIVE.values(), ids=ADDITIVE)
def test_the_checker_lets_an_additive_change_pass(change: Change) -> None:
    assert problems_after(change) == []


def test_a_higher_version_with_upcasters_may_change_freely() -> None:
    change = together(
        change_field("NodeLost", "version", default=3),
        remove_field("NodeLost", "server_id"),
        add_required("NodeLost", "reason"),
        mark("NodeLost", "x-writer", "placement"),
    )
    assert problems_after(change, (("NodeLost", 1), ("NodeLost", 2))) == []
    assert "NodeLost: no upcaster from version 2 to 3" in problems_after(change, (("NodeLost", 1),))
    assert "NodeLost.server_id: the field was removed" in problems_after(change)


def test_one_types_upcaster_excuses_no_other_type() -> None:
    change = together(
        change_field("NodeLost", "version", default=2), remove_field("NodeJoined", "server_id")
    )
    assert problems_after(change, (("NodeLost", 1),)) == [
        "NodeJoined.server_id: the field was removed"
    ]


@pytest.mark.parametrize("field", ["basis", "events"])
def test_the_checker_watches_the_record_around_the_events(field: str) -> None:
    before = schemas.events_schema()
    after = copy.deepcopy(before)
    del after["properties"][field]
    assert breaking_changes(before, after) == [f"document.{field}: the field was removed"]


def test_the_checker_watches_commands_and_jobs() -> None:
    before = schemas.commands_schema()
    after = copy.deepcopy(before)
    del after["$defs"]["CancelJob"]
    after["$defs"]["SubmitJob"]["properties"]["version"]["const"] = 2
    assert breaking_changes(before, after) == [
        "CancelJob: the type is gone",
        "SubmitJob.version: the value 1 was removed",
    ]

    before = schemas.job_schema()
    after = copy.deepcopy(before)
    after["$defs"]["Elastic"]["required"] = ["maxReplicas"]
    assert breaking_changes(before, after) == [
        "document.spec.elastic.maxReplicas: the field is now required"
    ]
