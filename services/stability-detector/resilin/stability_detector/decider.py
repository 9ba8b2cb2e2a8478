"""The stability-detector's core: JobStabilized, by NEARCHUS' criterion (§III).

Stable means: over five consecutive samples of training speed the coefficient of variation
is below 5 %. Samples are telemetry, so the window of the last five is not in the log; a
restart starts it anew and can only delay the fact. Stragglers and bottlenecks, which this
service also owns, need per-worker samples and come with the worker runtime.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample

__all__ = ["SAMPLES", "SPREAD", "StabilityDetectorDecider", "StabilityState"]

SAMPLES = 5
SPREAD = 0.05


@dataclass(slots=True)
class StabilityState:
    """The folded state of the stability-detector.

    Attributes:
        generation: The generation that trains, by job.
        stable: The newest generation known to be stable, by job.
    """

    generation: dict[str, int] = field(default_factory=dict)
    stable: dict[str, int] = field(default_factory=dict)


class StabilityDetectorDecider:
    """The core of the stability-detector service."""

    service = "stability-detector"
    state_type = StabilityState

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], list[float]] = {}

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
                state.generation[event.job_id] = event.generation
            case ev.JobStabilized():
                state.stable[event.job_id] = event.generation
            case ev.JobCompleted() | ev.JobFailed() | ev.JobCancelled():
                state.generation.pop(event.job_id, None)
                state.stable.pop(event.job_id, None)
            case _:
                pass
        return state

    def accept(self, state: StabilityState, item: StepSample) -> Sequence[ev.Event]:
        """Return the fact that a job has settled, once a generation."""
        key = (item.job_id, item.generation)
        if (
            state.generation.get(item.job_id) != item.generation
            or state.stable.get(item.job_id) == item.generation
        ):
            self._windows.pop(key, None)
            return ()
        window = self._windows.setdefault(key, [])
        window.append(item.iterations_per_second)
        del window[:-SAMPLES]
        mean = statistics.fmean(window)
        if len(window) < SAMPLES or statistics.pstdev(window) >= SPREAD * mean:
            return ()
        return (
            ev.JobStabilized(
                job_id=item.job_id, generation=item.generation, iterations_per_second=mean
            ),
        )

    def decide(self, state: StabilityState) -> Sequence[ev.Event]:  # noqa: ARG002 (the contract)
        """Return nothing: the stability-detector records facts only."""
        return ()

    def next_timer(self, state: StabilityState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: samples come by themselves."""
        return None
