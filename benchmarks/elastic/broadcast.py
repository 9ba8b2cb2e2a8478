"""What handing the state over costs beside a bare broadcast of as many bytes.

A few processes, one group: again and again the whole training state goes from the first to the
others as at a switch, and then, or before, one tensor of the same size in one broadcast.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.elastic.rows import Options, Result, Row, in_units
from benchmarks.harness import ROOT, Answer, BenchmarkError, answer_task

__all__ = ["measure", "measure_broadcast"]

WORKERS = (2, 3)
WARM_UP_ROUNDS = 2


async def measure_broadcast(options: Options, folder: Path) -> Result:
    """Measure row 4."""
    said, medians, values = [], [], {}
    size = 0
    for workers in WORKERS:
        task = {
            "workers": workers,
            "store": str(folder / f"store-{workers}"),
            "rounds": WARM_UP_ROUNDS + max(options.repetitions, options.count(15)),
            "width": options.count(4096, 32),
        }
        answers = await asyncio.gather(*(_answer(task | {"rank": rank}) for rank in range(workers)))
        size = answers[0]["bytes"]
        times: dict[str, list[float]] = {}
        for kind in ("state", "bare"):
            longest = [max(each) for each in zip(*(a[kind] for a in answers), strict=True)]
            times[kind] = longest[WARM_UP_ROUNDS:]
        ratios = [s / b for s, b in zip(times["state"], times["bare"], strict=True)]
        said.append(
            f"to {workers - 1}: {in_units(ratios, 1, 'x')}, {in_units(times['state'], 1e3, 'ms')}"
            f" of {in_units(times['bare'], 1e3, 'ms')}"
        )
        medians.append(statistics.median(ratios))
        values[f"{workers} workers"] = {"ratios": ratios, **times}
    row = Row(
        4,
        f"handing the state over / bare gloo broadcast of {size / 1e6:.0f} MB",
        "<= 1.3x",
        "; ".join(said),
        max(medians) <= 1.3,
        "in the same processes, one right after the other in random order, from a barrier until"
        " the last has it; the state is that of row 2",
        values,
    )
    return Result([row])


async def _answer(task: Answer) -> Answer:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.elastic.broadcast",
        json.dumps(task),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise BenchmarkError(f"a process of the broadcast failed: {task}")
    answer: Answer = json.loads(output)
    return answer


def measure(task: Answer) -> Answer:
    """Be one of the processes."""
    import torch
    from torch._C._distributed_c10d import FileStore, ProcessGroupGloo

    from benchmarks.elastic import jobs
    from resilin.elastic import messages as msg
    from resilin.elastic.groups import Group
    from resilin.elastic.sync import TrainingState

    torch.set_num_threads(1)
    rank, workers = task["rank"], task["workers"]
    net = jobs.mlp(task["width"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    net(torch.randn(4, jobs.MLP_INPUTS)).sum().backward()
    optimizer.step()
    state = TrainingState(net, optimizer, None)

    binding: Any = ProcessGroupGloo  # its stubs lack the options
    gloo = binding._Options()  # noqa: SLF001 (the binding's name for it)
    gloo._devices = [binding.create_device(hostname="127.0.0.1")]  # noqa: SLF001 (as above)
    store = FileStore(task["store"], workers)
    plan = msg.Plan(
        number=1,
        kind="restart",
        generation=1,
        members=tuple(f"w{each}" for each in range(workers)),
        global_batch=64,
    )
    group = Group(plan, rank, binding(store, rank, workers, gloo), (store,))
    tensors = [*net.state_dict().values()]
    tensors += [value["momentum_buffer"] for value in optimizer.state.values()]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    flat = torch.zeros(size // 4)

    def never() -> bool:
        return False

    def hand_over() -> None:
        if rank == 0:
            state.send(group, 0, never)
        else:
            length, work = state.await_description(group, 0)
            group.wait(work, never)
            state.receive(group, 0, length, never)

    ways = {"state": hand_over, "bare": lambda: group.wait(group.broadcast(flat, 0), never)}
    times: dict[str, list[float]] = {kind: [] for kind in ways}
    chance = random.Random(0)  # noqa: S311 (an order, the same on every rank)
    for _ in range(task["rounds"]):
        for kind in chance.sample(sorted(ways), 2):
            group.wait(group.all_reduce(torch.zeros(1)), never)
            began = time.monotonic()
            ways[kind]()
            times[kind].append(time.monotonic() - began)
    group.wait(group.all_reduce(torch.zeros(1)), never)
    return {"bytes": size, **times}


if __name__ == "__main__":
    answer_task(measure)
