"""The simulated cluster: what executors, workers and nodes would do, and when.

It stands where real node agents stand in production: it carries out the executor's
instructions and reports what happened. Time is virtual; everything it does lies in one
queue ordered by time, so the runner can jump to the next thing that happens.

A change of a job's GPUs stops it at once, frees the GPUs it leaves at once, and lets it
train again after the stop cost of its new size: the conservative stop-and-resume model.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from resilin.cell import gpu_sets
from resilin.cell.view import stop_seconds
from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.contracts.values import Curve, GpuSet, StopCost
from resilin.executor.decider import Instruction
from resilin.planning.goodput import iteration_worth

__all__ = ["FailureModel", "Physics", "Report", "SimulatedCluster", "Truth", "World"]

Report = ev.Event | StepSample
"""What the cluster reports: to the executor, or as telemetry."""

NoiseProfile = Sequence[tuple[float, float]]
"""(share of the work done, gradient noise scale in samples), in order; the first share is 0."""

PROFILE_SECONDS = 30.0
"""How long it takes to try a job out."""

ROUNDING_ITERATIONS = 1e-6

SAMPLES_PER_GENERATION = 5
"""Throughput does not change within a simulated generation: these tell all there is."""


class World(Protocol):
    """What the executor steers in a simulation: nodes and workers, and what they report."""

    def next_seconds(self) -> float:
        """Return when the next thing happens; infinite for never."""
        ...

    def reports(self, now_seconds: float) -> Iterator[Report]:
        """Let everything up to now happen, and yield what is reported."""
        ...

    def add_node(self, server_id: str, now_seconds: float) -> None:
        """Start a node agent on a server that joined the cell; a repeat changes nothing."""
        ...

    def carry_out(self, instruction: Instruction, now_seconds: float) -> None:
        """Bring a job's workers to what the executor wants; a repeat changes nothing."""
        ...

    def profile(self, job_id: str, now_seconds: float) -> None:
        """Try a job out, and report its curve; a repeat changes nothing."""
        ...


class Truth(Protocol):
    """What is true of the jobs that the cluster runs."""

    def rate(self, job_id: str, workers: int, global_batch: int | None = None) -> float:
        """Return a job's iterations per second at a worker count, before noise.

        They are of the global batch named; None is the batch that the job came with.
        """
        ...

    def submitted(self, job_id: str) -> tuple[str, int]:
        """Return a job's model and the global batch that it came with."""
        ...

    def total_iterations(self, job_id: str) -> float:
        """Return a job's whole work."""
        ...

    def curve(self, job_id: str) -> Curve | None:
        """Return what trying a job out would tell; None if it would not run."""
        ...


@dataclass(frozen=True, slots=True)
class FailureModel:
    """Random failures of nodes.

    Attributes:
        mean_seconds_between: Mean time between failures of one node.
        mean_seconds_to_repair: Mean time until it is back.
        most_at_once: How many nodes may be down at the same time.
    """

    mean_seconds_between: float
    mean_seconds_to_repair: float = 1800.0
    most_at_once: int = 1


@dataclass(frozen=True, slots=True)
class Physics:
    """How the simulated world behaves.

    Attributes:
        stop_cost: Seconds a job really stands still at a change.
        throughput_noise: Standard deviation of the logarithm of true over believed
            throughput, drawn once for each job and size; 0 for none.
        sample_interval_seconds: Time between two telemetry samples of a job, where there
            is noise to measure.
        checkpoint_interval_seconds: Work since the last checkpoint is lost with a worker.
        failures: Node failures; None for none.
        seed: Seed of everything random.
        gradient_noise: How the gradient noise scale grows as a job of a model trains: from
            which share of its work on it is how many samples. Workers measure and report it.
    """

    stop_cost: StopCost = field(default_factory=StopCost)
    throughput_noise: float = 0.0
    sample_interval_seconds: float = 60.0
    checkpoint_interval_seconds: float = 600.0
    failures: FailureModel | None = None
    seed: int = 0
    gradient_noise: Mapping[str, NoiseProfile] = field(default_factory=dict)


@dataclass(slots=True)
class _Workers:
    """One job's workers."""

    total_iterations: float
    generation: int = 0
    gpus: GpuSet = field(default_factory=dict)
    rate: float = 0.0
    done: float = 0.0
    since: float = 0.0
    trains: bool = False
    checkpoint: float = 0.0
    completed: bool = False
    global_batch: int | None = None
    steps_per_second: float = 0.0
    stretch: int = 0


@dataclass(slots=True)
class _Node:
    incarnation: int = 1
    up: bool = True


