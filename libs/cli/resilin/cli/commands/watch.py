"""`resilin watch`: a job's story as it happens."""

from __future__ import annotations

import click

from resilin.audit.explain import explain_job
from resilin.cli.errors import ExitCode
from resilin.cli.following import followed, job_named
from resilin.cli.jobs import described_end, outcome_code
from resilin.cli.live import CellFold, LiveAddress, live_options, open_live, timeout_option
from resilin.cli.output import (
    OutputFormat,
    duration_text,
    emit_one,
    example,
    note,
    output_option,
)
from resilin.cli.standing import standing
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.report.history import History

__all__ = ["command"]

PROGRESS_STEP = 0.05
"""Progress is told in steps of so much of the whole."""


@click.command("watch", epilog=example("resilin watch nightly"))
@click.argument("job")
@timeout_option(None, "Give up after so long.  [default: never]")
@live_options
@output_option
def command(
    *, job: str, timeout_seconds: float | None, address: LiveAddress, output_format: OutputFormat
) -> int:
    """Tell a job's story as it happens, until it ends.

    Exits with 0 if it completed, with 1 if it was refused, failed or was cancelled, with 4 if
    it had not ended in time. With -o json every line is one object.
    """
    with open_live(address) as live:
        job_id = job_named(live, job)
        history, fold = History(), CellFold()
        teller = _Teller(job_id, history, fold, output_format)
        entries = followed(live, [job_id], history, timeout_seconds)
        for statement in explain_job(map(teller.see, entries), job_id):
            teller.tell(
                statement.offset,
                statement.at_seconds,
                f"{statement.service}: {statement.what}",
                statement.because,
            )
    past = history.jobs.get(job_id)
    if past is None or not past.outcome.terminal:
        note(f"{job_id} has not ended within {timeout_seconds:g} s; it goes on")
        return ExitCode.NO_ANSWER
    sentence = standing(past, fold.cell)
    emit_one(output_format, described_end(past) | {"standing": sentence}, sentence)
    return outcome_code(past)


class _Teller:
    """Prints a job's story line by line, and how far it has come in between."""

    def __init__(
        self, job_id: str, history: History, fold: CellFold, output_format: OutputFormat
    ) -> None:
        self._job_id = job_id
        self._history = history
        self._fold = fold
        self._format = output_format
        self._told = 0.0

    def see(self, entry: LogEntry) -> LogEntry:
        """Note an entry before it is told of."""
        if self._fold.fold(entry):
            for event in entry.record.events:
                if isinstance(event, ev.ProgressReported) and event.job_id == self._job_id:
                    self._tell_progress(entry, event)
        return entry

    def _tell_progress(self, entry: LogEntry, event: ev.ProgressReported) -> None:
        job = self._fold.cell.jobs.get(self._job_id)
        if job is None:
            return
        ratio = event.iterations_done / job.job.spec.total_iterations
        if abs(ratio - self._told) >= PROGRESS_STEP:
            self._told = ratio
            what = f"{entry.record.service}: is {ratio:.0%} done"
            self.tell(entry.offset, entry.record.timestamp, what, "")

    def tell(self, offset: int, at_seconds: float, what: str, because: str) -> None:
        """Print one statement."""
        past = self._history.jobs.get(self._job_id)
        since = 0.0 if past is None else at_seconds - past.submitted_at_seconds
        item = {"offset": offset, "at_seconds": at_seconds, "what": what, "because": because}
        why = f" ({because})" if because else ""
        emit_one(self._format, item, f"{duration_text(round(since)):>8}  {what}{why}")
