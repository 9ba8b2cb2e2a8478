"""The job log of Microsoft's Philly cluster, one row a job, as reduced by Pollux's authors."""

from __future__ import annotations

from resilin.workloads.csv_table import Table
from resilin.workloads.readers.assignment import LoggedJob, assign_models
from resilin.workloads.readers.common import Reading, ReadRequest
from resilin.workloads.readers.wall_clock import seconds_since_epoch

__all__ = ["read_philly"]


def read_philly(table: Table, request: ReadRequest) -> Reading:
    """Read ``timestamp,duration,num_gpus`` (other columns are not used).

    The trace's clock begins with the first submission. Jobs are named by their row, from 0:
    the log has no ids. Models and deadlines are given to them (see
    :func:`.assignment.assign_models`).

    Raises:
        WorkloadError: If a column is missing or a cell is wrong.
    """
    table.require(("timestamp", "duration", "num_gpus"), layout="Philly log")
    moments = [seconds_since_epoch(row, "timestamp") for row in table.rows]
    first = min(moments)
    logged = [
        LoggedJob(
            row=row,
            job_id=str(position),
            submitted_at_seconds=moment - first,
            duration_seconds=row.positive_seconds("duration"),
            requested_workers=row.whole("num_gpus"),
        )
        for position, (row, moment) in enumerate(zip(table.rows, moments, strict=True))
    ]
    return Reading(
        assign_models(logged, request, duration_column="duration", workers_column="num_gpus")
    )
