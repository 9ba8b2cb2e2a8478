"""The figures of a cell: a fold of the log into what dashboards and alerts show.

Counters are kept as the fold goes; what there is at a moment is read off the cell's state
when somebody asks (:mod:`~resilin.runtime.cell_gauges`). Time is the log's: no clock is looked
at.

GPU time is summed up between records: what a job holds either trains or is lost to the
cause for which it does not. Iterations that a failure undid are lost as well, at the speed
at which they were made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from resilin.cell import gpu_sets
from resilin.cell.state import CellState, JobState, Phase, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.runtime.metrics_catalogue import METRICS, PROCESS
from resilin.runtime.metrics_numbers import Numbers

__all__ = [
    "HELD",
    "JOB_SERIES_SECONDS",
    "LOST",
    "CellFigures",
    "EndedJob",
    "JobFigures",
    "fold_counted",
    "progress",
]

JOB_SERIES_SECONDS = 900.0
"""Cell time for which the series of a job stay after its end."""

HELD = "resilin_held_gpu_seconds_total"
LOST = "resilin_lost_gpu_seconds_total"


@dataclass(slots=True)
class JobFigures:
    """What a started job's next event is counted with.

    Attributes:
        training: GPUs that it trains on.
        idle: GPUs that it holds and does not train on.
        cause: Why it does not.
        workers: Workers that it was last placed with; 0 once it lost or gave them back.
        change: ``up``, ``down`` or ``move`` while its GPUs are changing, else empty.
        change_generation: The generation that ends the change.
        failing: Whether it has not trained again since a failure.
        done_before: Iterations it had done when workers were lost.
        gpu_seconds_per_iteration: What each of them had cost.
    """

    training: int = 0
    idle: int = 0
    cause: str = "start"
    workers: int = 0
    change: str = ""
    change_generation: int = 0
    failing: bool = False
    done_before: float = 0.0
    gpu_seconds_per_iteration: float = 0.0


@dataclass(slots=True)
class EndedJob:
    """A job that is over and still shown: since when, and how far it came."""

    at_seconds: float
    progress: float


@dataclass(slots=True)
class CellFigures:
    """Everything that the metrics of a cell are made of.

    Attributes:
        cell: Jobs, servers and settings.
        name: The cell's name.
        numbers: Counters and histograms.
        jobs: Jobs that were placed and have not ended, or hold GPUs.
        ended: Jobs that ended of late.
        holding: GPUs held by what becomes of their time: ``training``, or a cause of loss.
        recalled: When the lender asked for a server that is lent.
        fenced: Records that do not count, by their writer.
    """

    cell: CellState = field(default_factory=CellState)
    name: str = ""
    numbers: Numbers = field(default_factory=Numbers)
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    ended: dict[str, EndedJob] = field(default_factory=dict)
    holding: dict[str, int] = field(default_factory=dict)
    recalled: dict[str, float] = field(default_factory=dict)
    fenced: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers.begin(metric for metric in METRICS if metric.owner != PROCESS)


def fold_counted(figures: CellFigures, entry: LogEntry) -> None:
    """Fold an entry that counts into the figures, in place. Total: never raises."""
    figures.name = entry.record.cell
    _let_time_pass(figures, entry.record.timestamp)
    cell = figures.cell
    for event in entry.record.events:
        note = _NOTES.get(type(event))
        if note is not None:
            note(figures, event)
        evolve_cell(cell, event, entry)
        job_id = getattr(event, "job_id", None)
        if job_id is not None:
            _settle(figures, job_id)
        elif isinstance(event, ev.NodeLost | ev.NodeJoined):
            for each in list(figures.jobs):
                _settle(figures, each)


def _let_time_pass(figures: CellFigures, timestamp: float) -> None:
    cell = figures.cell
    seconds = timestamp - cell.now_seconds
    if seconds <= 0:
        return
    cell.now_seconds = timestamp
    for use, gpus in figures.holding.items():
        if gpus:
            figures.numbers.add(HELD, by=gpus * seconds)
            if use != "training":
                figures.numbers.add(LOST, use, by=gpus * seconds)
    ended = figures.ended  # in the order in which they ended
    while ended and timestamp - next(iter(ended.values())).at_seconds > JOB_SERIES_SECONDS:
        del ended[next(iter(ended))]


def _settle(figures: CellFigures, job_id: str) -> None:
    """Bring the GPUs that a job holds up to date after an event about it."""
    known = figures.jobs.get(job_id)
    if known is None:
        return
    job = figures.cell.jobs.get(job_id)
    held = 0 if job is None else gpu_sets.count(job.held)
    training = 0 if job is None or not job.trains else min(job.placed_workers, held)
    cause = "release" if training or job is None or job.phase.terminal else known.cause
    holding = figures.holding
    holding["training"] = holding.get("training", 0) + training - known.training
    holding[known.cause] = holding.get(known.cause, 0) - known.idle
    holding[cause] = holding.get(cause, 0) + held - training
    known.training, known.idle, known.cause = training, held - training, cause
    if job is None:
        del figures.jobs[job_id]


# --- counting, one function an event type; the state is that before the event ---------------


def _command_rejected(figures: CellFigures, _: ev.CommandRejected) -> None:
    figures.numbers.add("resilin_command_rejected_total")


def _answered(figures: CellFigures, event: ev.JobAdmitted | ev.JobRejected) -> None:
    job = figures.cell.jobs.get(event.job_id)
    if job is None or job.phase is not Phase.SUBMITTED:
        return
    numbers = figures.numbers
    if isinstance(event, ev.JobRejected):
        numbers.add("resilin_admission_attempts_total", "rejected", event.reason.value)
    else:
        reason = "Promised" if event.promised else "Unpromised"
        numbers.add("resilin_admission_attempts_total", "admitted", reason)
        if job.deadline_seconds is not None:
            numbers.add("resilin_deadline_admitted_total", _truth(event.promised))
    waited = figures.cell.now_seconds - job.submitted_at_seconds
    numbers.observe("resilin_admission_latency_seconds", value=waited)


def _allocation_planned(figures: CellFigures, event: ev.AllocationPlanned) -> None:
    for change in event.changes:
        figures.numbers.add("resilin_allocation_changes_total", change.reason)


def _placed(figures: CellFigures, event: ev.JobPlaced | ev.JobMigrated | ev.JobSuspended) -> None:
    job = figures.cell.jobs.get(event.job_id)
    if job is None or not job.live or event.generation <= job.generation:
        return
    workers = 0 if isinstance(event, ev.JobSuspended) else gpu_sets.count(event.gpus)
    known = figures.jobs.get(event.job_id)
    if known is None:
        figures.jobs[event.job_id] = JobFigures(workers=workers)
        return
    _end_change(figures, known, "overtaken")
    _note_cost(figures, job, known)
    moves = isinstance(event, ev.JobMigrated)
    if moves:
        figures.numbers.add("resilin_migration_total")
    if moves or workers != known.workers:
        known.change = "move" if moves else "up" if workers > known.workers else "down"
        known.change_generation = event.generation
    known.workers = workers
    if isinstance(event, ev.JobSuspended):
        _end_change(figures, known, "done")  # no generation will train
    if not known.failing and job.switched_generation:
        known.cause = _recause(figures, known, "migration" if moves else "resize")


def _recause(figures: CellFigures, known: JobFigures, cause: str) -> str:
    """Count a job's idle GPUs under another cause from here on, and return it."""
    holding = figures.holding
    holding[known.cause] = holding.get(known.cause, 0) - known.idle
    holding[cause] = holding.get(cause, 0) + known.idle
    return cause


