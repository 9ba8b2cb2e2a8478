"""Real servers for tests: a Kafka broker and a PostgreSQL, wherever they can be had.

In this order: what the environment names, a container where an engine answers, a child process
of what is installed. Where there is nothing, tests are skipped; in CI they fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from resilin.runtime.local_broker import DiesWith, LocalBroker, LocalBrokerError, free_ports

__all__ = ["kafka_running", "local_broker_running", "postgres_running"]

_KAFKA_IMAGE = "apache/kafka:4.1.0"
_POSTGRES_IMAGE = "postgres:16"
_START_SECONDS = 120


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def kafka_running(directory: Path) -> Iterator[str]:
    """Have a broker; yield its address."""
    if given := os.environ.get("RESILIN_TEST_BOOTSTRAP"):
        yield given
    elif _docker_answers():
        with _kafka_container() as bootstrap:
            yield bootstrap
    else:
        with local_broker_running(directory) as broker:
            yield broker.bootstrap


@contextlib.contextmanager
def local_broker_running(directory: Path) -> Iterator[LocalBroker]:
    """Have a broker that may be stopped, killed and started again."""
    broker = LocalBroker(directory)
    try:
        broker.start()
    except LocalBrokerError as error:
        _unavailable(f"no Kafka broker: no container engine answers, and {error}")
    try:
        yield broker
    finally:
        broker.stop()


@contextlib.contextmanager
def postgres_running() -> Iterator[str]:
    """Have a PostgreSQL with an empty database; yield its address."""
    if given := os.environ.get("RESILIN_TEST_POSTGRES"):
        yield given
    elif _docker_answers():
        with _postgres_container() as url:
            yield url
    else:
        with _postgres_process() as url:
            yield url


# --- containers ----------------------------------------------------------------------------


def _docker_answers() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        asked = [docker, "version", "--format", "{{.Server.Version}}"]
        return subprocess.run(asked, capture_output=True, timeout=10).returncode == 0  # noqa: S603 (our own arguments)
    except subprocess.TimeoutExpired:
        return False


def _container(image: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its own past
        from testcontainers.core.container import DockerContainer
    return DockerContainer(image)


@contextlib.contextmanager
def _kafka_container() -> Iterator[str]:
    # The address that a broker tells its clients has to be known before it starts.
    (port,) = free_ports(1)
    container = _container(_KAFKA_IMAGE).with_bind_ports(port, port)
    host = container.get_docker_client().host()
    container.with_envs(
        KAFKA_NODE_ID="1",
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:29093",
        KAFKA_LISTENERS=f"PLAINTEXT://:{port},CONTROLLER://:29093",
        KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://{host}:{port}",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        KAFKA_AUTO_CREATE_TOPICS_ENABLE="false",
        KAFKA_MESSAGE_MAX_BYTES="104857600",
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
        KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
        KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1",
        KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS="1000",
        KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
    )
    with container:
        _wait_for(lambda: _kafka_answers(f"{host}:{port}"), "Kafka's container")
        yield f"{host}:{port}"


async def _kafka_answers(bootstrap: str) -> bool:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5_000)
    try:
        await client.start()
        return bool((await client.describe_cluster())["brokers"])
    except (KafkaError, TimeoutError, OSError):
        return False
    finally:
        await client.close()


@contextlib.contextmanager
def _postgres_container() -> Iterator[str]:
    container = _container(_POSTGRES_IMAGE).with_exposed_ports(5432)
    container.with_envs(POSTGRES_HOST_AUTH_METHOD="trust", POSTGRES_DB="resilin")
    with container:
        host = container.get_container_host_ip()
        url = f"postgresql://postgres@{host}:{container.get_exposed_port(5432)}/resilin"
        _wait_for(lambda: _postgres_answers(url), "PostgreSQL's container")
        yield url


# --- PostgreSQL as a child process ---------------------------------------------------------


@contextlib.contextmanager
def _postgres_process() -> Iterator[str]:
    programs = _postgres_programs()
    (port,) = free_ports(1)
    # Not below pytest's folder: it is closed to the other user that the server runs as.
    directory = Path(tempfile.mkdtemp(prefix="resilin-postgres-"))
    as_user: dict[str, Any] = {}
    if os.getuid() == 0:  # the server refuses to run as root
        user = _other_user()
        os.chown(directory, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    try:
        make = "--username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync"
        subprocess.run(  # noqa: S603 (our own arguments)
            [programs / "initdb", "-D", directory / "data", *make.split()],
            cwd=directory,
            check=True,
            capture_output=True,
            **as_user,
        )
        with (directory / "postgres.log").open("wb") as output:
            run = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
            run += " -c fsync=off -c full_page_writes=off"
            server = subprocess.Popen(  # noqa: S603 (our own arguments)
                [programs / "postgres", "-D", directory / "data", *run.split()],
                cwd=directory,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=DiesWith(os.getpid()),
                **as_user,
            )
        try:
            url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            _wait_for(lambda: _postgres_answers(url), "PostgreSQL")
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # a shutdown that waits for no client
            server.wait(30)
    finally:
        shutil.rmtree(directory)


def _postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).resolve())
    if not found:
        _unavailable(
            "no PostgreSQL: no container engine answers, and no server is installed;"
            " run deploy/local/install.sh"
        )
    return found[-1].parent


def _version(program: Path) -> float:
    return float(program.parts[4])


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    _unavailable("no PostgreSQL: there is no user but root to run it as")


async def _postgres_answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=5)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    await connection.close()
    return True


def _wait_for(answers: Any, what: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not asyncio.run(answers()):
        assert time.monotonic() < deadline, f"{what} does not answer"
        time.sleep(0.1)
