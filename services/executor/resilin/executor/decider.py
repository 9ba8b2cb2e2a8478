"""The executor's core: placements become instructions, reports become facts.

The executor decides nothing. Whatever carries out its instructions (local processes, node
agents, a simulated cluster) reports what happened, perhaps late, twice or out of order;
:func:`facts_of` admits each report once and only while it can still be true::

    placed generation g  --instruction-->  workers
    GenerationSwitched g     once, if g is above the last that trained
    WorkersReleased g        only GPUs that were taken away by g, or before, and are held
    WorkerLost g             once a generation
    WorkerReplaced g         once a failure, while g is placed
    JobCompleted, JobFailed  once, while the job is live
    CurveProfiled, ProfileFailed  once, while the job waits for its profile
    ProgressReported g       while g trains, and if it tells of more than the last one
    NodeJoined, NodeLost     by the node's incarnation
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from resilin.cell.state import CellState, JobState, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import GpuSet

__all__ = [
    "ExecutorDecider",
    "ExecutorState",
    "Instruction",
    "instructions",
    "profiles_wanted",
    "steered_jobs",
]


@dataclass(slots=True)
class ExecutorState:
    """The folded state of the executor.

    Attributes:
        cell: Jobs and servers.
    """

    cell: CellState = field(default_factory=CellState)


@dataclass(frozen=True, slots=True)
class Instruction:
    """What one job's workers are to be.

    Attributes:
        job_id: The job.
        generation: The generation to run; a later one replaces an earlier one.
        gpus: Its GPUs; empty to stop every worker and keep the progress.
        leaving: GPUs that the log waits for: once none of the job's workers is there (even
            if none ever was), they are to be reported as released.
        ended: Whether the job is over, so that nothing need be kept.
        global_batch: The batch to train with from now on, without a stop; None for the one
            that the job came with.
        learning_rate_factor: Against the submitter's own rate.
    """

    job_id: str
    generation: int
    gpus: GpuSet
    leaving: GpuSet
    ended: bool
    global_batch: int | None = None
    learning_rate_factor: float = 1.0


def instructions(state: ExecutorState, job_ids: Iterable[str] | None = None) -> list[Instruction]:
    """Return what the workers of these jobs, or of every job, are to be now.

    Carrying out an instruction twice is harmless, so a restarted executor starts with all.
    """
    jobs = state.cell.jobs
    return [
        Instruction(
            job.job_id,
            job.generation,
            job.placed,
            _leaving(job),
            job.phase.terminal,
            job.adapted_batch,
            job.learning_rate_factor,
        )
        for job_id in (jobs if job_ids is None else job_ids)
        if (job := jobs.get(job_id)) is not None and job.generation > 0
    ]


def profiles_wanted(state: ExecutorState) -> list[str]:
    """Return the jobs that are to be tried out now, in the order they were submitted.

    What is not among them any more (its job was cancelled, or has its answer) ends.
    """
    return [job.job_id for job in state.cell.jobs.values() if job.awaits_profile]


_STEERS_WORKERS = (
    ev.JobPlaced,
    ev.JobMigrated,
    ev.JobSuspended,
    ev.JobCancelled,
    ev.JobCompleted,
    ev.JobFailed,
    ev.WorkerLost,
)


def steered_jobs(entry: LogEntry) -> list[str]:
    """Return the jobs whose :func:`instructions` an entry may have changed, in its order."""
    jobs: list[str] = []
    for event in entry.record.events:
        if isinstance(event, _STEERS_WORKERS):
            jobs.append(event.job_id)
        elif isinstance(event, ev.AllocationPlanned):
            # Another batch, or learning rate, comes into force without a stop.
            jobs += (change.job_id for change in event.changes)
    return jobs


def _leaving(job: JobState) -> GpuSet:
    left = {
        server: tuple(index for index in indexes if f"{server}/{index}" in job.leaving)
        for server, indexes in job.held.items()
    }
    return {server: indexes for server, indexes in left.items() if indexes}


class ExecutorDecider:
    """The core of the executor service."""

    service = "executor"
    state_type = ExecutorState

    def initial_state(self) -> ExecutorState:
        """Return the state before the first entry."""
        return ExecutorState()

    def evolve(
        self, state: ExecutorState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
    ) -> ExecutorState:
        """Fold one event."""
        state.cell = evolve_cell(state.cell, event, entry)
        return state

    def accept(self, state: ExecutorState, item: ev.Event) -> Sequence[ev.Event]:
        """Return the facts that a report adds; none if it is a repeat or out of date."""
        admit = _ADMIT.get(type(item))
        fact = None if admit is None else admit(state.cell, item)
        return () if fact is None else (fact,)

    def decide(self, state: ExecutorState) -> Sequence[ev.Event]:  # noqa: ARG002 (the contract)
        """Return nothing: the executor records facts only."""
        return ()

    def next_timer(self, state: ExecutorState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: reports come by themselves."""
        return None


def _node_joined(cell: CellState, report: ev.NodeJoined) -> ev.Event | None:
    server = cell.servers.get(report.server_id)
    return report if server is not None and report.incarnation > server.incarnation else None


def _node_lost(cell: CellState, report: ev.NodeLost) -> ev.Event | None:
    server = cell.servers.get(report.server_id)
    known = server is not None and server.joined and server.incarnation == report.incarnation
    return report if known else None


def _workers_ready(cell: CellState, report: ev.WorkersReady) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    if job is None or not job.live:
        return None
    return report if job.switched_generation < report.generation == job.generation else None


def _generation_switched(cell: CellState, report: ev.GenerationSwitched) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    if job is None or not job.live or not job.placed:
        return None
    return report if job.switched_generation < report.generation == job.generation else None


def _progress_reported(cell: CellState, report: ev.ProgressReported) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    if job is None or not job.trains or job.generation != report.generation:
        return None
    return report if report.iterations_done > job.iterations_done else None


def _workers_released(cell: CellState, report: ev.WorkersReleased) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    if job is None:
        return None
    gpus = job.released_by(report)
    return report.model_copy(update={"gpus": gpus}) if gpus else None


def _worker_lost(cell: CellState, report: ev.WorkerLost) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    if job is None or not job.live or job.lost_generation >= report.generation:
        return None
    return report if report.generation == job.generation else None


def _worker_replaced(cell: CellState, report: ev.WorkerReplaced) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    if job is None or not job.live or report.generation != job.generation:
        return None
    known = report.gpu_index in job.placed.get(report.server_id, ())
    return report if known and report.failures > job.failures else None


def _profiled(cell: CellState, report: ev.CurveProfiled | ev.ProfileFailed) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    return report if job is not None and job.awaits_profile else None


def _ended(cell: CellState, report: ev.JobCompleted | ev.JobFailed) -> ev.Event | None:
    job = cell.jobs.get(report.job_id)
    return report if job is not None and job.live else None


_ADMIT: dict[type, Callable[..., ev.Event | None]] = {
    ev.NodeJoined: _node_joined,
    ev.NodeLost: _node_lost,
    ev.WorkersReady: _workers_ready,
    ev.GenerationSwitched: _generation_switched,
    ev.ProgressReported: _progress_reported,
    ev.WorkersReleased: _workers_released,
    ev.WorkerLost: _worker_lost,
    ev.WorkerReplaced: _worker_replaced,
    ev.JobCompleted: _ended,
    ev.JobFailed: _ended,
    ev.CurveProfiled: _profiled,
    ev.ProfileFailed: _profiled,
}
