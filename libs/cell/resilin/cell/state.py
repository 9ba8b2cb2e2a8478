"""The cell's state: what a prefix of the log says about jobs, servers and settings.

One mutator, :func:`evolve_cell`; a table of handlers by event type. It is total: an event
about a job or server that it does not know changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from resilin.cell import gpu_sets
from resilin.cell.service_received import ServiceReceived
from resilin.contracts import events as ev
from resilin.contracts.job_specification import DeadlinePolicy, JobSpecification
from resilin.contracts.record import LogEntry
from resilin.contracts.values import CellConfiguration, GpuSet, Segment, Server
from resilin.planning.goodput import iteration_worth

__all__ = [
    "CellState",
    "JobState",
    "Phase",
    "Profile",
    "ServerState",
    "curve_key",
    "evolve_cell",
]


class Phase(StrEnum):
    """Where a job is in its life."""

    SUBMITTED = "submitted"
    ADMITTED = "admitted"
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"

    @property
    def terminal(self) -> bool:
        """Whether nothing can follow."""
        return self not in (Phase.SUBMITTED, Phase.ADMITTED)


class Profile(StrEnum):
    """How far the trying out of a job is whose throughput nobody knew."""

    NONE = "none"
    REQUESTED = "requested"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class ServerState:
    """A server of the cell."""

    server: Server
    virtual_cluster: str
    incarnation: int = 0
    joined: bool = False
    cordoned: bool = False
    removed: bool = False

    @property
    def works(self) -> bool:
        """Whether its node is up and it belongs to the cell."""
        return self.joined and not self.removed

    @property
    def usable(self) -> bool:
        """Whether it may get new work."""
        return self.works and not self.cordoned


@dataclass(slots=True)
class JobState:
    """A job, from submission until its last GPU is free.

    Attributes:
        job_id: Its identity.
        order: Its place in the order of submission.
        job: As submitted.
        submitted_at_seconds: When.
        deadline_seconds: By when, None without a deadline.
        phase: Where it is in its life.
        promised: Whether its deadline is promised.
        finish_promised_seconds: When the plan made at admission finishes it.
        plan: The guaranteed plan.
        wanted_workers: What the allocator wants it to have.
        generation: The newest generation that placement gave it; 0 for none.
        placed: That generation's GPUs; empty if it is suspended or lost its workers.
        placed_workers: How many they are.
        placed_at_seconds: When that generation was placed.
        held: GPUs that are busy with it in fact.
        leaving: The generation that took away each held GPU that is to be released, by
            ``server/index``.
        switched_generation: The newest generation that trained.
        lost_generation: The newest generation that lost workers.
        trains: Whether it trains, or stands still.
        iterations_done: Work done at ``progress_at_seconds``.
        progress_at_seconds: When that was so.
        measured: Iterations per second by worker count, where measured.
        service: What it has had of the cluster.
        wanted_batch: The global batch that the allocator wants it to train with; None for the
            one that it came with.
        wanted_learning_rate_factor: Against the submitter's own rate.
        adapted_batch: The wanted batch that is in force: it comes with the wanted workers.
        learning_rate_factor: The factor in force.
        gradient_noise_scale: In samples, as last measured; None if it never was.
        failures: How many of its workers failed by themselves.
        profile: How far its profile is.
        profile_problem: Why its profile failed.
    """

    job_id: str
    order: int
    job: JobSpecification
    submitted_at_seconds: float
    deadline_seconds: float | None
    phase: Phase = Phase.SUBMITTED
    promised: bool = False
    finish_promised_seconds: float | None = None
    plan: tuple[Segment, ...] = ()
    wanted_workers: int = 0
    generation: int = 0
    placed: GpuSet = field(default_factory=dict)
    placed_workers: int = 0
    placed_at_seconds: float = 0.0
    held: GpuSet = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)
    switched_generation: int = 0
    lost_generation: int = 0
    trains: bool = False
    iterations_done: float = 0.0
    progress_at_seconds: float = 0.0
    measured: dict[int, float] = field(default_factory=dict)
    service: ServiceReceived = field(default_factory=ServiceReceived)
    wanted_batch: int | None = None
    wanted_learning_rate_factor: float = 1.0
    adapted_batch: int | None = None
    learning_rate_factor: float = 1.0
    gradient_noise_scale: float | None = None
    failures: int = 0
    profile: Profile = Profile.NONE
    profile_problem: str = ""

    def released_by(self, report: ev.WorkersReleased) -> GpuSet:
        """Return the GPUs that a report really frees.

        Those that its generation or one before it took away: an executor that was away may
        have skipped a generation. What was given back since then is busy again.
        """
        freed: dict[str, list[int]] = {}
        for server, index in gpu_sets.each(report.gpus):
            if self.leaving.get(f"{server}/{index}", math.inf) <= report.generation:
                freed.setdefault(server, []).append(index)
        return {server: tuple(indexes) for server, indexes in freed.items()}

    @property
    def binding(self) -> DeadlinePolicy:
        """How binding its deadline is."""
        return self.job.spec.binding

    @property
    def awaits_profile(self) -> bool:
        """Whether it has no answer yet because it is being tried out."""
        return self.phase is Phase.SUBMITTED and self.profile is Profile.REQUESTED

    @property
    def live(self) -> bool:
        """Whether it is admitted and has not ended."""
        return self.phase is Phase.ADMITTED


@dataclass(slots=True)
class CellState:
    """Jobs, servers and settings at an offset.

    Attributes:
        now_seconds: The timestamp of the newest entry folded.
        configuration: The settings in force.
        curves: Throughput curves by :func:`curve_key`: iterations per second by workers.
        servers: By id, in the order they were added.
        jobs: By id, in order of submission; a job that ended leaves once its GPUs are free.
        submitted: How many jobs were submitted so far.
        finished_gpu_seconds: GPU time that each of the jobs completed last took, oldest
            first, by virtual cluster.
    """

    now_seconds: float = 0.0
    configuration: CellConfiguration = field(default_factory=CellConfiguration)
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    servers: dict[str, ServerState] = field(default_factory=dict)
    jobs: dict[str, JobState] = field(default_factory=dict)
    submitted: int = 0
    finished_gpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def curve_rate(self, job: JobState, workers: int) -> float:
        """Return the throughput believed of a job at a worker count; 0 where none is known."""
        return self.believed_rates(job).get(workers, 0.0)

    def believed_rates(self, job: JobState) -> dict[int, float]:
        """Return a job's throughput by workers: as measured, else its curve to that scale.

        In iterations of the batch that the job came with, whatever batch is in force.
        """
        spec = job.job.spec
        curve = self.curves.get(curve_key(spec.model, spec.global_batch), {})
        if job.measured:
            scale = _measured_scale(job, curve)
            known = {**{n: rate * scale for n, rate in curve.items()}, **job.measured}
        else:
            scale, known = 1.0, curve
        if job.adapted_batch is None:
            return known
        steps = self.curves.get(curve_key(spec.model, job.adapted_batch), {})
        worth = scale * iteration_worth(
            job.adapted_batch, spec.global_batch, job.gradient_noise_scale or 0.0
        )
        return {n: rate * worth for n, rate in steps.items()}

    def step_rate(self, job: JobState, workers: int) -> float:
        """Return the iterations per second believed of a job, of the batch in force."""
        if job.adapted_batch is None:
            return self.curve_rate(job, workers)
        worth = iteration_worth(
            job.adapted_batch, job.job.spec.global_batch, job.gradient_noise_scale or 0.0
        )
        return self.curve_rate(job, workers) / worth

    def iterations_done(self, job: JobState, now_seconds: float) -> float:
        """Return a job's work done by ``now_seconds``: as last reported, plus the time since."""
        if not job.trains:
            return job.iterations_done
        rate = self.curve_rate(job, job.placed_workers)
        done = job.iterations_done + rate * max(0.0, now_seconds - job.progress_at_seconds)
        return min(done, job.job.spec.total_iterations)


