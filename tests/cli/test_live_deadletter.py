"""`resilin deadletter`: what could not be read, shown safely, and sent once more as it was."""

from __future__ import annotations

import base64
import json

import click
import pytest

from resilin.contracts.commands import CancelJob
from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.topics import DEADLETTER
from resilin.contracts.values import SourcePosition

HOSTILE = b'\x1b]0;owned\x07\x1b[2J{"type": "Launch\xe2\x80\xaeMissiles", "x": "\r\n"}'
BYTES = {
    "no-json": b"train my model, please",
    "empty": b"",
    "other-shape": b'{"type": "SubmitJob", "jobId": 7}',
    "not-text": bytes(range(256)),
    "hostile": HOSTILE,
}


def unreadable(cell, *payloads: bytes) -> list[int]:
    """Send what no cell can read, and wait until it is put aside."""
    offsets = cell.send_bytes(*payloads)
    cell.wait_until(lambda _: len(cell.letters()) >= len(payloads))
    return offsets


def letter_of(payload: bytes, *, topic: str = "jobs.commands", reason: str = "because") -> bytes:
    source = SourcePosition(topic=topic, partition=0, offset=17)
    letter = DeadLetter(service="admission", source=source, reason=reason, payload=b"")
    return letter.model_copy(update={"payload": payload}).model_dump_json().encode()


def put_aside(cell, *messages: bytes) -> None:
    with cell.topic(DEADLETTER.name) as topic:
        for message in messages:
            topic.produce(message)


def safe(text: str) -> bool:
    return not any((ord(c) < 32 and c not in "\n") or 127 <= ord(c) < 160 for c in text) and (
        "\u202e" not in text
    )


def test_no_letters(resilin, cell) -> None:
    assert "no dead letter" in resilin("deadletter", "list", "--home", cell.home).stdout


def test_letters_say_why_and_where_from(resilin, cell) -> None:
    offsets = unreadable(cell, *BYTES.values())
    answer = resilin("deadletter", "list", "--home", cell.home, "-o", "json").json
    assert [letter["source"]["offset"] for letter in answer["letters"]] == offsets
    assert [letter["bytes"] for letter in answer["letters"]] == [len(b) for b in BYTES.values()]
    assert "jobId" in answer["letters"][2]["reason"] or "field" in answer["letters"][2]["reason"]
    table = resilin("deadletter", "list", "--home", cell.home).stdout
    assert f"jobs.commands/0 offset {offsets[0]}" in table
    newest = resilin("deadletter", "list", "--last", 1, "--home", cell.home, "-o", "json").json
    assert [letter["offset"] for letter in newest["letters"]] == [4]
    assert newest["more_letters"] == 4


@pytest.mark.parametrize("name", BYTES)
def test_a_letter_is_shown_so_that_no_terminal_obeys_it(resilin, idle, name) -> None:
    put_aside(idle, letter_of(BYTES[name], reason="\x1b[31mred\x1b[0m"))
    answer = resilin("deadletter", "show", 0, "--home", idle.home, "-o", "json").json
    assert base64.b64decode(answer["payload_base64"]) == BYTES[name]
    for output in ("table", "wide", "json"):
        for what in ("show 0", "list"):
            call = ("deadletter", *what.split(), "--home", idle.home, "-o", output)
            assert safe(resilin(*call).stdout)
    assert "\\x1b[31mred" in resilin("deadletter", "show", 0, "--home", idle.home).stdout


def test_a_retry_sends_the_same_bytes_to_where_they_came_from(resilin, cell) -> None:
    unreadable(cell, *BYTES.values())
    before = cell.sent()
    outcome = resilin("deadletter", "retry", 4, 3, "--yes", "--home", cell.home, "-o", "json")
    assert outcome.code == 0
    assert cell.sent()[len(before) :] == [BYTES["hostile"], BYTES["not-text"]]
    sent = outcome.json["sent"]
    assert [one["topic"] for one in sent] == ["jobs.commands"] * 2
    assert [one["offset"] for one in sent] == [len(before), len(before) + 1]
    assert "this version cannot read it either" in outcome.stderr
    assert safe(outcome.stderr)
    # It still is no command: it comes back.
    cell.wait_until(lambda _: len(cell.letters()) == len(BYTES) + 2)


def test_what_can_be_read_now_is_taken_in(resilin, cell) -> None:
    command = CancelJob(command_id="again", job_id="nobody").model_dump_json().encode()
    put_aside(cell, letter_of(command))
    outcome = resilin("deadletter", "retry", 0, "--yes", "--home", cell.home)
    assert outcome.code == 0
    assert "cannot read it" not in outcome.stderr
    cell.wait_for("CommandRejected")
    assert cell.sent()[-1] == command


def test_a_retry_wants_a_yes(resilin, idle, refuses, monkeypatch) -> None:
    put_aside(idle, letter_of(b"what"))
    before = idle.sent()
    outcome = resilin("deadletter", "retry", 0, "--home", idle.home)
    assert outcome.code == 2
    assert "--yes" in outcome.stderr
    from resilin.cli import asking

    monkeypatch.setattr(asking, "on_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: False)
    assert resilin("deadletter", "retry", 0, "--home", idle.home).code == 1
    assert idle.sent() == before
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    assert resilin("deadletter", "retry", 0, "--home", idle.home).code == 0
    assert idle.sent() == [*before, b"what"]


def test_letters_that_cannot_be_sent_once_more(resilin, idle) -> None:
    put_aside(
        idle,
        letter_of(b"x", topic="telemetry.steps"),
        b"no letter",
        json.dumps({"service": "a"}).encode(),
        letter_of(b"good"),
    )
    before = idle.sent()
    for letter, says in ((0, "telemetry.steps"), (1, "no dead letter"), (2, "no dead letter")):
        # One that is refused keeps the others back.
        outcome = resilin("deadletter", "retry", 3, letter, "--yes", "--home", idle.home)
        assert (outcome.code, outcome.stdout) == (2, "")
        assert says in outcome.stderr
    assert "there is no dead letter 99" in (
        resilin("deadletter", "show", 99, "--home", idle.home).stderr
    )
    assert idle.sent() == before
    listed = resilin("deadletter", "list", "--home", idle.home, "-o", "json").json["letters"]
    assert [letter["source"] is None for letter in listed] == [False, True, True, False]
    assert resilin("deadletter", "show", 1, "--home", idle.home).code == 0
