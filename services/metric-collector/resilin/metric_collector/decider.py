"""The metric-collector's core: telemetry becomes measurements worth a record.

Telemetry is high-rate and never the basis of truth. A measurement enters the log only if
it differs from what the log already lets everyone believe; then plans are made with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from resilin.cell.state import CellState, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample

__all__ = ["DEVIATION_WORTH_A_RECORD", "CollectorState", "MetricCollectorDecider"]

DEVIATION_WORTH_A_RECORD = 0.02
"""Relative difference from the believed throughput; below it lies ordinary jitter."""


@dataclass(slots=True)
class CollectorState:
    """The folded state of the metric-collector.

    Attributes:
        cell: Jobs and servers.
    """

    cell: CellState = field(default_factory=CellState)


class MetricCollectorDecider:
    """The core of the metric-collector service."""

    service = "metric-collector"
    state_type = CollectorState

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
        believed = state.cell.curve_rate(job, item.workers)
        measured = item.iterations_per_second
        if believed > 0 and abs(measured / believed - 1) <= DEVIATION_WORTH_A_RECORD:
            return ()
        return (
            ev.ThroughputMeasured(
                job_id=item.job_id,
                generation=item.generation,
                workers=item.workers,
                iterations_per_second=measured,
            ),
        )

    def decide(self, state: CollectorState) -> Sequence[ev.Event]:  # noqa: ARG002 (the contract)
        """Return nothing: the metric-collector records facts only."""
        return ()

    def next_timer(self, state: CollectorState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: samples come by themselves."""
        return None
