"""What the readers of all formats share: what is asked of them, what they give back."""

from __future__ import annotations

from dataclasses import dataclass

from resilin.planning.curves import ThroughputCurve
from resilin.workloads.csv_table import MOST_SECONDS, FilePath, Row
from resilin.workloads.curve_book import CurveBook
from resilin.workloads.trace import SkippedJobs, TraceJob

__all__ = ["JobIds", "ReadRequest", "Reading", "absolute_deadline", "curve_of", "known_workers"]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """How to read a trace, whatever its format.

    Attributes:
        curves: Throughput curves of the models that jobs may name or be given.
        seed: Seed for what a format leaves open.
        deadline_tightness: Least and largest deadline, in durations after submission, for
            formats without deadlines.
        pollux_models: The folder with Pollux's model profiles, for that format.
    """

    curves: CurveBook
    seed: int
    deadline_tightness: tuple[float, float]
    pollux_models: FilePath | None


@dataclass(frozen=True, slots=True)
class Reading:
    """The jobs of a file in any order, and what was left out."""

    jobs: list[TraceJob]
    skipped: tuple[SkippedJobs, ...] = ()


class JobIds:
    """The ids met so far, to find one that is there twice."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def take(self, row: Row, column: str) -> str:
        """Return the id in a row's column.

        Raises:
            WorkloadError: If it is no name, or an earlier row has it.
        """
        job_id = row.name(column)
        first = self._lines.setdefault(job_id, row.line)
        if first != row.line:
            raise row.error(
                column, f"{job_id!r} is the id of the job on line {first} too; make ids unique"
            )
        return job_id


def curve_of(
    row: Row, curves: CurveBook, model: str, global_batch: int, *, columns: tuple[str, str]
) -> ThroughputCurve:
    """Return the curve of a row's model and global batch, named in these two columns.

    Raises:
        WorkloadError: If the book has none.
    """
    curve = curves.get((model, global_batch))
    if curve is not None:
        return curve
    model_column, batch_column = columns
    batches = curves.global_batches(model)
    if not batches:
        raise row.error(
            model_column,
            f"no throughput curve for {model!r} in {curves.source}, which has "
            f"{', '.join(curves.models)}; add a profile of it, or name one of these",
        )
    raise row.error(
        batch_column,
        f"no throughput curve for {model!r} with global batch {global_batch} in {curves.source}, "
        f"which has {', '.join(map(str, batches))}; add it to the profile, or use one of these",
    )


def known_workers(row: Row, column: str, requested: int, curve: ThroughputCurve) -> int:
    """Round a requested worker count down to one that the curve knows.

    Raises:
        WorkloadError: If the curve knows only larger counts.
    """
    workers = curve.floor(requested)
    if workers == 0:
        raise row.error(
            column,
            f"{requested} workers are fewer than the least with a known throughput, "
            f"{curve.workers[0]}; ask for more, or profile smaller counts",
        )
    return workers


def absolute_deadline(row: Row, column: str, submitted_at_seconds: float) -> float:
    """Return a row's deadline.

    Raises:
        WorkloadError: If it is no time, or before the submission.
    """
    deadline = row.seconds(column)
    if deadline < submitted_at_seconds:
        raise row.error(
            column,
            f"the deadline {deadline:g} is before the submission {submitted_at_seconds:g}; both "
            f"count from the same zero, up to {MOST_SECONDS:g} seconds",
        )
    return deadline
