"""A job on this machine whose steps can be read while it runs, and what they tell."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.elastic.stopwatch import FOLDER_VARIABLE
from benchmarks.harness import ROOT, BenchmarkError
from resilin.elastic.local import LocalRun
from resilin.elastic.program import JobProgram

__all__ = ["Line", "Run", "Stop", "by_worker", "stops_between"]

WAIT_SECONDS = 300.0
TAIL_BYTES = 8192
POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Line:
    """A worker's record of one step; times are of the machine's monotonic clock."""

    worker: str
    step: int
    plan: int
    start: float
    end: float
    compute_seconds: float
    loss: float
    count: int
    samples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """How long one worker stood still at a change.

    Attributes:
        worker: The worker.
        began: The end of its last step before the change.
        ended: The start of its first step after.
        broadcast_seconds: Of that, handing the state over or taking it on.
    """

    worker: str
    began: float
    ended: float
    broadcast_seconds: float

    @property
    def seconds(self) -> float:
        """How long it stood still."""
        return self.ended - self.began


class Run(LocalRun):
    """A local run that records its steps and marks."""

    def __init__(self, job: str, folder: Path, **fields: Any) -> None:  # noqa: ANN401 (a program's)
        given: dict[str, Any] = {
            "job_id": "benchmark",
            "entrypoint": f"benchmarks.elastic.{job}" if ":" in job else f"{_JOBS}:{job}",
            "directory": str(ROOT),
            "global_batch": 64,
            "checkpoint_interval_seconds": 1e6,
            "record_steps": str(folder / "steps"),
        }
        self.folder = folder
        super().__init__(
            JobProgram(**(given | fields)),
            folder / "job",
            environment={FOLDER_VARIABLE: str(folder / "marks"), "GLOO_SOCKET_IFNAME": "lo"},
        )

    # --- while it runs ---------------------------------------------------------------------

    def tail(self, worker_id: str) -> list[Line]:
        """Return the newest steps that a worker has recorded."""
        try:
            with (self.folder / "steps" / f"{worker_id}.jsonl").open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
                file.seek(start)
                texts = file.read().split(b"\n")[1 if start else 0 : -1]
        except FileNotFoundError:
            return []
        return [_line(worker_id, json.loads(text)) for text in texts if text.endswith(b"}")]

    def step_of(self, worker_id: str) -> int:
        """Return the newest step that a worker has recorded; 0 before its first."""
        return max((line.step for line in self.tail(worker_id)), default=0)

    async def more_steps(self, count: int, workers: Sequence[str] | None = None) -> None:
        """Wait until each of these (or of those that are wanted) has done so many more steps."""
        names = self.wanted if workers is None else tuple(workers)
        goal = max(self.step_of(name) for name in names) + count
        await self.until(lambda: all(self.step_of(name) >= goal for name in names))

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something holds.

        Raises:
            BenchmarkError: If it does not within a few minutes.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while not reached():
            if time.monotonic() > deadline:
                logs = "".join(f"\n--- {name}\n{self.log(name)[-1500:]}" for name in self.workers)
                said = "\n".join(str(report) for report in self.reports[-8:])
                raise BenchmarkError(f"the run stands still:\n{said}{logs}")
            await asyncio.sleep(POLL_SECONDS)

    async def standby(self, count: int = 1) -> list[str]:
        """Start workers that nobody wants yet, and wait until they are warm."""
        names = [await self.start_worker() for _ in range(count)]
        for name in names:
            await self.until(lambda name=name: self._is_warm(name))  # type: ignore[misc]  # (a default argument)
        return names

    def _is_warm(self, worker_id: str) -> bool:
        return any(mark["mark"] == "warm" for mark in self._marks(worker_id))

    async def grown_to(self, workers: int | Sequence[str], **how: Any) -> None:  # noqa: ANN401 (a resize's)
        """Change the workers, live, and wait until they train."""
        await self.switched(await self.resize(workers, **how), WAIT_SECONDS)

    async def restarted_with(self, workers: int) -> None:
        """Change the workers by stopping all and starting anew: the other side."""
        old = self.wanted
        self.stop()
        for name in old:
            await self.exit_code(name, WAIT_SECONDS)
        await self.grown_to(workers)

    async def end(self) -> None:
        """Stop the job in good order."""
        names = self.wanted
        self.stop(keep_progress=False)
        for name in names:
            await self.exit_code(name, WAIT_SECONDS)

    # --- what it has recorded --------------------------------------------------------------

    def lines(self, workers: Iterable[str] | None = None) -> Iterator[Line]:
        """Yield every recorded step, or those of some workers."""
        names = list(self.workers) if workers is None else list(workers)
        for name in names:
            path = self.folder / "steps" / f"{name}.jsonl"
            for text in path.read_text().splitlines() if path.exists() else ():
                if text.endswith("}"):  # the last of a killed worker may be torn
                    yield _line(name, json.loads(text))

    def _marks(self, worker_id: str) -> list[dict[str, Any]]:
        path = self.folder / "marks" / f"{self.workers[worker_id].pid}.jsonl"
        if not path.exists():
            return []
        return [json.loads(text) for text in path.read_text().splitlines() if text.endswith("}")]

    def broadcast_seconds(self, worker_id: str, began: float, ended: float) -> float:
        """Return for how long a worker sent or received state in this time."""
        return sum(
            mark["end"] - mark["start"]
            for mark in self._marks(worker_id)
            if mark["mark"] == "broadcast" and began <= mark["start"] and mark["end"] <= ended
        )


_JOBS = "benchmarks.elastic.jobs"


def _line(worker: str, record: dict[str, Any]) -> Line:
    return Line(
        worker=worker,
        step=record["step"],
        plan=record["plan"],
        start=record["start"],
        end=record["end"],
        compute_seconds=record["compute_seconds"],
        loss=record["loss"],
        count=record["count"],
        samples=tuple(record.get("samples", ())),
    )


def by_worker(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Return each worker's steps, in order."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.worker, []).append(line)
    return found


def stops_between(
    run: Run, steps: dict[str, list[Line]], workers: Iterable[str], since: float, until: float
) -> list[Stop]:
    """Return the stop of each worker at the change of plan that fell into some time."""
    found = []
    for worker in workers:
        for before, after in itertools.pairwise(steps.get(worker, ())):
            if before.plan != after.plan and since <= after.start <= until:
                seconds = run.broadcast_seconds(worker, before.end, after.start)
                found.append(Stop(worker, before.end, after.start, seconds))
    if not found:
        raise BenchmarkError("no worker has recorded the change")
    return found
