"""The command line, and clients without it, against a live cell on Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner
from tests.cli.embedded_cell import CURVE, StandingClock
from tests.support.partitions import own_partition

from resilin.cli.main import cli
from resilin.contracts.commands import AddServer, ConfigureCell, ImportCurves
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.contracts.values import CellConfiguration, Curve, Server
from resilin.embedded.cell import EmbeddedCell
from resilin.eventlog.kafka import AsyncTopicReader, AsyncTopicWriter, KafkaConnection, KafkaTopic
from resilin.runtime.kafka import KafkaLiveLog
from resilin.simulation.backend import SimulatedBackend
from resilin.simulation.cluster import Physics

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"
PATIENCE_SECONDS = 60.0


class KafkaCell:
    """The services of one cell on Kafka, in a thread, on simulated workers."""

    def __init__(self, bootstrap: str) -> None:
        self.cell, self.partition = own_partition(bootstrap)
        self.connection = KafkaConnection(bootstrap)
        self.clock = StandingClock()
        self._stop: Callable[[], object] = lambda: None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.environment = {
            "RESILIN_BOOTSTRAP": bootstrap,
            "RESILIN_CELL": self.cell,
            "RESILIN_PARTITION": str(self.partition),
        }

    def topic(self, name: str = JOBS_COMMANDS.name) -> KafkaTopic:
        return KafkaTopic(self.connection, name, self.partition)

    def open(self) -> None:
        curve = Curve(model="resnet50", global_batch=256, iterations_per_second=CURVE)
        commands = [
            ConfigureCell(
                cell=self.cell, command_id="configure", configuration=CellConfiguration()
            ),
            ImportCurves(cell=self.cell, command_id="curves", curves=(curve,)),
            AddServer(
                cell=self.cell, command_id="add", server=Server(server_id="server-0", gpus=8)
            ),
        ]
        with self.topic() as topic:
            for command in commands:
                topic.produce(command.model_dump_json().encode(), self.cell.encode())

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._services())
        except BaseException as error:
            self._problem = error

    async def _services(self) -> None:
        logs: list[KafkaLiveLog] = []

        def open_log() -> KafkaLiveLog:
            logs.append(KafkaLiveLog(self.connection, self.cell, self.partition))
            return logs[-1]

        letters = AsyncTopicWriter(self.connection, DEADLETTER.name, self.partition)
        await letters.start()
        cell = EmbeddedCell(
            open_log,
            AsyncTopicReader(self.connection, JOBS_COMMANDS.name, self.partition),
            letters,
            SimulatedBackend(self.clock.now_seconds, self.clock.sleep_until, Physics()),
            clock=self.clock,
            cell=self.cell,
            partition=self.partition,
            snapshot_every_records=10,
        )
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(cell.stop)
        try:
            await cell.run()
        finally:
            for log in logs:
                await log.close()
            await letters.stop()

    def stop(self) -> None:
        self._stop()
        self._thread.join(PATIENCE_SECONDS)
        if self._problem is not None:
            raise self._problem


@pytest.fixture
def cell(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCell]:
    """A cell with 8 GPUs; the environment says where it is."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    made = KafkaCell(bootstrap)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    made.open()
    made.start()
    eventually(lambda: [s["status"] for s in ask("node", "list")["servers"]] == ["ready"])
    yield made
    made.stop()
    structlog.reset_defaults()


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def ask(*arguments: object, code: int = 0) -> dict:
    got, stdout, stderr = call(*arguments, "-o", "json")
    assert got == code, (stdout, stderr)
    answer = json.loads(stdout)
    assert isinstance(answer, dict)
    return answer


def eventually(true: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until, "what was waited for did not happen"
        time.sleep(0.1)


def document(language: str, number: int = 0) -> str:
    """A block of code of the page about clients."""
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return str(blocks[number])


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(json.loads(document("json"))["job"]))
    return file


