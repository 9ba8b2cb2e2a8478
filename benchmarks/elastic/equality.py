"""Elastic training is the same training: against one device, in float64."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from benchmarks.elastic.jobs import REGRESSION_SAMPLES, Regression, regression, regression_data
from benchmarks.elastic.jobs import regression_loss as loss_of
from benchmarks.elastic.rows import Options, Result, Row
from benchmarks.elastic.runs import Run
from benchmarks.harness import BenchmarkError
from resilin.elastic.program import checkpoints_path

__all__ = ["measure_equality"]

BATCH = 50  # nine whole minibatches an epoch and a short one; neither 3 nor 4 divides it
STEPS = 300
SIZES = (1, 3, 2, 4, 1, 3)
TARGET = 1e-10


async def measure_equality(options: Options, folder: Path) -> Result:
    """Measure row 9."""
    said, worst, values = [], 0.0, {}
    sizes = SIZES[: options.count(len(SIZES), 2)]
    for name, micro_batch in (("whole batches", None), ("7 samples at a time", 7)):
        home = folder / str(micro_batch)
        steps, trained = await _train(home, sizes, options.count(STEPS, 20), micro_batch)
        losses, model = _reference(len(steps))
        by_loss = max(
            abs(loss - wanted) / abs(wanted) for loss, wanted in zip(steps, losses, strict=True)
        )
        by_model = max(
            float(((trained[key] - tensor).abs() / tensor.abs()).max())
            for key, tensor in model.items()
        )
        said.append(f"{name}: losses {by_loss:.1e}, parameters {by_model:.1e}, {len(steps)} steps")
        worst = max(worst, by_loss, by_model)
        values[name] = {"loss": by_loss, "parameters": by_model, "steps": len(steps)}
    row = Row(
        9,
        "elastic against one device, float64: the largest relative difference",
        "<= 1e-10",
        "; ".join(said),
        worst <= TARGET,
        f"{'-'.join(map(str, sizes))} workers, rank 0 leaving at times, momentum and a schedule"
        " of the rate; every loss and every parameter, against a plain loop in this process",
        values,
    )
    return Result([row])


async def _train(
    folder: Path, sizes: tuple[int, ...], steps: int, micro_batch: int | None
) -> tuple[list[float], dict[str, Any]]:
    """Train elastically; return the loss of every step, and the model."""
    import torch

    fields = {
        "global_batch": BATCH,
        "micro_batch_max": micro_batch,
        "hyperparameters": {"pause": 0.004},
    }
    async with Run("Regression", folder, **fields) as run:
        # Those that join are warm beforehand, or 300 steps would be over before they are.
        joins = sum(max(0, after - before) for before, after in itertools.pairwise((0, *sizes)))
        spare = await run.standby(joins)
        for size in sizes:
            stay = list(run.wanted[1:] if size < len(run.wanted) else run.wanted)[:size]
            stay += [spare.pop(0) for _ in range(size - len(stay))]
            await run.grown_to(stay)
            await run.more_steps(steps // len(sizes) + 1)
        names = run.wanted
        run.stop()
        for name in names:
            await run.exit_code(name, 300)
        losses: dict[int, float] = {}
        for line in run.lines():
            if losses.setdefault(line.step, line.loss) != line.loss:
                raise BenchmarkError(f"two workers have two losses of step {line.step}")
    if sorted(losses) != list(range(1, len(losses) + 1)):
        raise BenchmarkError("a step is missing from the records of row 9")
    (saved,) = sorted(checkpoints_path(folder / "job").glob("*.pt"))[-1:]
    state: dict[str, Any] = torch.load(saved, weights_only=True)
    if state["progress"]["position"]["step"] != len(losses):
        raise BenchmarkError("the checkpoint at the end is not of the last step")
    return [losses[step] for step in sorted(losses)], state["model"]


def _reference(steps: int) -> tuple[list[float], dict[str, Any]]:
    """Train on one device in a plain loop, on the same minibatches."""
    import torch

    net, job = regression(), Regression()
    optimizer = job.init_optimizer(net)
    schedule = job.init_schedule(optimizer)
    inputs, targets = regression_data()
    losses: list[float] = []
    epoch = 0
    while len(losses) < steps:
        order = torch.randperm(REGRESSION_SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for picked in order.split(BATCH)[: steps - len(losses)]:
            optimizer.zero_grad()
            loss = loss_of((inputs[picked], targets[picked]), net)
            loss.backward()  # type: ignore[no-untyped-call]  # (PyTorch's own)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        epoch += 1
    return losses, net.state_dict()
