"""The broker without a container: it starts, keeps what it has, and never outlives its user."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.eventlog.contract import record_of
from tests.support.kafka import make_topic
from tests.support.servers import local_broker_running

from resilin.eventlog.kafka import KafkaLog
from resilin.runtime import local_broker
from resilin.runtime.local_broker import LocalBroker, LocalBrokerError, free_ports, kafka_jars

PATIENCE_SECONDS = 120


def test_what_was_written_survives_every_way_to_end(tmp_path: Path) -> None:
    with local_broker_running(tmp_path) as broker:
        address = broker.bootstrap
        events = make_topic(address, "events")
        with KafkaLog(address, "main", topic=events) as log:
            log.append(record_of(0))
        broker.restart()
        assert broker.bootstrap == address
        with KafkaLog(address, "main", topic=events) as log:
            log.append(record_of(1))
        broker.kill()
        assert not broker.running
        broker.kill()  # it does not run: nothing happens
    with local_broker_running(tmp_path) as broker:
        broker.start()  # it runs: nothing happens
        with KafkaLog(broker.bootstrap, "main", topic=events) as log:
            assert [entry.record.basis for entry in log.read()] == [0, 1]


def broker_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Wait for the program's broker to answer, and return its process."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert re.match(r"Kafka \d", line), line
    (java,) = psutil.Process(process.pid).children()
    return java


@pytest.fixture
def command(tmp_path: Path, bootstrap: str) -> list[str]:
    """The broker as a program of its own; the session's broker made sure that one can run."""
    (port,) = free_ports(1)
    program = [sys.executable, "-m", "resilin.runtime.local_broker"]
    return [*program, str(tmp_path / "kafka"), "--port", str(port)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_it_never_outlives_the_program_that_started_it(
    command: list[str], how: signal.Signals
) -> None:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 (our own)
    with process:
        try:
            java = broker_of(process)
            process.send_signal(how)
            assert process.wait(PATIENCE_SECONDS) == (-how if how is signal.SIGKILL else 0)
            psutil.wait_procs([java], timeout=PATIENCE_SECONDS)
            assert not java.is_running()
        finally:
            process.kill()


def test_a_broker_that_ends_by_itself_ends_the_program(command: list[str]) -> None:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 (our own)
    with process:
        broker_of(process).kill()
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 1
        assert "the broker ended by itself; see " in said


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = LocalBroker(tmp_path, port=port)
        with pytest.raises(LocalBrokerError, match=f"port {port} cannot be used: .*in use"):
            broker.start()
    assert not broker.running


def test_a_broker_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    with local_broker_running(tmp_path) as broker:
        broker.stop()
        (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=other\n")
        with pytest.raises(
            LocalBrokerError, match=r"(?s)ended at once; it said:.*meta\.properties"
        ):
            broker.start()
        assert not broker.running


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("RESILIN_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LocalBrokerError, match=r"no java .*deploy/local/install\.sh"):
        LocalBroker(tmp_path / "kafka").start()
    with pytest.raises(LocalBrokerError, match=r"no mvn .*deploy/local/install\.sh"):
        kafka_jars()


def test_processes_that_come_at_once_fetch_the_jars_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = tmp_path / "fetched"
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        "#!/bin/sh\n"
        'for argument; do case "$argument" in -DoutputDirectory=*)'
        ' mkdir -p "${argument#-DoutputDirectory=}";; esac; done\n'
        f"sleep 0.3\necho once >> {counted}\n"
    )
    maven.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{maven.parent}:{os.environ['PATH']}",
        "RESILIN_CACHE": str(tmp_path / "cache"),
    }
    program = "from resilin.runtime.local_broker import kafka_jars; print(kafka_jars())"
    processes = [
        subprocess.Popen(  # noqa: S603 (our own program)
            [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    found = {process.communicate(timeout=PATIENCE_SECONDS)[0].strip() for process in processes}
    assert found == {str(tmp_path / "cache")}
    assert counted.read_text().split() == ["once"]


def test_jars_of_other_versions_are_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def fetch(pom: Path, folder: Path) -> None:
        folder.mkdir()
        fetched.append(pom.read_text())

    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.setattr(local_broker, "_FILES", files)
    monkeypatch.setattr(local_broker, "_fetch", fetch)
    monkeypatch.setenv("RESILIN_CACHE", str(tmp_path / "cache"))
    with pytest.raises(LocalBrokerError, match="needs a checkout"):
        kafka_jars()
    for version in ("1", "1", "2"):
        (files / "pom.xml").write_text(version)
        kafka_jars()
    assert fetched == ["1", "2"]


def test_ports_are_distinct_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(1_024 <= port < 65_536 for port in ports)
