"""The stability-detector's core: jobs that have settled, and workers that hold theirs up.

**JobStabilized**, by NEARCHUS' criterion (§III): over five consecutive samples of training
speed the coefficient of variation is below 5 %.

**StragglerDetected**, by Or et al.'s rule (§5, Algorithm 1). At every sample, for each worker::

    fraction = throughput / median throughput of the others
    average  = 0.1 x fraction + 0.9 x average           (1 at first)
    a straggler if average < 0.8

A worker's throughput is that of its computation before the all-reduce, since in synchronous
training the steps of all workers take equally long. The paper leaves the first average open,
and takes the median over all workers; of two workers the slow one would then count as half
of its own yardstick, and 1.5 times slower would never be slow.

Samples are telemetry, so windows and averages are not in the log; a restart starts them anew
and can only delay a fact. BottleneckDetected, which this service also owns, needs utilisation
of processors and networks (NEARCHUS §IV); samples do not carry it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample

__all__ = [
    "SAMPLES",
    "SPREAD",
    "STRAGGLER_THRESHOLD",
    "StabilityDetectorDecider",
    "StabilityState",
]

SAMPLES = 5
SPREAD = 0.05

STRAGGLER_THRESHOLD = 0.8
"""A worker below this throughput, relative to its peers, is a straggler."""

_NEWEST_WEIGHT = 0.1
_CLOCK_SECONDS = 1e-9
"""No clock tells a shorter time: a worker that reports one has done no step."""


@dataclass(slots=True)
class StabilityState:
    """The folded state of the stability-detector.

    Attributes:
        generation: The generation that trains, by job.
        stable: The newest generation known to be stable, by job.
        stragglers: The stragglers of the generation that trains, by job, as ``server/index``.
    """

    generation: dict[str, int] = field(default_factory=dict)
    stable: dict[str, int] = field(default_factory=dict)
    stragglers: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Window:
    """What the samples of a job's newest generation have told so far.

    Attributes:
        last: The newest sample.
        rates: The newest iterations per second.
        averages: The moving average of each worker's relative throughput.
    """

    last: StepSample
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    averages: dict[str, float] = field(default_factory=dict)

    def add(self, item: StepSample) -> None:
        """Take in the next sample."""
        self.last = item
        self.rates.append(item.iterations_per_second)
        slowest_first = sorted(
            (1 / worker.compute_seconds, _slot(worker.server_id, worker.gpu_index))
            for worker in item.worker_samples
            if worker.compute_seconds >= _CLOCK_SECONDS
        )
        speeds = [speed for speed, _ in slowest_first]
        for place, (speed, slot) in enumerate(slowest_first):
            fraction = speed / _median_without(speeds, place) if len(speeds) > 1 else 1.0
            average = self.averages.get(slot, 1.0)
            self.averages[slot] = average + _NEWEST_WEIGHT * (fraction - average)


class StabilityDetectorDecider:
    """The core of the stability-detector service."""

    service = "stability-detector"
    state_type = StabilityState

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def initial_state(self) -> StabilityState:
        """Return the state before the first entry."""
        return StabilityState()

    def evolve(
        self,
        state: StabilityState,
        event: ev.Event | ev.UnknownEvent,
        entry: LogEntry,  # noqa: ARG002 (the contract)
    ) -> StabilityState:
        """Fold one event."""
        match event:
            case ev.GenerationSwitched():
                if state.generation.get(event.job_id) != event.generation:
                    state.stragglers.pop(event.job_id, None)
                state.generation[event.job_id] = event.generation
            case ev.JobStabilized():
                state.stable[event.job_id] = event.generation
            case ev.StragglerDetected():
                if state.generation.get(event.job_id) == event.generation:
                    slot = _slot(event.server_id, event.gpu_index)
                    state.stragglers.setdefault(event.job_id, []).append(slot)
            case ev.JobCompleted() | ev.JobFailed() | ev.JobCancelled():
                state.generation.pop(event.job_id, None)
                state.stable.pop(event.job_id, None)
                state.stragglers.pop(event.job_id, None)
            case _:
                pass
        return state

    def accept(self, state: StabilityState, item: StepSample) -> Sequence[ev.Event]:
        """Return what a sample tells: a job that settled, stragglers; each once a generation."""
        if state.generation.get(item.job_id) != item.generation:
            return ()
        window = self._windows.get(item.job_id)
        if window is None:
            # A new job is the moment to forget those that are gone.
            self._windows = {
                job_id: kept for job_id, kept in self._windows.items() if job_id in state.generation
            }
        elif not item.follows(window.last):
            return ()
        if window is None or item.generation != window.last.generation:
            window = self._windows[item.job_id] = _Window(item)
        window.add(item)
        return (*_settled(state, window), *_stragglers(state, window))

    def decide(self, state: StabilityState) -> Sequence[ev.Event]:  # noqa: ARG002 (the contract)
        """Return nothing: the stability-detector records facts only."""
        return ()

    def next_timer(self, state: StabilityState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: samples come by themselves."""
        return None


def _slot(server_id: str, gpu_index: int) -> str:
    return f"{server_id}/{gpu_index}"


def _median_without(ordered: Sequence[float], place: int) -> float:
    """Return the median of sorted numbers, two or more, but for the one at a place."""
    middle = len(ordered) - 2
    low, high = middle // 2, (middle + 1) // 2
    return (ordered[low + (low >= place)] + ordered[high + (high >= place)]) / 2


def _settled(state: StabilityState, window: _Window) -> Iterator[ev.JobStabilized]:
    """Yield the fact that a job has settled, once a generation."""
    item, rates = window.last, window.rates
    if state.stable.get(item.job_id) == item.generation or len(rates) < SAMPLES:
        return
    mean = statistics.fmean(rates)
    if statistics.pstdev(rates) < SPREAD * mean:
        yield ev.JobStabilized(
            job_id=item.job_id, generation=item.generation, iterations_per_second=mean
        )


def _stragglers(state: StabilityState, window: _Window) -> Iterator[ev.StragglerDetected]:
    """Yield the stragglers among a sample's workers, each once a generation."""
    item = window.last
    known = state.stragglers.get(item.job_id, ())
    for worker in item.worker_samples:
        slot = _slot(worker.server_id, worker.gpu_index)
        average = window.averages.get(slot, 1.0)
        if average < STRAGGLER_THRESHOLD and slot not in known:
            yield ev.StragglerDetected(
                job_id=item.job_id,
                generation=item.generation,
                server_id=worker.server_id,
                gpu_index=worker.gpu_index,
                relative_throughput=average,
            )
