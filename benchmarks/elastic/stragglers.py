"""Stragglers: a slow worker is told soon, and nobody else ever."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.elastic.rows import Options, Result, Row
from benchmarks.elastic.runs import Run
from benchmarks.harness import spread_of
from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample, WorkerSample
from resilin.stability_detector.decider import StabilityDetectorDecider, StabilityState

__all__ = ["measure_stragglers"]

WORKERS = 2
SLOWER = 1.5
REPORTS_MAX = 15
PACE_SECONDS = 0.02
PACED_STEPS = 10
"""A report of the paced run: about a quarter of a second, as of the quick run."""
QUICK_PACE_SECONDS = 0.002
QUICK_STEPS = 50
QUIET_STEPS = 10_000

Report = dict[str, float]
"""Mean seconds of computation, by worker."""


async def measure_stragglers(options: Options, folder: Path) -> Result:
    """Measure row 15."""
    slow = await _reports(
        folder / "slow",
        options.repetitions * REPORTS_MAX * PACED_STEPS,
        PACED_STEPS,
        {"pause": PACE_SECONDS, "slow": str(folder / "claimed"), "slower": SLOWER},
    )
    ratio = statistics.median(max(each.values()) / min(each.values()) for each in slow)
    flagged = []
    for number in range(options.repetitions):
        some = slow[number * REPORTS_MAX : (number + 1) * REPORTS_MAX]
        alarms = list(_alarms(some))
        flagged.append(alarms[0][0] if alarms else REPORTS_MAX + 1)
    quiet_steps = options.count(QUIET_STEPS, 100)
    quick: dict[str, float | str] = {"pause": QUICK_PACE_SECONDS}
    quiet = await _reports(folder / "quiet", quiet_steps, QUICK_STEPS, quick)
    false = len(list(_alarms(quiet)))
    row = Row(
        15,
        f"straggler {SLOWER:g}x slower flagged; false alarms",
        f"<= {REPORTS_MAX} reports; 0 in {QUIET_STEPS:,} steps",
        f"after {spread_of(flagged)} reports; {false} false in {quiet_steps:,} steps",
        max(flagged) <= REPORTS_MAX and not false,
        f"real workers' computation times, {PACED_STEPS} steps a report ({QUICK_STEPS} for false"
        " alarms), about a quarter of a second (the leader's have a whole one), through the"
        " stability detector's core, begun anew each time; the slow one took"
        f" {ratio:.2f}x as long with everything around its pause; false alarms in {len(quiet)}"
        " reports of two equal workers",
        {"flagged_after": flagged, "measured_ratio": ratio, "false": false},
    )
    return Result([row])


async def _reports(
    folder: Path, steps: int, steps_a_report: int, hyperparameters: dict[str, float | str]
) -> list[Report]:
    """Train for so many steps; return the means of each few of them."""
    folder.mkdir()
    async with Run("Paced", folder, global_batch=50, hyperparameters=hyperparameters) as run:
        await run.grown_to(WORKERS)
        names = run.wanted
        await run.more_steps(steps)
        await run.end()
        times = {
            name: [line.compute_seconds for line in run.lines([name])][:steps] for name in names
        }
    found = []
    for first in range(0, steps, steps_a_report):
        last = first + steps_a_report
        found.append({name: statistics.fmean(each[first:last]) for name, each in times.items()})
    return found


def _alarms(reports: Iterable[Report]) -> Iterator[tuple[int, str]]:
    """Hand reports to the detector; yield after which it flags whom."""
    detector = StabilityDetectorDecider()
    state = StabilityState(generation={"job": 1})
    for number, report in zip(itertools.count(1), reports, strict=False):
        sample = StepSample(
            job_id="job",
            generation=1,
            workers=len(report),
            iterations_per_second=1 / max(report.values()),
            sequence=number,
            seconds=1.0,
            worker_samples=tuple(
                WorkerSample(
                    server_id="local",
                    gpu_index=index,
                    step_seconds=max(report.values()),
                    compute_seconds=seconds,
                )
                for index, seconds in enumerate(report.values())
            ),
        )
        for fact in detector.accept(state, sample):
            if isinstance(fact, ev.StragglerDetected):
                slot = f"{fact.server_id}/{fact.gpu_index}"
                state.stragglers.setdefault("job", []).append(slot)
                yield number, slot