def _measured_scale(job: JobState, curve: dict[int, float]) -> float:
    """Return how much faster than its curve a job was where both are known."""
    ratios = [rate / curve[n] for n, rate in job.measured.items() if n in curve]
    return sum(ratios) / len(ratios) if ratios else 1.0


def curve_key(model: str, global_batch: int) -> str:
    """Name a throughput curve in the state: ``model/global batch``."""
    return f"{model}/{global_batch}"


# How many finished jobs tell how long jobs are; older ones say little of today's.
REMEMBERED_FINISHED = 500


def evolve_cell(state: CellState, event: ev.Event | ev.UnknownEvent, entry: LogEntry) -> CellState:
    """Fold one event into the state, in place."""
    state.now_seconds = max(state.now_seconds, entry.record.timestamp)
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, event)
    return state


# --- handlers, one an event type -----------------------------------------------------------


def _cell_configured(state: CellState, event: ev.CellConfigured) -> None:
    state.configuration = event.configuration


def _curves_imported(state: CellState, event: ev.CurvesImported) -> None:
    for curve in event.curves:
        state.curves[curve_key(curve.model, curve.global_batch)] = dict(
            sorted(curve.iterations_per_second.items())
        )


def _profile_requested(state: CellState, event: ev.ProfileRequested) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.SUBMITTED:
        job.profile = Profile.REQUESTED


