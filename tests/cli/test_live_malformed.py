"""Live cells that are not there, are damaged, or are named wrongly: one line, exit code 2."""

from __future__ import annotations

import random
import sqlite3
import string

import pytest

from .conftest import JOB

READING = (
    ("list",),
    ("list", "--watch"),
    ("describe", "a"),
    ("watch", "a"),
    ("wait", "a"),
    ("logs", "a"),
    ("events",),
    ("explain", "a"),
    ("state",),
    ("verify",),
    ("replay",),
    ("node", "list"),
    ("cell", "show"),
    ("curves", "list"),
    ("deadletter", "list"),
)
WRITING = (
    ("submit", "-f", "JOB"),
    ("submit", "--dry-run", "-f", "JOB"),
    ("cancel", "a"),
    ("deadline", "a", "2h"),
    ("node", "cordon", "a"),
    ("deadletter", "retry", "0", "--yes"),
)


def arguments(call, job_file) -> list[object]:
    return [job_file if part == "JOB" else part for part in call]


@pytest.mark.parametrize("call", [*READING, *WRITING], ids=" ".join)
def test_there_is_no_cell(refuses, tmp_path, job_file, call) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    call = arguments(call, job_file)
    refuses(*call, "--home", folder, says=(str(folder), "there is no cell", "resilin up"))
    missing = tmp_path / "missing"
    refuses(*call, "--home", missing, says=(str(missing), "there is no cell"))


@pytest.mark.parametrize("call", [*READING, *WRITING], ids=" ".join)
def test_a_log_that_is_none(refuses, tmp_path, job_file, call) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "log.resilin").write_bytes(b"records\n" * 99)
    refuses(*arguments(call, job_file), "--home", home, says=("log.resilin", "not a Resilin log"))


@pytest.mark.parametrize("call", WRITING, ids=" ".join)
def test_topics_that_are_none(resilin, stopped, job_file, call) -> None:
    (stopped.home / "topics.sqlite").write_bytes(b"topics\n" * 99)
    outcome = resilin(*arguments(call, job_file), "--home", stopped.home)
    if "--dry-run" in call:
        assert outcome.code == 0
        return
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "topics.sqlite" in outcome.stderr or "no job's id" in outcome.stderr


def test_a_record_that_cannot_be_read(resilin, stopped, job_file) -> None:
    connection = sqlite3.connect(stopped.home / "log.resilin")
    connection.execute("UPDATE records SET payload = x'7b' WHERE offset = 3")
    connection.execute("DELETE FROM snapshots")
    connection.commit()
    connection.close()
    for call in (*READING, ("submit", "-f", "JOB")):
        outcome = resilin(*arguments(call, job_file), "--home", stopped.home)
        if call[0] == "deadletter":
            assert outcome.code == 0
            continue
        assert (outcome.code, outcome.stdout) == (2, ""), call
        assert "offset 3" in outcome.stderr


def test_a_cell_is_named_in_one_way(refuses, idle, recorded, monkeypatch) -> None:
    both = ("--home", idle.home, "--bootstrap", "localhost:9092")
    refuses("list", *both, says=("--bootstrap", "--home", "drop one"))
    refuses("state", recorded, "--home", idle.home, says=(str(recorded), "drop one"))
    refuses("list", "--bootstrap", "", says=("--bootstrap",))
    refuses("list", "--home", idle.home, "--cell", "a b", says=("--cell", "a b"))
    monkeypatch.setenv("RESILIN_HOME", str(idle.home))
    monkeypatch.setenv("RESILIN_BOOTSTRAP", "localhost:9092")
    refuses("list", says=("RESILIN_BOOTSTRAP", "RESILIN_HOME"))


def test_what_is_typed_goes_before_the_environment(resilin, stopped, recorded, monkeypatch) -> None:
    monkeypatch.setenv("RESILIN_BOOTSTRAP", "localhost:1")
    typed = resilin("list", "--home", stopped.home, "-o", "json")
    assert typed.json["cell"] == str(stopped.home)
    assert resilin("state", recorded, "-o", "json").json["log"] == str(recorded)
    monkeypatch.delenv("RESILIN_BOOTSTRAP")
    monkeypatch.setenv("RESILIN_HOME", str(stopped.home))
    assert resilin("list", "-o", "json").json["cell"] == str(stopped.home)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RESILIN_SECURITY_PROTOCOL", "TLS"),
        ("RESILIN_SASL_MECHANISM", "PLAINER"),
        ("RESILIN_PARTITION", "-1"),
        ("RESILIN_PARTITION", "first"),
    ],
)
def test_how_to_connect_is_checked(refuses, monkeypatch, name, value) -> None:
    pytest.importorskip("aiokafka")
    monkeypatch.setenv(name, value)
    refuses("list", "--bootstrap", "localhost:1", says=(name, value))


