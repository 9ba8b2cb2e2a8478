"""One entry for all trace formats."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

from resilin.workloads.csv_table import FilePath, Table, plain_stem, read_table
from resilin.workloads.curve_book import CurveBook
from resilin.workloads.model_pool import check_tightness
from resilin.workloads.readers.common import Reading, ReadRequest
from resilin.workloads.readers.elasticflow import read_elasticflow
from resilin.workloads.readers.helios import read_helios
from resilin.workloads.readers.itp import read_itp
from resilin.workloads.readers.philly import read_philly
from resilin.workloads.readers.plain import read_plain
from resilin.workloads.readers.pollux import read_pollux
from resilin.workloads.trace import Trace, TraceJob, WorkloadError

__all__ = ["TRACE_FORMATS", "TraceFormat", "read_trace"]

TraceFormat = Literal["elasticflow", "itp", "philly", "helios", "pollux", "csv"]

TRACE_FORMATS: tuple[TraceFormat, ...] = get_args(TraceFormat)

_READERS: dict[TraceFormat, Callable[[Table, ReadRequest], Reading]] = {
    "elasticflow": read_elasticflow,
    "itp": read_itp,
    "philly": read_philly,
    "helios": read_helios,
    "pollux": read_pollux,
    "csv": read_plain,
}


def read_trace(
    path: FilePath,
    trace_format: TraceFormat,
    *,
    curves: CurveBook,
    seed: int = 0,
    deadline_tightness: tuple[float, float] = (0.5, 1.5),
    pollux_models: FilePath | None = None,
    limit: int | None = None,
    start_at_zero: bool = False,
) -> Trace:
    """Read a trace file, plain or gzip.

    Every job's requested count is rounded down to one that its curve knows. The whole file is
    checked, also beyond ``limit``. The same arguments give the same trace in every process.

    Args:
        path: The file.
        trace_format: Its format: ``elasticflow``, ``itp``, ``philly``, ``helios``, ``pollux``
            or ``csv`` (Resilin's own). See the reader modules for the columns of each.
        curves: Throughput curves. Jobs that name a model must find it here; jobs of formats
            without models (raw itp, philly, helios) are given one from here.
        seed: Seed for the models and deadlines that those formats lack. A larger trace begins
            with the same jobs as a smaller one of the same seed.
        deadline_tightness: Least and largest deadline given to those jobs, in durations after
            submission (ElasticFlow §6.1: 0.5 to 1.5).
        pollux_models: The ``models`` folder of Pollux's simulator; needed for ``pollux``.
        limit: Keep only the first so many jobs, by submission.
        start_at_zero: Shift the clock so that the first job is submitted at 0. Otherwise the
            trace keeps the file's clock (wall-clock formats begin at 0 in any case).

    Raises:
        WorkloadError: If the file, or a file of the models folder, cannot be used.
        ValueError: If ``limit`` or ``deadline_tightness`` make no sense.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 job, got {limit}")
    check_tightness(deadline_tightness)
    read = _READERS.get(trace_format)
    if read is None:
        raise WorkloadError(
            os.fspath(path),
            f"{trace_format!r} is no trace format; choose one of {', '.join(TRACE_FORMATS)}",
        )
    request = ReadRequest(curves, seed, deadline_tightness, pollux_models)
    reading = read(read_table(path), request)
    trace = Trace(plain_stem(path), tuple(reading.jobs), reading.skipped)
    kept = trace.jobs[:limit]
    if start_at_zero:
        kept = tuple(_shifted(job, kept[0].submitted_at_seconds) for job in kept)
    return replace(trace, jobs=kept)


def _shifted(job: TraceJob, zero_seconds: float) -> TraceJob:
    deadline = job.deadline_seconds
    return replace(
        job,
        submitted_at_seconds=job.submitted_at_seconds - zero_seconds,
        deadline_seconds=None if deadline is None else deadline - zero_seconds,
    )
