"""What every command prints: a table for people, one JSON or YAML object for programs.

Only the answer goes to stdout. rich and PyYAML are imported when they are used. What tables and
messages show may come from anybody, a job's name or a dead letter: what could steer a terminal
is escaped.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeVar

import click

from resilin.contracts.durations import duration_text

__all__ = [
    "OutputFormat",
    "Table",
    "as_json",
    "duration_text",
    "emit",
    "emit_one",
    "example",
    "note",
    "number_text",
    "output_option",
    "safe_text",
    "time_text",
]

OutputFormat = Literal["table", "wide", "json", "yaml"]

Command = TypeVar("Command", bound=Callable[..., Any])

FIRST_WALL_CLOCK_SECONDS = 1e9
"""A clock that shows more than this counts from 1970; a trace's counts from its own start."""

# Control characters, among them the one that begins a terminal's commands; what turns the
# direction of writing or breaks a line; halves of characters.
_STEERS_TERMINALS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def output_option(command: Command) -> Command:
    """Give a command ``-o table|wide|json|yaml``, passed to it as ``output_format``."""
    return click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice(["table", "wide", "json", "yaml"]),
        default="table",
        show_default=True,
        help="How to print the answer; wide is a table with all there is to show.",
    )(command)


def example(*lines: str) -> str:
    """Return the end of a command's help: how it may be called."""
    # click leaves a block that begins so as it is.
    return "\n".join(("\b", "Example:", *(f"  {line}" for line in lines)))


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text; numbers are to be written out by the caller.

    Attributes:
        columns: The headings; empty for a list of figures, which has none.
        rows: A cell for each column.
        title: What it shows.
        right: The columns, from 0, that are aligned to the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    right: Sequence[int] = field(default=())


def safe_text(text: str, *, keep: str = "") -> str:
    """Write out what could steer a terminal, but for the characters of ``keep``."""
    return _STEERS_TERMINALS.sub(
        lambda found: found[0] if found[0] in keep else _escaped(found[0]), text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def emit(
    output_format: OutputFormat,
    answer: Mapping[str, Any],
    parts: Iterable[str | Table],
    *,
    to_stderr: bool = False,
) -> None:
    """Print the answer: as the object it is, or as the sentences and tables of ``parts``.

    What is shown before a question, and is no answer yet, goes to stderr.
    """
    if output_format == "json":
        click.echo(as_json(answer))
    elif output_format == "yaml":
        import yaml

        # Through JSON, so that both formats hold the same plain values.
        plain = json.loads(as_json(answer))
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        _print(parts, sys.stderr if to_stderr else sys.stdout)


def emit_one(output_format: OutputFormat, item: Mapping[str, Any], text: str) -> None:
    """Print one of many answers at once, as a command does that goes on: a line, or a document."""
    if output_format == "json":
        click.echo(json.dumps(_finite(item)))
    elif output_format == "yaml":
        import yaml

        plain = json.loads(as_json(item))
        click.echo(
            yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, explicit_start=True),
            nl=False,
        )
    else:
        click.echo(safe_text(text))
    sys.stdout.flush()


def as_json(answer: Mapping[str, Any]) -> str:
    """Write an answer as JSON; numbers that JSON does not have become null."""
    return json.dumps(_finite(answer), indent=2)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _print(parts: Iterable[str | Table], stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    # Into a pipe or file nothing is cut to fit a screen.
    width = None if stream.isatty() else 200
    console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(safe_text(part, keep="\n"), soft_wrap=True)
            continue
        table = RichTable(
            box=box.SIMPLE_HEAD if part.columns else box.SIMPLE,
            title=safe_text(part.title) or None,
            title_justify="left",
            show_header=bool(part.columns),
        )
        for number in range(len(part.columns or part.rows[0])):
            heading = part.columns[number] if part.columns else ""
            right = number in part.right
            table.add_column(heading, justify="right" if right else "left", overflow="fold")
        for row in part.rows:
            table.add_row(*map(safe_text, row))
        console.print(table)


def note(message: str) -> None:
    """Say something beside the answer, on stderr."""
    click.echo(safe_text(message, keep="\n"), err=True)


def time_text(seconds: float) -> str:
    """Write a moment of a cell's clock: a date if it counts from 1970, else seconds."""
    if seconds >= FIRST_WALL_CLOCK_SECONDS:
        try:
            return datetime.fromtimestamp(round(seconds), UTC).isoformat().replace("+00:00", "Z")
        except (OverflowError, ValueError, OSError):
            pass
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"


def number_text(value: object) -> str:
    """Write a figure for a table."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return str(value)