OPTIONS = {
    "timeout-negative": (("submit", "-f", "JOB", "--timeout", "-1"), "--timeout"),
    "timeout-nan": (("wait", "a", "--timeout", "nan"), "--timeout"),
    "timeout-a-word": (("cancel", "a", "--timeout", "soon"), "--timeout"),
    "when-missing": (("deadline", "a"), "WHEN"),
    "when-a-word": (("deadline", "a", "soon"), "'WHEN': deadline 'soon' is neither a duration"),
    "when-without-a-zone": (("deadline", "a", "2026-01-31T18:00:00"), "'WHEN': deadline"),
    "when-at-once": (("deadline", "a", "0s"), "'WHEN': a deadline must be later"),
    "when-too-long": (("deadline", "a", "9999999999d"), "is too long"),
    "id-with-a-blank": (("submit", "-f", "JOB", "--id", "my job"), "--id"),
    "id-empty": (("submit", "-f", "JOB", "--id", ""), "--id"),
    "id-too-long": (("submit", "-f", "JOB", "--id", "x" * 191), "--id"),
    "log-without-dry-run": (("submit", "-f", "JOB", "--log", "l"), "--dry-run"),
    "at-without-dry-run": (("submit", "-f", "JOB", "--at", "3"), "--dry-run"),
    "shape-without-dry-run": (("submit", "-f", "JOB", "--servers", "3"), "--servers"),
    "shape-of-a-live-cell": (("submit", "--dry-run", "-f", "JOB", "--policy", "edf"), "--policy"),
    "type-unknown": (("events", "--type", "JobSubmited"), "JobSubmited"),
    "since-negative": (("events", "--since", "-3"), "--since"),
    "wait-for-nobody": (("wait",), "JOB"),
    "letter-negative": (("deadletter", "show", "-1"), "-1"),
    "letter-a-word": (("deadletter", "show", "first"), "first"),
    "gpus-missing": (("node", "add", "a"), "--gpus"),
    "gpus-none": (("node", "add", "a", "--gpus", "0"), "--gpus"),
    "settings-missing": (("cell", "configure"), "--file"),
    "save-snapshots": (("replay", "--save-snapshot"), "--save-snapshot"),
    "group-unknown": (("node", "drain", "a"), "drain"),
    "output-unknown": (("list", "-o", "xml"), "wide"),
}


@pytest.mark.parametrize(("call", "says"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options(refuses, stopped, job_file, call, says) -> None:
    if call[0] == "node":
        refuses(*call, says=(says,))
        return
    refuses(*arguments(call, job_file), "--home", stopped.home, says=(says,))


def test_an_id_names_one_job(refuses, stopped, tmp_path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(f"{JOB}---\n{JOB}")
    refuses("submit", "-f", file, "--id", "a", "--home", stopped.home, says=("--id", "2"))


def test_a_job_larger_than_a_command_is_not_sent(resilin, stopped, tmp_path) -> None:
    # What is two characters in the file is more bytes in the command.
    file = tmp_path / "large.yaml"
    note = "\\a" * 300_000
    file.write_text(
        JOB.replace("{name: nightly}", f'\n  name: nightly\n  labels:\n    note: "{note}"')
    )
    before = stopped.sent()
    call = ("submit", "-f", file, "--home", stopped.home, "--no-wait", "--id", "large")
    outcome = resilin(*call)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "command submit-large: jobs.commands: a message of" in outcome.stderr
    assert stopped.sent() == before


def test_random_arguments_are_never_a_bug(resilin, stopped, job_file) -> None:
    """Whatever is typed, the answer is one of the known codes and no traceback."""
    draws = random.Random(7)
    pieces = [
        *("a", "", "-", "--", "-o", "json", "--home", str(stopped.home), "--timeout", "0", "0"),
        *("--all", "-f", str(job_file), "--job", "\x1b[2J", "\u202e", "-n", "3", "--since"),
        *("list", "show", "retry", "add", "cordon", "--yes", "--gpus", "--cell", "main", "--id"),
    ]
    commands = ["list", "describe", "events", "explain", "cancel", "node", "cell", "curves"]
    commands += ["deadletter", "deadline", "logs", "submit", "wait", "state", "replay"]
    for _ in range(300):
        call = [draws.choice(commands), *draws.choices(pieces, k=draws.randrange(6))]
        if draws.random() < 0.3:
            call.append("".join(draws.choices(string.printable, k=8)))
        # Last, so that none waits for an answer for long.
        call += ["--home", str(stopped.home)]
        if call[0] in ("submit", "cancel", "deadline"):
            call += ["--timeout", "0"]
        if "wait" in call or ("-f" in call and call[0] in ("events", "logs")):
            continue
        outcome = resilin(*call)
        assert outcome.code in (0, 1, 2, 4), (call, outcome)
        assert "Traceback" not in outcome.stderr
        assert "bug" not in outcome.stderr
