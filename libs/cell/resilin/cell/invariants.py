"""What must hold at every offset of every log, checked in one place.

Tests, simulation, fault injection and ``resilin verify`` share this module. It sees
nothing but the log. Numbers are those of docs/invariants.md:

1. No GPU belongs to two jobs.
2. Every submitted job ends in exactly one terminal event, or is live.
3. A promised job meets its deadline, unless the cell lost more than its promise allows
   for: throughput below its curve, a worker's unsaved work, or more than the reserve; or
   its operators changed the settings or curves that the promise was made under.
4. A promised job's plan, followed from where the job is, keeps its promise.
5. Progress never goes backwards, except to a checkpoint when a worker was lost.
9. Every event is written by its own service, as the fact or decision that it is.
10. A job has a size that its specification allows, or none.
11. A record's basis is an entry before it, and time never runs backwards between the two.

(6 and 7 speak of training data and of inference and are checked where those live; 8,
that a decision can be recomputed, is the audit's.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from resilin.cell import gpu_sets
from resilin.cell.state import CellState, Phase, Profile, ServerState, curve_key, evolve_cell
from resilin.cell.view import cluster_view, stop_seconds
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.kernel.fencing import Fence
from resilin.planning.filling import projected_finish
from resilin.planning.view import Binding, Plan

__all__ = ["InvariantChecker", "Violation"]

# Positions on the clock and amounts of work are compared up to rounding.
ROUNDING_SECONDS = 1e-3
ROUNDING_ITERATIONS = 1e-3


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be.

    Attributes:
        offset: The entry after which it was so.
        invariant: Its number in the list above.
        message: What was found.
    """

    offset: int
    invariant: int
    message: str

    def __str__(self) -> str:
        return f"offset {self.offset}: invariant {self.invariant}: {self.message}"


