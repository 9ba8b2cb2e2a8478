"""`resilin wait`: until jobs have ended."""

from __future__ import annotations

from typing import Any

import click

from resilin.cli.errors import ExitCode
from resilin.cli.following import followed, job_named
from resilin.cli.jobs import described_end, outcome_code
from resilin.cli.live import LiveAddress, live_options, open_live, timeout_option
from resilin.cli.output import OutputFormat, Table, duration_text, emit, example, output_option
from resilin.report.history import History

__all__ = ["command"]


@click.command("wait", epilog=example("resilin wait nightly --timeout 3600"))
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@timeout_option(None, "Give up after so long.  [default: never]")
@live_options
@output_option
def command(
    *,
    jobs: tuple[str, ...],
    timeout_seconds: float | None,
    address: LiveAddress,
    output_format: OutputFormat,
) -> int:
    """Wait until jobs have ended.

    Exits with 0 if all completed, with 1 if one was refused, failed or was cancelled, with 4
    if one had not ended in time.
    """
    history = History()
    with open_live(address) as live:
        job_ids = list(dict.fromkeys(job_named(live, job) for job in jobs))
        for _ in followed(live, job_ids, history, timeout_seconds):
            pass
        name = live.name
    ended = {
        job_id: past
        for job_id in job_ids
        if (past := history.jobs.get(job_id)) is not None and past.outcome.terminal
    }
    described: list[dict[str, Any]] = [
        described_end(ended[job_id]) if job_id in ended else {"job_id": job_id, "status": None}
        for job_id in job_ids
    ]
    rows = []
    for job in described:
        slack = job.get("slack_seconds")
        rows.append(
            [
                job["job_id"],
                job["status"] or "has not ended",
                "-" if slack is None else duration_text(round(slack)),
                job.get("reason") or "",
            ]
        )
    table = Table(("job", "outcome", "slack", "reason"), rows)
    emit(output_format, {"cell": name, "jobs": described}, [table])
    codes = [outcome_code(past) for past in ended.values()]
    if ExitCode.NO in codes:
        return ExitCode.NO
    return ExitCode.OK if len(ended) == len(job_ids) else ExitCode.NO_ANSWER
