"""The history of a run: one fold of the log into what reports are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from resilin.cell import gpu_sets
from resilin.cell.state import CellState, JobState, Phase, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.kernel.fencing import Fence

__all__ = ["History", "JobHistory", "Moment"]


@dataclass(slots=True)
class JobHistory:
    """One job, from submission to its end.

    Attributes:
        job_id: Its identity.
        model: What it trains.
        submitted_at_seconds: When it was submitted.
        deadline_seconds: Its deadline, None for none.
        outcome: Its last phase.
        promised: Whether its deadline was promised.
        answered_at_seconds: When admission answered.
        started_at_seconds: When it first trained.
        ended_at_seconds: When it ended.
        reason: Why it was refused or failed.
        earliest_deadline_seconds: The counter-offer, if it was refused.
        resizes: Changes of its worker count after its start, suspensions included.
        migrations: Moves at the same size.
        allocation: (seconds, workers) at each change of its GPUs.
    """

    job_id: str
    model: str
    submitted_at_seconds: float
    deadline_seconds: float | None
    outcome: Phase = Phase.SUBMITTED
    promised: bool = False
    answered_at_seconds: float | None = None
    started_at_seconds: float | None = None
    ended_at_seconds: float | None = None
    reason: str = ""
    earliest_deadline_seconds: float | None = None
    resizes: int = 0
    migrations: int = 0
    allocation: list[tuple[float, int]] = field(default_factory=list)

    @property
    def met(self) -> bool:
        """Whether it had a deadline and was done by then."""
        return (
            self.outcome is Phase.COMPLETED
            and self.deadline_seconds is not None
            and self.ended_at_seconds is not None
            and self.ended_at_seconds <= self.deadline_seconds
        )

    @property
    def completion_seconds(self) -> float | None:
        """Time from submission to completion; None for a job that did not complete."""
        if self.outcome is not Phase.COMPLETED or self.ended_at_seconds is None:
            return None
        return self.ended_at_seconds - self.submitted_at_seconds

    @property
    def slack_seconds(self) -> float | None:
        """Time between completion and deadline; negative for a late job."""
        if self.deadline_seconds is None or self.completion_seconds is None:
            return None
        return self.deadline_seconds - self.submitted_at_seconds - self.completion_seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster between two changes.

    Attributes:
        at_seconds: From when on.
        gpus: GPUs that work.
        busy: GPUs that jobs hold.
        efficiency: ElasticFlow's equation 8: the sum over jobs of their throughput over
            that of one worker, per GPU.
    """

    at_seconds: float
    gpus: int
    busy: int
    efficiency: float


