"""A thousand changes in one process: does anything grow?"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.elastic.rows import Options, Result, Row, in_units
from benchmarks.elastic.runs import Run
from resilin.elastic.control import GenerationSwitched
from resilin.elastic.groups import GRAVES_MAX
from resilin.elastic.leader import Hold, Leader
from resilin.elastic.lease import Lease

__all__ = ["measure_switches"]

SWITCHES = 1_000
CHANGES_OF_WORKERS = 10
SAMPLE_EVERY = 25
BATCHES = (50, 52)
MEBIBYTE = 1 << 20
MEMORY_GROWTH_MEBIBYTES = 8.0
LAST_WORDS_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Sample:
    """What a process holds after so many switches."""

    switches: int
    descriptors: int
    threads: int
    memory: float
    keys: int


class _Watched(Run):
    """A run whose leader is in this process, where its keys can be counted."""

    ticking: asyncio.Task[None] | None = None
    leader: Leader

    async def start_leader(self) -> None:
        """Lead the job from here."""
        lease = Lease(self.directory, "benchmark", self.program.leader_lease_seconds)
        lease.acquire(time.time())
        hold = Hold(lease, self.program.leader_lease_seconds)
        self.leader = Leader(self.directory, self.program, hold)
        _, address = await self.leader.listen()
        address.save(self.directory)

        async def tick() -> None:
            while True:
                hold.check()
                self.leader.tick()
                await asyncio.sleep(0.1)

        self.ticking = asyncio.create_task(tick())

    def sample(self, switches: int, process: psutil.Process) -> _Sample:
        """Look at what the worker and the leader hold."""
        with process.oneshot():
            return _Sample(
                switches,
                process.num_fds(),
                process.num_threads(),
                process.memory_info().rss / MEBIBYTE,
                len(self.leader._store),  # noqa: SLF001 (what is watched)
            )


async def measure_switches(options: Options, folder: Path) -> Result:
    """Measure row 14."""
    count = options.count(SWITCHES, 30)
    every = count // options.count(CHANGES_OF_WORKERS)
    samples: list[_Sample] = []
    joins = 0
    fields = {"global_batch": BATCHES[0], "hyperparameters": {"pause": 0.001}}
    async with _Watched("Regression", folder, **fields) as run:
        await run.grown_to(2)
        first, second = run.wanted
        process = psutil.Process(run.workers[first].pid)
        began = time.monotonic()
        waited = 0.0
        for number in range(1, count + 1):
            if number % every == 0:  # another worker in the place of the second: two switches
                asked = time.monotonic()
                (fresh,) = await run.standby()
                waited += time.monotonic() - asked
                await run.grown_to([first])
                second = fresh
                joins += 1
            before = len(run.reports)
            generation = await run.resize([first, second], global_batch=BATCHES[number % 2])
            await run.wait_for(
                GenerationSwitched,
                lambda said, wanted=generation: said.generation == wanted,  # type: ignore[misc]  # (a default argument)
                since=before,
            )
            if number % SAMPLE_EVERY == 0 or options.tiny:
                samples.append(run.sample(number, process))
        seconds = time.monotonic() - began - waited
        await run.end()
        stopped = [
            said.stopped_seconds for said in run.reports if isinstance(said, GenerationSwitched)
        ]
    if run.ticking is not None:
        run.ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run.ticking
    await asyncio.sleep(LAST_WORDS_SECONDS)  # the leader's connections are closed by now
    return Result([_row(samples, count, joins, seconds, stopped)])


def _row(
    samples: list[_Sample], count: int, joins: int, seconds: float, stopped: list[float]
) -> Row:
    # The graveyard fills at first; from then on nothing may grow.
    kept = [sample for sample in samples if sample.switches > count // 5]
    third = max(1, len(kept) // 3)
    grown = {
        name: statistics.median(getattr(each, name) for each in kept[-third:])
        - statistics.median(getattr(each, name) for each in kept[:third])
        for name in ("descriptors", "threads", "memory", "keys")
    }
    most = {name: max(getattr(each, name) for each in samples) for name in grown}
    met = (
        grown["memory"] <= MEMORY_GROWTH_MEBIBYTES
        and max(grown["descriptors"], grown["threads"], grown["keys"]) <= GRAVES_MAX
    )
    return Row(
        14,
        f"{count + joins:,} switches in one process: growth between early and late ones",
        "none beyond the graveyard",
        f"descriptors {grown['descriptors']:+.0f} (most {most['descriptors']}), threads"
        f" {grown['threads']:+.0f} (most {most['threads']}), memory {grown['memory']:+.1f} MiB"
        f" (most {most['memory']:.0f}), the leader's keys {grown['keys']:+.0f} (most"
        f" {most['keys']})",
        met,
        f"{count - joins:,} of them build a new group for the same two workers (the global batch"
        f" changes), {2 * joins} let one leave and another join; medians of the last third less"
        f" those of the first after a fifth of the run; {seconds / count * 1e3:.0f} ms from one"
        f" request to the next, stops {in_units(stopped, 1e3, 'ms')}; up to {GRAVES_MAX} groups"
        " lie in the graveyard",
        {"grown": grown, "most": most},
    )