def _curve_profiled(state: CellState, event: ev.CurveProfiled) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None:
        job.profile = Profile.DONE
    key = curve_key(event.curve.model, event.curve.global_batch)
    # Promises were made with what was known before: a profile adds to it, and replaces nothing.
    rates = {**event.curve.iterations_per_second, **state.curves.get(key, {})}
    state.curves[key] = dict(sorted(rates.items()))


def _profile_failed(state: CellState, event: ev.ProfileFailed) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None:
        job.profile = Profile.FAILED
        job.profile_problem = f"{event.reason}: {event.message}"


def _server_added(state: CellState, event: ev.ServerAdded) -> None:
    server = event.server
    known = state.servers.get(server.server_id)
    if known is None:
        state.servers[server.server_id] = ServerState(server, server.virtual_cluster)
    else:
        known.removed = False
        known.cordoned = False


def _server_removed(state: CellState, event: ev.ServerRemoved) -> None:
    server = state.servers.get(event.server_id)
    if server is not None:
        server.removed = True


def _server_cordoned(state: CellState, event: ev.ServerCordoned) -> None:
    server = state.servers.get(event.server_id)
    if server is not None:
        server.cordoned = event.cordoned


def _server_lent(state: CellState, event: ev.ServerLoaned) -> None:
    server = state.servers.get(event.server_id)
    if server is not None:
        server.virtual_cluster = event.borrower


def _server_reclaimed(state: CellState, event: ev.ServerReclaimed) -> None:
    server = state.servers.get(event.server_id)
    if server is not None:
        server.virtual_cluster = event.lender


def _node_joined(state: CellState, event: ev.NodeJoined) -> None:
    server = state.servers.get(event.server_id)
    if server is not None and event.incarnation > server.incarnation:
        # A node that joins anew has none of its old workers, reported lost or not.
        _release_server(state, event.server_id)
        server.incarnation = event.incarnation
        server.joined = True


def _node_lost(state: CellState, event: ev.NodeLost) -> None:
    server = state.servers.get(event.server_id)
    if server is None or event.incarnation != server.incarnation:
        return
    server.joined = False
    _release_server(state, event.server_id)


def _release_server(state: CellState, server_id: str) -> None:
    """Take a lost server's GPUs from the jobs there; a generation that ran there is over.

    Such a job counts as back at its last report until its executor says what was saved.
    """
    for job in list(state.jobs.values()):
        if server_id in job.placed:
            job.trains = False
            job.placed, job.placed_workers = {}, 0
            job.service.change(0, state.now_seconds)
            job.progress_at_seconds = state.now_seconds
            for server, index in gpu_sets.each(job.held):
                job.leaving.setdefault(f"{server}/{index}", job.generation)
        if server_id in job.held:
            _release(state, job, {server_id: job.held[server_id]})


def _job_submitted(state: CellState, event: ev.JobSubmitted) -> None:
    if event.job_id in state.jobs:
        return
    state.jobs[event.job_id] = JobState(
        event.job_id,
        state.submitted,
        event.job,
        event.submitted_at_seconds,
        event.deadline_seconds,
        progress_at_seconds=event.submitted_at_seconds,
        service=ServiceReceived(
            counted_at_seconds=event.submitted_at_seconds,
            since_seconds=event.submitted_at_seconds,
        ),
    )
    state.submitted += 1


def _job_admitted(state: CellState, event: ev.JobAdmitted) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.SUBMITTED:
        job.phase = Phase.ADMITTED
        job.promised = event.promised
        job.finish_promised_seconds = event.finish_seconds
        job.plan = event.plan
        _adopt_plans(state, event.plans_moved)


