"""A command line to call, and one small recorded run for all tests of the folder."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from resilin.cli.main import cli

from .embedded_cell import HomeCell

JOB = """\
apiVersion: resilin.dev/v1alpha1
kind: TrainingJob
metadata: {name: nightly}
spec:
  model: resnet50
  globalBatch: 256
  workload: {totalIterations: 50000}
  deadline: 4h
"""


@dataclass(frozen=True)
class Outcome:
    """What a call came to."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        answer = json.loads(self.stdout)
        assert isinstance(answer, dict)
        return answer


def _call(*arguments: object, stdin: bytes | None = None) -> Outcome:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def _no_cell_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    """Whoever runs the tests may have a cell of their own: none is found."""
    for name in ("RESILIN_BOOTSTRAP", "RESILIN_HOME", "RESILIN_CELL", "RESILIN_PARTITION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "nobody"))


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[HomeCell]:
    """An embedded cell that is set up, whose services have never run."""
    # What its services say would stand in the output of the commands.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    cell = HomeCell(tmp_path / "home")
    cell.open_with(servers=2, gpus=4)
    yield cell
    structlog.reset_defaults()


@pytest.fixture
def cell(idle: HomeCell) -> Iterator[HomeCell]:
    """An embedded cell of 2 x 4 GPUs whose services run; its clock stands still."""
    idle.start()
    idle.wait_for("NodeJoined", 2)
    yield idle
    idle.stop()


@pytest.fixture
def stopped(idle: HomeCell) -> Iterator[HomeCell]:
    """Such a cell whose services have stopped, and may be started again."""
    idle.start()
    idle.wait_for("NodeJoined", 2)
    idle.stop()
    yield idle
    idle.stop()


@pytest.fixture
def resilin() -> Callable[..., Outcome]:
    """`resilin`, called in this process."""
    return _call


@pytest.fixture
def small() -> tuple[str, ...]:
    """The options of the run that :func:`recorded` records."""
    return ("--jobs", "14", "--servers", "2", "--seed", "3")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of one small run; not to be changed."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    options = ("--jobs", "14", "--servers", "2", "--seed", "3")
    assert _call("simulate", *options, "--out", folder, "-o", "json").code == 0
    return folder / "log.resilin"


@pytest.fixture
def copied(recorded: Path, tmp_path: Path) -> Path:
    """A copy of that log, to be changed."""
    copy = tmp_path / "copy.resilin"
    copy.write_bytes(recorded.read_bytes())
    return copy


@pytest.fixture
def edit(copied: Path) -> Callable[[Callable[[dict[str, Any]], bool]], int]:
    """Edit, in the copied log, the first record that the editor says it has changed."""

    def apply(editor: Callable[[dict[str, Any]], bool]) -> int:
        connection = sqlite3.connect(copied)
        rows = connection.execute("SELECT offset, payload FROM records ORDER BY offset").fetchall()
        for offset, payload in rows:
            record = json.loads(payload)
            if editor(record):
                changed = json.dumps(record, separators=(",", ":")).encode()
                connection.execute(
                    "UPDATE records SET payload = ? WHERE offset = ?", (changed, offset)
                )
                connection.commit()
                connection.close()
                return int(offset)
        raise AssertionError("no record was edited")

    return apply


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """A job file that an empty cell would admit."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return file


@pytest.fixture
def refuses(tmp_path: Path) -> Callable[..., str]:
    """Call `resilin` with bad input: one line, exit code 2, nothing written, no traceback."""

    def check(*arguments: object, says: tuple[str, ...] = (), stdin: bytes | None = None) -> str:
        before = _picture(tmp_path)
        outcome = _call(*arguments, stdin=stdin)
        assert outcome.code == 2, outcome
        assert outcome.stdout == ""
        assert outcome.stderr.startswith("resilin: ")
        assert outcome.stderr.count("\n") == 1
        assert outcome.stderr.endswith("\n")
        assert "Traceback" not in outcome.stderr
        assert "bug" not in outcome.stderr
        for part in says:
            assert part in outcome.stderr
        assert _picture(tmp_path) == before
        return outcome.stderr

    return check


def _picture(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): (
            hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder"
        )
        for file in sorted(folder.rglob("*"))
    }
