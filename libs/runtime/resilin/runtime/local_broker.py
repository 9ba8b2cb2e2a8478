"""A Kafka broker without a container, from the jars of Maven Central.

For tests, and for one machine: ``python -m resilin.runtime.local_broker DIRECTORY`` runs it in
the foreground. One node is broker and controller, its data survives restarts, nothing outside
the machine can reach it, and topics are never created by accident.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]  # no type marker
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # as above

__all__ = ["DiesWith", "LocalBroker", "LocalBrokerError", "free_ports", "kafka_jars", "main"]

_VERSION = "4.1.0"
_FILES = Path(__file__).parents[4] / "deploy" / "local" / "kafka"
_INSTALL = "run deploy/local/install.sh, or install a Java 17 runtime and Maven"

_FETCH_SECONDS = 600
_FORMAT_SECONDS = 60
_START_SECONDS = 120
_STOP_SECONDS = 30
_POLL_SECONDS = 0.1
_SAID_BYTES = 2_000

_PR_SET_PDEATHSIG = 1

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
# Topics have limits of their own; this only has to allow the largest.
message.max.bytes=104857600
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# After a kill the next start has to wait until the last one counts as dead.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# A test of leadership does not wait for timeouts that a data centre needs.
group.min.session.timeout.ms=1000
group.initial.rebalance.delay.ms=0
"""


class LocalBrokerError(RuntimeError):
    """The broker cannot be had; the message says what is missing or where to look."""


class LocalBroker:
    """One broker as a child process.

    It dies with the thread that started it, even if that is killed, so start it from the main
    thread of whatever needs it.

    Args:
        directory: Where it keeps its data, its settings and what it says.
        port: Where it listens on the loopback interface; any free port without one. It stays
            the same over restarts.

    Attributes:
        bootstrap: Its address, as clients take it.
        output: The file with what it says.
    """

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        self._directory = directory.absolute()
        free_port, self._controller_port = free_ports(2)
        self._port = port or free_port
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.output = self._directory / "broker.log"

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, on first use with fresh storage; return when it answers.

        Raises:
            LocalBrokerError: If Java, Maven or the jars cannot be had, or it does not start.
        """
        if self.running:
            return
        java = _java()
        jars = kafka_jars()
        for port in (self._port, self._controller_port):
            _must_be_free(port)
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        properties = self._directory / "server.properties"
        properties.write_text(
            _PROPERTIES.format(port=self._port, controller_port=self._controller_port, data=data),
            encoding="utf-8",
        )
        run = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        run += [f"-Dlog4j2.configurationFile={_FILES / 'log4j2.properties'}", "-cp", f"{jars}/*"]
        if not (data / "meta.properties").exists():
            self._format([*run, "kafka.tools.StorageTool"], properties)
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (our own arguments)
                [*run, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Out of the terminal's process group: whoever is interrupted there stops it.
                start_new_session=True,
                preexec_fn=DiesWith(os.getpid()),
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def _format(self, storage_tool: list[str], properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(  # noqa: S603 (our own arguments)
            [*storage_tool, "format", f"--cluster-id={cluster}", "-c", str(properties)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_FORMAT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).decode(errors="replace")[-_SAID_BYTES:]
            raise LocalBrokerError(f"{self._directory}: the storage cannot be formatted:\n{said}")

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        # In a thread: this one may already run a loop.
        with ThreadPoolExecutor(1) as asking:
            while time.monotonic() < deadline:
                if not self.running:
                    raise LocalBrokerError(f"the broker ended at once; it said:\n{self._said()}")
                if asking.submit(asyncio.run, _answers(self.bootstrap, self._port)).result():
                    return
                time.sleep(_POLL_SECONDS)
        raise LocalBrokerError(f"the broker does not answer; it said:\n{self._said()}")

    def _said(self) -> str:
        return self.output.read_bytes()[-_SAID_BYTES:].decode(errors="replace")

    def stop(self) -> None:
        """Ask it to end, and wait; what does not end in time is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would: nothing is flushed, nobody is told."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Stop and start it, on the same port and with the same data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def kafka_jars() -> Path:
    """Return the folder of the broker's jars; fetch them on first use.

    The folder is ``$RESILIN_CACHE``, or one below ``~/.cache/resilin``. Processes that come at
    the same time wait for one another.

    Raises:
        LocalBrokerError: If they cannot be fetched.
    """
    default = Path.home() / ".cache" / "resilin" / f"kafka-{_VERSION}"
    folder = Path(os.environ.get("RESILIN_CACHE") or default).absolute()
    pom = _FILES / "pom.xml"
    if not pom.is_file():
        raise LocalBrokerError(f"no {pom}: the local broker needs a checkout of the repository")
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    complete = folder / "complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(folder.with_name(f"{folder.name}.lock")):
        if not complete.is_file() or complete.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            _fetch(pom, folder)
            complete.write_text(wanted, encoding="utf-8")
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalBrokerError(f"no mvn to fetch Kafka's jars with; {_INSTALL}")
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    done = subprocess.run(  # noqa: S603 (our own arguments)
        [*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_FETCH_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace")[-_SAID_BYTES:]
        raise LocalBrokerError(f"Maven cannot fetch Kafka's jars:\n{said}")


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock that the system lets go of if this process dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise LocalBrokerError(f"no java to run Kafka with; {_INSTALL}")
    return java


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for taken in sockets:
            taken.bind(("127.0.0.1", 0))
        return [taken.getsockname()[1] for taken in sockets]


def _must_be_free(port: int) -> None:
    """Look before the start: another broker there would answer in this one's place."""
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind(("127.0.0.1", port))
        except OSError as error:
            raise LocalBrokerError(f"port {port} cannot be used: {error.strerror}") from None


async def _answers(bootstrap: str, port: int) -> bool:
    """Say whether the broker tells its metadata and counts itself as ready."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    except OSError:
        return False  # asked first, because the client would complain in the log
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5_000)
    try:
        await client.start()
        return bool((await client.describe_cluster())["brokers"])
    except (KafkaError, TimeoutError, OSError):
        return False
    finally:
        await client.close()


class DiesWith:
    """Have a child killed when the thread that starts it ends, however that ends; Linux only.

    For ``preexec_fn``, made in the parent.

    Args:
        parent: The parent's process id.
    """

    def __init__(self, parent: int) -> None:
        self._parent = parent
        # Looked up before the fork, after which nothing may be loaded.
        self._prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def __call__(self) -> None:
        """Run in the child, before the program."""
        if self._prctl is None:
            return
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._parent:  # it ended in between
            os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker in the foreground until interrupted; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m resilin.runtime.local_broker",
        description="Run a Kafka broker on this machine until interrupted.",
    )
    parser.add_argument("directory", type=Path, help="where it keeps its data")
    parser.add_argument("--port", type=int, default=9092, help="where it listens (%(default)s)")
    options = parser.parse_args(arguments)
    broker = LocalBroker(options.directory, port=options.port)
    # A shell's background job is started with SIGINT ignored; this program ends by it anyhow.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        broker.start()
        sys.stderr.write(f"Kafka {_VERSION} at {broker.bootstrap}; it says in {broker.output}\n")
        while broker.running:
            time.sleep(_POLL_SECONDS)
        sys.stderr.write(f"the broker ended by itself; see {broker.output}\n")
    except LocalBrokerError as error:
        sys.stderr.write(f"{error}\n")
    except KeyboardInterrupt:
        return 0
    finally:
        broker.stop()
    return 1


if __name__ == "__main__":
    sys.exit(main())
