"""Commands: round trips by alias, and refusals that name what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from resilin.contracts.commands import COMMAND_TYPES, Command, SubmitJob, command_adapter

from .strategies import commands, plain_values

SUBMIT: dict[str, Any] = {
    "type": "SubmitJob",
    "commandId": "c-1",
    "jobId": "j-1",
    "job": {
        "metadata": {"name": "a"},
        "spec": {"model": "m", "globalBatch": 8, "workload": {"totalIterations": 5}},
    },
}
ADD: dict[str, Any] = {
    "type": "AddServer",
    "commandId": "c-2",
    "server": {"serverId": "s-1", "gpus": 8},
}
IMPORT: dict[str, Any] = {
    "type": "ImportCurves",
    "commandId": "c-3",
    "curves": [{"model": "m", "globalBatch": 8, "iterationsPerSecond": {"1": 2.5, "2": 4}}],
}
CONFIGURE: dict[str, Any] = {"type": "ConfigureCell", "commandId": "c-4", "configuration": {}}


def places(refused: object) -> list[str]:
    """Where the errors of a refused command are."""
    with pytest.raises(ValidationError) as refusal:
        command_adapter.validate_json(json.dumps(refused))
    return [".".join(str(part) for part in error["loc"]) for error in refusal.value.errors()]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(commands)
def test_commands_are_read_back_by_their_aliases(command: Command) -> None:
    text = command_adapter.dump_json(command)
    assert command_adapter.validate_json(text) == command
    assert not [name for name in json.loads(text) if "_" in name]
    sparse = command_adapter.dump_json(command, exclude_defaults=True)
    with_type = json.dumps(json.loads(sparse) | {"type": command.type})
    assert command_adapter.validate_json(with_type) == command


def test_defaults_of_a_command() -> None:
    command = command_adapter.validate_python(SUBMIT)
    assert isinstance(command, SubmitJob)
    assert (command.cell, command.version) == ("main", 1)


def test_every_command_type_has_its_own_name_as_type() -> None:
    assert [kind.model_fields["type"].default for kind in COMMAND_TYPES] == [
        kind.__name__ for kind in COMMAND_TYPES
    ]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (SUBMIT | {"priority": 3}, "SubmitJob.priority"),
        (SUBMIT | {"job": SUBMIT["job"] | {"status": {}}}, "SubmitJob.job.status"),
        (ADD | {"server": ADD["server"] | {"colour": "red"}}, "AddServer.server.colour"),
        (CONFIGURE | {"configuration": {"speed": 1}}, "ConfigureCell.configuration.speed"),
    ],
)
def test_an_unknown_field_is_named(command: dict[str, Any], place: str) -> None:
    assert places(command) == [place]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (SUBMIT | {"jobId": 7}, "SubmitJob.jobId"),
        (SUBMIT | {"jobId": None}, "SubmitJob.jobId"),
        (SUBMIT | {"commandId": ""}, "SubmitJob.commandId"),
        (SUBMIT | {"cell": "a b"}, "SubmitJob.cell"),
        (SUBMIT | {"version": 2}, "SubmitJob.version"),
        (SUBMIT | {"job": []}, "SubmitJob.job"),
        (SUBMIT | {"job": "resnet"}, "SubmitJob.job"),
        (ADD | {"server": {"serverId": "s"}}, "AddServer.server.gpus"),
        (ADD | {"server": {"serverId": "s", "gpus": 0}}, "AddServer.server.gpus"),
        (ADD | {"server": {"serverId": "s", "gpus": 1.5}}, "AddServer.server.gpus"),
        (IMPORT | {"curves": []}, "ImportCurves.curves"),
        (IMPORT | {"curveSource": "guessed"}, "ImportCurves.curveSource"),
        (
            {"type": "ChangeDeadline", "commandId": "c", "jobId": "j", "deadlineSeconds": "soon"},
            "ChangeDeadline.deadlineSeconds",
        ),
        (
            {"type": "ChangeDeadline", "commandId": "c", "jobId": "j", "deadlineSeconds": -1},
            "ChangeDeadline.deadlineSeconds",
        ),
        (
            {"type": "CordonServer", "commandId": "c", "serverId": "s", "cordoned": "maybe"},
            "CordonServer.cordoned",
        ),
        (
            {
                "type": "ConfigureCell",
                "commandId": "c",
                "configuration": {"promiseMarginSeconds": -1},
            },
            "ConfigureCell.configuration.promiseMarginSeconds",
        ),
        ({"type": "CancelJob", "commandId": "c"}, "CancelJob.jobId"),
        ({"type": "StopTheWorld", "commandId": "c"}, ""),
        ({"commandId": "c"}, ""),
        ([], ""),
        ("SubmitJob", ""),
        (None, ""),
    ],
)
def test_a_wrong_value_is_named(command: object, place: str) -> None:
    assert places(command) == [place]


@pytest.mark.parametrize(
    ("number", "place"),
    [
        ("NaN", "ChangeDeadline.deadlineSeconds"),
        ("Infinity", "ChangeDeadline.deadlineSeconds"),
        ("1e999", "ChangeDeadline.deadlineSeconds"),
        ("1e13", "ChangeDeadline.deadlineSeconds"),
        ("1" * 4_000, "ChangeDeadline.deadlineSeconds"),
    ],
)
def test_a_number_out_of_bounds_is_refused(number: str, place: str) -> None:
    text = f'{{"type":"ChangeDeadline","commandId":"c","jobId":"j","deadlineSeconds":{number}}}'
    with pytest.raises(ValidationError) as refusal:
        command_adapter.validate_json(text)
    assert [".".join(map(str, error["loc"])) for error in refusal.value.errors()] == [place]


LONG = "x" * 10**6
LABELS = {str(number): "" for number in range(10**5)}
MANY_LABELS = SUBMIT["job"] | {"metadata": {"name": "a", "labels": LABELS}}
NEGATIVE = {"model": "m", "globalBatch": 8, "iterationsPerSecond": {"-1": 1}}


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (SUBMIT | {"jobId": LONG}, "SubmitJob.jobId"),
        (SUBMIT | {LONG: 1}, f"SubmitJob.{LONG}"),
        (SUBMIT | {"job": MANY_LABELS}, "SubmitJob.job.metadata.labels"),
        (ADD | {"server": {"serverId": "s", "gpus": 10**300}}, "AddServer.server.gpus"),
        (ADD | {"server": ADD["server"] | {"rack": LONG}}, "AddServer.server.rack"),
        (IMPORT | {"curves": [NEGATIVE]}, "ImportCurves.curves.0.iterationsPerSecond.-1.[key]"),
    ],
    ids=["identifier", "field-name", "labels", "integer", "text", "worker-count"],
)
def test_a_hostile_size_is_refused(command: dict[str, Any], place: str) -> None:
    assert places(command)[0] == place


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"type":' * 10**5, "", "\x00", '{"type":"SubmitJob"']
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="Invalid JSON"):
        command_adapter.validate_json(text)


def test_two_virtual_clusters_of_one_name_are_refused() -> None:
    twice = {"virtualClusters": [{"name": "a"}, {"name": "a", "kind": "inference"}]}
    with pytest.raises(ValidationError, match="same name"):
        command_adapter.validate_python(CONFIGURE | {"configuration": twice})


@settings(max_examples=100, deadline=None, derandomize=True)
@given(plain_values, commands)
def test_no_content_raises_another_error(value: object, command: Command) -> None:
    for place in ("type", "version", "cell", "commandId", "jobId", "job", "server", "curves"):
        content = json.loads(command_adapter.dump_json(command)) | {place: value}
        try:
            taken = command_adapter.validate_json(json.dumps(content))
        except ValidationError:
            continue
        assert command_adapter.validate_json(command_adapter.dump_json(taken)) == taken
