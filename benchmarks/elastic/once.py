"""Exactly once, in few minibatches: real epochs and simulated ones through an eventful time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.elastic.test_leader_exactly_once import play
from tests.elastic.world import World

from benchmarks.elastic.jobs import REGRESSION_SAMPLES
from benchmarks.elastic.rows import Options, Result, Row
from benchmarks.elastic.runs import Line, Run
from benchmarks.harness import BenchmarkError
from resilin.elastic.control import GenerationSwitched

__all__ = ["measure_once"]

BATCH = 50
SIMULATED_EPOCHS = 50
SEEDS = range(5_000, 5_024)
EVENTS = ("grow", "remove rank 0", "kill", "lose leader", "grow", "kill rank 0", "shrink")
WORKERS_MAX = 4


@dataclass(slots=True)
class _Epochs:
    """What the records of a run tell of its epochs.

    Attributes:
        whole: Epochs that used every sample once.
        unrecorded: Epochs with a step that a worker did not live to record.
        wrong: Epochs that used a sample twice, or missed one.
        quiet: Minibatches more than needed, in the worst epoch without a change.
        changed: The same, in the worst epoch with a change; beside how many workers it had.
    """

    whole: int = 0
    unrecorded: int = 0
    wrong: int = 0
    quiet: int = 0
    changed: tuple[int, int] = (0, 1)
    over: int = 0


async def measure_once(options: Options, folder: Path) -> Result:
    """Measure rows 8 and 10."""
    seeds = SEEDS[: options.count(len(SEEDS))]
    epochs = options.count(SIMULATED_EPOCHS, 5)
    excess: list[tuple[int, int]] = []
    simulated = 0
    for seed in seeds:
        try:
            simulated += play(seed, epochs).epochs_done
        except AssertionError as error:
            raise BenchmarkError(f"the simulated world of seed {seed}: {error}") from error
    for workers in range(1, 5):
        excess += _simulated_excess(workers, options.count(25, 2))
    events, epochs_real = await _eventful(options, folder)
    return Result([_once_row(simulated, events, epochs_real), _tail_row(excess, epochs_real)])


def _once_row(simulated: int, events: list[str], real: _Epochs) -> Row:
    kinds = ", ".join(f"{events.count(kind)} x {kind}" for kind in dict.fromkeys(events))
    return Row(
        8,
        "epochs that used every sample exactly once",
        "100 % of >= 1,000",
        f"{simulated:,} of {simulated:,} simulated, {real.whole:,} of"
        f" {real.whole + real.wrong:,} real",
        real.wrong == 0 and real.whole > 0,
        "simulated: the real leader, workers in one process that keep the real ones' rules;"
        " random joins, leaves, deaths (in the middle of a step, too) and leaders lost. Real:"
        f" processes, on-demand data, {kinds}; {real.unrecorded} more epochs cannot be told from"
        " the records, since a worker was killed before it wrote down its last step",
        {"simulated": simulated, "real": real.whole, "wrong": real.wrong},
    )


def _tail_row(excess: list[tuple[int, int]], real: _Epochs) -> Row:
    worst = max(more - workers for more, workers in excess)
    more, workers = real.changed
    return Row(
        10,
        "minibatches an epoch above ceil(N/B), on-demand data",
        "<= n (workers)",
        f"real: at most {real.quiet} without a change, {more} with one ({workers} workers);"
        f" simulated: at most {max(each for each, _ in excess)}",
        worst <= 0 and real.over == 0,
        f"the real epochs of row 8 ({REGRESSION_SAMPLES} samples in batches of {BATCH}), n being"
        f" the most workers in the epoch: {real.over} epochs were above; simulated: 1 to 4"
        " workers without changes",
        {"real_quiet": real.quiet, "real_changed": more, "simulated": excess},
    )


def _simulated_excess(workers: int, epochs: int) -> list[tuple[int, int]]:
    world = World(workers, samples=203, batch=12)
    world.resize(workers)
    world.run_until(lambda: world.epochs_done >= epochs, turns=1_000_000)
    return [(steps - -(-203 // 12), workers) for steps in world.epoch_steps]


# --- real processes ------------------------------------------------------------------------


async def _eventful(options: Options, folder: Path) -> tuple[list[str], _Epochs]:
    fields: dict[str, Any] = {
        "global_batch": BATCH,
        "data_mode": "on-demand",
        "record_samples": True,
        "leader_lease_seconds": 1.0,
        "hyperparameters": {"pause": 0.003},
    }
    events = list(EVENTS) * options.count(2) if not options.tiny else ["grow", "kill rank 0"]
    async with Run("Regression", folder, **fields) as run:
        await run.grown_to(2)
        for event in events:
            await run.more_steps(30)
            await _happen(run, event)
        await run.more_steps(30)
        await run.end()
        return events, _epochs(run)


async def _happen(run: Run, event: str) -> None:
    match event:
        case "grow":
            await run.grown_to(min(WORKERS_MAX, len(run.wanted) + 1))
        case "shrink":
            await run.grown_to(max(1, len(run.wanted) - 2))
        case "remove rank 0":
            await run.grown_to(len(run.wanted) - 1, remove=run.wanted[:1])
            await run.grown_to(len(run.wanted) + 1)
        case "kill" | "kill rank 0":
            dead = run.wanted[0 if event == "kill rank 0" else -1]
            run.kill(dead)
            await run.failed(dead)
            before = len(run.reports)
            await run.replace(dead)
            await run.wait_for(GenerationSwitched, since=before, timeout_seconds=300)
        case "lose leader":
            before = len(run.reports)
            run.kill_leader()
            await run.start_leader()
            await run.wait_for(GenerationSwitched, since=before, timeout_seconds=300)


def _epochs(run: Run) -> _Epochs:
    """Put the recorded steps together to epochs."""
    lines = list(run.lines())
    members: dict[int, set[str]] = {}
    plans: dict[int, int] = {}
    for line in lines:
        members.setdefault(line.plan, set()).add(line.worker)
        plans[line.step] = max(line.plan, plans.get(line.step, 0))
    steps: dict[int, list[Line]] = {step: [] for step in sorted(plans)}
    for line in lines:
        if line.plan == plans[line.step]:
            steps[line.step].append(line)
    found = _Epochs()
    used: list[int] = []
    count, in_plans, unsure = 0, set[int](), False
    for step, done in steps.items():
        samples = [index for line in done for index in line.samples]
        partial = len(done) < len(members[plans[step]])
        if len(used) + len(samples) > REGRESSION_SAMPLES or set(samples) & set(used):
            if unsure:  # the epoch has ended within what is not recorded
                found.unrecorded += 1
            else:
                found.wrong += 1
            used, count, in_plans, unsure = [], 0, set(), False
        used += samples
        count += 1
        in_plans.add(plans[step])
        unsure |= partial
        if len(used) == REGRESSION_SAMPLES:
            found.whole += 1
            workers = max(len(members[plan]) for plan in in_plans)
            more = count - -(-REGRESSION_SAMPLES // BATCH)
            found.over += more > workers
            if len(in_plans) == 1:
                found.quiet = max(found.quiet, more)
            else:
                found.changed = max(found.changed, (more, workers))
            used, count, in_plans, unsure = [], 0, set(), False
    if sorted(steps) != list(range(1, max(steps) + 1)):
        raise BenchmarkError("a step is missing from the records of row 8")
    return found
