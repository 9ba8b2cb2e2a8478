"""`resilin explain`: the story of a job, out of the log alone."""

from __future__ import annotations

from pathlib import Path

import click

from resilin.audit.explain import Statement, explain_job
from resilin.audit.replay import fold_log
from resilin.cell.state import CellState
from resilin.cli.logs import fold_history, log_argument, open_log, resolve_job
from resilin.cli.output import OutputFormat, Table, duration_text, emit, example, output_option
from resilin.cli.standing import standing
from resilin.executor.decider import ExecutorDecider

__all__ = ["command"]


@click.command("explain", epilog=example("resilin explain run/log.resilin job-17"))
@log_argument
@click.argument("job")
@output_option
def command(log_file: Path, job: str, output_format: OutputFormat) -> None:
    """Tell what happened to a job, why, and through whom.

    JOB is its id, or as much of the id's beginning as no other job shares.
    """
    with open_log(log_file) as log:
        history = fold_history(log.read(), log_file)
        job_id = resolve_job(history.jobs, job, log_file)
        cell: CellState = fold_log(log.read(), ExecutorDecider()).state.cell
        story = list(explain_job(log.read(), job_id))
    past = history.jobs[job_id]
    sentence = standing(past, cell)
    answer = {
        "log": str(log_file),
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
