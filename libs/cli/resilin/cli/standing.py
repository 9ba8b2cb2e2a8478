"""How a job stands at a moment, in one sentence."""

from __future__ import annotations

from resilin.cell.state import CellState, JobState, Phase
from resilin.cli.output import duration_text
from resilin.report.history import JobHistory

__all__ = ["outcome", "standing"]


def outcome(job: JobHistory) -> str:
    """Return what came of a job, in a word: its last phase, or ``met`` or ``late`` if done."""
    if job.outcome is Phase.COMPLETED and job.deadline_seconds is not None:
        return "met" if job.met else "late"
    return "declined" if job.outcome is Phase.REJECTED else job.outcome.value


def standing(job: JobHistory, cell: CellState) -> str:
    """Say how a job stands at the cell's moment.

    Args:
        job: Its history up to then.
        cell: The cell's state then.
    """
    name = f"Job {job.job_id}"
    match job.outcome:
        case Phase.SUBMITTED:
            return f"{name} waits for admission's answer."
        case Phase.REJECTED:
            return f"{name} was refused: {job.reason}.{_counter_offer(job)}"
        case Phase.COMPLETED:
            return f"{name} is done{_against_deadline(job)}."
        case Phase.CANCELLED:
            return f"{name} was cancelled."
        case Phase.FAILED:
            return f"{name} failed: {job.reason}."
        case Phase.ADMITTED:
            return f"{name} {_live(cell.jobs[job.job_id], cell)}."


def _counter_offer(job: JobHistory) -> str:
    if job.earliest_deadline_seconds is None:
        return ""
    earliest = duration_text(job.earliest_deadline_seconds - job.submitted_at_seconds)
    return f" The earliest deadline it could have had was {earliest} after its submission."


def _against_deadline(job: JobHistory) -> str:
    slack = job.slack_seconds
    if slack is None:
        return "; it had no deadline"
    if slack >= 0:
        return f", {duration_text(slack)} before its deadline"
    return f", {duration_text(-slack)} after its deadline"


def _live(job: JobState, cell: CellState) -> str:
    done = cell.iterations_done(job, cell.now_seconds) / job.job.spec.total_iterations
    promise = "no deadline is promised"
    if job.deadline_seconds is not None:
        promised = "is promised" if job.promised else "is wanted but not promised"
        left = job.deadline_seconds - cell.now_seconds
        when = f"in {duration_text(left)}" if left >= 0 else f"{duration_text(-left)} ago"
        promise = f"its deadline, {when}, {promised}"
    if not job.placed:
        return f"waits for GPUs, {done:.1%} done; {promise}"
    does = "trains with" if job.trains else "stands still for a change to"
    return f"{does} {job.placed_workers} workers, {done:.1%} done; {promise}"
