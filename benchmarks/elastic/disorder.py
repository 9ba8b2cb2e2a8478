"""Plans late, repeated and out of order: in the simulated world, and between real processes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

from tests.elastic.test_leader_exactly_once import disturb
from tests.elastic.world import SimWorker, World

from benchmarks.elastic.rows import Options, Result, Row
from benchmarks.elastic.runs import Run
from benchmarks.harness import BenchmarkError
from resilin.elastic import messages as msg
from resilin.elastic.control import GenerationSwitched
from resilin.elastic.leader_state import Tell
from resilin.elastic.program import LeaderAddress

__all__ = ["measure_disorder"]

SEEDS = range(9_000, 9_012)
SIMULATED_EPOCHS = 25
REAL_CHANGES = 100
BATCHES = (50, 52, 48)
DELAY_SECONDS = 0.05
REPEAT_SECONDS = 0.5


class _Unruly(World):
    """A world whose network repeats plans, holds them back and swaps them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, samples=30 + seed % 50, batch=7 + seed % 9)
        self.echoes: list[tuple[SimWorker, msg.Plan]] = []
        self.misdelivered = 0

    def _act(self, actions: Any) -> None:  # noqa: ANN401 (as the world's)
        listed = list(actions)
        super()._act(listed)
        for action in listed:
            if isinstance(action, Tell) and isinstance(action.message, msg.Plan):
                worker = self.workers[action.worker_id]
                kind = self.chance.random()
                if kind < 0.5:
                    self.echoes.append((worker, action.message))
                if kind < 0.25 and worker.inbox:
                    self.chance.shuffle(worker.inbox)
                    self.misdelivered += 1

    def turn(self) -> None:
        """Let a plan of the past arrive once more, now and then."""
        if self.echoes and self.chance.random() < 0.1:
            worker, plan = self.chance.choice(self.echoes[-20:])
            if worker.alive:
                self._hear(worker, plan)
                self.misdelivered += 1
        super().turn()


def _simulate(seed: int, epochs: int) -> tuple[int, int]:
    """Return how many epochs passed, exactly once, and how many plans came as they should not."""
    world = _Unruly(seed)
    world.resize(1 + seed % 4)
    if not world.lives_through(disturb, often=0.01, epochs=epochs):
        raise BenchmarkError(f"seed {seed} stands still: {world.describe()}")
    return world.epochs_done, world.misdelivered


async def measure_disorder(options: Options, folder: Path) -> Result:
    """Measure row 16."""
    seeds = SEEDS[: options.count(len(SEEDS))]
    simulated = [_simulate(seed, options.count(SIMULATED_EPOCHS, 5)) for seed in seeds]
    changes = options.count(REAL_CHANGES, 5)
    disturbed, steps = await _real(folder, changes)
    epochs = sum(done for done, _ in simulated)
    plans = sum(count for _, count in simulated)
    row = Row(
        16,
        "plans late, repeated, out of order",
        "no deadlock, no sample twice",
        f"simulated: {epochs} epochs, each exactly once, under {plans:,} such plans; real:"
        f" {changes} changes of {changes}, {steps:,} steps without a gap, {disturbed:,} such"
        " messages",
        met=True,  # anything else is an error that ends the benchmark
        how="simulated: with deaths, joins and leaders lost at random besides; real: a proxy"
        f" between leader and workers holds plans back for up to {DELAY_SECONDS * 1e3:.0f} ms, so"
        " that they overtake one another, and sends them, and what workers report, again up to"
        f" {REPEAT_SECONDS:g} s later; changes follow one another at once, and at times the next"
        " is asked for before the last is done",
        values={"simulated_epochs": epochs, "simulated_plans": plans, "real_messages": disturbed},
    )
    return Result([row])


# --- real processes ------------------------------------------------------------------------


class _Proxy:
    """Stands between the leader and everybody else."""

    REPEATED = (b'"Plan"', b'"Switched"', b'"Warm"', b'"Steps"')

    def __init__(self, leader: LeaderAddress) -> None:
        self._leader = leader
        self._chance = random.Random(0)  # noqa: S311 (disorder that can be had again)
        self._pumps: set[asyncio.Task[None]] = set()
        self.disturbed = 0

    async def listen(self, directory: Path) -> asyncio.Server:
        """Take the leader's place in the job's directory."""
        server = await asyncio.start_server(self._serve, self._leader.host, 0)
        port = server.sockets[0].getsockname()[1]
        self._leader.model_copy(update={"port": port}).save(directory)
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = await asyncio.open_connection(self._leader.host, self._leader.port)
        ways = (self._pump(reader, theirs[1]), self._pump(theirs[0], writer))
        await asyncio.gather(*ways)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while (payload := await msg.read_frame(source)) is not None:
            frame = len(payload).to_bytes(4, "big") + payload
            if any(name in payload[:40] for name in self.REPEATED):
                self.disturbed += 1
                is_plan = b'"Plan"' in payload[:40]
                self._later(target, frame, self._chance.uniform(0, DELAY_SECONDS) * is_plan)
                self._later(target, frame, self._chance.uniform(0, REPEAT_SECONDS))
            else:
                target.write(frame)
        target.close()

    def _later(self, target: asyncio.StreamWriter, frame: bytes, seconds: float) -> None:
        async def send() -> None:
            if seconds:
                await asyncio.sleep(seconds)
            if not target.is_closing():
                target.write(frame)

        if not seconds:
            target.write(frame)
            return
        task = asyncio.create_task(send())
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)


async def _real(folder: Path, changes: int) -> tuple[int, int]:
    fields = {"global_batch": BATCHES[0], "hyperparameters": {"pause": 0.002}}
    chance = random.Random(1)  # noqa: S311 (a schedule that can be had again)
    async with Run("Regression", folder, **fields) as run:
        await run.until(lambda: LeaderAddress.load(run.directory) is not None)
        address = LeaderAddress.load(run.directory)
        assert address is not None  # noqa: S101 (it was waited for)
        proxy = _Proxy(address)
        server = await proxy.listen(run.directory)
        await run.grown_to(3)
        for number in range(changes):
            before = len(run.reports)
            batch = BATCHES[number % len(BATCHES)]
            generation = await run.resize(list(run.wanted), global_batch=batch)
            if chance.random() < 0.3:
                continue  # the next one is asked for before this one is done
            await run.wait_for(
                GenerationSwitched,
                lambda said, wanted=generation: said.generation == wanted,  # type: ignore[misc]  # (a default argument)
                since=before,
            )
        await run.switched(run.generation)
        await run.more_steps(20)
        await run.end()
        server.close()
        losses: dict[int, float] = {}
        for line in run.lines():
            if losses.setdefault(line.step, line.loss) != line.loss:
                raise BenchmarkError(f"workers disagree about step {line.step}")
    if sorted(losses) != list(range(1, len(losses) + 1)):
        raise BenchmarkError("a step is missing from the records of row 16")
    with contextlib.suppress(asyncio.CancelledError):
        await server.wait_closed()
    return proxy.disturbed, len(losses)
