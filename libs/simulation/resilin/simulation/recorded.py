"""The recorded world: what really happened stands where the simulated cluster stands.

Services that are given the commands of a log and its world again decide everything anew, each
from what the others decide. If they decide as they did, the log follows from its commands and
its world alone: :func:`run_again` shows whether it does.

Nothing happens that was not asked for: what a generation of workers did waits until that
generation is placed. So the world of a log whose decisions come out otherwise stands still.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence

from resilin.cell.state import CellState, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample
from resilin.eventlog.memory import MemoryLog
from resilin.executor.decider import Instruction
from resilin.kernel.fencing import Fence
from resilin.simulation.cluster import Report
from resilin.simulation.simulation import Simulation
from resilin.simulation.what_if import recorded_commands

__all__ = ["RecordedWorld", "run_again"]


def run_again(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the log of the same commands in the same world, every decision made anew.

    It ends when the recorded one ends: where decisions come out otherwise the world stands
    still, and plans would be looked at again for ever.
    """
    log = MemoryLog()
    simulation = Simulation(log, list(recorded_commands(entries)), RecordedWorld(entries))
    simulation.run(max((entry.record.timestamp for entry in entries), default=0.0))
    return list(log.read())


class RecordedWorld:
    """A :class:`~resilin.simulation.cluster.World` in which happens what a log tells.

    Executors' reports come at the moments at which they were recorded. What was measured comes
    as a sample that tells as much.

    Args:
        entries: The log, from its first entry on.
    """

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self._held: dict[Hashable, list[tuple[float, int, Report]]] = {}
        self._due: list[tuple[float, int, Report]] = []
        for number, (moment, asked_for, report) in enumerate(_reports(entries)):
            self._held.setdefault(asked_for, []).append((moment, number, report))

    def next_seconds(self) -> float:
        """See :class:`~resilin.simulation.cluster.World`."""
        return self._due[0][0] if self._due else math.inf

    def reports(self, now_seconds: float) -> Iterator[Report]:
        """See :class:`~resilin.simulation.cluster.World`."""
        while self._due and self._due[0][0] <= now_seconds:
            yield heapq.heappop(self._due)[2]

    def add_node(self, server_id: str, now_seconds: float) -> None:  # noqa: ARG002 (the protocol)
        """See :class:`~resilin.simulation.cluster.World`."""
        self._ask_for(("node", server_id))

    def carry_out(self, instruction: Instruction, now_seconds: float) -> None:  # noqa: ARG002 (the protocol)
        """See :class:`~resilin.simulation.cluster.World`."""
        self._ask_for((instruction.job_id, instruction.generation))

    def profile(self, job_id: str, now_seconds: float) -> None:  # noqa: ARG002 (the protocol)
        """See :class:`~resilin.simulation.cluster.World`."""
        self._ask_for(("profile", job_id))

    def _ask_for(self, what: Hashable) -> None:
        for waiting in self._held.pop(what, ()):
            heapq.heappush(self._due, waiting)


def _reports(entries: Iterable[LogEntry]) -> Iterator[tuple[float, Hashable, Report]]:
    """Yield what a log's world reported: when, what had been asked for, and the report."""
    fence, cell = Fence(), CellState()
    for entry in entries:
        if not fence.admit(entry):
            continue
        for event in entry.record.events:
            moment = entry.record.timestamp
            match event:
                case ev.NodeJoined() | ev.NodeLost():
                    yield moment, ("node", event.server_id), event
                case ev.CurveProfiled() | ev.ProfileFailed():
                    yield moment, ("profile", event.job_id), event
                case ev.ThroughputMeasured():
                    sample = _sample(event, event.workers, event.iterations_per_second)
                    yield moment, (event.job_id, event.generation), sample
                case ev.GradientNoiseMeasured():
                    # A sample tells the throughput, too: what is believed is no news.
                    job = cell.jobs[event.job_id]
                    workers = job.placed_workers
                    sample = _sample(event, workers, cell.step_rate(job, workers))
                    noise = {"gradient_noise_scale": event.gradient_noise_scale}
                    told = sample.model_copy(update=noise)
                    yield moment, (event.job_id, event.generation), told
                case _ if isinstance(event, _ABOUT_WORKERS):
                    yield moment, (event.job_id, event.generation), event
                case _:
                    pass
            cell = evolve_cell(cell, event, entry)


_ABOUT_WORKERS = (
    ev.WorkersReady,
    ev.GenerationSwitched,
    ev.ProgressReported,
    ev.WorkersReleased,
    ev.WorkerLost,
    ev.WorkerReplaced,
    ev.JobCompleted,
    ev.JobFailed,
)


def _sample(
    event: ev.ThroughputMeasured | ev.GradientNoiseMeasured, workers: int, rate: float
) -> StepSample:
    return StepSample(
        job_id=event.job_id,
        generation=event.generation,
        workers=workers,
        iterations_per_second=rate,
    )
