"""Workers killed, workers stopped, leaders killed: how long until all step again."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.elastic.rows import Options, Result, Row, in_units
from benchmarks.elastic.runs import Line, Run, by_worker
from benchmarks.harness import percentile, spread_of
from resilin.elastic.control import GenerationSwitched
from resilin.elastic.program import LeaderAddress

__all__ = ["measure_kills", "measure_leader", "measure_silence"]

WORKERS = 3
LEASE_SECONDS = 2.0
LEADER_LEASE_SECONDS = 2.0
SETTLE_STEPS = 45


@dataclass(frozen=True, slots=True)
class _Loss:
    """A worker that was lost, when, and who was left."""

    rank: int
    at: float
    survivors: tuple[str, ...]
    until: float


async def _lose(run: Run, rank: int, number: signal.Signals) -> _Loss:
    """Lose a worker; when its survivors step again, put one in its place that is warm."""
    (spare,) = await run.standby()
    await run.more_steps(SETTLE_STEPS)
    lost = run.wanted[rank]
    survivors = tuple(name for name in run.wanted if name != lost)
    before = {name: _plan_of(run, name) for name in survivors}
    at = time.monotonic()
    run.kill(lost, number)
    await run.until(lambda: all(_plan_of(run, name) > before[name] for name in survivors))
    until = time.monotonic()
    with contextlib.suppress(ProcessLookupError):  # a forked child, or what was only stopped
        os.killpg(run.workers[lost].pid, signal.SIGKILL)
    await run.exit_code(lost)
    await run.grown_to([*survivors, spare])
    return _Loss(rank, at, survivors, until)


def _plan_of(run: Run, worker_id: str) -> int:
    return max((line.plan for line in run.tail(worker_id)), default=0)


def _recovery(loss: _Loss, steps: dict[str, list[Line]]) -> tuple[float, float]:
    """Return the seconds until every survivor's next step was done, and a step's before."""
    ends, paces = [], []
    for name in loss.survivors:
        old = [line for line in steps[name] if line.end < loss.at]
        paces += [line.end - line.start for line in old[-20:]]
        # A step that was under way when the worker was lost may still be whole.
        plan = old[-1].plan
        ends.append(next(line.end for line in steps[name] if line.plan > plan))
    return max(ends) - loss.at, statistics.median(paces)


async def _losses(
    job: str,
    folder: Path,
    ranks: list[int],
    number: signal.Signals,
    **fields: Any,  # noqa: ANN401 (a program's)
) -> tuple[list[float], list[float], int]:
    """Lose these ranks, one after the other; return recoveries, paces and steps lost."""
    async with Run(job, folder, **fields) as run:
        await run.grown_to(WORKERS)
        losses = [await _lose(run, rank, number) for rank in ranks]
        await run.more_steps(5)
        await run.end()
        steps = by_worker(run.lines())
    found = [_recovery(loss, steps) for loss in losses]
    done = {line.step for lines in steps.values() for line in lines}
    return [each[0] for each in found], [each[1] for each in found], max(done) - len(done)


async def measure_kills(options: Options, folder: Path) -> Result:
    """Measure row 11."""
    ranks = [number % WORKERS for number in range(options.count(WORKERS * 6, 2))]
    times, paces, lost = await _losses("SmallCnn", folder, ranks, signal.SIGKILL)
    p99, pace = percentile(times, 0.99), statistics.median(paces)
    allowed = 10 * pace + 0.1
    row = Row(
        11,
        "kill -9 of a worker -> all survivors stepping",
        "p99 <= 10 steps + 100 ms",
        f"p99 {p99 * 1e3:.0f} ms, {in_units(times, 1e3, 'ms')}; allowed {allowed * 1e3:.0f} ms;"
        f" {lost} steps lost",
        p99 <= allowed and lost == 0,
        f"{len(ranks)} kills, each rank in turn, 3 workers of the small network, {pace * 1e3:.0f}"
        " ms a step, no time limit of a collective near; from the signal to the end of the"
        " slowest survivor's next step; of so few the p99 is the worst",
        {"seconds": times, "ranks": ranks, "step_seconds": paces},
    )
    return Result([row])


async def measure_silence(options: Options, folder: Path) -> Result:
    """Measure row 12."""
    ranks = [number % WORKERS for number in range(options.repetitions)]
    said, medians, values = [], [], {}
    for name, job, number in (
        ("killed, its forked loader lives", "Loading", signal.SIGKILL),
        ("SIGSTOP", "SmallCnn", signal.SIGSTOP),
    ):
        home = folder / number.name
        home.mkdir()
        times, _, lost = await _losses(job, home, ranks, number, lease_seconds=LEASE_SECONDS)
        said.append(f"{name} {in_units(times, 1, 's')}, {lost} steps lost")
        medians.append(statistics.median(times))
        values[name] = times
    row = Row(
        12,
        "a worker whose sockets stay open is lost -> all survivors stepping",
        "<= lease + 200 ms",
        f"lease {LEASE_SECONDS:g} s: {'; '.join(said)}",
        max(medians) <= LEASE_SECONDS + 0.2,
        "as row 11; nothing closes, so only the lease tells; the leader looks ten times a second"
        " and a worker was last heard of up to 0.2 s before",
        values,
    )
    return Result([row])


# --- the leader ----------------------------------------------------------------------------


async def measure_leader(options: Options, folder: Path) -> Result:
    """Measure row 13."""
    elected, back = [], []
    fields = {
        "leader_lease_seconds": LEADER_LEASE_SECONDS,
        "hyperparameters": {"pause": 0.003},
        "global_batch": 50,
    }
    async with Run("Regression", folder, **fields) as run:
        await run.grown_to(2)
        for _ in range(options.repetitions):
            await run.start_leader()  # waits for the lease of the one before
            await run.until(lambda: _waits(run.leaders[-1].pid))
            await run.more_steps(30)
            term, before = _term(run), len(run.reports)
            at = time.monotonic()
            run.leaders[-2].kill()
            await run.until(lambda term=term: _term(run) > term)  # type: ignore[misc]  # (a default argument)
            elected.append(time.monotonic() - at)
            await run.wait_for(GenerationSwitched, since=before)
            back.append(time.monotonic() - at)
        await run.more_steps(10)
        await run.end()
        steps = by_worker(run.lines())
    done = {line.step for lines in steps.values() for line in lines}
    lost = max(done) - len(done)
    pauses = [
        after.start - line.end
        for lines in steps.values()
        for line, after in itertools.pairwise(lines)
    ]
    row = Row(
        13,
        "kill -9 of the leader -> another leads; steps lost",
        "<= lease + 1 s, 0 lost",
        f"lease {LEADER_LEASE_SECONDS:g} s: {in_units(elected, 1, 's')}; with every worker and"
        f" the agent back {in_units(back, 1, 's')}; {lost} steps lost",
        spread_of(elected).most <= LEADER_LEASE_SECONDS + 1.0 and lost == 0,
        "a second leader stands by; workers train on meanwhile: the longest pause between two"
        f" steps of the whole run was {max(pauses) * 1e3:.1f} ms",
        {"elected_seconds": elected, "back_seconds": back},
    )
    return Result([row])


def _waits(leader: int) -> bool:
    """Whether a leader's process has come as far as to wait for the lease: its loop runs."""
    with contextlib.suppress(FileNotFoundError):
        descriptors = Path(f"/proc/{leader}/fd").iterdir()
        return any(each.readlink().name == "anon_inode:[eventpoll]" for each in descriptors)
    return False


def _term(run: Run) -> int:
    address = LeaderAddress.load(run.directory)
    return 0 if address is None else address.term
