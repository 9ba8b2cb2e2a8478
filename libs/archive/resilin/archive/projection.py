"""The archive's projection: from log entries to rows, without a database.

A row holds all that its job or allocation has come to, so a batch of entries changes the same
rows to the same values however the log is cut into batches. Only open rows are needed to go
on: jobs that have not ended, their present allocations, and the servers. They are small, and
can be read back from the tables themselves (:mod:`resilin.archive.store`).

What counts, and when a job's GPUs change, is as in :mod:`resilin.cell.state`; a test holds
the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from resilin.cell import gpu_sets
from resilin.cell.state import Phase
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import Curve, GpuSet
from resilin.kernel.fencing import Fence

__all__ = [
    "AllocationRow",
    "Changes",
    "JobRow",
    "OpenRows",
    "ServerRow",
    "ThroughputRow",
    "fold",
    "moment_of",
]


@dataclass(slots=True)
class JobRow:
    """One job. Fields are columns; see docs/archive.md."""

    job_id: str
    submitted_offset: int
    name: str
    tenant: str
    virtual_cluster: str
    model: str
    global_batch: int
    total_iterations: float
    deadline_policy: str
    submitted_at: datetime
    deadline_at: datetime | None
    outcome: str = Phase.SUBMITTED.value
    reason: str | None = None
    message: str | None = None
    promised: bool = False
    finish_promised_at: datetime | None = None
    minimum_satisfactory_share: int | None = None
    admitted_at: datetime | None = None
    admitted_offset: int | None = None
    rejected_at: datetime | None = None
    rejected_offset: int | None = None
    started_at: datetime | None = None
    started_offset: int | None = None
    finished_at: datetime | None = None
    finished_offset: int | None = None
    generation: int = 0
    switched_generation: int = 0
    lost_generation: int = 0
    resizes: int = 0
    migrations: int = 0
    failures: int = 0
    gpu_seconds: float = 0.0
    stop_seconds: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it is admitted and has not ended."""
        return self.outcome == Phase.ADMITTED


@dataclass(slots=True)
class AllocationRow:
    """The GPUs of one generation of a job, from its placement until it no longer has them."""

    job_id: str
    submitted_offset: int
    generation: int
    workers: int
    gpus: GpuSet
    from_at: datetime
    from_offset: int
    switched_at: datetime | None = None
    stop_seconds: float | None = None
    to_at: datetime | None = None
    to_offset: int | None = None


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """One throughput that became known: measured of a job, or a point of a curve."""

    log_offset: int
    event_index: int
    model: str
    global_batch: int
    workers: int
    iterations_per_second: float
    source: str
    known_at: datetime
    job_id: str | None = None
    generation: int | None = None


@dataclass(slots=True)
class ServerRow:
    """One server."""

    server_id: str
    gpus: int
    rack: str
    virtual_cluster: str
    incarnation: int = 0
    joined: bool = False
    removed: bool = False


@dataclass(slots=True)
class OpenRows:
    """What the projection needs to go on from a position.

    Attributes:
        offset: The offset up to which the log is projected.
        now: The newest timestamp folded.
        fence: Which records count.
        jobs: Jobs that have not ended, by id.
        allocations: The present allocation of those that have one, by job.
        servers: All servers, by id.
    """

    offset: int = -1
    now: datetime | None = None
    fence: Fence = field(default_factory=Fence)
    jobs: dict[str, JobRow] = field(default_factory=dict)
    allocations: dict[str, AllocationRow] = field(default_factory=dict)
    servers: dict[str, ServerRow] = field(default_factory=dict)


@dataclass(slots=True)
class Changes:
    """The rows that a batch of entries has changed or added, each once, by their keys."""

    jobs: dict[tuple[str, int], JobRow] = field(default_factory=dict)
    allocations: dict[tuple[str, int, int], AllocationRow] = field(default_factory=dict)
    throughput: dict[tuple[int, int, str, int, int], ThroughputRow] = field(default_factory=dict)
    servers: dict[str, ServerRow] = field(default_factory=dict)


_INTEGER_MOST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()
_LAST = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds()


def moment_of(seconds: float) -> datetime:
    """Turn seconds since the epoch into a moment, in microseconds, as PostgreSQL keeps it.

    What lies outside the years 1 to 9999 (a deadline may) becomes their first or last day.
    """
    return _EPOCH + timedelta(seconds=min(max(seconds, _FIRST), _LAST))


def _text(written: str) -> str:
    """Return what somebody wrote without the one character that PostgreSQL does not keep."""
    return written.replace("\0", "\N{REPLACEMENT CHARACTER}")


def fold(rows: OpenRows, entries: Iterable[LogEntry]) -> Changes:
    """Fold entries that follow ``rows.offset`` into the rows, and return what they changed."""
    projection = _Projection(rows)
    for entry in entries:
        projection.fold(entry)
    return projection.changes