def _end_change(figures: CellFigures, known: JobFigures, result: str) -> None:
    if known.change in ("up", "down"):
        figures.numbers.add("resilin_resize_total", known.change, result)
    known.change = ""


def _switched(figures: CellFigures, event: ev.GenerationSwitched) -> None:
    job, known = figures.cell.jobs.get(event.job_id), figures.jobs.get(event.job_id)
    if job is None or known is None or event.generation <= job.switched_generation:
        return
    if not job.live or not job.placed or event.generation != job.generation:
        return
    known.failing = False
    if known.change and event.generation == known.change_generation:
        figures.numbers.observe(
            "resilin_resize_stop_seconds", known.change, value=event.stopped_seconds
        )
        _end_change(figures, known, "done")


def _lost(figures: CellFigures, event: ev.WorkerLost) -> None:
    job, known = figures.cell.jobs.get(event.job_id), figures.jobs.get(event.job_id)
    if job is None or known is None or not job.live or event.generation <= job.lost_generation:
        return
    figures.numbers.add("resilin_worker_lost_total")
    if event.generation != job.generation:
        return
    _fail(figures, job, known)
    undone = max(0.0, known.done_before - event.iterations_done)
    figures.numbers.add(LOST, "failure", by=undone * known.gpu_seconds_per_iteration)
    known.done_before = min(known.done_before, event.iterations_done)
    known.workers = 0


def _fail(figures: CellFigures, job: JobState, known: JobFigures) -> None:
    """Note that a job stops because workers are gone."""
    _end_change(figures, known, "interrupted")
    _note_cost(figures, job, known)
    if not known.failing:
        known.done_before = figures.cell.iterations_done(job, figures.cell.now_seconds)
    known.failing = True
    known.cause = _recause(figures, known, "failure")


def _note_cost(figures: CellFigures, job: JobState, known: JobFigures) -> None:
    """Note what an iteration costs a job that trains, before it stops."""
    rate = figures.cell.curve_rate(job, job.placed_workers)
    if job.trains and rate > 0:
        known.gpu_seconds_per_iteration = job.placed_workers / rate