def _adopt_plans(state: CellState, plans: dict[str, tuple[Segment, ...]]) -> None:
    for job_id, plan in plans.items():
        job = state.jobs.get(job_id)
        if job is not None:
            job.plan = plan


def _job_rejected(state: CellState, event: ev.JobRejected) -> None:
    _end(state, event.job_id, Phase.REJECTED)


def _job_cancelled(state: CellState, event: ev.JobCancelled) -> None:
    _end(state, event.job_id, Phase.CANCELLED)


def _job_completed(state: CellState, event: ev.JobCompleted) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.live:
        finished = state.finished_gpu_seconds.setdefault(job.job.spec.virtual_cluster, [])
        finished.append(job.service.gpu_seconds_at(state.now_seconds))
        if len(finished) > REMEMBERED_FINISHED:
            del finished[0]
    _end(state, event.job_id, Phase.COMPLETED)


def _job_failed(state: CellState, event: ev.JobFailed) -> None:
    _end(state, event.job_id, Phase.FAILED)


def _end(state: CellState, job_id: str, phase: Phase) -> None:
    job = state.jobs.get(job_id)
    if job is None or job.phase.terminal:
        return
    job.iterations_done = state.iterations_done(job, state.now_seconds)
    job.progress_at_seconds = state.now_seconds
    job.phase = phase
    job.trains = False
    job.plan = ()
    job.wanted_workers = 0
    for server, index in gpu_sets.each(job.held):
        job.leaving.setdefault(f"{server}/{index}", job.generation)
    job.placed, job.placed_workers = {}, 0
    job.service.change(0, state.now_seconds)
    _forget_if_over(state, job)


def _forget_if_over(state: CellState, job: JobState) -> None:
    if job.phase.terminal and not job.held:
        del state.jobs[job.job_id]


def _deadline_changed(state: CellState, event: ev.DeadlineChanged) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None:
        job.deadline_seconds = event.deadline_seconds
        job.plan = event.plan
        _adopt_plans(state, event.plans_moved)


def _allocation_planned(state: CellState, event: ev.AllocationPlanned) -> None:
    for change in event.changes:
        job = state.jobs.get(change.job_id)
        if job is not None and job.live:
            job.wanted_workers = change.allocation.workers
            batch = change.allocation.global_batch
            job.wanted_batch = None if batch == job.job.spec.global_batch else batch
            job.wanted_learning_rate_factor = change.allocation.learning_rate_factor
            if job.wanted_workers == job.placed_workers:
                _adopt_batch(state, job)  # workers change it without a stop
    _adopt_plans(state, event.plans)


def _adopt_batch(state: CellState, job: JobState) -> None:
    if job.wanted_batch != job.adapted_batch:
        _count_progress(state, job)
        job.adapted_batch = job.wanted_batch
    job.learning_rate_factor = job.wanted_learning_rate_factor


def _count_progress(state: CellState, job: JobState) -> None:
    """Settle what was extrapolated with the present belief, before that changes."""
    job.iterations_done = state.iterations_done(job, state.now_seconds)
    job.progress_at_seconds = max(job.progress_at_seconds, state.now_seconds)


def _job_placed(state: CellState, event: ev.JobPlaced | ev.JobMigrated) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.live and event.generation > job.generation:
        _place(state, job, event.generation, event.gpus)


def _job_suspended(state: CellState, event: ev.JobSuspended) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.live and event.generation > job.generation:
        _place(state, job, event.generation, {})


def _place(state: CellState, job: JobState, generation: int, gpus: GpuSet) -> None:
    job.iterations_done = state.iterations_done(job, state.now_seconds)
    job.progress_at_seconds = state.now_seconds
    job.trains = False
    for server, index in gpu_sets.each(gpu_sets.minus(job.held, gpus)):
        job.leaving.setdefault(f"{server}/{index}", generation)
    for server, index in gpu_sets.each(gpus):
        # Given back before it was released: that release is not its new workers' own.
        job.leaving.pop(f"{server}/{index}", None)
    job.generation = generation
    job.placed, job.placed_workers = gpus, gpu_sets.count(gpus)
    job.service.change(job.placed_workers, state.now_seconds)
    _adopt_batch(state, job)
    job.placed_at_seconds = state.now_seconds
    job.held = gpu_sets.union(job.held, gpus)


