"""A cell at home: a process that is started, stopped, killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.events import submit

from resilin.audit.verify import verify
from resilin.contracts import events as ev
from resilin.contracts.commands import Command, ImportCurves
from resilin.contracts.record import LogEntry
from resilin.contracts.topics import JOBS_COMMANDS, SERVICES
from resilin.contracts.values import Curve
from resilin.embedded import folder
from resilin.embedded.folder import Home, HomeBusyError
from resilin.embedded.home import run_home
from resilin.eventlog.sqlite import SqliteLog
from resilin.eventlog.sqlite_topic import SqliteTopic
from resilin.runtime.clock import WallClock
from resilin.simulation.backend import SimulatedBackend
from resilin.simulation.simulation import deciders

PATIENCE_SECONDS = 120.0
SCALE = 100.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def wait_for(true: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := true()):
        assert time.monotonic() < until, "what was waited for did not happen"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.05)
    return found


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310 (loopback)
        return str(page.read().decode())


def send(home: Home, *values: bytes | Command) -> None:
    home.path.mkdir(exist_ok=True)
    with SqliteTopic(home.topics, JOBS_COMMANDS.name) as topic:
        for value in values:
            topic.produce(value if isinstance(value, bytes) else value.model_dump_json().encode())


def entries(home: Home) -> list[LogEntry]:
    with SqliteLog(home.log, read_only=True) as log:
        return list(log.read())


def happened(home: Home, kind: type[ev.Event]) -> list[ev.Event]:
    return [
        event for entry in entries(home) for event in entry.record.events if isinstance(event, kind)
    ]


CURVES = ImportCurves(
    command_id="curves",
    curves=(Curve(model="linear", global_batch=64, iterations_per_second={1: 1.0, 2: 2.0}),),
)


# --- in this process -----------------------------------------------------------------------


def a_cell(home: Home, port: int = 0) -> Coroutine[Any, Any, None]:
    return run_home(
        home,
        lambda clock: SimulatedBackend(clock.now_seconds, clock.sleep_until),
        slots=2,
        port=port,
        clock=WallClock(SCALE, 1_000.0),
    )


async def run(home: Home, meanwhile: Callable[[str], None]) -> None:
    """Run a cell on simulated workers until ``meanwhile``, in a thread, is done with it."""
    running = asyncio.create_task(a_cell(home))

    def story() -> None:
        url = wait_for(lambda: (found := home.running()) and found.url)
        wait_for(lambda: is_ready(url))
        meanwhile(url)

    telling = asyncio.create_task(asyncio.to_thread(story))
    await asyncio.wait([running, telling], return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        os.kill(os.getpid(), signal.SIGTERM)  # the cell has a handler for it
    await running
    await telling


def is_ready(url: str) -> bool:
    try:
        return bool(json.loads(get(f"{url}/readyz"))["ready"])
    except OSError:
        return False


def metric(url: str, name: str) -> float:
    lines = [line for line in get(f"{url}/metrics").splitlines() if line.startswith(name)]
    assert lines, f"{name} is not exposed"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_metrics_of_all_services_are_one_page_and_outlive_a_restart(home: Home) -> None:
    def first(url: str) -> None:
        wait_for(lambda: happened(home, ev.NodeJoined))
        send(home, b"garbage")
        wait_for(lambda: metric(url, "resilin_dead_letter_records_total") == 1)
        assert metric(url, "resilin_node_up") == 1
        for _ in range(2):
            page = get(f"{url}/metrics")
            types = Counter(line for line in page.splitlines() if line.startswith("# TYPE"))
            assert max(types.values()) == 1
            series = Counter(line.rsplit(" ", 1)[0] for line in page.splitlines() if line[0] != "#")
            assert max(series.values()) == 1
            for service in SERVICES:
                assert re.search(rf'resilin_leading{{.*service="{service}".*}} 1', page)

    def second(url: str) -> None:
        # Its services went on from their snapshots, and so did what they show of the cell.
        wait_for(lambda: metric(url, "resilin_leading") == len(SERVICES))
        assert metric(url, "resilin_node_up") == 1
        assert metric(url, "resilin_fenced_writes_total") == 0

    asyncio.run(run(home, first))
    asyncio.run(run(home, second))


def test_a_cell_has_its_server_even_if_a_client_was_there_first(home: Home) -> None:
    send(home, CURVES)

    def story(url: str) -> None:
        wait_for(lambda: happened(home, ev.NodeJoined))

    asyncio.run(run(home, story))
    # The process was killed before its first record: it opens the cell again.
    other = Home(home.path.with_name("other"))
    with SqliteTopic(home.topics, JOBS_COMMANDS.name) as topic:
        send(other, *(message.value for message in topic.read()))
    asyncio.run(run(other, lambda _: wait_for(lambda: happened(other, ev.NodeJoined))))
    assert len(happened(other, ev.ServerAdded)) == 1
    assert verify(entries(other), deciders()).sound


def test_a_home_that_is_held_is_not_run_twice(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_PATIENCE_SECONDS", 0.05)
    with home.held(), socket.create_server(("127.0.0.1", 0)) as taken:
        home.announce(taken.getsockname()[1])
        # The one that runs has the port too; what matters is that it runs.
        with pytest.raises(HomeBusyError):
            asyncio.run(a_cell(home, taken.getsockname()[1]))
        assert home.running() is not None


# --- as a process --------------------------------------------------------------------------


@contextmanager
def a_process(home: Home, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    home.path.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "resilin.embedded", "--home", str(home.path), "--slots", "2"]
    with home.output.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 (this project's own)
            [*program, "--simulate", "--time-scale", str(SCALE), *arguments],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def up(home: Home, process: subprocess.Popen[bytes]) -> None:
    def found() -> bool:
        running = home.running()
        return running is not None and running.pid == process.pid and is_ready(running.url)

    wait_for(found, process)


def test_a_cell_that_was_killed_goes_on_and_ends_in_good_order(home: Home) -> None:
    with a_process(home) as process:
        up(home, process)
        send(home, CURVES, submit("a", iterations=1_500))
        wait_for(lambda: happened(home, ev.GenerationSwitched), process)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert home.running() is None
    assert happened(home, ev.JobCompleted) == []
    with a_process(home) as process:
        up(home, process)
        with a_process(home) as second:
            assert second.wait(PATIENCE_SECONDS) == 1
        assert "a cell runs in" in home.output.read_text()
        wait_for(lambda: happened(home, ev.JobCompleted), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert home.running() is None
    assert not (home.path / "up.json").exists()
    assert "Traceback" not in home.output.read_text()
    verification = verify(entries(home), deciders())
    assert verification.sound
    with SqliteLog(home.log, read_only=True) as log:
        assert all(log.load(service) is not None for service in SERVICES)
        assert all(log.load(f"{service}.metrics") is not None for service in SERVICES)
