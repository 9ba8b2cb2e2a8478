"""`resilin explain`: the story of a job, out of the log alone."""

from __future__ import annotations

from pathlib import Path

import click

from resilin.audit.explain import Statement, explain_job
from resilin.audit.replay import fold_log
from resilin.cell.state import CellState
from resilin.cli.live import LiveAddress, live_options
from resilin.cli.logs import fold_history, resolve_job, source_of
from resilin.cli.output import OutputFormat, Table, duration_text, emit, example, output_option
from resilin.cli.standing import standing
from resilin.executor.decider import ExecutorDecider

__all__ = ["command"]


@click.command(
    "explain",
    epilog=example("resilin explain run/log.resilin job-17", "resilin explain nightly"),
)
@click.argument("first", metavar="[LOG]")
@click.argument("second", metavar="JOB", required=False)
@live_options
@output_option
def command(
    *, first: str, second: str | None, address: LiveAddress, output_format: OutputFormat
) -> None:
    """Tell what happened to a job, why, and through whom.

    JOB is its id, or as much of the id's beginning as no other job shares. Without LOG it is
    a job of the live cell.
    """
    # What may be left out stands first, so one argument alone is the job.
    source = source_of(None if second is None else Path(first), address)
    with source.open() as log:
        history = fold_history(log.read(), source.name)
        job_id = resolve_job(history.jobs, second or first, source.name)
        cell: CellState = fold_log(log.read(), ExecutorDecider()).state.cell
        story = list(explain_job(log.read(), job_id))
    past = history.jobs[job_id]
    sentence = standing(past, cell)
    answer = {
        "log": source.name,
        "job_id": job_id,
        "standing": sentence,
        "statements": [
            {
                "offset": statement.offset,
                "at_seconds": statement.at_seconds,
                "service": statement.service,
                "what": statement.what,
                "because": statement.because,
            }
            for statement in story
        ],
    }
    emit(output_format, answer, [sentence, _table(story, past.submitted_at_seconds)])


def _table(story: list[Statement], submitted_at_seconds: float) -> Table:
    columns = ("offset", "after submission", "service", "the job ...", "because")
    rows = [
        [
            str(statement.offset),
            duration_text(statement.at_seconds - submitted_at_seconds),
            statement.service,
            statement.what,
            statement.because,
        ]
        for statement in story
    ]
    return Table(columns, rows, right=(0, 1))
