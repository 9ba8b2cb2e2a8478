"""`resilin logs`: what workers print, as it comes."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from resilin.agent.job_directory import JobDirectory, LogFile
from resilin.cli.worker_output import OutputLine
from resilin.contracts.commands import CancelJob

from .test_live_jobs import interrupt_after, submit


@pytest.fixture
def job(cell):
    """A job with output of a leader and two workers."""
    submit(cell, "alpha/1")
    cell.wait_for("GenerationSwitched")
    folder = JobDirectory.of_job(cell.home, "alpha/1").logs
    folder.mkdir(parents=True)
    (folder / "leader.log").write_text("leads\n")
    (folder / "worker-0.log").write_text("".join(f"step {n}\n" for n in range(500)))
    (folder / "worker-1.log").write_bytes(b"\x1b[31mred\x1b[0m\xff\nno end")
    return folder


def test_the_last_lines_of_every_worker(resilin, cell, job) -> None:
    lines = resilin("logs", "alpha", "--home", cell.home).stdout.splitlines()
    assert lines[0] == "[leader] leads"
    assert lines[1:101] == [f"[worker-0] step {n}" for n in range(400, 500)]
    assert lines[-1] == "[worker-1] no end"
    few = resilin("logs", "alpha", "-n", 2, "--worker", "0", "--home", cell.home).stdout
    assert few == "step 498\nstep 499\n"
    same = resilin("logs", "alpha", "-n", 2, "--worker", "worker-0", "--home", cell.home).stdout
    assert same == few
    answer = resilin("logs", "alpha", "--worker", "leader", "--home", cell.home, "-o", "json").json
    assert answer == {"job_id": "alpha/1", "lines": [{"worker": "leader", "text": "leads"}]}


def test_a_terminal_does_not_obey_what_workers_print(resilin, cell, job, monkeypatch) -> None:
    call = ("logs", "alpha", "--worker", "1", "--home", cell.home)
    assert resilin(*call).stdout.startswith("\x1b[31mred\x1b[0m")

    class _Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    line = OutputLine("worker-1", "10 %\r20 %\x1b[2J\r")
    monkeypatch.setattr(sys, "stdout", _Terminal())
    assert line.shown(several=True) == "[worker-1] 20 %\\x1b[2J"


def test_output_that_made_room_is_read_too(resilin, cell, job) -> None:
    file = LogFile(job / "worker-7.log", bytes_max=400)
    for number in range(50):
        file.write(f"line {number}\n".encode())
    file.close()
    assert (job / "worker-7.log.1").exists()
    answer = resilin("logs", "alpha", "--worker", "7", "--home", cell.home).stdout
    numbers = [int(line.split()[1]) for line in answer.splitlines()]
    assert numbers == list(range(numbers[0], 50))
    assert len(numbers) > 20


def test_following_misses_nothing_while_output_makes_room(resilin, cell, job) -> None:
    """A worker that prints without end, and one that comes later, until the job has ended."""

    def train() -> None:
        file = LogFile(job / "worker-8.log", bytes_max=2_000)
        for number in range(300):
            file.write(f"line {number}\n".encode())
            if number % 20 == 0:
                time.sleep(0.12)  # the reader looks in between
        file.close()
        (job / "worker-9.log").write_text("late, and without an end")
        cell.send(CancelJob(command_id="stop", job_id="alpha/1"))

    training = threading.Timer(0.3, train)
    training.start()
    outcome = resilin("logs", "alpha", "-f", "-n", 1000, "--home", cell.home)
    training.join()
    assert outcome.code == 0
    lines = outcome.stdout.splitlines()
    assert [line for line in lines if "worker-8" in line] == [
        f"[worker-8] line {number}" for number in range(300)
    ]
    assert lines[-1] == "[worker-9] late, and without an end"
    assert "[worker-1] no end" in lines


def test_following_can_be_interrupted(resilin, cell, job, monkeypatch) -> None:
    interrupt_after(monkeypatch, 3)
    assert resilin("logs", "alpha", "-f", "--home", cell.home).code == 130


def test_there_may_be_no_output(resilin, cell, job) -> None:
    submit(cell, "silent")
    cell.wait_for("JobSubmitted", 2)
    outcome = resilin("logs", "silent", "--home", cell.home)
    assert outcome.code == 2
    assert "there is no output" in outcome.stderr
    outcome = resilin("logs", "alpha", "--worker", "99", "--home", cell.home)
    assert outcome.code == 2
    assert "no output of worker 99" in outcome.stderr
    remote = resilin("logs", "alpha", "--bootstrap", "localhost:1")
    assert remote.code == 2
    assert "kept on the servers" in remote.stderr
