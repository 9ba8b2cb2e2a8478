"""Workers that come for some seconds and go again (Amoeba §6.2, figure 8), for real.

A job has one worker for good and another now and then. Four ways to use the other:

    baseline     not at all
    stop-resume  stop, start with two; stop, start with one
    live         the runtime's: train on until the other is warm
    ideal        every second at the measured steady speed of as many workers as there were

The ways take turns, cycle by cycle, so that they share whatever else the machine does.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.elastic.rows import Options, Result
from benchmarks.elastic.runs import Line, Run
from benchmarks.harness import Table, spread_of

__all__ = ["measure_transient"]

HELD_SECONDS = 12.0
AWAY_SECONDS = 4.0
CYCLES = 4
GUARD_SECONDS = 0.3
"""After a switch, before the speed counts as steady."""
TARGET = 0.97
BATCH = 256


@dataclass(slots=True)
class _Cycle:
    """One time of having another worker: offered and revoked, begun and ended."""

    began: float
    offered: float
    revoked: float
    ended: float
    held: list[tuple[int, float, float]] = field(default_factory=list)
    """Of the live way: so many workers trained from, until."""


async def measure_transient(options: Options, folder: Path) -> Result:
    """Measure the four ways."""
    held = HELD_SECONDS if not options.tiny else 1.0
    away = AWAY_SECONDS if not options.tiny else 0.5
    cycles: dict[str, list[_Cycle]] = {"baseline": [], "stop-resume": [], "live": []}
    async with Run("SmallCnn", folder, global_batch=BATCH) as run:
        await run.grown_to(1)
        await run.more_steps(20)
        for _ in range(options.count(CYCLES)):
            cycles["live"].append(await _live(run, held, away))
            cycles["stop-resume"].append(await _stop_resume(run, held, away))
            cycles["baseline"].append(await _baseline(away))
        await run.end()
        lines = sorted(run.lines(), key=lambda line: line.end)
    steps = _first_of_each(lines)
    sizes = _sizes(lines)
    return Result(tables=[_table(cycles, steps, sizes)])


async def _live(run: Run, held: float, away: float) -> _Cycle:
    began = time.monotonic()
    await asyncio.sleep(away / 2)
    offered = time.monotonic()
    await run.resize(2)
    await asyncio.sleep(held)
    revoked = time.monotonic()
    await run.grown_to(1)
    await asyncio.sleep(max(0.0, revoked + away / 2 - time.monotonic()))
    return _Cycle(began, offered, revoked, time.monotonic())


async def _stop_resume(run: Run, held: float, away: float) -> _Cycle:
    began = time.monotonic()
    await asyncio.sleep(away / 2)
    offered = time.monotonic()
    await run.restarted_with(2)
    await asyncio.sleep(max(0.0, offered + held - time.monotonic()))
    revoked = time.monotonic()
    await run.restarted_with(1)
    await asyncio.sleep(max(0.0, revoked + away / 2 - time.monotonic()))
    return _Cycle(began, offered, revoked, time.monotonic())


async def _baseline(seconds: float) -> _Cycle:
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return _Cycle(began, began, began, time.monotonic())


def _first_of_each(lines: Sequence[Line]) -> list[Line]:
    """Return each step once, in order of time."""
    seen: dict[int, Line] = {}
    for line in lines:
        seen.setdefault(line.step, line)
    return list(seen.values())


def _sizes(lines: Sequence[Line]) -> dict[int, int]:
    """Return how many workers each plan had."""
    members: dict[int, set[str]] = {}
    for line in lines:
        members.setdefault(line.plan, set()).add(line.worker)
    return {plan: len(workers) for plan, workers in members.items()}


def _rate(steps: Sequence[Line], since: float, until: float) -> float:
    """Return samples a second of the steps that ended in some time."""
    return BATCH * sum(since < line.end <= until for line in steps) / (until - since)


def _held(
    steps: Sequence[Line], sizes: dict[int, int], cycle: _Cycle
) -> list[tuple[int, float, float]]:
    """Return with how many workers the cycle trained, from when until when."""
    inside = [line for line in steps if cycle.began < line.end <= cycle.ended]
    pieces = []
    since = cycle.began
    for size, group in itertools.groupby(inside, key=lambda line: sizes[line.plan]):
        until = list(group)[-1].end
        pieces.append((size, since, until))
        since = until
    last = pieces[-1]
    pieces[-1] = (last[0], last[1], cycle.ended)
    return pieces


def _steady(steps: Sequence[Line], cycles: Sequence[_Cycle]) -> dict[int, float]:
    """Return samples a second while nothing was being changed, by size."""
    quiet: dict[int, list[tuple[float, float]]] = {}
    whole: dict[int, list[tuple[float, float]]] = {}
    for cycle in cycles:
        for size, since, until in cycle.held:
            # With one worker: before the offer, and after the other has gone. With two: until
            # the revocation. In between workers start, and the stops are.
            times = [(since + GUARD_SECONDS, min(until, cycle.revoked))]
            if size == 1:
                times = [
                    (since + GUARD_SECONDS, min(until, cycle.offered)),
                    (max(since, cycle.revoked) + GUARD_SECONDS, until),
                ]
            found = [(start, stop) for start, stop in times if stop > start]
            quiet.setdefault(size, []).extend(found)
            whole.setdefault(size, []).append((since, until))
    return {
        size: sum(_rate(steps, start, stop) * (stop - start) for start, stop in times)
        / sum(stop - start for start, stop in times)
        for size, times in ((size, quiet[size] or whole[size]) for size in whole)
    }


def _table(cycles: dict[str, list[_Cycle]], steps: Sequence[Line], sizes: dict[int, int]) -> Table:
    live = cycles["live"]
    for cycle in live:
        cycle.held = _held(steps, sizes, cycle)
    steady = _steady(steps, live)
    rates = {
        name: [_rate(steps, cycle.began, cycle.ended) for cycle in each]
        for name, each in cycles.items()
    }
    ideal, offered = [], []
    for cycle in live:
        whole = cycle.ended - cycle.began
        work = sum(steady[size] * (until - since) for size, since, until in cycle.held)
        ideal.append(work / whole)
        extra = cycle.revoked - cycle.offered
        both = steady.get(2, steady[1])  # the other may never have been there in time
        offered.append((both * extra + steady[1] * (whole - extra)) / whole)
    share = statistics.fmean(rates["live"]) / statistics.fmean(ideal)
    table = Table(
        "Another worker for some seconds at a time (Amoeba's figure 8): samples a second",
        ("way", "median (least-most) of the cycles", "mean", "mean / ideal"),
    )
    for name, values in [
        *rates.items(),
        ("ideal: the sizes that were held", ideal),
        ("ideal: the other from the moment it is offered", offered),
    ]:
        mean = statistics.fmean(values)
        table.rows.append((name, spread_of(values), mean, mean / statistics.fmean(ideal)))
    started = [
        next((since for size, since, _ in cycle.held if size > 1), cycle.revoked) - cycle.offered
        for cycle in live
    ]
    table.notes = [
        f"live / ideal {share:.1%}: at least 97 % is {'met' if share >= TARGET else 'NOT met'}",
        f"the small network, batches of {BATCH}: with the other for"
        f" {live[0].revoked - live[0].offered:.0f} s of every"
        f" {live[0].ended - live[0].began:.0f} s, {len(live)} cycles a way, taking turns",
        "steady, samples/s: "
        + ", ".join(f"{rate:,.0f} with {size}" for size, rate in sorted(steady.items()))
        + "; of the live cycles themselves, without the times in which a worker starts",
        f"from the offer until the other trains: {spread_of(started)} s",
    ]
    return table
