"""Jobs as commands describe them: what they have, do and need, at a moment of the cell."""

from __future__ import annotations

from typing import Any

from resilin.cell.state import CellState, JobState, Phase
from resilin.cli.errors import ExitCode
from resilin.cli.output import duration_text
from resilin.cli.standing import outcome
from resilin.report.history import JobHistory

__all__ = [
    "described_end",
    "described_job",
    "ended_row",
    "job_row",
    "live_job",
    "outcome_code",
    "status",
]


def described_job(job: JobState, cell: CellState) -> dict[str, Any]:
    """Describe a job that is live, or still holds GPUs."""
    return {
        "job_id": job.job_id,
        "phase": job.phase.value,
        "promised": job.promised,
        "submitted_at_seconds": job.submitted_at_seconds,
        "deadline_seconds": job.deadline_seconds,
        "iterations_done": cell.iterations_done(job, cell.now_seconds),
        "total_iterations": job.job.spec.total_iterations,
        "trains": job.trains,
        "workers": job.placed_workers,
        "wanted_workers": job.wanted_workers,
        "generation": job.generation,
        "gpus": {server: list(indexes) for server, indexes in job.held.items()},
        "plan": [list(segment) for segment in job.plan],
    }


def status(job: JobState) -> str:
    """Say in a word what a job does."""
    if job.phase is not Phase.ADMITTED:
        return job.phase.value
    if job.trains:
        return "training"
    return "changing" if job.placed else "waiting"


def live_job(job: JobState, cell: CellState, now_seconds: float) -> dict[str, Any]:
    """Describe a job for a list: what it does, and how it stands against its deadline.

    Progress is that of the cell's newest record: nothing trains on in a cell that stands still.
    """
    described = described_job(job, cell)
    finish = _finish_seconds(job, described["iterations_done"], cell)
    deadline = job.deadline_seconds
    spec = job.job.spec
    return described | {
        "status": status(job),
        "model": spec.model,
        "tenant": spec.tenant,
        "virtual_cluster": spec.virtual_cluster,
        "progress_ratio": described["iterations_done"] / described["total_iterations"],
        "deadline_in_seconds": None if deadline is None else deadline - now_seconds,
        "finish_seconds": finish,
        "slack_seconds": None if finish is None or deadline is None else deadline - finish,
    }


def _finish_seconds(job: JobState, done: float, cell: CellState) -> float | None:
    """Return when a job is done at the latest by its plan, else at its present speed."""
    if job.plan:
        return job.plan[-1][1]
    rate = cell.curve_rate(job, job.placed_workers) if job.trains else 0.0
    return cell.now_seconds + (job.job.spec.total_iterations - done) / rate if rate else None


def job_row(job: dict[str, Any], *, wide: bool = False) -> list[str]:
    """Write such a job as a row of a table."""
    deadline, slack = job["deadline_in_seconds"], job["slack_seconds"]
    row = [
        job["job_id"],
        job["status"],
        str(job["workers"]),
        str(job["wanted_workers"]),
        f"{job['progress_ratio']:.1%}",
        "-" if deadline is None else duration_text(round(deadline)),
        "-" if slack is None else duration_text(round(slack)),
        "yes" if job["promised"] else "no",
    ]
    if wide:
        row += [
            job["model"],
            job["virtual_cluster"],
            job["tenant"],
            str(job["generation"]),
            ", ".join(
                f"{server}:{','.join(map(str, indexes))}" for server, indexes in job["gpus"].items()
            )
            or "-",
        ]
    return row


def described_end(job: JobHistory) -> dict[str, Any]:
    """Describe a job that ended, for a list."""
    return {
        "job_id": job.job_id,
        "phase": job.outcome.value,
        "status": outcome(job),
        "model": job.model,
        "promised": job.promised,
        "submitted_at_seconds": job.submitted_at_seconds,
        "deadline_seconds": job.deadline_seconds,
        "ended_at_seconds": job.ended_at_seconds,
        "slack_seconds": job.slack_seconds,
        "reason": job.reason or None,
    }


def ended_row(job: dict[str, Any], *, wide: bool = False) -> list[str]:
    """Write such a job as a row of the same table."""
    slack = job["slack_seconds"]
    row = [
        job["job_id"],
        job["status"] if not job["reason"] else f"{job['status']}: {job['reason']}",
        "-",
        "-",
        "-",
        "-",
        "-" if slack is None else duration_text(round(slack)),
        "yes" if job["promised"] else "no",
    ]
    return [*row, job["model"], "-", "-", "-", "-"] if wide else row


def outcome_code(job: JobHistory) -> ExitCode:
    """Return what a command exits with that waited for a job: 0 if it completed."""
    return ExitCode.OK if job.outcome is Phase.COMPLETED else ExitCode.NO