class SimulatedCluster:
    """Nodes and workers under a virtual clock.

    Args:
        physics: How the world behaves.
        truth: What is true of the jobs.
    """

    def __init__(self, physics: Physics, truth: Truth) -> None:
        self._physics = physics
        self._truth = truth
        self._jobs: dict[str, _Workers] = {}
        self._nodes: dict[str, _Node] = {}
        self._profiled: dict[str, None] = {}
        self._queue: list[tuple[float, int, Callable[[float], Iterator[Report]]]] = []
        self._scheduled = 0
        self._random = random.Random(f"failures/{physics.seed}")  # noqa: S311 (a simulation)

    def next_seconds(self) -> float:
        """Return when the next thing happens; infinite for never."""
        return self._queue[0][0] if self._queue else math.inf

    def reports(self, now_seconds: float) -> Iterator[Report]:
        """Let everything up to now happen, and yield what is reported."""
        while self._queue and self._queue[0][0] <= now_seconds:
            moment, _, action = heapq.heappop(self._queue)
            yield from action(moment)

    def _at(self, moment: float, action: Callable[[float], Iterator[Report]]) -> None:
        self._scheduled += 1
        heapq.heappush(self._queue, (moment, self._scheduled, action))

    def true_rate(self, job_id: str, workers: int, global_batch: int | None = None) -> float:
        """Return a job's real throughput in iterations of a batch, noise included."""
        believed = self._truth.rate(job_id, workers, global_batch)
        noise = self._physics.throughput_noise
        if noise == 0:
            return believed
        draw = random.Random(f"{self._physics.seed}/{job_id}/{workers}")  # noqa: S311 (a simulation)
        return believed * math.exp(draw.gauss(0.0, noise))

    # --- nodes -----------------------------------------------------------------------------

    def add_node(self, server_id: str, now_seconds: float, *, after_incarnation: int = 0) -> None:
        """Start a node agent on a server that joined the cell; a repeat changes nothing.

        Args:
            server_id: The server.
            now_seconds: When.
            after_incarnation: The node's last start that the log knows of.
        """
        if server_id not in self._nodes:
            self._bring_up(server_id, _Node(after_incarnation + 1), now_seconds)

    def adopt_node(self, server_id: str, incarnation: int) -> None:
        """Find a node up that joined before this cluster was made."""
        self._nodes[server_id] = _Node(incarnation)

    def _bring_up(self, server_id: str, node: _Node, now_seconds: float) -> None:
        self._nodes[server_id] = node
        self._at(now_seconds, lambda _: self._joined(server_id, node.incarnation))
        if self._physics.failures is not None:
            self._schedule_failure(server_id, now_seconds)

    def _joined(self, server_id: str, incarnation: int) -> Iterator[Report]:
        yield ev.NodeJoined(server_id=server_id, incarnation=incarnation)

    def _schedule_failure(self, server_id: str, now_seconds: float) -> None:
        failures = self._physics.failures
        assert failures is not None, "only called where failures are modelled"  # noqa: S101 (invariant)
        wait = self._random.expovariate(1 / failures.mean_seconds_between)
        self._at(now_seconds + wait, lambda now: self._fail(server_id, now))

    def _fail(self, server_id: str, now_seconds: float) -> Iterator[Report]:
        failures = self._physics.failures
        assert failures is not None, "only scheduled where failures are modelled"  # noqa: S101 (invariant)
        down = sum(not node.up for node in self._nodes.values())
        if down >= failures.most_at_once:
            self._schedule_failure(server_id, now_seconds)
            return
        yield from self.lose_node(server_id, now_seconds)
        repair = self._random.expovariate(1 / failures.mean_seconds_to_repair)
        self._at(now_seconds + repair, lambda now: self._repaired(server_id, now))

    def _repaired(self, server_id: str, now_seconds: float) -> Iterator[Report]:
        node = _Node(self._nodes[server_id].incarnation + 1)
        self._bring_up(server_id, node, now_seconds)
        return iter(())

    def lose_node(self, server_id: str, now_seconds: float) -> Iterator[Report]:
        """Take a node down, and every job that has a worker there back to its checkpoint."""
        node = self._nodes[server_id]
        node.up = False
        yield ev.NodeLost(server_id=server_id, incarnation=node.incarnation)
        for job_id, workers in self._jobs.items():
            if server_id in workers.gpus:
                self._settle(workers, now_seconds)
                workers.done = workers.checkpoint
                yield from self._lost(job_id, workers, f"{server_id} was lost")

    def _lost(self, job_id: str, workers: _Workers, message: str) -> Iterator[Report]:
        """Report a generation that lost workers, and its GPUs on the nodes that are up."""
        left = {server: gpus for server, gpus in workers.gpus.items() if self._nodes[server].up}
        workers.gpus = {}
        yield ev.WorkerLost(
            job_id=job_id,
            generation=workers.generation,
            iterations_done=workers.done,
            message=message,
        )
        if left:
            yield self._released(job_id, workers, left)

    # --- profiles --------------------------------------------------------------------------

    def profile(self, job_id: str, now_seconds: float) -> None:
        """Try a job out and have its throughput reported; a repeat changes nothing."""
        if job_id not in self._profiled:
            self._profiled[job_id] = None
            self._at(now_seconds + PROFILE_SECONDS, lambda _: self._tried_out(job_id))

    def _tried_out(self, job_id: str) -> Iterator[Report]:
        curve = self._truth.curve(job_id)
        if curve is None:
            yield ev.ProfileFailed(
                job_id=job_id,
                reason=ev.FailureReason.CANNOT_START,
                message="the simulated workers have no throughput of their own: import a curve",
            )
        else:
            yield ev.CurveProfiled(job_id=job_id, curve=curve)

    # --- jobs ------------------------------------------------------------------------------

    def adopt_job(self, job_id: str, done: float) -> None:
        """Find what a job has come to before this cluster was made, in a checkpoint."""
        workers = self._jobs[job_id] = _Workers(self._truth.total_iterations(job_id))
        workers.done = workers.checkpoint = done

    def adopt_workers(self, job_id: str, generation: int, gpus: GpuSet, now_seconds: float) -> None:
        """Find a generation of an adopted job training that switched before."""
        workers = self._jobs[job_id]
        workers.generation, workers.gpus = generation, gpus
        self._train(job_id, workers, now_seconds)

    def carry_out(self, instruction: Instruction, now_seconds: float) -> None:
        """Bring a job's workers to what the executor wants; a repeat changes nothing."""
        job_id = instruction.job_id
        workers = self._jobs.get(job_id)
        if workers is None:
            workers = self._jobs[job_id] = _Workers(self._truth.total_iterations(job_id))
        if instruction.ended:
            self._settle(workers, now_seconds)
            workers.generation = instruction.generation
            del self._jobs[job_id]
            self._release(job_id, workers, instruction.leaving, now_seconds)
            return
        if instruction.generation <= workers.generation or workers.completed:
            if instruction.global_batch != workers.global_batch and not workers.completed:
                workers.global_batch = instruction.global_batch
                if workers.trains:
                    self._settle(workers, now_seconds)
                    self._train(job_id, workers, now_seconds)
            return
        self._settle(workers, now_seconds)
        workers.checkpoint = workers.done
        workers.global_batch = instruction.global_batch
        workers.generation = instruction.generation
        workers.gpus = instruction.gpus
        self._release(job_id, workers, instruction.leaving, now_seconds)
        if not all(self._nodes[server].up for server in instruction.gpus):
            # Placed before the loss was known: what was to run there is lost at once.
            lost = tuple(self._lost(job_id, workers, "a node was down already"))
            self._at(now_seconds, lambda _: iter(lost))
        elif instruction.gpus:
            count = gpu_sets.count(instruction.gpus)
            stop = stop_seconds(self._physics.stop_cost, count)
            generation = instruction.generation
            self._at(now_seconds + stop, lambda now: self._switch(job_id, generation, stop, now))

    def _release(self, job_id: str, workers: _Workers, gpus: GpuSet, now_seconds: float) -> None:
        """Have the release of GPUs reported, if there are any to release."""
        if gpus:
            report = self._released(job_id, workers, gpus)
            self._at(now_seconds, lambda _: iter((report,)))

    def _released(self, job_id: str, workers: _Workers, gpus: GpuSet) -> ev.WorkersReleased:
        return ev.WorkersReleased(
            job_id=job_id,
            generation=workers.generation,
            gpus=gpus,
            iterations_done=workers.done,
        )

    def _settle(self, workers: _Workers, now_seconds: float) -> None:
        """Bring a job's progress and last checkpoint up to now, and stop it."""
        if workers.trains:
            elapsed = now_seconds - workers.since
            interval = self._physics.checkpoint_interval_seconds
            saved = math.floor(elapsed / interval) * interval
            workers.checkpoint = max(workers.checkpoint, workers.done + workers.rate * saved)
            workers.done = min(workers.done + workers.rate * elapsed, workers.total_iterations)
            workers.trains = False

    def _switch(
        self, job_id: str, generation: int, stop: float, now_seconds: float
    ) -> Iterator[Report]:
        workers = self._jobs.get(job_id)
        if workers is None or workers.generation != generation or not workers.gpus:
            return
        yield ev.GenerationSwitched(
            job_id=job_id,
            generation=generation,
            workers=gpu_sets.count(workers.gpus),
            stopped_seconds=stop,
            iterations_done=workers.done,
        )
        self._train(job_id, workers, now_seconds)

    def _train(self, job_id: str, workers: _Workers, now_seconds: float) -> None:
        generation = workers.generation
        workers.trains = True
        workers.since = now_seconds
        workers.stretch += 1
        stretch = workers.stretch
        count, batch = gpu_sets.count(workers.gpus), workers.global_batch
        workers.steps_per_second = self.true_rate(job_id, count, batch)
        workers.rate = workers.steps_per_second * self._worth(job_id, workers)
        left = workers.total_iterations - workers.done
        self._at(
            now_seconds + left / workers.rate,
            lambda now: self._complete(job_id, generation, stretch, now),
        )
        if self._physics.gradient_noise:
            self._watch_noise(job_id, workers, now_seconds)
        if self._physics.throughput_noise:
            for sample in range(1, SAMPLES_PER_GENERATION + 1):
                self._at(
                    now_seconds + sample * self._physics.sample_interval_seconds,
                    partial(self._sample, job_id, generation, with_progress=sample == 1),
                )

    def _worth(self, job_id: str, workers: _Workers) -> float:
        """Return how many iterations of the submitted batch one of the batch in force is worth."""
        if workers.global_batch is None:
            return 1.0
        _, submitted = self._truth.submitted(job_id)
        noise, _ = self._noise(job_id, workers)
        return iteration_worth(workers.global_batch, submitted, noise or 0.0)

    def _noise(self, job_id: str, workers: _Workers) -> tuple[float | None, float]:
        """Return the gradient noise scale now, and at which work done it is another."""
        model, _ = self._truth.submitted(job_id)
        noise = None
        for share, samples in self._physics.gradient_noise.get(model, ()):
            begins = share * workers.total_iterations
            if begins > workers.done + ROUNDING_ITERATIONS:
                return noise, begins
            noise = samples
        return noise, math.inf

    def _watch_noise(self, job_id: str, workers: _Workers, now_seconds: float) -> None:
        """Have the gradient noise scale reported, and again when it has changed."""
        noise, changes = self._noise(job_id, workers)
        generation, stretch = workers.generation, workers.stretch
        if noise is None:
            return
        sample = StepSample(
            job_id=job_id,
            generation=generation,
            workers=gpu_sets.count(workers.gpus),
            iterations_per_second=workers.steps_per_second,
            gradient_noise_scale=noise,
        )
        self._at(now_seconds, lambda _: iter((sample,)))
        if changes < workers.total_iterations:
            moment = now_seconds + (changes - workers.done) / workers.rate
            self._at(moment, lambda now: self._noise_changed(job_id, generation, stretch, now))

    def _noise_changed(
        self, job_id: str, generation: int, stretch: int, now_seconds: float
    ) -> Iterator[Report]:
        workers = self._jobs.get(job_id)
        if workers is None or (workers.generation, workers.stretch) != (generation, stretch):
            return iter(())
        if workers.trains:
            self._settle(workers, now_seconds)
            self._train(job_id, workers, now_seconds)
        return iter(())

    def _sample(
        self, job_id: str, generation: int, now_seconds: float, *, with_progress: bool
    ) -> Iterator[Report]:
        workers = self._jobs.get(job_id)
        if workers is None or workers.generation != generation or not workers.trains:
            return
        done = workers.done + workers.rate * (now_seconds - workers.since)
        count = gpu_sets.count(workers.gpus)
        yield StepSample(
            job_id=job_id,
            generation=generation,
            workers=count,
            iterations_per_second=workers.steps_per_second,
        )
        if with_progress:
            yield ev.ProgressReported(
                job_id=job_id,
                generation=generation,
                iterations_done=min(done, workers.total_iterations),
            )

    def _complete(
        self, job_id: str, generation: int, stretch: int, now_seconds: float
    ) -> Iterator[Report]:
        workers = self._jobs.get(job_id)
        if workers is None or not workers.trains:
            return
        if (workers.generation, workers.stretch) != (generation, stretch):
            return
        self._settle(workers, now_seconds)
        workers.done = workers.total_iterations
        workers.completed = True
        yield ev.JobCompleted(job_id=job_id, generation=generation, iterations_done=workers.done)
        yield self._released(job_id, workers, workers.gpus)
        workers.gpus = {}
