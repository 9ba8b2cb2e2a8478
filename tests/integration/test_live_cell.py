"""A new user's path: seven processes, a job from kcat, and where it can be seen."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import asyncpg
import pytest
from tests.support.partitions import own_partition
from tests.support.processes import LiveServices, services_running

from resilin.contracts.commands import Command
from resilin.contracts.topics import JOBS_COMMANDS, SERVICES
from resilin.contracts.values import StopCost
from resilin.eventlog.kafka import KafkaConnection, KafkaTopic
from resilin.planning.curves import ThroughputCurve
from resilin.simulation.scenario import Cluster, configuration, opening_commands

WAIT_SECONDS = 60.0

JOB = {
    "type": "SubmitJob",
    "command_id": "from-kcat-1",
    "job_id": "nightly-resnet",
    "job": {
        "apiVersion": "resilin.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "nightly-resnet"},
        "spec": {
            "model": "resnet50",
            "globalBatch": 256,
            "workload": {"totalIterations": 300},
            "deadline": "2h",
        },
    },
}


def wait_for(done: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.2)


class Live:
    """The cell under test."""

    def __init__(
        self, bootstrap: str, cell: str, partition: int, services: LiveServices, url: str
    ) -> None:
        self.bootstrap = bootstrap
        self.cell = cell
        self.partition = partition
        self.services = services
        self.archive_url = url

    def send(self, payload: bytes) -> None:
        """As a client in another language would: with kcat, if it is installed."""
        kcat = shutil.which("kcat")
        if kcat is None:
            assert os.environ.get("CI") != "true", "kcat is missing: deploy/local/install.sh"
            with KafkaTopic(
                KafkaConnection(self.bootstrap), JOBS_COMMANDS.name, self.partition
            ) as topic:
                topic.produce(payload)
            return
        place = ["-b", self.bootstrap, "-t", JOBS_COMMANDS.name, "-p", str(self.partition)]
        subprocess.run(  # noqa: S603 (a client of the broker under test)
            [kcat, "-P", *place], input=payload, check=True, timeout=30
        )

    def resilin(self, *arguments: str) -> dict[str, object]:
        """What the command line answers."""
        done = subprocess.run(  # noqa: S603 (this project's own command)
            [sys.executable, "-m", "resilin.cli", *arguments, "-o", "json"],
            env=os.environ
            | {
                "RESILIN_BOOTSTRAP": self.bootstrap,
                "RESILIN_CELL": self.cell,
                "RESILIN_PARTITION": str(self.partition),
            },
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr.decode()
        return dict(json.loads(done.stdout))

    def metric(self, service: str, name: str) -> float:
        """The sum of a metric's samples."""
        (instance,) = self.services.of(service)
        lines = [line for line in instance.metrics().splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def archived(self, query: str) -> list[asyncpg.Record]:
        async def ask() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.archive_url)
            try:
                return list(await connection.fetch(query, self.cell))
            finally:
                await connection.close()

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def live(
    bootstrap: str, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    cell, partition = own_partition(bootstrap)
    with services_running(
        bootstrap,
        tmp_path_factory.mktemp("services"),
        cell=cell,
        partition=partition,
        archive_url=postgres_url,
        time_scale=30.0,
        time_origin_seconds=time.time(),
    ) as services:
        services.wait_for_leaders()
        found = Live(bootstrap, cell, partition, services, postgres_url)
        curve = ThroughputCurve.from_mapping({1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0})
        settings = configuration("elasticflow", StopCost(fixed_seconds=1.0))
        curves = {("resnet50", 256): curve}
        for each in opening_commands(0.0, Cluster(2, 8), settings, curves):
            command: Command = each.command.model_copy(update={"cell": cell})
            found.send(command.model_dump_json().encode())
        wait_for(lambda: found.metric("executor", "resilin_node_up") == 2, "no node joined")
        yield found


def test_a_job_from_kcat_is_seen_everywhere(live: Live) -> None:
    live.send(json.dumps(JOB | {"cell": live.cell}).encode())
    wait_for(
        lambda: live.archived("SELECT 1 FROM jobs WHERE cell = $1 AND outcome = 'completed'"),
        "the job never reached the archive",
    )
    (job,) = live.archived("SELECT * FROM jobs WHERE cell = $1")
    assert (job["job_id"], job["outcome"]) == ("nightly-resnet", "completed")
    assert live.metric("admission", "resilin_admission_attempts_total") == 1
    listed = live.resilin("list", "--all")
    assert "nightly-resnet" in json.dumps(listed)
    assert live.resilin("verify")["sound"] is True


def test_a_message_that_is_no_command_is_a_dead_letter(live: Live) -> None:
    live.send(b'{"type": "SubmitJob", "job_id": 7}')
    wait_for(
        lambda: live.metric("admission", "resilin_dead_letter_records_total") == 1,
        "the message was not put aside",
    )
    listed = json.dumps(live.resilin("deadletter", "list"))
    assert JOBS_COMMANDS.name in listed


def test_every_process_says_how_it_stands(live: Live) -> None:
    for service in SERVICES:
        (instance,) = live.services.of(service)
        standing = instance.standing()
        assert standing is not None
        assert standing["ready"] is True
        assert standing["leading"] is True
        assert standing["service"] == service
        assert "resilin_build_info" in instance.metrics()