def _generation_switched(state: CellState, event: ev.GenerationSwitched) -> None:
    job = state.jobs.get(event.job_id)
    if job is None or event.generation <= job.switched_generation:
        return
    job.switched_generation = event.generation
    if job.live and job.placed and event.generation == job.generation:
        job.trains = True
        job.iterations_done = event.iterations_done
        job.progress_at_seconds = state.now_seconds


def _progress_reported(state: CellState, event: ev.ProgressReported) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.live and job.trains and event.generation == job.generation:
        job.iterations_done = event.iterations_done
        job.progress_at_seconds = state.now_seconds


def _workers_released(state: CellState, event: ev.WorkersReleased) -> None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return
    if job.live and not job.trains and event.generation == job.generation:
        job.iterations_done = event.iterations_done
        job.progress_at_seconds = state.now_seconds
    _release(state, job, job.released_by(event))


def _release(state: CellState, job: JobState, gpus: GpuSet) -> None:
    job.held = gpu_sets.minus(job.held, gpus)
    for server, index in gpu_sets.each(gpus):
        job.leaving.pop(f"{server}/{index}", None)
    _forget_if_over(state, job)


def _worker_lost(state: CellState, event: ev.WorkerLost) -> None:
    job = state.jobs.get(event.job_id)
    if job is None or not job.live or event.generation <= job.lost_generation:
        return
    job.lost_generation = event.generation
    job.failures = max(job.failures, event.failures)
    if event.generation != job.generation:
        return
    job.trains = False
    job.iterations_done = event.iterations_done
    job.progress_at_seconds = state.now_seconds
    for server, index in gpu_sets.each(job.held):
        job.leaving.setdefault(f"{server}/{index}", event.generation)
    job.placed, job.placed_workers = {}, 0
    job.service.change(0, state.now_seconds)


def _worker_replaced(state: CellState, event: ev.WorkerReplaced) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.live:
        job.failures = max(job.failures, event.failures)


def _throughput_measured(state: CellState, event: ev.ThroughputMeasured) -> None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return
    _count_progress(state, job)
    rate = event.iterations_per_second
    if job.adapted_batch is not None:
        # Measured with another batch: it tells by how much the job's own curve is off.
        believed = state.step_rate(job, event.workers)
        spec = job.job.spec
        curve = state.curves.get(curve_key(spec.model, spec.global_batch), {})
        if event.workers not in curve or believed <= 0:
            return
        rate *= curve[event.workers] * _measured_scale(job, curve) / believed
    job.measured[event.workers] = rate


def _gradient_noise_measured(state: CellState, event: ev.GradientNoiseMeasured) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None:
        _count_progress(state, job)
        job.gradient_noise_scale = event.gradient_noise_scale


_HANDLERS: dict[type, Callable[..., None]] = {
    ev.CellConfigured: _cell_configured,
    ev.CurvesImported: _curves_imported,
    ev.ProfileRequested: _profile_requested,
    ev.CurveProfiled: _curve_profiled,
    ev.ProfileFailed: _profile_failed,
    ev.ServerAdded: _server_added,
    ev.ServerRemoved: _server_removed,
    ev.ServerCordoned: _server_cordoned,
    ev.ServerLoaned: _server_lent,
    ev.ServerReclaimed: _server_reclaimed,
    ev.NodeJoined: _node_joined,
    ev.NodeLost: _node_lost,
    ev.JobSubmitted: _job_submitted,
    ev.JobAdmitted: _job_admitted,
    ev.JobRejected: _job_rejected,
    ev.JobCancelled: _job_cancelled,
    ev.JobCompleted: _job_completed,
    ev.JobFailed: _job_failed,
    ev.DeadlineChanged: _deadline_changed,
    ev.AllocationPlanned: _allocation_planned,
    ev.JobPlaced: _job_placed,
    ev.JobMigrated: _job_placed,
    ev.JobSuspended: _job_suspended,
    ev.GenerationSwitched: _generation_switched,
    ev.ProgressReported: _progress_reported,
    ev.WorkersReleased: _workers_released,
    ev.WorkerLost: _worker_lost,
    ev.WorkerReplaced: _worker_replaced,
    ev.ThroughputMeasured: _throughput_measured,
    ev.GradientNoiseMeasured: _gradient_noise_measured,
}
