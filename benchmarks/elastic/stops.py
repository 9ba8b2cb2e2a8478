"""How long training stands still: live changes beside stop-resume, the standby worker.

One job, changed both ways again and again: 1 -> 2 -> 3 -> 2 workers live, then stopped and
started anew with 3, with 2 and with 2 again. Stop-resume writes a checkpoint, lets every worker
leave, starts all workers of the new size, which load it, and trains on.

The stop is the papers': from the end of the last step before to the start of the first step
after, of the worker that stood still longest.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.elastic.rows import Options, Result, Row, in_units
from benchmarks.elastic.runs import Line, Run, Stop, by_worker, stops_between
from benchmarks.harness import spread_of

__all__ = ["measure_large", "measure_small", "measure_standby"]

MILLI = 1e3


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of the workers, and when."""

    kind: str
    way: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    since: float
    until: float


@dataclass(slots=True)
class _Figures:
    """What one workload showed, by the way from size to size."""

    live: dict[str, list[list[Stop]]] = field(default_factory=dict)
    restart: dict[str, list[float]] = field(default_factory=dict)
    step_seconds: dict[int, list[float]] = field(default_factory=dict)
    lost: int = 0
    scale_ins: int = 0

    def ratios(self, way: str) -> list[float]:
        """Return each live stop over the median of stop-resume."""
        whole = statistics.median(self.restart[way])
        return [_longest(stops) / whole for stops in self.live[way]]


def _longest(stops: list[Stop]) -> float:
    return max(stop.seconds for stop in stops)


async def _changes(run: Run, repetitions: int, settle: int) -> list[_Change]:
    done: list[_Change] = []

    async def change(kind: str, workers: int, **how: Any) -> None:  # noqa: ANN401 (a resize's)
        old, since = run.wanted, time.monotonic()
        if kind == "live":
            await run.grown_to(workers, **how)
        else:
            await run.restarted_with(workers)
        await run.more_steps(settle)
        way = f"{len(old)}->{workers}"
        done.append(_Change(kind, way, old, run.wanted, since, time.monotonic()))
        await run.more_steps(settle)

    await run.grown_to(1)
    await run.more_steps(settle)
    for repetition in range(repetitions):
        if repetition:
            await change("live", 1)
            await change("restart", 2)
            await change("live", 1, remove=run.wanted[:1])
        await change("live", 2)
        await change("live", 3)
        await change("live", 2, remove=run.wanted[:1])
        await change("restart", 3)
        await change("restart", 2)
    await change("live", 1)
    await change("restart", 2)
    await run.end()
    return done


def _figures(run: Run, changes: list[_Change]) -> _Figures:
    steps = by_worker(run.lines())
    figures = _Figures()
    for change in changes:
        stayed = [worker for worker in change.old if worker in change.new]
        if change.kind == "live":
            stops = stops_between(run, steps, stayed, change.since, change.until)
            figures.live.setdefault(change.way, []).append(stops)
            if len(change.new) < len(change.old):
                figures.scale_ins += 1
        else:
            last = max(steps[worker][-1].end for worker in change.old)
            first = max(steps[worker][0].start for worker in change.new)
            figures.restart.setdefault(change.way, []).append(first - last)
    done = sorted({line.step for lines in steps.values() for line in lines})
    figures.lost = done[-1] - len(done)
    _step_times(figures, steps)
    return figures


def _step_times(figures: _Figures, steps: dict[str, list[Line]]) -> None:
    sizes: dict[int, set[str]] = {}
    for worker, lines in steps.items():
        for line in lines:
            sizes.setdefault(line.plan, set()).add(worker)
    for lines in steps.values():
        for line in lines:
            size = len(sizes[line.plan])
            figures.step_seconds.setdefault(size, []).append(line.end - line.start)


async def _measure(
    job: str,
    options: Options,
    folder: Path,
    settle: int,
    **fields: Any,  # noqa: ANN401 (a program's)
) -> _Figures:
    async with Run(job, folder, **fields) as run:
        changes = await _changes(run, options.repetitions, settle)
    return _figures(run, changes)


def _stop_row(number: int, what: str, target: float, figures: _Figures) -> Row:
    shares = {way: figures.ratios(way) for way in ("1->2", "2->3")}
    said, values = [], {}
    for way, ratios in shares.items():
        stops = [_longest(stops) for stops in figures.live[way]]
        said.append(
            f"{way} {in_units(ratios, 100, '%')}: {in_units(stops, MILLI, 'ms')}"
            f" of {in_units(figures.restart[way], 1, 's')}"
        )
        values[way] = {"live_seconds": stops, "stop_resume_seconds": figures.restart[way]}
    steps = {size: statistics.median(times) for size, times in figures.step_seconds.items()}
    paces = ", ".join(f"{seconds * MILLI:.0f} ms with {size}" for size, seconds in steps.items())
    return Row(
        number,
        what,
        f"<= {target:g} %",
        "; ".join(said),
        all(statistics.median(ratios) * 100 <= target for ratios in shares.values()),
        "live stops over the median of stop-resume (checkpoint, leave, start, load) of the same"
        f" way in the same run; a step takes {paces}",
        values,
    )


