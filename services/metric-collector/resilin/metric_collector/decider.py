"""The metric-collector's core: telemetry becomes measurements worth a record.

Telemetry is high-rate and never the basis of truth. A measurement enters the log only if
it differs from what the log already lets everyone believe; then plans are made with it.

A real job's samples scatter. So the throughput is the median over a window of the newest
samples of one generation once it is warm, and a difference counts only if the scatter cannot
explain it: a large one shows in a few samples, a small one as the window grows, and ordinary
jitter never. An exact sample, as a simulation makes them, is a window by itself. Windows are
not in the log; a restart starts them anew and can only delay a measurement.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from resilin.cell.state import CellState, JobState, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample

__all__ = [
    "DEVIATION_WORTH_A_RECORD",
    "SAMPLES_LEAST",
    "SAMPLES_MOST",
    "SAMPLES_WARMING_UP",
    "CollectorState",
    "MetricCollectorDecider",
]

DEVIATION_WORTH_A_RECORD = 0.02
"""Relative difference from the believed throughput; below it lies ordinary jitter."""

NOISE_DEVIATION_WORTH_A_RECORD = 0.1
"""Relative difference from the known gradient noise scale; it is an average already."""

SAMPLES_WARMING_UP = 3
"""Measured samples of a generation, and of a count of workers, that say nothing yet.

Right after a switch new workers fill their caches while whoever left still ends: two sizes can
look alike then, and a job that was measured so would never grow again.
"""

SAMPLES_LEAST = 5
"""Measured samples that a window must hold before it says anything."""

SAMPLES_MOST = 60
"""Measured samples that a window holds: half of them new show that the throughput drifted."""

# Every sample asks anew, thousands of times a job: at three, jitter of 5 % would be recorded
# every few minutes, and plans made anew for it.
_STANDARD_ERRORS = 4.0
# Of a normal distribution: its standard deviation over the median absolute deviation, and the
# standard error of a median over that of a mean.
_DEVIATION_OVER_MEDIAN_DEVIATION = 1.4826
_ERROR_OF_MEDIAN_OVER_MEAN = 1.2533


@dataclass(slots=True)
class CollectorState:
    """The folded state of the metric-collector.

    Attributes:
        cell: Jobs and servers.
    """

    cell: CellState = field(default_factory=CellState)


@dataclass(slots=True)
class _Window:
    """The newest samples of a job's newest generation, at its newest count of workers.

    A generation trains on with fewer while a worker that died is replaced.
    """

    last: StepSample
    warming_up: int = SAMPLES_WARMING_UP
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MOST))


class MetricCollectorDecider:
    """The core of the metric-collector service."""

    service = "metric-collector"
    state_type = CollectorState

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def initial_state(self) -> CollectorState:
        """Return the state before the first entry."""
        return CollectorState()

    def evolve(
        self, state: CollectorState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
    ) -> CollectorState:
        """Fold one event."""
        state.cell = evolve_cell(state.cell, event, entry)
        return state

    def accept(self, state: CollectorState, item: StepSample) -> Sequence[ev.Event]:
        """Return the measurement that a sample adds; none if it only confirms."""
        job = state.cell.jobs.get(item.job_id)
        if job is None or not job.trains or job.generation != item.generation:
            return ()
        noise = _noise_measured(job, item)
        rates = self._seen(state, item)
        if not rates:
            return noise
        measured, error = _median_and_error(rates)
        believed = state.cell.step_rate(job, item.workers)
        ordinary = max(DEVIATION_WORTH_A_RECORD * believed, _STANDARD_ERRORS * error)
        if believed > 0 and abs(measured - believed) <= ordinary:
            return noise
        return (
            *noise,
            ev.ThroughputMeasured(
                job_id=item.job_id,
                generation=item.generation,
                workers=item.workers,
                iterations_per_second=measured,
            ),
        )

    def _seen(self, state: CollectorState, item: StepSample) -> Sequence[float]:
        """Return what tells the throughput once this sample came; nothing if that is too little."""
        if item.exact:
            return (item.iterations_per_second,)
        window = self._windows.get(item.job_id)
        if window is None:
            # A new job is the moment to forget those that are gone.
            self._windows = {
                job_id: kept for job_id, kept in self._windows.items() if job_id in state.cell.jobs
            }
        elif not item.follows(window.last):
            return ()
        if (
            window is None
            or window.last.workers != item.workers
            or (window.last.generation != item.generation)
        ):
            window = self._windows[item.job_id] = _Window(item)
        window.last = item
        if window.warming_up:
            window.warming_up -= 1
            return ()
        window.rates.append(item.iterations_per_second)
        return window.rates if len(window.rates) >= SAMPLES_LEAST else ()

    def decide(self, state: CollectorState) -> Sequence[ev.Event]:  # noqa: ARG002 (the contract)
        """Return nothing: the metric-collector records facts only."""
        return ()

    def next_timer(self, state: CollectorState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: samples come by themselves."""
        return None


def _noise_measured(job: JobState, item: StepSample) -> tuple[ev.Event, ...]:
    """Return the gradient noise scale of a sample, if it has one and it is news."""
    noise, known = item.gradient_noise_scale, job.gradient_noise_scale
    if noise is None:
        return ()
    if known is not None and abs(noise - known) <= NOISE_DEVIATION_WORTH_A_RECORD * known:
        return ()
    return (
        ev.GradientNoiseMeasured(
            job_id=item.job_id, generation=item.generation, gradient_noise_scale=noise
        ),
    )


def _median_and_error(rates: Sequence[float]) -> tuple[float, float]:
    """Return the median and its standard error, which a few outliers do not change either."""
    median = statistics.median(rates)
    scatter = _DEVIATION_OVER_MEDIAN_DEVIATION * statistics.median(
        abs(rate - median) for rate in rates
    )
    return median, _ERROR_OF_MEDIAN_OVER_MEAN * scatter / math.sqrt(len(rates))
