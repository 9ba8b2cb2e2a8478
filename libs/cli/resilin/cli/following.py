"""Following jobs in a live cell: finding them by their ids, and waiting for their ends."""

from __future__ import annotations

from collections.abc import Iterator

from resilin.cli.live import LiveCell
from resilin.cli.logs import fold_history, note_entry, resolve_job
from resilin.contracts.record import LogEntry
from resilin.report.history import History

__all__ = ["followed", "job_named"]


def job_named(live: LiveCell, prefix: str) -> str:
    """Return the job with this id, or the only one whose id begins so.

    One that was sent but not taken in yet is known too.

    Raises:
        InputError: If there is none, or more than one.
    """
    known = fold_history(live.log.read(), live.name).jobs
    if any(job_id.startswith(prefix) for job_id in known):
        return resolve_job(known, prefix, live.name)
    return resolve_job(dict.fromkeys([*known, *live.jobs_sent()]), prefix, live.name)


def followed(
    live: LiveCell, job_ids: list[str], history: History, timeout_seconds: float | None
) -> Iterator[LogEntry]:
    """Yield the log from its beginning until all these jobs have ended, or time is up.

    Args:
        live: The cell.
        job_ids: The jobs.
        history: Folds every entry before it is yielded.
        timeout_seconds: How long to wait; None for ever.
    """
    for entry in live.follow(timeout_seconds=timeout_seconds):
        if entry is not None:
            note_entry(history, entry, live.name)
            yield entry
        elif all(_ended(history, job_id) for job_id in job_ids):
            return


def _ended(history: History, job_id: str) -> bool:
    job = history.jobs.get(job_id)
    return job is not None and job.outcome.terminal