def _rest_row(workloads: dict[str, _Figures]) -> Row:
    said, medians, values = [], [], {}
    for name, figures in workloads.items():
        for way in ("1->2", "2->3"):
            rests = [
                max(stop.seconds - stop.broadcast_seconds for stop in stops)
                for stops in figures.live[way]
            ]
            said.append(f"{name} {way} {in_units(rests, MILLI, 'ms')}")
            medians.append(statistics.median(rests))
            values[f"{name} {way}"] = rests
    return Row(
        3,
        "stop time without the state's broadcast",
        "<= 2 ms",
        "; ".join(said),
        max(medians) <= 0.002,
        "of the changes of rows 1 and 2: the stop less what a stopwatch around the hand-over of"
        " the state shows, worker by worker",
        values,
    )


def _in_row(workloads: dict[str, _Figures]) -> Row:
    said, medians, values, lost = [], [], {}, 0
    for name, figures in workloads.items():
        ratios = figures.ratios("3->2")
        stops = [_longest(stops) for stops in figures.live["3->2"]]
        said.append(
            f"{name} {in_units(ratios, 100, '%')}: {in_units(stops, MILLI, 'ms')} of"
            f" {in_units(figures.restart['3->2'], 1, 's')}"
        )
        medians.append(statistics.median(ratios))
        values[name] = {"live_seconds": stops, "stop_resume_seconds": figures.restart["3->2"]}
        lost += figures.lost
    return Row(
        5,
        "graceful scale-in 3->2 (rank 0 leaves) / stop-resume; steps lost",
        "<= 0.1 %, 0 lost",
        f"{'; '.join(said)}; {lost} steps lost",
        max(medians) <= 0.001 and lost == 0,
        "in the runs of rows 1 and 2; a step is lost if no worker has recorded it, in the whole"
        " run, stop-resumes included",
        values,
    )


_kept: dict[str, _Figures] = {}
"""Of the small workload: rows 3 and 5 are of both."""


async def measure_small(options: Options, folder: Path) -> Result:
    """Measure row 1, and rows 3 and 5 of the small network alone: the large one follows."""
    figures = _kept["small"] = await _measure("SmallCnn", options, folder, options.count(15, 3))
    row = _stop_row(1, "stop time / stop-resume, scale-out, 0.16M parameters", 0.5, figures)
    return Result([row, _rest_row({"small": figures}), _in_row({"small": figures})])


async def measure_large(options: Options, folder: Path) -> Result:
    """Measure row 2, and rows 3 and 5 of both networks, if the small one was measured."""
    fields: dict[str, Any] = {"hyperparameters": {"width": 32}} if options.tiny else {}
    figures = await _measure("LargeMlp", options, folder, options.count(4, 3), **fields)
    row = _stop_row(2, "stop time / stop-resume, scale-out, 22M with momentum", 5.0, figures)
    both = _kept | {"22M": figures}
    return Result([row, _rest_row(both), _in_row(both)])


# --- a standby worker ----------------------------------------------------------------------


async def measure_standby(options: Options, folder: Path) -> Result:
    """Measure row 6: from the request to the first step with a worker that was warm before."""
    waits, allowed, paces = [], [], []
    async with Run("SmallCnn", folder) as run:
        await run.grown_to(1)
        asked = []
        for _ in range(max(options.repetitions, options.count(8))):
            first = run.wanted[0]
            (extra,) = await run.standby()
            await run.more_steps(options.count(30, 3))
            asked.append((extra, run.step_of(first), time.monotonic()))
            await run.grown_to([first, extra])
            await run.more_steps(options.count(30, 3))
            await run.grown_to([first])
            await run.exit_code(extra)
        await run.end()
        steps = by_worker(run.lines())
    for extra, at, moment in asked:
        began = steps[extra][0].start
        pace = statistics.median(
            line.end - line.start for line in steps[first] if at - 20 < line.step <= at
        )
        waits.append(began - moment)
        paces.append(pace)
        allowed.append(3 * pace + 0.05)
    met = statistics.median(waits) <= statistics.median(allowed)
    row = Row(
        6,
        "request -> switch with a standby worker, 1->2, 0.16M parameters",
        "<= 3 steps + 50 ms",
        f"{in_units(waits, MILLI, 'ms')}; allowed {spread_of(allowed).median * MILLI:.0f} ms",
        met,
        "from before the request is sent to the start of the new worker's first step, which"
        f" {sum(w <= a for w, a in zip(waits, allowed, strict=True))} of {len(waits)} times came"
        f" in time; a step took {in_units(paces, MILLI, 'ms')} before",
        {"wait_seconds": waits, "allowed_seconds": allowed},
    )
    return Result([row])