class History:
    """Folds a log, entry by entry; records that do not count are left out."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobHistory] = {}
        self.moments: list[Moment] = []
        self.records = 0
        self.policy = ""
        self._fence = Fence()
        self._cell = CellState()
        self._speedups: dict[str, tuple[int, float]] = {}

    @classmethod
    def of(cls, entries: Iterable[LogEntry]) -> History:
        """Fold a whole log."""
        history = cls()
        for entry in entries:
            history.fold(entry)
        return history

    def fold(self, entry: LogEntry) -> None:
        """Fold the next entry."""
        self.records += 1
        if not self._fence.admit(entry):
            return
        changed = False
        for event in entry.record.events:
            self._note(event, entry.record.timestamp)
            evolve_cell(self._cell, event, entry)
            changed = self._note_speed(event) or changed
        if changed:
            self._note_moment()

    def _note(self, event: ev.Event | ev.UnknownEvent, now: float) -> None:
        match event:
            case ev.CellConfigured(configuration=settings):
                self.policy = settings.virtual_clusters[0].policy
            case ev.JobSubmitted():
                self.jobs[event.job_id] = JobHistory(
                    event.job_id,
                    event.job.spec.model,
                    event.submitted_at_seconds,
                    event.deadline_seconds,
                )
            case ev.JobAdmitted():
                job = self.jobs[event.job_id]
                job.outcome, job.promised, job.answered_at_seconds = (
                    Phase.ADMITTED,
                    event.promised,
                    now,
                )
            case ev.JobRejected():
                job = self.jobs[event.job_id]
                job.answered_at_seconds = now
                job.reason = event.reason
                job.earliest_deadline_seconds = event.earliest_deadline_seconds
                job.outcome = Phase.REJECTED
            case ev.DeadlineChanged():
                self.jobs[event.job_id].deadline_seconds = event.deadline_seconds
            case ev.JobPlaced() | ev.JobMigrated() | ev.JobSuspended():
                self._note_placement(event, now)
            case ev.GenerationSwitched():
                job = self.jobs[event.job_id]
                if job.started_at_seconds is None:
                    job.started_at_seconds = now
            case ev.JobCompleted():
                self._note_end(event.job_id, Phase.COMPLETED, "", now)
            case ev.JobFailed():
                self._note_end(event.job_id, Phase.FAILED, event.reason, now)
            case ev.JobCancelled():
                self._note_end(event.job_id, Phase.CANCELLED, "", now)
            case ev.WorkerLost():
                self.jobs[event.job_id].allocation.append((now, 0))
            case _:
                pass

    def _note_placement(
        self, event: ev.JobPlaced | ev.JobMigrated | ev.JobSuspended, now: float
    ) -> None:
        job = self.jobs[event.job_id]
        if job.outcome.terminal:
            return  # placed by one service while another ended it
        workers = 0 if isinstance(event, ev.JobSuspended) else gpu_sets.count(event.gpus)
        if isinstance(event, ev.JobMigrated):
            job.migrations += 1
        elif job.allocation and job.allocation[-1][1] != workers:
            job.resizes += 1
        job.allocation.append((now, workers))

    def _note_end(self, job_id: str, outcome: Phase, reason: str, now: float) -> None:
        job = self.jobs[job_id]
        if job.outcome.terminal:
            return  # ended by two services at once: the first counts
        job.outcome, job.reason, job.ended_at_seconds = outcome, reason, now
        if job.allocation and job.allocation[-1][1]:
            job.allocation.append((now, 0))

    def _note_speed(self, event: ev.Event | ev.UnknownEvent) -> bool:
        """Keep each job's GPUs and speed-up current; say whether anything changed."""
        if isinstance(event, ev.NodeJoined | ev.NodeLost | ev.ServerRemoved):
            return True
        if not isinstance(event, _CHANGES_SPEED):
            return False
        job = self._cell.jobs.get(event.job_id)
        if job is None:
            self._speedups.pop(event.job_id, None)
        else:
            self._speedups[event.job_id] = (gpu_sets.count(job.held), self._speedup(job))
        return True

    def _speedup(self, job: JobState) -> float:
        if not job.trains:
            return 0.0
        rates = self._cell.believed_rates(job)
        smallest = min(rates)
        # A curve may start above one worker; its smallest size then stands for its own count.
        one = rates[smallest] / smallest
        return self._cell.curve_rate(job, job.placed_workers) / one

    def _note_moment(self) -> None:
        gpus = sum(s.server.gpus for s in self._cell.servers.values() if s.works)
        moment = Moment(
            self._cell.now_seconds,
            gpus,
            sum(held for held, _ in self._speedups.values()),
            sum(speedup for _, speedup in self._speedups.values()) / gpus if gpus else 0.0,
        )
        if self.moments and self.moments[-1].at_seconds == moment.at_seconds:
            self.moments[-1] = moment
        else:
            self.moments.append(moment)


_CHANGES_SPEED = (
    ev.JobPlaced,
    ev.JobMigrated,
    ev.JobSuspended,
    ev.GenerationSwitched,
    ev.WorkersReleased,
    ev.WorkerLost,
    ev.JobCompleted,
    ev.JobFailed,
    ev.JobCancelled,
    ev.ThroughputMeasured,
)
