"""A node agent with fakes for its leaders and workers, and the executor that speaks to it.

The fakes are real processes (``fakes/``): only training is pretended. The executor is the
real core on a log that the test writes by hand.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.support.events import admitted, placed, server_added, submitted, suspended
from tests.support.log import HandMadeLog, a_cell, folded, violations

from resilin.agent.agent_messages import Limits
from resilin.agent.backend import LocalBackend, ProfileSettings
from resilin.agent.job_directory import JobDirectory
from resilin.agent.marked import started_at
from resilin.agent.runner import Commands
from resilin.contracts import events as ev
from resilin.contracts.job_specification import WorkerSpecification
from resilin.contracts.telemetry import StepSample
from resilin.executor.decider import ExecutorDecider, instructions

FAKES = Path(__file__).parent / "fakes"
FAKE = Commands(
    leader=(sys.executable, "-S", str(FAKES / "leader.py")),
    worker=(sys.executable, "-S", str(FAKES / "worker.py")),
)
QUICK = Limits(
    graceful_stop_seconds=1.0,
    kill_after_seconds=0.5,
    start_seconds=5.0,
    hang_seconds=1.0,
    word_seconds=0.5,
    progress_seconds=0.1,
)
PATIENCE_SECONDS = 60.0

Found = TypeVar("Found", bound=ev.Event)


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Tell a story to its end, or fail where it does not go on."""

    async def told() -> None:
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            await story()

    asyncio.run(told())


def worker(graceful: float = 1.0, memory: int | None = None, **wishes: Any) -> WorkerSpecification:
    """A worker's specification that tells the fakes how to behave."""
    return WorkerSpecification(
        entrypoint="fake.py:Fake",
        hyperparameters=wishes,
        graceful_stop_seconds=graceful,
        memory_bytes_max=memory,
    )


class Node:
    """An agent, its executor, and all that was said.

    Attributes:
        backend: The agent.
        log: What was asked and what was reported and taken in.
        reports: Everything reported, taken in or not.
    """

    def __init__(
        self,
        home: Path,
        *,
        servers: Mapping[str, int] | None = None,
        limits: Limits = QUICK,
        log: HandMadeLog | None = None,
        profiles: ProfileSettings | None = None,
        commands: Commands = FAKE,
    ) -> None:
        self.home = home
        servers = servers or {"s1": 4}
        self.executor = ExecutorDecider()
        if log is None:
            log = a_cell(0).given(*(server_added(name, n) for name, n in servers.items()))
        self.log = log
        self.reports: list[ev.Event] = []
        self.samples: list[StepSample] = []
        self.backend = LocalBackend(
            servers,
            home,
            code=home.parent,
            limits=limits,
            profiles=profiles or ProfileSettings(0.1, 0.3, wait_seconds=1.0),
            commands=commands,
        )

    async def __aenter__(self) -> Self:
        before = folded(self.log, self.executor).cell.servers["s1"].incarnation
        await self.lead()
        await self.until(ev.NodeJoined, where=lambda e: e.incarnation > before)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.close(stop_workers=False)

    async def lead(self) -> None:
        """The executor begins to lead, for the first time or again."""
        state = folded(self.log, self.executor)
        await self.backend.take_over(state, time.time())
        self.backend.carry_out(state, instructions(state), time.time())

    def given(self, *events: ev.Event) -> None:
        """Something else happens in the cell; the agent hears of it."""
        self.log.at(time.time()).given(*events)
        self.carry_out()

    def carry_out(self) -> None:
        state = folded(self.log, self.executor)
        self.backend.carry_out(state, instructions(state), time.time())

    def submit(
        self, job_id: str = "a", spec: WorkerSpecification | None = None, **of_job: Any
    ) -> None:
        """Submit a job and let it in."""
        of_job = {"iterations": 10**9, **of_job}
        self.given(submitted(job_id, worker=spec or worker(), **of_job), admitted(job_id))

    def place(self, job_id: str, generation: int, *indexes: int) -> None:
        gpus = {"s1": indexes}
        self.given(placed(job_id, generation, gpus) if indexes else suspended(job_id, generation))

    async def until(
        self, kind: type[Found], job_id: str = "a", where: Callable[[Found], bool] = lambda _: True
    ) -> Found:
        """Take reports in until the log has one of this kind; return the first such."""
        seen = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                facts = [event for entry in self.log.entries for event in entry.record.events]
                for fact in facts[seen:]:
                    about = getattr(fact, "job_id", job_id)
                    if isinstance(fact, kind) and about == job_id and where(fact):
                        return fact
                seen = len(facts)
                await self.take_in()

    async def take_in(self) -> None:
        """Take the next reports in, as the executor does."""
        for report in await self.backend.reports():
            if isinstance(report, StepSample):
                self.samples.append(report)
                continue
            self.reports.append(report)
            facts = self.executor.accept(folded(self.log, self.executor), report)
            if facts:
                self.log.at(time.time()).add(*facts)
                self.carry_out()

    async def when(self, condition: Callable[[], bool]) -> None:
        """Take reports in until something is so."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await self.during(0.05)

    async def during(self, seconds: float) -> None:
        """Take in what is reported in this time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self.take_in()
            except TimeoutError:
                return

    def held(self, job_id: str = "a") -> dict[str, tuple[int, ...]]:
        job = folded(self.log, self.executor).cell.jobs.get(job_id)
        return {} if job is None else dict(job.held)

    def folder(self, job_id: str = "a") -> Path:
        return JobDirectory.of_job(self.home, job_id).path

    def started(self, job_id: str = "a") -> list[int]:
        """The processes that a job's workers have noted."""
        return [int(path.name) for path in (self.folder(job_id) / "started").iterdir()]

    def alive(self, job_id: str = "a") -> list[int]:
        return [pid for pid in self.started(job_id) if lives(pid)]

    def assert_sound(self) -> None:
        assert [str(found) for found in violations(self.log)] == []


def lives(pid: int) -> bool:
    """Say whether a process is there and more than a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z" and started_at(pid) is not None


def environment_of(pid: int) -> dict[str, str]:
    content = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(item.partition("=")[::2] for item in content.split("\0") if item)


def leader_pid(folder: Path) -> int:
    """The leader that a job has now."""

    return int(json.loads((folder / "leader.json").read_text())["pid"])


def signal_process(pid: int, number: int) -> None:
    os.kill(pid, number)