class _Projection:
    """The fold of one batch; `_at` and `_now` are the place and time of the present entry."""

    def __init__(self, rows: OpenRows) -> None:
        self._rows = rows
        self.changes = Changes()
        self._at = rows.offset
        self._now = rows.now or _EPOCH

    def fold(self, entry: LogEntry) -> None:
        rows = self._rows
        rows.offset = self._at = entry.offset
        if not rows.fence.admit(entry):
            return
        moment = moment_of(entry.record.timestamp)
        rows.now = self._now = moment if rows.now is None else max(rows.now, moment)
        for index, event in enumerate(entry.record.events):
            self._fold_event(event, index)

    def _fold_event(self, event: ev.Event | ev.UnknownEvent, index: int) -> None:
        match event:
            case ev.JobSubmitted():
                self._submitted(event)
            case ev.JobAdmitted():
                self._admitted(event)
            case ev.JobRejected():
                self._ended(event.job_id, Phase.REJECTED, event.reason.value, event.message)
            case ev.JobCancelled():
                self._ended(event.job_id, Phase.CANCELLED)
            case ev.JobCompleted():
                self._ended(event.job_id, Phase.COMPLETED)
            case ev.JobFailed():
                self._ended(event.job_id, Phase.FAILED, event.reason, event.message)
            case ev.DeadlineChanged():
                job = self._rows.jobs.get(event.job_id)
                if job is not None:
                    job.deadline_at = moment_of(event.deadline_seconds)
                    self._touch(job)
            case ev.JobPlaced() | ev.JobMigrated():
                self._placed(event, event.gpus)
            case ev.JobSuspended():
                self._placed(event, {})
            case ev.GenerationSwitched():
                self._switched(event)
            case ev.WorkerLost():
                self._worker_lost(event)
            case ev.WorkerReplaced():
                job = self._rows.jobs.get(event.job_id)
                if job is not None and job.live:
                    job.failures = max(job.failures, event.failures)
                    self._touch(job)
            case ev.ThroughputMeasured():
                self._measured(event, index)
            case ev.CurvesImported():
                for curve in event.curves:
                    self._curve(curve, event.curve_source, index)
            case ev.CurveProfiled():
                self._curve(event.curve, "profiled", index, job_id=event.job_id)
            case _:
                self._fold_server_event(event)

    def _touch(self, job: JobRow) -> None:
        self.changes.jobs[job.job_id, job.submitted_offset] = job

    # --- jobs ------------------------------------------------------------------------------

    def _submitted(self, event: ev.JobSubmitted) -> None:
        if event.job_id in self._rows.jobs:
            return
        spec, deadline = event.job.spec, event.deadline_seconds
        job = self._rows.jobs[event.job_id] = JobRow(
            job_id=event.job_id,
            submitted_offset=self._at,
            name=event.job.metadata.name,
            tenant=spec.tenant,
            virtual_cluster=spec.virtual_cluster,
            model=spec.model,
            global_batch=spec.global_batch,
            total_iterations=spec.total_iterations,
            deadline_policy=spec.binding.value,
            submitted_at=moment_of(event.submitted_at_seconds),
            deadline_at=None if deadline is None else moment_of(deadline),
        )
        self._touch(job)

    def _admitted(self, event: ev.JobAdmitted) -> None:
        job = self._rows.jobs.get(event.job_id)
        if job is None or job.outcome != Phase.SUBMITTED:
            return
        job.outcome = Phase.ADMITTED.value
        job.admitted_at, job.admitted_offset = self._now, self._at
        job.promised = event.promised
        job.minimum_satisfactory_share = event.minimum_satisfactory_share
        if event.finish_seconds is not None:
            job.finish_promised_at = moment_of(event.finish_seconds)
        self._touch(job)

    def _ended(
        self, job_id: str, outcome: Phase, reason: str | None = None, message: str | None = None
    ) -> None:
        job = self._rows.jobs.pop(job_id, None)
        if job is None:
            return
        job.outcome, job.reason = outcome.value, reason
        job.message = None if message is None else _text(message)
        if outcome is Phase.REJECTED:
            job.rejected_at, job.rejected_offset = self._now, self._at
        job.finished_at, job.finished_offset = self._now, self._at
        self._close_allocation(job)
        self._touch(job)

    # --- allocations -----------------------------------------------------------------------

    def _placed(self, event: ev.JobPlaced | ev.JobMigrated | ev.JobSuspended, gpus: GpuSet) -> None:
        job = self._rows.jobs.get(event.job_id)
        if job is None or not job.live or event.generation <= job.generation:
            return
        before = self._rows.allocations.get(job.job_id)
        workers = gpu_sets.count(gpus)
        if isinstance(event, ev.JobMigrated):
            job.migrations += 1
        elif job.generation > 0 and workers != (0 if before is None else before.workers):
            job.resizes += 1
        self._close_allocation(job)
        job.generation = event.generation
        self._touch(job)
        if workers:
            row = AllocationRow(
                job_id=job.job_id,
                submitted_offset=job.submitted_offset,
                generation=event.generation,
                workers=workers,
                gpus=gpus,
                from_at=self._now,
                from_offset=self._at,
            )
            self._rows.allocations[job.job_id] = row
            self._touch_allocation(row)

    def _touch_allocation(self, row: AllocationRow) -> None:
        self.changes.allocations[row.job_id, row.submitted_offset, row.generation] = row

    def _close_allocation(self, job: JobRow) -> None:
        row = self._rows.allocations.pop(job.job_id, None)
        if row is None:
            return
        row.to_at, row.to_offset = self._now, self._at
        job.gpu_seconds += row.workers * (row.to_at - row.from_at).total_seconds()
        self._touch(job)
        self._touch_allocation(row)

    def _switched(self, event: ev.GenerationSwitched) -> None:
        job = self._rows.jobs.get(event.job_id)
        if job is None or event.generation <= job.switched_generation:
            return
        job.switched_generation = event.generation
        self._touch(job)
        row = self._rows.allocations.get(job.job_id)
        if not job.live or row is None or row.generation != event.generation:
            return
        if job.started_at is None:
            job.started_at, job.started_offset = self._now, self._at
        job.stop_seconds += event.stopped_seconds
        row.switched_at, row.stop_seconds = self._now, event.stopped_seconds
        self._touch_allocation(row)

    def _worker_lost(self, event: ev.WorkerLost) -> None:
        job = self._rows.jobs.get(event.job_id)
        if job is None or not job.live or event.generation <= job.lost_generation:
            return
        job.lost_generation = event.generation
        job.failures = max(job.failures, event.failures)
        self._touch(job)
        if event.generation == job.generation:
            self._close_allocation(job)

    # --- throughput ------------------------------------------------------------------------

    def _measured(self, event: ev.ThroughputMeasured, index: int) -> None:
        job = self._rows.jobs.get(event.job_id)
        if job is not None:
            self._add_throughput(
                ThroughputRow(
                    log_offset=self._at,
                    event_index=index,
                    model=job.model,
                    global_batch=job.global_batch,
                    workers=event.workers,
                    iterations_per_second=event.iterations_per_second,
                    source="measured",
                    known_at=self._now,
                    job_id=event.job_id,
                    generation=event.generation,
                )
            )

    def _curve(self, curve: Curve, source: str, index: int, job_id: str | None = None) -> None:
        for workers, rate in curve.iterations_per_second.items():
            self._add_throughput(
                ThroughputRow(
                    log_offset=self._at,
                    event_index=index,
                    model=curve.model,
                    global_batch=curve.global_batch,
                    workers=workers,
                    iterations_per_second=rate,
                    source=source,
                    known_at=self._now,
                    job_id=job_id,
                )
            )

    def _add_throughput(self, row: ThroughputRow) -> None:
        if max(row.global_batch, row.workers) > _INTEGER_MOST:
            return  # a point of a curve that no job can come to
        key = (row.log_offset, row.event_index, row.model, row.global_batch, row.workers)
        self.changes.throughput[key] = row

    # --- servers ---------------------------------------------------------------------------

    def _fold_server_event(self, event: ev.Event | ev.UnknownEvent) -> None:
        servers = self._rows.servers
        match event:
            case ev.ServerAdded(server=server):
                row = servers.setdefault(
                    server.server_id,
                    ServerRow(
                        server.server_id, server.gpus, _text(server.rack), server.virtual_cluster
                    ),
                )
                row.removed = False
                self.changes.servers[row.server_id] = row
            case (
                ev.ServerRemoved()
                | ev.ServerLoaned()
                | ev.ServerReclaimed()
                | ev.NodeJoined()
                | ev.NodeLost()
            ) if event.server_id in servers:
                self._change_server(servers[event.server_id], event)
            case _:
                pass

    def _change_server(
        self,
        row: ServerRow,
        event: ev.ServerRemoved
        | ev.ServerLoaned
        | ev.ServerReclaimed
        | ev.NodeJoined
        | ev.NodeLost,
    ) -> None:
        match event:
            case ev.ServerRemoved():
                row.removed = True
            case ev.ServerLoaned():
                row.virtual_cluster = event.borrower
            case ev.ServerReclaimed():
                row.virtual_cluster = event.lender
            case ev.NodeJoined() if event.incarnation > row.incarnation:
                # A node that joins anew has none of its old workers, reported lost or not.
                self._lose_allocations(row.server_id)
                row.incarnation, row.joined = event.incarnation, True
            case ev.NodeLost() if event.incarnation == row.incarnation:
                self._lose_allocations(row.server_id)
                row.joined = False
            case _:
                return
        self.changes.servers[row.server_id] = row

    def _lose_allocations(self, server_id: str) -> None:
        for row in list(self._rows.allocations.values()):
            if server_id in row.gpus:
                self._close_allocation(self._rows.jobs[row.job_id])