def test_a_job_from_submission_to_its_end(cell: KafkaCell, job_file: Path) -> None:
    asked = ask("submit", "--dry-run", "-f", job_file)
    assert asked["admitted"] is True
    submitted = ask("submit", "-f", job_file, "--id", "nightly-1")
    assert submitted["admitted"] is True
    assert submitted["jobs"][0]["promised"] is True
    assert ask("submit", "-f", job_file, "--id", "nightly-1") == submitted
    eventually(lambda: ask("list")["jobs"][0]["status"] == "training")
    described = ask("describe", "nightly")
    assert described["job"]["workers"] == 8
    story = ask("explain", "nightly")["statements"]
    assert story == described["story"]
    types = [one["type"] for one in ask("events", "--job", "nightly", "-n", 100)["events"]]
    assert types[:2] == ["JobSubmitted", "JobAdmitted"]
    cell.clock.run(20_000)
    code, stdout, _ = call("watch", "nightly")
    assert code == 0
    assert stdout.splitlines()[-1].startswith("Job nightly-1 is done")
    assert ask("verify")["sound"] is True
    assert ask("state")["jobs_by_outcome"] == {"met": 1}
    folds = ask("replay")["services"]
    resumed = ask("replay", "--snapshot")["services"]
    assert [one["state_hash"] for one in resumed] == [one["state_hash"] for one in folds]


def test_what_is_refused_and_what_is_cancelled(cell: KafkaCell, tmp_path: Path) -> None:
    job = json.loads(document("json"))["job"]
    job["spec"]["deadline"] = "1m"
    (tmp_path / "urgent.json").write_text(json.dumps(job))
    refused = ask("submit", "-f", tmp_path / "urgent.json", code=1)["jobs"][0]
    assert refused["reason"] == "DeadlineUnreachable"
    del job["spec"]["deadline"]
    (tmp_path / "patient.json").write_text(json.dumps(job))
    admitted = ask("submit", "-f", tmp_path / "patient.json")["jobs"][0]
    assert ask("cancel", admitted["job_id"])["cancelled"] is True
    ask("cancel", admitted["job_id"], code=1)
    ask("wait", admitted["job_id"], code=1)
    ended = ask("list", "--all")["ended"]
    assert [one["status"] for one in ended] == ["declined", "cancelled"]
    ask("node", "cordon", "server-0")
    assert ask("node", "list")["servers"][0]["status"] == "cordoned"
    ask("node", "cordon", "server-7", code=1)


def test_a_dead_letter_is_sent_once_more_as_it_was(cell: KafkaCell) -> None:
    garbage = b"\x1b]0;owned\x07 train my model \xff, please"
    with cell.topic() as topic:
        offset = topic.produce(garbage)
        eventually(lambda: ask("deadletter", "list")["letters"])
        (letter,) = ask("deadletter", "list")["letters"]
        assert letter["source"] == {
            "topic": "jobs.commands",
            "partition": cell.partition,
            "offset": offset,
        }
        sent = ask("deadletter", "retry", letter["offset"], "--yes")["sent"]
        assert [(one["topic"], one["offset"]) for one in sent] == [("jobs.commands", offset + 1)]
        values = [message.value for message in topic.read(offset - 1)]
    assert values == [garbage, garbage]
    eventually(lambda: len(ask("deadletter", "list")["letters"]) == 2)


def test_the_documented_python_client_gets_its_answer(cell: KafkaCell) -> None:
    done = subprocess.run(  # noqa: S603 (the page in this repository)
        [sys.executable, "-c", document("python")],
        env={**os.environ, **cell.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["type"] == "JobAdmitted"
    assert answer["promised"] is True
    assert ask("describe", answer["job_id"])["job"]["phase"] == "admitted"


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_a_command_may_come_from_kcat(cell: KafkaCell, bootstrap: str, tmp_path: Path) -> None:
    command = json.loads(document("json")) | {"cell": cell.cell}
    (tmp_path / "submit.json").write_text(json.dumps(command, indent=2))
    line = next(line for line in document("console").splitlines() if "kcat -P" in line)
    line = line.removeprefix("$ ").replace("localhost:9092", bootstrap)
    line = line.replace("-p 0", f"-p {cell.partition}").replace("-k main", f"-k {cell.cell}")
    subprocess.run(line.split(), cwd=tmp_path, check=True, timeout=PATIENCE_SECONDS)  # noqa: S603 (as above)
    eventually(lambda: [job["job_id"] for job in ask("list")["jobs"]] == [command["jobId"]])


def test_a_broker_that_does_not_answer_is_said_in_one_line() -> None:
    code, stdout, stderr = call("list", "--bootstrap", "127.0.0.1:1")
    assert (code, stdout) == (2, "")
    assert stderr.count("\n") == 1
    assert "127.0.0.1:1" in stderr
