"""docs/clients.md: the command that it shows is one, by its schema and by its model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from resilin.contracts.commands import COMMAND_TYPES, SubmitJob, command_adapter

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "clients.md").read_text(encoding="utf-8")
SCHEMA = json.loads((DOCS / "schemas" / "commands.schema.json").read_bytes())


def shown() -> dict:
    block = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    return dict(json.loads(block[1]))


def test_the_command_shown_is_valid() -> None:
    jsonschema.validate(shown(), SCHEMA)
    assert isinstance(command_adapter.validate_python(shown()), SubmitJob)


def test_the_schema_finds_a_misspelt_field() -> None:
    command = shown()
    command["job"]["spec"]["dedline"] = command["job"]["spec"].pop("deadline")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(command, SCHEMA)


def test_every_command_is_named() -> None:
    for command in COMMAND_TYPES:
        assert f"`{command.__name__}`" in PAGE


def test_the_python_client_sends_that_command() -> None:
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    code = compile(block[1], "clients.md", "exec", dont_inherit=True)
    assert code is not None
    fields = re.findall(r'"(\w+)":', block[1][block[1].index("\ncommand = ") :])
    assert fields == re.findall(r'"(\w+)":', json.dumps(shown()))
