"""What all commands share: help, exit codes, formats, progress, errors."""

from __future__ import annotations

import io
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from resilin.cli.errors import ExitCode, one_line
from resilin.cli.main import cli
from resilin.cli.output import (
    Table,
    as_json,
    duration_text,
    emit,
    note,
    safe_text,
    time_text,
)
from resilin.cli.progress import progress, watched

COMMANDS = cli.list_commands(click.Context(cli))


def _leaves() -> list[str]:
    """Every command, those of groups with their group before them."""
    leaves = []
    for name in COMMANDS:
        found = cli.get_command(click.Context(cli), name)
        if isinstance(found, click.Group):
            leaves += [f"{name} {part}" for part in found.commands]
        else:
            leaves.append(name)
    return leaves


LEAVES = _leaves()
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_helps_with_an_example(resilin, command) -> None:
    outcome = resilin(*command.split(), "--help")
    assert outcome.code == 0
    assert "Example:\n" in outcome.stdout
    assert f"\n    resilin {command}" in outcome.stdout
    assert "-o, --output [table|wide|json|yaml]" in outcome.stdout


@pytest.mark.parametrize("command", LEAVES)
def test_examples_name_real_options(command) -> None:
    """What the help suggests is what the command takes."""
    found: click.Command | None = cli
    for name in command.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name)
    assert found is not None
    known = {option for parameter in found.params for option in parameter.opts}
    epilog = found.epilog or ""
    words = epilog[epilog.index("Example:") :].split()
    assert {word for word in words if word.startswith("-")} <= known


def test_the_help_lists_commands_and_exit_codes(resilin) -> None:
    outcome = resilin("--help")
    assert outcome.code == 0
    assert resilin().stdout == outcome.stdout
    for command in COMMANDS:
        assert f"\n  {command} " in outcome.stdout
    for code in ExitCode:
        assert any(line.split()[:1] == [str(int(code))] for line in outcome.stdout.splitlines())


def test_the_documentation_lists_commands_and_exit_codes() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"## resilin {command}\n" in text
    for code in ExitCode:
        assert f"| {int(code)} |" in text


def test_version(resilin) -> None:
    version = resilin("version", "-o", "json").json["resilin"]
    assert version in resilin("version").stdout
    assert yaml.safe_load(resilin("version", "-o", "yaml").stdout)["resilin"] == version


def test_the_module_runs_as_the_script_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "resilin.cli", "nonsense"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("resilin: No such command 'nonsense'.")


def test_an_interrupt_ends_in_one_line(resilin, small, monkeypatch, tmp_path) -> None:
    from resilin.simulation.simulation import Simulation

    def interrupted(self: Simulation) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulation, "run", interrupted)
    outcome = resilin("simulate", *small, "--out", tmp_path / "run")
    assert outcome.code == 130
    assert outcome.stderr.strip() == "resilin: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_bug_shows_its_traceback_when_asked(resilin, small, monkeypatch) -> None:
    from resilin.simulation.simulation import Simulation

    def broken(self: Simulation) -> None:
        raise ArithmeticError("two and two is five")

    monkeypatch.setattr(Simulation, "run", broken)
    assert resilin("simulate", *small).code == 3
    monkeypatch.setenv("RESILIN_DEBUG", "1")
    with pytest.raises(ArithmeticError, match="two and two"):
        resilin("simulate", *small)


