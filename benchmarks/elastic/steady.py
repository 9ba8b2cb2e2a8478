"""What training costs when nothing changes, beside PyTorch's own data parallelism.

Two workers train two equal models by turns: one through the whole worker runtime (leader,
reports, data, the table in the last bucket), one with plain ``DistributedDataParallel`` over
gloo, in the same processes. A unit is a block of steps of each, in random order, and one more
block of plain DDP: what two blocks of the very same thing differ by is the noise, and their mean
is what the runtime is held against. Blocks are short, for what else the machine does changes
within seconds.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.elastic.rows import Options, Result, Row
from benchmarks.elastic.runs import Run

__all__ = ["alternate", "measure_steady"]

WORKERS = 2
TARGET = 0.01


@dataclass(frozen=True, slots=True)
class _Work:
    """A model with a batch, so many units of blocks of so many steps."""

    name: str
    model: str
    batch: int
    units: int
    steps: int


WORKS = (
    _Work("cnn, batch 512", "cnn", 512, units=90, steps=2),
    _Work("22M, batch 64", "mlp", 64, units=60, steps=1),
)
TINY = (_Work("cnn, batch 32", "cnn", 32, units=3, steps=2),)


async def measure_steady(options: Options, folder: Path) -> Result:
    """Measure row 7."""
    said, medians, values = [], [], {}
    for work in TINY if options.tiny else WORKS:
        home = folder / work.model
        home.mkdir()
        hyperparameters = {
            "model": work.model,
            "home": str(home),
            "units": work.units,
            "steps": work.steps,
        }
        async with Run(
            "steady:alternate", home, global_batch=work.batch, hyperparameters=hyperparameters
        ) as run:
            await run.resize(WORKERS)
            await run.until((home / "result-0.json").exists)
            await run.end()
        units: dict[str, list[float]] = json.loads((home / "result-0.json").read_text())
        both = list(zip(units["plain"], units["again"], strict=True))
        noise = [again / plain - 1 for plain, again in both]
        over = [
            elastic / statistics.fmean(pair) - 1
            for elastic, pair in zip(units["elastic"], both, strict=True)
        ]
        pace = statistics.median(units["plain"]) / work.steps
        said.append(
            f"{work.name} ({pace * 1e3:.0f} ms a step) {_interval(over)};"
            f" DDP against itself {_interval(noise)}"
        )
        medians.append(statistics.median(over))
        values[work.name] = units | {"steps": work.steps}
    row = Row(
        7,
        "steady overhead against plain DDP, 2 workers",
        "<= 1 % at >= 20 ms steps",
        "; ".join(said),
        max(medians) <= TARGET,
        "the whole runtime beside plain DDP over gloo in the same processes, blocks in"
        " random order, against the mean of two blocks of DDP; median of the units (95 %"
        " confidence interval of the median); judged by the median, so an interval wider than"
        " the target says that this machine cannot tell",
        values,
    )
    return Result([row])


def _interval(ratios: list[float]) -> str:
    """Write the median with its confidence interval, from order statistics."""
    ordered = sorted(ratios)
    half = 0.98 * len(ordered) ** 0.5  # 1.96 standard deviations of a binomial of one half
    place = max(1, math.floor(len(ordered) / 2 - half))
    low, high = ordered[place - 1], ordered[-place]
    return f"{statistics.median(ratios):+.1%} ({low:+.1%} to {high:+.1%})"


# --- in the workers ------------------------------------------------------------------------


def alternate() -> None:
    """Be a worker's training script: both trainings by turns, then wait to be stopped."""
    import torch
    from torch import distributed
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.elastic import jobs
    from resilin.elastic import context
    from resilin.elastic.partitions import share_of

    ctx = context()
    home = Path(ctx.hp.home)
    make = {"cnn": jobs.cnn, "mlp": jobs.mlp}[ctx.hp.model]
    shape = {"cnn": (3, 16, 16), "mlp": (jobs.MLP_INPUTS,)}[ctx.hp.model]
    inputs, labels = jobs.labelled(2048, *shape)

    def sgd(net: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    net = make()
    ctx.prepare(net, sgd(net))
    batches = ctx.shards((inputs, labels))

    def elastic_step() -> None:
        images, wanted = next(batches)
        ctx.backward(cross_entropy(net(images), wanted), len(wanted))
        ctx.end_minibatch()

    for _ in range(3):  # the first warms up alone, the second is the first together
        elastic_step()
    store = distributed.FileStore(str(home / "store"), WORKERS)
    rank = store.add("rank", 1) - 1
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORKERS, timeout=timedelta(minutes=5)
    )
    plain = DistributedDataParallel(make())
    optimizer = sgd(plain)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    at = 0

    def plain_step() -> None:
        nonlocal at
        first, last = share_of(ctx.hp.bs, rank, WORKERS)
        at = at + ctx.hp.bs if at + 2 * ctx.hp.bs <= len(order) else 0
        picked = order[at + first : at + last]
        optimizer.zero_grad()
        loss = cross_entropy(plain(inputs[picked]), labels[picked])
        loss.backward()  # type: ignore[no-untyped-call]  # (PyTorch's own)
        optimizer.step()
        loss.item()

    ways: dict[str, Callable[[], Any]] = {
        "elastic": elastic_step,
        "plain": plain_step,
        "again": plain_step,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    chance = random.Random(0)  # noqa: S311 (an order, the same on every rank)
    for unit in range(-1, ctx.hp.units):
        for name in chance.sample(sorted(ways), len(ways)):
            distributed.barrier()
            began = time.monotonic()
            for _ in range(ctx.hp.steps):
                ways[name]()
            if unit >= 0:
                times[name].append(time.monotonic() - began)
    written = home / f"written-{rank}.json"
    written.write_text(json.dumps(times))
    written.rename(home / f"result-{rank}.json")
    while True:
        elastic_step()
