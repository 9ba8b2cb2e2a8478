"""Models, iterations and deadlines for jobs of which only size and duration are published."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from resilin.workloads.csv_table import MOST_WHOLE, Row
from resilin.workloads.model_pool import ModelPool, deadline_after
from resilin.workloads.readers.common import ReadRequest
from resilin.workloads.trace import TraceJob

__all__ = ["LoggedJob", "assign_models"]


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job as a cluster's log knows it: no model, batch, iterations or deadline.

    Attributes:
        row: Where it stands, for errors.
        job_id: Unique in its file.
        submitted_at_seconds: Submission on the trace's clock.
        duration_seconds: Run time on the requested workers.
        requested_workers: Workers that the user asked for.
    """

    row: Row
    job_id: str
    submitted_at_seconds: float
    duration_seconds: float
    requested_workers: int


def assign_models(
    logged: Sequence[LoggedJob],
    request: ReadRequest,
    *,
    duration_column: str,
    workers_column: str,
) -> list[TraceJob]:
    """Give each job what the log lacks, as ElasticFlow's evaluation does (§6.1).

    In order of submission, from one generator seeded for this call::

        (model, global batch) = uniform over the book's pairs that run on the requested count
        workers               = requested count, rounded down to one that the curve knows
        iterations            = floor(duration x rate(workers)), at least 1
        deadline              = submission + U(least, most tightness) x duration

    Each job takes two draws, so the first jobs of a trace get the same values however many
    follow. The curve book alone decides what the pool is; for ElasticFlow's 14 pairs
    (table 2) restrict a book of its A100 profiles to the paper's six models.

    Raises:
        WorkloadError: If no curve runs on as few workers as a job asks for, or its duration
            leads to more iterations than can be counted.
    """
    draws = random.Random(request.seed)  # noqa: S311  a workload, no secret
    pool = ModelPool(request.curves)
    jobs = []
    for job in sorted(logged, key=lambda job: job.submitted_at_seconds):
        drawn = pool.draw(draws.random(), job.requested_workers)
        if drawn is None:
            raise job.row.error(
                workers_column,
                f"no throughput curve in {request.curves.source} knows so few workers as "
                f"{job.requested_workers}; profile smaller counts",
            )
        model, global_batch, workers = drawn
        curve = request.curves[model, global_batch]
        iterations = job.duration_seconds * curve.rate(workers)
        if iterations > MOST_WHOLE:
            raise job.row.error(
                duration_column,
                f"{job.duration_seconds:g} seconds of {model} are {iterations:g} iterations, more "
                f"than {MOST_WHOLE}; check the unit of the duration",
            )
        jobs.append(
            TraceJob(
                job_id=job.job_id,
                submitted_at_seconds=job.submitted_at_seconds,
                model=model,
                global_batch=global_batch,
                iterations=max(1, int(iterations)),
                deadline_seconds=job.submitted_at_seconds
                + deadline_after(request.deadline_tightness, draws.random(), job.duration_seconds),
                requested_workers=workers,
                duration_seconds=job.duration_seconds,
            )
        )
    return jobs
