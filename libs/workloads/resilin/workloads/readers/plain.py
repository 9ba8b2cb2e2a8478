"""Resilin's own trace format: a CSV with the attributes of a job as columns."""

from __future__ import annotations

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

__all__ = ["read_plain"]

REQUIRED = ("job_id", "submitted_at_seconds", "model", "global_batch", "iterations")


def read_plain(table: Table, request: ReadRequest) -> Reading:
    """Read a plain CSV.

    Needed are ``job_id,submitted_at_seconds,model,global_batch,iterations``. Optional are
    ``deadline_seconds`` (absolute; empty or no column: best effort), ``requested_workers``
    (empty or no column: the least that the curve knows) and ``duration_seconds`` (empty or
    no column: not known).

    Raises:
        WorkloadError: If a column is missing or a cell is wrong.
    """
    table.require(REQUIRED, layout="plain trace")
    ids = JobIds()
    return Reading([_job(table, row, request, ids) for row in table.rows])


def _job(table: Table, row: Row, request: ReadRequest, ids: JobIds) -> TraceJob:
    def given(column: str) -> bool:
        return column in table.columns and row.text(column) != ""

    model, global_batch = row.name("model"), row.whole("global_batch")
    curve = curve_of(row, request.curves, model, global_batch, columns=("model", "global_batch"))
    submitted = row.seconds("submitted_at_seconds")
    return TraceJob(
        job_id=ids.take(row, "job_id"),
        submitted_at_seconds=submitted,
        model=model,
        global_batch=global_batch,
        iterations=row.whole("iterations"),
        deadline_seconds=(
            absolute_deadline(row, "deadline_seconds", submitted)
            if given("deadline_seconds")
            else None
        ),
        requested_workers=(
            known_workers(row, "requested_workers", row.whole("requested_workers"), curve)
            if given("requested_workers")
            else curve.workers[0]
        ),
        duration_seconds=(
            row.positive_seconds("duration_seconds") if given("duration_seconds") else None
        ),
    )