def _node_changed(figures: CellFigures, event: ev.NodeLost | ev.NodeJoined) -> None:
    server = figures.cell.servers.get(event.server_id)
    if server is None:
        return
    anew = isinstance(event, ev.NodeJoined) and event.incarnation > server.incarnation
    gone = isinstance(event, ev.NodeLost) and event.incarnation == server.incarnation
    if not anew and not gone:
        return
    for job_id, known in figures.jobs.items():
        job = figures.cell.jobs.get(job_id)
        if job is not None and job.live and event.server_id in job.placed:
            _fail(figures, job, known)


def _ended(figures: CellFigures, event: ev.JobCompleted | ev.JobFailed | ev.JobCancelled) -> None:
    job = figures.cell.jobs.get(event.job_id)
    if job is None or job.phase.terminal:
        return
    numbers, now = figures.numbers, figures.cell.now_seconds
    completed = isinstance(event, ev.JobCompleted)
    cancelled = isinstance(event, ev.JobCancelled)
    numbers.add(
        "resilin_job_end_total",
        "completed" if completed else "cancelled" if cancelled else "failed",
    )
    if job.deadline_seconds is not None and not cancelled:
        slack = job.deadline_seconds - now
        if completed:
            numbers.observe("resilin_deadline_slack_seconds", value=slack)
        verdict = "met" if completed and slack >= 0 else "missed"
        numbers.add(f"resilin_deadline_{verdict}_total", _truth(job.promised))
    known = figures.jobs.get(event.job_id)
    if known is not None:
        _end_change(figures, known, "interrupted")
    if job.live:
        done = 1.0 if completed else progress(figures.cell, job)
        figures.ended[event.job_id] = EndedJob(now, done)


def _measured(
    figures: CellFigures,
    event: ev.ThroughputMeasured | ev.GradientNoiseMeasured | ev.UtilizationMeasured,
) -> None:
    figures.numbers.add("resilin_measurement_total", _MEASUREMENTS[type(event)])


def _replaced(figures: CellFigures, _: ev.WorkerReplaced) -> None:
    figures.numbers.add("resilin_worker_replaced_total")


def _profiled(figures: CellFigures, event: ev.CurveProfiled | ev.ProfileFailed) -> None:
    result = "measured" if isinstance(event, ev.CurveProfiled) else "failed"
    figures.numbers.add("resilin_profile_total", result)


def _stabilized(figures: CellFigures, _: ev.JobStabilized) -> None:
    figures.numbers.add("resilin_job_stabilized_total")


def _straggler(figures: CellFigures, _: ev.StragglerDetected) -> None:
    figures.numbers.add("resilin_straggler_detected_total")


def _bottleneck(figures: CellFigures, event: ev.BottleneckDetected) -> None:
    figures.numbers.add("resilin_bottleneck_detected_total", event.resource)


def _lent(figures: CellFigures, _: ev.ServerLoaned) -> None:
    figures.numbers.add("resilin_loan_total")


def _recall(figures: CellFigures, event: ev.ServerReclaimRequested) -> None:
    figures.recalled.setdefault(event.server_id, figures.cell.now_seconds)


def _reclaimed(figures: CellFigures, event: ev.ServerReclaimed) -> None:
    since = figures.recalled.pop(event.server_id, None)
    if since is not None:
        waited = figures.cell.now_seconds - since
        figures.numbers.observe("resilin_loan_recall_seconds", value=waited)


_MEASUREMENTS: dict[type, str] = {
    ev.ThroughputMeasured: "throughput",
    ev.GradientNoiseMeasured: "gradient-noise",
    ev.UtilizationMeasured: "utilization",
}

_NOTES: dict[type, Callable[..., None]] = {
    ev.CommandRejected: _command_rejected,
    ev.JobAdmitted: _answered,
    ev.JobRejected: _answered,
    ev.AllocationPlanned: _allocation_planned,
    ev.JobPlaced: _placed,
    ev.JobMigrated: _placed,
    ev.JobSuspended: _placed,
    ev.GenerationSwitched: _switched,
    ev.WorkerLost: _lost,
    ev.NodeLost: _node_changed,
    ev.NodeJoined: _node_changed,
    ev.JobCompleted: _ended,
    ev.JobFailed: _ended,
    ev.JobCancelled: _ended,
    ev.ThroughputMeasured: _measured,
    ev.GradientNoiseMeasured: _measured,
    ev.UtilizationMeasured: _measured,
    ev.WorkerReplaced: _replaced,
    ev.CurveProfiled: _profiled,
    ev.ProfileFailed: _profiled,
    ev.JobStabilized: _stabilized,
    ev.StragglerDetected: _straggler,
    ev.BottleneckDetected: _bottleneck,
    ev.ServerLoaned: _lent,
    ev.ServerReclaimRequested: _recall,
    ev.ServerReclaimed: _reclaimed,
}


def _truth(yes: bool) -> str:  # noqa: FBT001 (a label's value)
    return "true" if yes else "false"


def progress(cell: CellState, job: JobState) -> float:
    """Return the share of a job's iterations that is done at the moment of the last record."""
    return min(1.0, cell.iterations_done(job, cell.now_seconds) / job.job.spec.total_iterations)
