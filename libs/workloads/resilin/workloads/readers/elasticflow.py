"""ElasticFlow's job traces: the published ones, and those that its generator writes."""

from __future__ import annotations

from dataclasses import dataclass

from resilin.workloads.csv_table import Row, Table
from resilin.workloads.readers.common import (
    JobIds,
    Reading,
    ReadRequest,
    absolute_deadline,
    curve_of,
    known_workers,
)
from resilin.workloads.trace import TraceJob

__all__ = ["PUBLISHED", "ElasticFlowColumns", "read_elasticflow", "read_jobs_with_models"]


@dataclass(frozen=True, slots=True)
class ElasticFlowColumns:
    """Names of the columns that differ between the variants."""

    job_id: str
    submission: str
    iterations: str
    deadline: str
    best_effort: str | None

    @property
    def required(self) -> tuple[str, ...]:
        """Return all columns of the variant."""
        own = (self.job_id, self.submission, self.iterations, self.deadline)
        shared = ("model_name", "batch_size", "num_gpu", "duration")
        return (*own, *shared, *((self.best_effort,) if self.best_effort else ()))


PUBLISHED = ElasticFlowColumns(
    job_id="job_id",
    submission="submission_time",
    iterations="num_iteration",
    deadline="deadline",
    best_effort=None,
)
"""The traces of microsoft/elasticflow-traces: every job has a deadline."""

GENERATED = ElasticFlowColumns(
    job_id="job_id",
    submission="submit_time",
    iterations="iteration",
    deadline="ddl",
    best_effort="best_effort",
)
"""The output of the trace generator of pkusys/ElasticFlow: ``best_effort`` 1 voids ``ddl``."""


def read_elasticflow(table: Table, request: ReadRequest) -> Reading:
    """Read either variant, told by the name of the submission column.

    Raises:
        WorkloadError: If the table is none of the two, or a cell is wrong.
    """
    generated = GENERATED.submission in table.columns
    return read_jobs_with_models(table, request, GENERATED if generated else PUBLISHED)


def read_jobs_with_models(
    table: Table, request: ReadRequest, columns: ElasticFlowColumns
) -> Reading:
    """Read jobs that come with model, batch, iterations and deadline.

    Raises:
        WorkloadError: If a column is missing or a cell is wrong.
    """
    table.require(columns.required, layout="ElasticFlow trace")
    ids = JobIds()
    return Reading([_job(row, request, columns, ids) for row in table.rows])


def _job(row: Row, request: ReadRequest, columns: ElasticFlowColumns, ids: JobIds) -> TraceJob:
    model, global_batch = row.name("model_name"), row.whole("batch_size")
    curve = curve_of(row, request.curves, model, global_batch, columns=("model_name", "batch_size"))
    submitted = row.seconds(columns.submission)
    best_effort = columns.best_effort is not None and _flag(row, columns.best_effort)
    return TraceJob(
        job_id=ids.take(row, columns.job_id),
        submitted_at_seconds=submitted,
        model=model,
        global_batch=global_batch,
        iterations=row.whole(columns.iterations),
        deadline_seconds=(
            None if best_effort else absolute_deadline(row, columns.deadline, submitted)
        ),
        requested_workers=known_workers(row, "num_gpu", row.whole("num_gpu"), curve),
        duration_seconds=row.positive_seconds("duration"),
    )


def _flag(row: Row, column: str) -> bool:
    text = row.text(column)
    if text not in ("0", "1"):
        raise row.error(column, f"{text[:40]!r} is no flag; write 0 (deadline) or 1 (best effort)")
    return text == "1"
