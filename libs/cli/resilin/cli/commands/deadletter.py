"""`resilin deadletter`: input that could not be read, and trying it once more."""

from __future__ import annotations

import base64
from typing import Any

import click
from pydantic import ValidationError

from resilin.cli.asking import confirmed, yes_option
from resilin.cli.errors import ExitCode, InputError
from resilin.cli.live import LiveAddress, LiveCell, live_options, open_live, read_dead_letter
from resilin.cli.output import (
    OutputFormat,
    Table,
    emit,
    example,
    note,
    number_text,
    output_option,
    safe_text,
)
from resilin.contracts.commands import command_adapter
from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.eventlog.port import Message

__all__ = ["command"]

PREVIEW_CHARACTERS = 2_000
REASON_CHARACTERS = 100


@click.group(
    "deadletter",
    epilog=example("resilin deadletter list", "resilin deadletter retry 17"),
)
def command() -> None:
    """Look at input that could not be read, and send it once more.

    What a service cannot read is put aside on `deadletter` with the reason and the place that
    it came from; nothing else waits for it.
    """


@command.command("list", epilog=example("resilin deadletter list -o wide"))
@click.option(
    "--last",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="So many of the newest.",
)
@live_options
@output_option
def list_letters(*, last: int, address: LiveAddress, output_format: OutputFormat) -> None:
    """List dead letters, the newest last."""
    with open_live(address) as live:
        letters = [_described(message) for message in live.dead_letters.read()]
        name = live.name
    shown = letters[-last:]
    wide = output_format == "wide"
    rows = [
        [
            str(letter["offset"]),
            letter["service"] or "-",
            letter["place"] or "-",
            number_text(letter["bytes"]),
            _cut(letter["reason"], None if wide else REASON_CHARACTERS),
        ]
        for letter in shown
    ]
    columns = ("letter", "put aside by", "came from", "bytes", "reason")
    answer = {"cell": name, "letters": shown, "more_letters": len(letters) - len(shown)}
    emit(
        output_format,
        answer,
        [Table(columns, rows, right=(0, 3))] if rows else [f"{name}: no dead letter"],
    )


@command.command("show", epilog=example("resilin deadletter show 17"))
@click.argument("letter", type=click.IntRange(min=0))
@live_options
@output_option
def show_letter(*, letter: int, address: LiveAddress, output_format: OutputFormat) -> None:
    """Show one dead letter: why, where from, and its bytes, made safe for a terminal."""
    with open_live(address) as live:
        message = _find(live, letter)
    described = _described(message)
    found = read_dead_letter(message)
    payload = message.value if found is None else found.payload
    answer = described | {"payload_base64": base64.b64encode(payload).decode("ascii")}
    rows = [
        ["letter", str(letter)],
        ["put aside by", described["service"] or "-"],
        ["came from", described["place"] or "-"],
        ["reason", described["reason"]],
        ["bytes", number_text(described["bytes"])],
    ]
    emit(output_format, answer, [Table((), rows), _preview(payload)])


@command.command("retry", epilog=example("resilin deadletter retry 17 --yes"))
@click.argument("letters", metavar="LETTER...", nargs=-1, required=True, type=click.IntRange(min=0))
@yes_option
@live_options
@output_option
def retry_letters(
    *, letters: tuple[int, ...], yes: bool, address: LiveAddress, output_format: OutputFormat
) -> int:
    """Send dead letters once more, byte for byte, to the topic that they came from.

    For input that could not be read then and can be now, such as a command of a newer
    version. What still cannot be read becomes another dead letter.
    """
    with open_live(address) as live:
        found = [_retriable(_find(live, letter)) for letter in dict.fromkeys(letters)]
        for message, letter in found:
            reads = _problem(letter)
            still = "" if reads is None else f"; this version cannot read it either: {reads}"
            note(f"letter {message.offset}: {_place(letter)}, {len(letter.payload)} bytes{still}")
        many = f"{len(found)} letters" if len(found) > 1 else "it"
        if not confirmed(f"Send {many} once more?", yes=yes, needed=True):
            return ExitCode.NO
        sent = [
            {
                "letter": message.offset,
                "topic": letter.source.topic,
                "offset": live.topic(letter.source.topic).produce(
                    letter.payload, live.cell.encode()
                ),
            }
            for message, letter in found
        ]
        name = live.name
    lines = [
        f"letter {one['letter']} was sent once more: it is message {one['offset']} of"
        f" {one['topic']}"
        for one in sent
    ]
    emit(output_format, {"cell": name, "sent": sent}, lines)
    return ExitCode.OK


def _find(live: LiveCell, offset: int) -> Message:
    for message in live.dead_letters.read(offset - 1):
        if message.offset == offset:
            return message
        break
    raise InputError(
        f"{live.name}: there is no dead letter {offset}; `resilin deadletter list` shows them"
    )


def _retriable(message: Message) -> tuple[Message, DeadLetter]:
    letter = read_dead_letter(message)
    if letter is None:
        raise InputError(
            f"letter {message.offset}: is no dead letter itself, so where it belongs is unknown"
        )
    if letter.source.topic != JOBS_COMMANDS.name:
        raise InputError(
            f"letter {message.offset}: came from {letter.source.topic}; only messages of"
            f" {JOBS_COMMANDS.name} are sent once more, others are out of date by now"
        )
    return message, letter


def _problem(letter: DeadLetter) -> str | None:
    """Say why this version cannot read a command; None if it can."""
    try:
        command_adapter.validate_json(letter.payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return f"field {field!r}: {first['msg']}" if field else str(first["msg"])
    return None


def _place(letter: DeadLetter) -> str:
    source = letter.source
    return f"{source.topic}/{source.partition} offset {source.offset}"


def _described(message: Message) -> dict[str, Any]:
    letter = read_dead_letter(message)
    if letter is None:
        return {
            "offset": message.offset,
            "service": None,
            "source": None,
            "place": None,
            "reason": f"is no dead letter: somebody else wrote it to {DEADLETTER.name}",
            "bytes": len(message.value),
        }
    return {
        "offset": message.offset,
        "service": letter.service,
        "source": letter.source.model_dump(mode="json"),
        "place": _place(letter),
        "reason": letter.reason,
        "bytes": len(letter.payload),
    }


def _cut(text: str, length: int | None) -> str:
    return text if length is None or len(text) <= length else f"{text[:length]}..."


def _preview(payload: bytes) -> str:
    """Show bytes as text if they are, else as an escaped literal; never as they are."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        text = repr(payload)[2:-1]
    return _cut(safe_text(text, keep="\n"), PREVIEW_CHARACTERS)
