"""Job logs of Microsoft's ITP clusters, released with ElasticFlow."""

from __future__ import annotations

from dataclasses import replace

from resilin.workloads.csv_table import Table
from resilin.workloads.readers.assignment import LoggedJob, assign_models
from resilin.workloads.readers.common import JobIds, Reading, ReadRequest
from resilin.workloads.readers.elasticflow import PUBLISHED, read_jobs_with_models

__all__ = ["read_itp"]

_WITH_MODELS = replace(PUBLISHED, job_id="row")

_GIVEN = frozenset({"row", "num_iteration", "model_name", "deadline", "batch_size"})
"""Any of these columns says that models and deadlines are given; then none may be missing."""


def read_itp(table: Table, request: ReadRequest) -> Reading:
    """Read a raw log (``submission_time,duration,num_gpu``), or one with models and deadlines.

    Raw jobs are given models and deadlines (see :func:`.assignment.assign_models`). A raw log
    without a ``job_id`` column names its jobs by their row, from 0.

    Raises:
        WorkloadError: If a column is missing or a cell is wrong.
    """
    if _GIVEN.intersection(table.columns):
        return read_jobs_with_models(table, request, _WITH_MODELS)
    table.require(("submission_time", "duration", "num_gpu"), layout="ITP log")
    ids = JobIds()
    has_ids = "job_id" in table.columns
    logged = [
        LoggedJob(
            row=row,
            job_id=ids.take(row, "job_id") if has_ids else str(position),
            submitted_at_seconds=row.seconds("submission_time"),
            duration_seconds=row.positive_seconds("duration"),
            requested_workers=row.whole("num_gpu"),
        )
        for position, row in enumerate(table.rows)
    ]
    return Reading(
        assign_models(logged, request, duration_column="duration", workers_column="num_gpu")
    )
