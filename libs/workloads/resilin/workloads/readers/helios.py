"""Job logs of SenseTime's Helios clusters (``cluster_log.csv`` of S-Lab HeliosData)."""

from __future__ import annotations

from resilin.workloads.csv_table import Table
from resilin.workloads.readers.assignment import LoggedJob, assign_models
from resilin.workloads.readers.common import JobIds, Reading, ReadRequest
from resilin.workloads.readers.wall_clock import seconds_since_epoch
from resilin.workloads.trace import SkippedJobs

__all__ = ["read_helios"]


def read_helios(table: Table, request: ReadRequest) -> Reading:
    """Read ``job_id,gpu_num,submit_time,duration`` out of a Helios log.

    The published columns are job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time,
    start_time, end_time, duration (end minus start, in seconds) and queue (Hu et al., SC'21).
    Jobs without a GPU, and GPU jobs that ended in the second they began, are skipped and
    counted; jobs that failed or were cancelled stay, for they held their GPUs. The trace's
    clock begins with the first job that stays. Models and deadlines are given to the jobs
    (see :func:`.assignment.assign_models`).

    Raises:
        WorkloadError: If a column is missing, a cell is wrong or no job stays.
    """
    table.require(("job_id", "gpu_num", "submit_time", "duration"), layout="Helios log")
    ids = JobIds()
    logged: list[LoggedJob] = []
    on_cpu = never_ran = 0
    for row in table.rows:
        job_id = ids.take(row, "job_id")
        gpus = row.whole("gpu_num", least=0)
        moment = seconds_since_epoch(row, "submit_time")
        duration = row.seconds("duration")
        if gpus == 0:
            on_cpu += 1
        elif duration == 0:
            never_ran += 1
        else:
            logged.append(LoggedJob(row, job_id, moment, duration, gpus))
    if not logged:
        raise table.error(
            f"has no GPU job that ran, only {on_cpu} CPU jobs and {never_ran} GPU jobs of 0 "
            "seconds; read another part of the log"
        )
    first = min(job.submitted_at_seconds for job in logged)
    shifted = [
        LoggedJob(
            job.row,
            job.job_id,
            job.submitted_at_seconds - first,
            job.duration_seconds,
            job.requested_workers,
        )
        for job in logged
    ]
    counted = (SkippedJobs("CPU job", on_cpu), SkippedJobs("ran for 0 seconds", never_ran))
    return Reading(
        assign_models(shifted, request, duration_column="duration", workers_column="gpu_num"),
        tuple(skipped for skipped in counted if skipped.count),
    )
