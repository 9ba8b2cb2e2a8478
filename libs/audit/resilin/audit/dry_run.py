"""Dry run: what a submission would be answered, asked of the production cores themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resilin.admission.decider import AdmissionDecider
from resilin.admission.intake import ReceivedCommand
from resilin.admission.state import AdmissionState
from resilin.allocator.decider import AllocatorDecider, AllocatorState
from resilin.contracts import events as ev
from resilin.contracts.commands import SubmitJob
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.record import LogEntry, Nature, Record
from resilin.contracts.topics import JOBS_COMMANDS
from resilin.contracts.values import SourcePosition
from resilin.kernel.decider import Decider
from resilin.kernel.host import Folded

__all__ = ["Answer", "DryRun", "dry_run"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one job would be answered.

    Attributes:
        job_id: The id that it would have.
        job: The job.
        deadline_seconds: Its deadline on the cell's clock; None without one.
        verdict: Admission's answer, or why the command itself would not be taken. A job that
            would have to be tried out first has no other answer yet.
    """

    job_id: str
    job: JobSpecification
    deadline_seconds: float | None
    verdict: ev.JobAdmitted | ev.JobRejected | ev.ProfileRequested | ev.CommandRejected


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a submission would do.

    Attributes:
        at_seconds: When it would be made.
        answers: One a job.
        workers: For every job whose worker count would change at once: before and after.
    """

    at_seconds: float
    answers: tuple[Answer, ...]
    workers: dict[str, tuple[int, int]]


def dry_run(
    admission: Folded[AdmissionState],
    allocator: Folded[AllocatorState],
    jobs: Sequence[JobSpecification],
    *,
    at_seconds: float,
) -> DryRun:
    """Submit jobs to folded states, together and in order, and let both services decide.

    Args:
        admission: Admission's state; it is changed.
        allocator: The allocator's state at the same offset; it is changed.
        jobs: What to submit.
        at_seconds: When, not before the states' own time.
    """
    cell = _Cell(admission, allocator, at_seconds)
    # What is open already must not be laid at the new jobs' door.
    cell.settle()
    before = _wanted(allocator.state)
    taken = {job_id: cell.take(job_id, job) for job_id, job in _named(admission.state, jobs)}
    cell.settle()
    answers = tuple(
        Answer(
            job_id,
            job,
            fact.deadline_seconds if isinstance(fact, ev.JobSubmitted) else None,
            fact if isinstance(fact, ev.CommandRejected) else cell.verdict_on(job_id),
        )
        for (job_id, fact), job in zip(taken.items(), jobs, strict=True)
    )
    after = _wanted(allocator.state)
    workers = {
        job_id: (before.get(job_id, 0), count)
        for job_id, count in after.items()
        if before.get(job_id, 0) != count
    }
    return DryRun(at_seconds, answers, workers)


def _wanted(state: AllocatorState) -> dict[str, int]:
    return {job.job_id: job.wanted_workers for job in state.cell.jobs.values() if job.live}


def _named(
    state: AdmissionState, jobs: Sequence[JobSpecification]
) -> list[tuple[str, JobSpecification]]:
    """Give each job an id of its own: its name, or that and a number."""
    ids = dict(state.recent_jobs)
    named = []
    for job in jobs:
        job_id, number = job.metadata.name, 1
        while job_id in ids:
            number += 1
            job_id = f"{job.metadata.name[:180]}-{number}"
        ids[job_id] = None
        named.append((job_id, job))
    return named


class _Cell:
    """The two services that answer a submission, past the end of a log."""

    def __init__(
        self,
        admission: Folded[AdmissionState],
        allocator: Folded[AllocatorState],
        at_seconds: float,
    ) -> None:
        self._intake = AdmissionDecider()
        self._admission = admission
        self._services: list[tuple[Decider[Any], Folded[Any]]] = [
            (self._intake, admission),
            (AllocatorDecider(), allocator),
        ]
        self._now = at_seconds
        self._offset = max(admission.offset, allocator.offset)
        self._verdicts: dict[str, ev.JobAdmitted | ev.JobRejected] = {}

    def verdict_on(self, job_id: str) -> ev.JobAdmitted | ev.JobRejected | ev.ProfileRequested:
        """Return a job's answer; without one it waits for a profile, its own or another's."""
        return self._verdicts.get(job_id) or ev.ProfileRequested(job_id=job_id)

    def take(self, job_id: str, job: JobSpecification) -> ev.Event:
        """Take a submission in; return the fact that it adds."""
        state = self._admission.state
        position = state.positions.get(f"{JOBS_COMMANDS.name}/0", -1) + 1
        source = SourcePosition(topic=JOBS_COMMANDS.name, offset=position)
        command = SubmitJob(command_id=f"dry-run-{position}", job_id=job_id, job=job)
        facts = self._intake.accept(state, ReceivedCommand(command, source, self._now))
        self._append(self._intake.service, "facts", facts)
        return facts[0]

    def settle(self) -> None:
        """Let both decide until neither has anything to append."""
        while any(self._decide(decider, folded) for decider, folded in self._services):
            pass

    def _decide(self, decider: Decider[Any], folded: Folded[Any]) -> bool:
        events = decider.decide(folded.state)
        if events:
            self._append(decider.service, "decision", events)
        return bool(events)

    def _append(self, service: str, nature: Nature, events: Sequence[ev.Event]) -> None:
        basis, self._offset = self._offset, self._offset + 1
        record = Record(service, "main", 0, basis, nature, self._now, tuple(events))
        entry = LogEntry(self._offset, record)
        for event in events:
            if isinstance(event, ev.JobAdmitted | ev.JobRejected):
                self._verdicts[event.job_id] = event
            for decider, folded in self._services:
                folded.state = decider.evolve(folded.state, event, entry)