class InvariantChecker:
    """Folds a log and says what is wrong with it."""

    def __init__(self) -> None:
        self._cell = CellState()
        self._fence = Fence()
        self._timestamps: dict[int, float] = {}
        self._newest_timestamp = float("-inf")
        self._outcomes: dict[str, tuple[str, int]] = {}
        self._basis = -1
        self._progress: dict[str, float] = {}
        self._excused: dict[str, str] = {}
        self._found: list[Violation] = []
        self._offset = -1
        self._now_seconds = 0.0

    def fold(self, entry: LogEntry) -> list[Violation]:
        """Fold the next entry; return what is wrong after it."""
        self._offset = entry.offset
        self._basis = entry.record.basis
        self._found = []
        self._check_clock(entry)
        if not self._fence.admit(entry):
            return self._found
        if entry.record.timestamp > self._cell.now_seconds:
            self._check_plans()
        # The cell's own clock still stands at the entry before.
        self._now_seconds = max(entry.record.timestamp, self._cell.now_seconds)
        for event in entry.record.events:
            if isinstance(event, ev.Event):
                self._check_origin(event, entry)
                self._before(event)
            evolve_cell(self._cell, event, entry)
        self._check_gpus()
        return self._found

    def _report(self, invariant: int, message: str) -> None:
        self._found.append(Violation(self._offset, invariant, message))

    # --- 9, 11: the record itself ----------------------------------------------------------

    def _check_clock(self, entry: LogEntry) -> None:
        record = entry.record
        basis = self._timestamps.get(record.basis)
        if record.basis >= entry.offset:
            self._report(11, f"the basis {record.basis} is not before the record")
        elif basis is None and record.basis >= next(iter(self._timestamps), 0):
            self._report(11, f"the basis {record.basis} of {record.service} is not in the log")
        elif basis is not None and record.timestamp < basis:
            self._report(11, f"{record.service} wrote a time before that of its basis")
        self._newest_timestamp = max(self._newest_timestamp, record.timestamp)
        self._timestamps[entry.offset] = self._newest_timestamp
        if len(self._timestamps) > 100_000:
            del self._timestamps[next(iter(self._timestamps))]

    def _check_origin(self, event: ev.Event, entry: LogEntry) -> None:
        record, name = entry.record, type(event).__name__
        writer = record.service.split("/")[0]
        if event.writer not in ("*", writer):
            self._report(9, f"{name} was written by {record.service}, not by {event.writer}")
        expected = {"fact": "facts", "decision": "decision", "kernel": "claim"}[event.nature]
        if record.nature != expected:
            self._report(9, f"{name} stands in a record of {record.nature}")

    # --- 2, 3, 5, 10: one event ------------------------------------------------------------

    def _before(self, event: ev.Event) -> None:
        check = _CHECKS.get(type(event))
        if check is not None:
            check(self, event)

    def _submitted(self, event: ev.JobSubmitted) -> None:
        if event.job_id in self._outcomes:
            self._report(2, f"job {event.job_id} was submitted twice")
        self._outcomes[event.job_id] = ("", self._offset)

    def _ends(
        self, event: ev.JobRejected | ev.JobCancelled | ev.JobCompleted | ev.JobFailed
    ) -> None:
        name, (before, _) = type(event).__name__, self._outcomes.get(event.job_id, (None, -1))
        if before is None:
            self._report(2, f"{name} for job {event.job_id}, which was never submitted")
        elif before and self._overtaken(event.job_id):
            return
        elif before:
            self._report(2, f"{name} for job {event.job_id}, which had {before}")
        self._outcomes[event.job_id] = (name, self._offset)
        self._excused.pop(event.job_id, None)
        self._progress.pop(event.job_id, None)

    def _overtaken(self, job_id: str) -> bool:
        """Say whether a job ended in a record that the writer of this one had not seen.

        Two services write at once: one cancels while the other completes. The log's order
        decides, every fold ignores the later end, and no writer is to blame.
        """
        outcome, offset = self._outcomes.get(job_id, ("", -1))
        return bool(outcome) and self._basis < offset < self._offset

    def _completed(self, event: ev.JobCompleted) -> None:
        job = self._cell.jobs.get(event.job_id)
        if job is not None and job.live and job.promised and job.deadline_seconds is not None:
            late = self._now_seconds - job.deadline_seconds
            if late > ROUNDING_SECONDS and event.job_id not in self._excused:
                self._report(3, f"job {event.job_id} was done {late:.3f} s after its deadline")
        self._advances(event)
        self._ends(event)

    def _admitted(self, event: ev.JobAdmitted) -> None:
        job = self._cell.jobs.get(event.job_id)
        if job is None or job.phase is not Phase.SUBMITTED:
            self._report(2, f"job {event.job_id} was admitted while not waiting for an answer")

    def _to_be_profiled(self, event: ev.ProfileRequested) -> None:
        job = self._cell.jobs.get(event.job_id)
        if job is None or job.phase is not Phase.SUBMITTED or job.profile is not Profile.NONE:
            self._report(2, f"job {event.job_id} was to be profiled while not waiting for it")

    def _advances(
        self,
        event: ev.GenerationSwitched | ev.ProgressReported | ev.WorkersReleased | ev.JobCompleted,
    ) -> None:
        job = self._cell.jobs.get(event.job_id)
        if job is None or not job.live:
            return
        before = self._progress.get(event.job_id, 0.0)
        if event.iterations_done < before - ROUNDING_ITERATIONS:
            self._report(
                5, f"job {event.job_id} fell from {before} to {event.iterations_done} iterations"
            )
        self._progress[event.job_id] = event.iterations_done

    def _worker_lost(self, event: ev.WorkerLost) -> None:
        self._progress[event.job_id] = event.iterations_done
        self._excused[event.job_id] = "a worker was lost"

    def _worker_replaced(self, event: ev.WorkerReplaced) -> None:
        self._excused[event.job_id] = "a worker was lost"

    def _measured(self, event: ev.ThroughputMeasured) -> None:
        job = self._cell.jobs.get(event.job_id)
        if job is None:
            return
        believed = self._cell.step_rate(job, event.workers)
        if event.iterations_per_second < believed:
            # Others may have to wait for it: the promises were made for a faster job.
            self._excuse_all(f"job {event.job_id} is slower than its curve")

    def _node_lost(self, event: ev.NodeLost | ev.NodeJoined) -> None:
        lost = self._cell.servers.get(event.server_id)
        if lost is None or event.incarnation < lost.incarnation:
            return
        for job in self._cell.jobs.values():
            if event.server_id in job.placed:
                self._progress[job.job_id] = 0.0
                self._excused[job.job_id] = "a worker was lost"
        if isinstance(event, ev.NodeLost):
            self._unusable(lost)

    def _unusable(self, lost: ServerState) -> None:
        """Excuse everybody if more servers are out of use than the reserve covers."""
        if not lost.usable:
            return
        settings = self._cell.configuration.virtual_cluster(lost.virtual_cluster)
        reserve = 0 if settings is None else settings.reserve_servers
        out_of_use = sum(
            not server.usable and not server.removed
            for server in self._cell.servers.values()
            if server.virtual_cluster == lost.virtual_cluster
        )
        if out_of_use + 1 > reserve:
            self._excuse_all("capacity was lost")

    def _cordoned(self, event: ev.ServerCordoned) -> None:
        server = self._cell.servers.get(event.server_id)
        if server is not None and event.cordoned:
            self._unusable(server)

    def _removed(self, event: ev.ServerRemoved) -> None:
        # The reserve is held of the servers that are left, so promises have less to count on.
        if event.server_id in self._cell.servers:
            self._excuse_all("a server was removed")

    def _excuse_all(self, why: str) -> None:
        for job_id in self._cell.jobs:
            self._excused.setdefault(job_id, why)

    def _settings_changed(self, event: ev.CellConfigured) -> None:
        if event.configuration != self._cell.configuration:
            self._excuse_all("the cell's settings changed")

    def _curves_changed(self, event: ev.CurvesImported) -> None:
        for curve in event.curves:
            key = curve_key(curve.model, curve.global_batch)
            rates = curve.iterations_per_second
            known = self._cell.curves.get(key, {})
            if any(rates.get(count, 0.0) < rate for count, rate in known.items()):
                self._excuse_all(f"curve {key} became slower")

    def _placed(self, event: ev.JobPlaced | ev.JobMigrated) -> None:
        job = self._cell.jobs.get(event.job_id)
        workers = gpu_sets.count(event.gpus)
        if job is None or not job.live:
            if not self._overtaken(event.job_id):
                self._report(2, f"job {event.job_id} was placed while not live")
        elif not job.job.spec.elastic.allows(workers):
            self._report(10, f"job {event.job_id} may not have {workers} workers")

    # --- 1, 4: the whole state -------------------------------------------------------------

    def _check_gpus(self) -> None:
        owner: dict[tuple[str, int], str] = {}
        for job in self._cell.jobs.values():
            for gpu in gpu_sets.each(job.held):
                if gpu in owner:
                    self._report(1, f"{gpu[0]}/{gpu[1]} is held by {owner[gpu]} and {job.job_id}")
                owner[gpu] = job.job_id
                server = self._cell.servers.get(gpu[0])
                if server is None or not 0 <= gpu[1] < server.server.gpus:
                    self._report(1, f"{job.job_id} holds {gpu[0]}/{gpu[1]}, which does not exist")

    def _check_plans(self) -> None:
        """Before time moves on: does every plan, followed from here, keep its promise?

        Not asked while workers are on their way out: a job may be waiting for their GPUs,
        and what it needs is asked again once they are free in fact. A plan may slip by the
        cell's promise margin, which is there for a control plane that takes its time.
        """
        if any(job.leaving for job in self._cell.jobs.values()):
            return
        margin = self._cell.configuration.promise_margin_seconds
        self._excuse_late_starts(margin)
        for cluster in self._cell.configuration.virtual_clusters:
            for job in cluster_view(self._cell, cluster.name).jobs:
                if job.binding is not Binding.GUARANTEED or job.job_id in self._excused:
                    continue
                if not self._cell.jobs[job.job_id].promised:
                    continue
                finish = projected_finish(job, _slipped(job.plan, margin), self._cell.now_seconds)
                if finish > job.deadline_seconds + ROUNDING_SECONDS:
                    self._report(
                        4, f"the plan of job {job.job_id} ends at {finish}, after its deadline"
                    )

    def _excuse_late_starts(self, margin: float) -> None:
        """Excuse everybody if a job stands still for longer than the cell's settings say.

        Like a throughput below its curve: promises were made for a faster one.
        """
        cell = self._cell
        for job in cell.jobs.values():
            if job.live and job.placed and not job.trains:
                stop = stop_seconds(cell.configuration.stop_cost, job.placed_workers)
                if cell.now_seconds > job.placed_at_seconds + stop + margin:
                    self._excuse_all(f"job {job.job_id} took longer to start than was believed")


