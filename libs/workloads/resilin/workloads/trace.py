"""A trace: the jobs that a workload submits, with the clock they are submitted on."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["SkippedJobs", "Trace", "TraceJob", "WorkloadError"]


class WorkloadError(ValueError):
    """A trace or profile file that cannot be used, with the place and what to do about it.

    Attributes:
        file: The file, as the caller named it.
        line: The line in that file, from 1; None if the whole file is meant.
        field: The column, as the file names it; None if a whole line or file is meant.
        message: What is wrong and how to put it right.
    """

    def __init__(
        self, file: str, message: str, *, line: int | None = None, field: str | None = None
    ) -> None:
        self.file = file
        self.line = line
        self.field = field
        self.message = message
        place = file if line is None else f"{file}:{line}"
        what = message if field is None else f"field {field!r}: {message}"
        super().__init__(f"{place}: {what}")


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        job_id: Unique in its trace.
        submitted_at_seconds: Submission on the trace's clock, finite.
        model: Name of the model; with ``global_batch`` the key of its throughput curve.
        global_batch: Samples an iteration trains on, over all workers, at least 1.
        iterations: Iterations to run, at least 1.
        deadline_seconds: Absolute deadline on the trace's clock, not before submission;
            None for a best-effort job.
        requested_workers: Workers that the user asked for, at least 1. What a scheduler
            without elasticity must use.
        duration_seconds: Run time on that many workers without waiting, above 0; None if
            the trace does not tell.

    Raises:
        ValueError: If an attribute breaks these rules.
    """

    job_id: str
    submitted_at_seconds: float
    model: str
    global_batch: int
    iterations: int
    deadline_seconds: float | None
    requested_workers: int
    duration_seconds: float | None

    def __post_init__(self) -> None:
        if not math.isfinite(self.submitted_at_seconds):
            raise ValueError(f"job {self.job_id!r}: the submission time must be finite")
        if min(self.global_batch, self.iterations, self.requested_workers) < 1:
            raise ValueError(
                f"job {self.job_id!r}: global batch, iterations and requested workers must be at "
                f"least 1, got {self.global_batch}, {self.iterations}, {self.requested_workers}"
            )
        deadline = self.deadline_seconds
        if deadline is not None and not self.submitted_at_seconds <= deadline < math.inf:
            raise ValueError(
                f"job {self.job_id!r}: the deadline must be finite and not before submission, "
                f"got {deadline} for a submission at {self.submitted_at_seconds}"
            )
        if self.duration_seconds is not None and not 0 < self.duration_seconds < math.inf:
            raise ValueError(f"job {self.job_id!r}: the duration must be finite and above 0")


@dataclass(frozen=True, slots=True)
class SkippedJobs:
    """Jobs of a file that a reader left out of the trace.

    Attributes:
        reason: Why, as a phrase: "CPU job".
        count: How many, at least 1.
    """

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission.

    Attributes:
        name: Name for reports; readers use the file's name.
        jobs: Sorted by submission; jobs submitted at the same second keep their order.
            The constructor sorts.
        skipped: What the reader left out of the file, over the whole file, by reason.

    Raises:
        ValueError: If two jobs have the same id.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    skipped: tuple[SkippedJobs, ...] = ()

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.jobs, key=lambda job: job.submitted_at_seconds))
        seen: set[str] = set()
        for job in ordered:
            if job.job_id in seen:
                raise ValueError(f"trace {self.name!r} has two jobs with the id {job.job_id!r}")
            seen.add(job.job_id)
        object.__setattr__(self, "jobs", ordered)
