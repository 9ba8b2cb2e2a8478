"""Documents: YAML or JSON into models, with file, line and field in every error.

YAML is read as data only: no tags but the standard ones, no aliases (a few lines of them can
stand for gigabytes), no key twice, and times stay the text that they are.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from resilin.cli.errors import InputError

__all__ = ["Document", "file_name", "problem_of", "read_documents"]

MOST_BYTES = 1 << 20
DEEPEST = 50
"""How deep a file may be nested; a job specification needs 4 levels."""

Model = TypeVar("Model", bound=BaseModel)

FieldPlace = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """The safe loader, which leaves times as text: a deadline is read by its own rules."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class Document:
    """One document of a file: its content, and the line of each field.

    Attributes:
        name: How messages call the file.
        content: Plain data.
        line: Where it begins.
        lines: The line of each field.
    """

    name: str
    content: Any
    line: int
    lines: dict[FieldPlace, int] = field(default_factory=dict)

    def line_of(self, place: FieldPlace) -> int:
        """Return the line of a field, or of the nearest one around it that is there."""
        for length in range(len(place), 0, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return self.line

    def read_as(self, model: type[Model], what: str, fields: str) -> Model:
        """Read it as a model.

        Args:
            model: The model.
            what: What it describes, such as ``a job``.
            fields: What that has, for a document that is no mapping.

        Raises:
            InputError: If it does not fit.
        """
        if not isinstance(self.content, dict):
            kind = type(self.content).__name__
            raise InputError(
                f"{self.name}:{self.line}: {what} is a mapping with {fields}; this document is"
                f" {kind}"
            )
        try:
            return model.model_validate(self.content)
        except ValidationError as error:
            place, problem = problem_of(error, what)
            raise InputError(f"{self.name}:{self.line_of(place)}: {problem}") from None


def read_documents(path: Path) -> list[Document]:
    """Read the documents of a file that are not empty; ``-`` reads standard input.

    Raises:
        InputError: If the file cannot be read as YAML or JSON.
    """
    name = file_name(path)
    # An empty document, such as after a last `---`, is nothing and no mistake.
    return [found for found in _documents(_text(path, name), name) if found.content is not None]


def file_name(path: Path) -> str:
    """Return how messages call a file."""
    return "standard input" if str(path) == "-" else str(path)


def _text(path: Path, name: str) -> str:
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with path.open("rb") as stream:
                data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{name}: cannot be read ({reason}); check the path") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{name}: is larger than {MOST_BYTES} bytes, too large for such a file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: is not text in UTF-8; save it as UTF-8") from None


# --- text to documents ---------------------------------------------------------------------


def _documents(text: str, name: str) -> Iterator[Document]:
    is_json, content = _json_content(text, name)
    if is_json:
        # As YAML it gives the lines; tabs are what YAML would not take.
        text = text.replace("\t", " ")
    try:
        _check_events(text, name)
        loader = _Loader(text)
        try:
            while (node := loader.get_node() if loader.check_node() else None) is not None:
                document = Document(name, content, _line(node.start_mark))
                _note_lines(node, (), document.lines, name)
                if not is_json:
                    document.content = loader.construct_document(node)
                yield document
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = name if mark is None else f"{name}:{mark.line + 1}"
        raise InputError(f"{place}: is no valid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(
            f"{name}:{line}: holds a character that YAML does not allow ({error.reason})"
        ) from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name}: a value cannot be read: {error}") from None


def _json_content(text: str, name: str) -> tuple[bool, object]:
    """Return whether a text is JSON, and what it holds."""
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError) as error:
        if not name.endswith(".json"):
            return False, None
        place = f"{name}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else name
        what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise InputError(f"{place}: is no valid JSON: {what}") from None


def _line(mark: object) -> int:
    """Return a mark's line, from 1."""
    return 1 + int(getattr(mark, "line", 0))


def _check_events(text: str, name: str) -> None:
    """Refuse aliases and deep nesting before anything is built of them."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise InputError(
                f"{name}:{_line(event.start_mark)}: has the alias *{event.anchor}; such a file"
                " may have none, write the value out"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise InputError(
                    f"{name}:{_line(event.start_mark)}: is nested more than {DEEPEST} levels deep"
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _note_lines(
    node: yaml.Node, place: FieldPlace, lines: dict[FieldPlace, int], name: str
) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            within = (*place, str(key.value))
            line = _line(key.start_mark)
            if within in lines:
                raise InputError(
                    f"{name}:{line}: field {_dotted(within)!r} is on line {lines[within]} too;"
                    " keep one of them"
                )
            lines[within] = line
            _note_lines(value, within, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines[*place, number] = _line(item.start_mark)
            _note_lines(item, (*place, number), lines, name)


# --- what is wrong with them ---------------------------------------------------------------


def problem_of(error: ValidationError, what: str) -> tuple[FieldPlace, str]:
    """Say what is wrong with input, and in which field.

    Args:
        error: What validation found.
        what: What was to be read, such as ``a job``.
    """
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    place = tuple(first["loc"])
    message = _MESSAGES.get(first["type"], first["msg"]).removeprefix("Value error, ")
    message = message.replace("{what}", what)
    if first["type"] in ("int_parsing", "string_type", "literal_error", "string_pattern_mismatch"):
        message += f", not {_shown(first['input'])}"
    more = len(problems) - 1
    others = f" (and {more} more)" if more else ""
    where = f"field {_dotted(place)!r}: " if place else ""
    return place, f"{where}{message}{others}"


_MESSAGES = {
    "missing": "is missing",
    "extra_forbidden": "is no field of {what}; check its spelling",
    "string_pattern_mismatch": "may hold only letters, digits and _ . : / -, a letter or digit"
    " first",
}


def _dotted(place: FieldPlace) -> str:
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(str(part) for part in place))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