def _slipped(plan: Plan, seconds: float) -> Plan:
    """Let a plan's last segment last longer."""
    if not plan:
        return plan
    *before, (start, end, workers) = plan
    return (*before, (start, end + seconds, workers))


_CHECKS: dict[type, Callable[..., None]] = {
    ev.JobSubmitted: InvariantChecker._submitted,  # noqa: SLF001 (this class's own table)
    ev.JobRejected: InvariantChecker._ends,  # noqa: SLF001 (this class's own table)
    ev.JobCancelled: InvariantChecker._ends,  # noqa: SLF001 (this class's own table)
    ev.JobFailed: InvariantChecker._ends,  # noqa: SLF001 (this class's own table)
    ev.JobCompleted: InvariantChecker._completed,  # noqa: SLF001 (this class's own table)
    ev.JobAdmitted: InvariantChecker._admitted,  # noqa: SLF001 (this class's own table)
    ev.ProfileRequested: InvariantChecker._to_be_profiled,  # noqa: SLF001 (this class's own table)
    ev.GenerationSwitched: InvariantChecker._advances,  # noqa: SLF001 (this class's own table)
    ev.ProgressReported: InvariantChecker._advances,  # noqa: SLF001 (this class's own table)
    ev.WorkersReleased: InvariantChecker._advances,  # noqa: SLF001 (this class's own table)
    ev.WorkerLost: InvariantChecker._worker_lost,  # noqa: SLF001 (this class's own table)
    ev.WorkerReplaced: InvariantChecker._worker_replaced,  # noqa: SLF001 (this class's own table)
    ev.ThroughputMeasured: InvariantChecker._measured,  # noqa: SLF001 (this class's own table)
    ev.NodeJoined: InvariantChecker._node_lost,  # noqa: SLF001 (this class's own table)
    ev.NodeLost: InvariantChecker._node_lost,  # noqa: SLF001 (this class's own table)
    ev.ServerRemoved: InvariantChecker._removed,  # noqa: SLF001 (this class's own table)
    ev.ServerCordoned: InvariantChecker._cordoned,  # noqa: SLF001 (this class's own table)
    ev.CellConfigured: InvariantChecker._settings_changed,  # noqa: SLF001 (this class's own table)
    ev.CurvesImported: InvariantChecker._curves_changed,  # noqa: SLF001 (this class's own table)
    ev.JobPlaced: InvariantChecker._placed,  # noqa: SLF001 (this class's own table)
    ev.JobMigrated: InvariantChecker._placed,  # noqa: SLF001 (this class's own table)
}
