"""An agent that is killed leaves no process behind, and its successor takes over."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.agent.harness import FAKES, PATIENCE_SECONDS, Node, leader_pid, lives, run, worker
from tests.support.events import admitted, joined, placed, submitted, switched

from resilin.agent.job_directory import JobDirectory
from resilin.agent.marked import MARK, end_marked, marked_processes
from resilin.agent.registry import Registry
from resilin.contracts import events as ev

SLEEP, SHELL = shutil.which("sleep") or "", shutil.which("sh") or ""

pytestmark = pytest.mark.xdist_group("agent")


def begun(*command: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=env, start_new_session=True)  # noqa: S603 (a test's own)


def wait_until(condition: object) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():  # type: ignore[operator]  # a function without arguments
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def killed_agent(home: Path) -> list[int]:
    """Start an agent with a job of forking workers, kill it; return all that it had started."""
    agent = begun(sys.executable, str(FAKES / "agent.py"), str(home), env={**os.environ})
    try:
        wait_until((home / "trains").exists)
        folder = JobDirectory.of_job(home, "a").path
        pids = [int(path.name) for path in (folder / "started").iterdir()]
        assert len(pids) == 8
        pids.append(leader_pid(folder))
        assert all(map(lives, pids))
    finally:
        agent.kill()
        agent.wait()
    return pids


def test_no_process_survives_an_agent_that_is_killed(tmp_path: Path) -> None:
    pids = killed_agent(tmp_path / "home")
    wait_until(lambda: not any(map(lives, pids)))


def test_its_successor_can_begin_at_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    pids = killed_agent(home)

    async def story() -> None:
        node = Node(home)
        node.log.given(joined("s1"), submitted("a", worker=worker(), iterations=10**9))
        node.log.given(admitted("a"), placed("a", 1, {"s1": (0, 1)}), switched("a", 1, 2))
        async with node:
            assert not any(map(lives, pids)), "before anything else it has cleaned up"
            await node.until(ev.WorkerLost)
            node.place("a", 2, 0, 1)
            await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 2)
            node.assert_sound()

    run(story)


# --- finding processes -----------------------------------------------------------------------


def test_a_mark_is_found_in_children_and_nowhere_else() -> None:
    environment = {**os.environ, MARK: "test-of-marks:1;"}
    parent = begun(SHELL, "-c", "setsid sleep 600 & sleep 600", env=environment)
    other = begun(SLEEP, "600", env={**os.environ, MARK: "test-of-marks:11;"})
    try:
        wait_until(lambda: len(marked_processes("test-of-marks:1;")) == 3)
        assert other.pid not in marked_processes("test-of-marks:1;")
        assert other.pid in marked_processes("test-of-marks:")
        assert end_marked("test-of-marks:1;") >= 3
        assert marked_processes("test-of-marks:1;") == []
        assert lives(other.pid)
    finally:
        other.kill()
        other.wait()
        parent.wait()


def test_a_process_that_hides_its_mark_is_found_by_its_session() -> None:
    hidden = begun(SLEEP, "600", env={"PATH": os.environ["PATH"]})
    assert marked_processes("no such mark") == []
    assert marked_processes("no such mark", frozenset((hidden.pid,))) == [hidden.pid]
    end_marked("no such mark", frozenset((hidden.pid,)))
    assert hidden.wait() == -signal.SIGKILL


def test_a_number_that_was_given_to_another_process_is_left_alone(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    _, mark = registry.enter()
    registry.note(os.getpid(), mark)
    assert registry.sessions(mark) == frozenset((os.getpid(),))
    entry = tmp_path / "processes" / str(os.getpid())
    entry.write_text(entry.read_text().replace('"started": ', '"started": 9'))
    assert registry.sessions(mark) == frozenset()
    registry.forget(mark)
    assert not entry.exists()
    registry.leave()


def test_the_agents_of_a_home_have_marks_of_their_own(tmp_path: Path) -> None:
    first, second = Registry(tmp_path), Registry(tmp_path)
    home, mark = first.enter()
    first.leave()
    again, other = second.enter()
    second.leave()
    assert home == again
    assert mark != other
    assert mark.startswith(home)
    assert other.startswith(home)