def test_the_bound_says_what_it_lacks(refuses, small, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    refuses("bound", *small, says=("scipy", "resilin[bound]"))


def test_an_altered_log_is_never_a_bug(resilin, copied) -> None:
    """Whatever value of whatever record is altered, the answer is one of the first three."""
    connection = sqlite3.connect(copied)
    rows = connection.execute("SELECT offset, payload FROM records ORDER BY offset").fetchall()
    connection.close()
    draws = random.Random(11)
    for _ in range(15):
        offset, payload = draws.choice(rows)
        record = json.loads(payload)
        holder, key = draws.choice(_places(record))
        holder[key] = draws.choice([0, -1, 1e300, "", "fifo", [], {}, [[]], None, True])
        altered = copied.with_name(f"altered-{draws.random()}.resilin")
        altered.write_bytes(copied.read_bytes())
        connection = sqlite3.connect(altered)
        connection.execute(
            "UPDATE records SET payload = ? WHERE offset = ?",
            (json.dumps(record).encode(), offset),
        )
        connection.commit()
        connection.close()
        for question in ("verify", "state", "explain"):
            job = ("job-00003",) if question == "explain" else ()
            outcome = resilin(question, altered, *job, "-o", "json")
            assert outcome.code in (0, 1, 2), (offset, key, holder[key], outcome)


def _places(value) -> list:
    """Every value within a value, as the container and the key that hold it."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = []
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found


# --- small parts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (59.9, "59.9s"),
        (60, "1m"),
        (3_600, "1h"),
        (5_430, "1h30m30s"),
        (90_000, "1d1h"),
        (-61, "-1m1s"),
    ],
)
def test_durations_are_written_as_job_files_take_them(seconds, text) -> None:
    assert duration_text(seconds) == text
    if seconds > 0:
        from resilin.contracts.job_specification import parse_deadline

        assert parse_deadline(text).total_seconds() == seconds


def test_times_of_a_virtual_clock_are_no_dates() -> None:
    assert time_text(86_400.0) == "86400 s"
    assert time_text(1_800_000_000.0) == "2027-01-15T08:00:00Z"
    assert time_text(1e300).endswith(" s")


def test_json_has_no_numbers_that_json_has_not() -> None:
    answer = {"a": float("inf"), "b": [float("nan"), (1.5,)], "c": {"d": float("-inf")}}
    assert json.loads(as_json(answer)) == {"a": None, "b": [None, [1.5]], "c": {"d": None}}


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain, \u00fcml\u00e4ut, \u65e5\u672c, \U0001f600", None),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\nc\td\x7f", "a\\rb\\nc\\td\\x7f"),
        ("left\u202eright", "left\\u202eright"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_no_terminal_obeys_what_is_shown(text, safe) -> None:
    assert safe_text(text) == (text if safe is None else safe)
    assert "\n" in safe_text("a\nb", keep="\n")


def test_names_in_tables_and_messages_are_made_safe(capsys) -> None:
    table = Table(("na\x07me",), [["job\x1b[31m"]], "title\x1b[0m")
    emit("table", {}, ["said \x1b]0;x\x07", table])
    note("noted \x1b[5m")
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "job\\x1b[31m" in shown.out
    assert one_line("bad\x1b\nname") == "bad\\x1b name"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", _Terminal())
    with progress("counting", 3) as advance:
        assert advance is not None
        assert list(watched(range(3), advance)) == [0, 1, 2]
    assert "counting" in sys.stderr.getvalue()
    assert "3/3" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress("counting", 3) as advance:
        assert advance is None
        assert list(watched(range(3), advance)) == [0, 1, 2]
    assert sys.stderr.getvalue() == ""


def test_a_run_shows_how_many_jobs_have_ended(monkeypatch) -> None:
    from resilin.cli.runs import run
    from resilin.cli.workload import Workload
    from resilin.eventlog.memory import MemoryLog

    options = {
        **dict.fromkeys(("profiles", "trace", "trace_format", "pollux_models", "preset")),
        "servers": 2,
        "gpus_per_server": 8,
        "servers_per_rack": 0,
        "reserve_servers": 0,
        "resize_cost": "none",
        "jobs": 5,
        "seed": 3,
        "throughput_noise": 0.0,
        "node_mtbf_hours": None,
    }
    workload = Workload.of(options)
    monkeypatch.setattr(sys, "stderr", _Terminal())
    history = run(MemoryLog(), workload.commands("edf"), workload.physics, "simulating")
    assert len(history.jobs) == 5
    assert "5/5" in sys.stderr.getvalue()
