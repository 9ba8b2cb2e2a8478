"""Commands of whoever runs a cell: sent, waited for, and said what became of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from pydantic import TypeAdapter, ValidationError

from resilin.cli.errors import ExitCode
from resilin.cli.live import LiveCell, Reply, ask, live_options, timeout_option
from resilin.cli.output import OutputFormat, emit, output_option
from resilin.contracts.base import Identifier
from resilin.contracts.commands import Command

__all__ = ["carry_out", "change_options", "command_id", "read_identifier"]

_identifier: TypeAdapter[str] = TypeAdapter(Identifier)

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


def change_options(command: AnyCommand) -> AnyCommand:
    """Give a command what all that change a cell take: where, how long to wait, how to print."""
    timed = timeout_option(30.0, "Wait so long for the answer; 0 only sends.")
    return timed(live_options(output_option(command)))


def read_identifier(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Check a name; a callback for an argument or option.

    Raises:
        click.BadParameter: If it can be no name.
    """
    try:
        return _identifier.validate_python(value)
    except ValidationError:
        raise click.BadParameter(
            f"{value[:60]!r} is no name: letters, digits and _ . : / - only, a letter or digit"
            " first, at most 200",
            ctx,
            param,
        ) from None


def command_id(what: str) -> str:
    """Choose the id of a command."""
    return f"{what[:180]}-{secrets.token_hex(4)}"


def carry_out(
    live: LiveCell,
    commands: Sequence[Command],
    what: str,
    *,
    timeout_seconds: float,
    output_format: OutputFormat,
) -> ExitCode:
    """Send commands, wait until they are taken, print and return what became of them.

    Args:
        live: The cell.
        commands: What to send.
        what: What they come to, such as ``server a is cordoned``.
        timeout_seconds: How long to wait; 0 not at all.
        output_format: How to print.
    """
    replies = ask(live, commands, timeout_seconds=timeout_seconds or None)
    done, message = _outcome(replies, waits=timeout_seconds > 0)
    answer = {
        "cell": live.name,
        "done": done,
        "message": message or None,
        "commands": [
            {"command_id": reply.command.command_id, "position": reply.position}
            for reply in replies
        ],
    }
    said = {True: f"{what}{message}", False: f"not done: {message}", None: f"sent: {message}"}
    emit(output_format, answer, [said[done]])
    if done is None:
        return ExitCode.NO_ANSWER if timeout_seconds else ExitCode.OK
    return ExitCode.OK if done else ExitCode.NO


def _outcome(replies: Sequence[Reply], *, waits: bool) -> tuple[bool | None, str]:
    problems = [reply.problem for reply in replies if reply.problem is not None]
    if problems:
        return False, "; ".join(problems)
    left = [reply.position for reply in replies if reply.open]
    if not left:
        return True, ""
    late = "no answer in time; " if waits else ""
    return None, f"{late}it is kept as message {left[0]} of jobs.commands"
