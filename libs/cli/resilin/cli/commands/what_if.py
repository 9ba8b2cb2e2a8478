"""`resilin what-if`: the same submissions under other circumstances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from resilin.cli.errors import InputError
from resilin.cli.logs import fold_history, log_argument, open_log
from resilin.cli.output import OutputFormat, Table, duration_text, emit, example, output_option
from resilin.cli.runs import run
from resilin.cli.standing import outcome
from resilin.cli.tables import summary_table
from resilin.cli.workload import POLICY_NAMES, stop_cost
from resilin.contracts.commands import ConfigureCell, SubmitJob
from resilin.eventlog.memory import MemoryLog
from resilin.report.history import History, JobHistory
from resilin.report.summary import summarize
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import TimedCommand
from resilin.simulation.what_if import Circumstances, profiled_curves, recorded_commands, under

__all__ = ["command"]


@click.command(
    "what-if", epilog=example("resilin what-if run/log.resilin --policy edf --servers 12")
)
@log_argument
@click.option("--policy", type=click.Choice(POLICY_NAMES), help="Another policy.")
@click.option("--servers", type=click.IntRange(1, 10_000), help="Another number of servers.")
@click.option("--gpus-per-server", type=click.IntRange(1, 1024), help="Other servers.")
@click.option(
    "--reserve-servers", type=click.IntRange(0, 10_000), help="Another reserve for failures."
)
@click.option(
    "--resize-cost", type=click.Choice(["none", "modelled"]), help="Another cost of a change."
)
@output_option
def command(
    *,
    log_file: Path,
    policy: str | None,
    servers: int | None,
    gpus_per_server: int | None,
    reserve_servers: int | None,
    resize_cost: str | None,
    output_format: OutputFormat,
) -> None:
    """Run the submissions of a log under other circumstances.

    What is not named stays as it was. Nodes do not fail in the second run, and throughput is
    as believed: where the first run had failures or noise, they are part of the difference.
    """
    with open_log(log_file) as log:
        recorded = fold_history(log.read(), log_file)
        commands = list(recorded_commands(log.read()))
        profiles = profiled_curves(log.read())
    if not any(isinstance(timed.command, SubmitJob) for timed in commands):
        raise InputError(f"{log_file}: no job was submitted, so there is nothing to run again")
    circumstances = Circumstances(
        policy=policy,
        stop_cost=None if resize_cost is None else stop_cost(resize_cost),
        reserve_servers=reserve_servers,
        servers=servers,
        gpus_per_server=gpus_per_server,
    )
    try:
        changed = list(under(circumstances, commands))
    except ValueError as error:
        raise InputError(f"{log_file}: {error}") from None
    again = run(MemoryLog(), changed, _physics(changed), "running again", unknown_curves=profiles)
    summaries = [summarize(recorded).as_dict(), summarize(again).as_dict()]
    changes = list(_changes(recorded, again))
    answer = {
        "log": str(log_file),
        "circumstances": {
            "policy": policy,
            "servers": servers,
            "gpus_per_server": gpus_per_server,
            "reserve_servers": reserve_servers,
            "resize_cost": resize_cost,
        },
        "recorded": summaries[0],
        "what_if": summaries[1],
        "jobs_that_fare_otherwise": changes,
    }
    emit(output_format, answer, _parts(summaries, changes))


def _physics(commands: list[TimedCommand]) -> Physics:
    """Let a change cost what the cell believes it costs."""
    for timed in commands:
        if isinstance(timed.command, ConfigureCell):
            return Physics(stop_cost=timed.command.configuration.stop_cost)
    return Physics()


def _changes(recorded: History, again: History) -> list[dict[str, Any]]:
    """Return the jobs whose outcome differs."""
    return [
        {"job_id": job_id, "recorded": _outcome(before), "what_if": _outcome(after)}
        for job_id, before in recorded.jobs.items()
        if (after := again.jobs.get(job_id)) is not None and outcome(before) != outcome(after)
    ]


def _outcome(job: JobHistory) -> dict[str, Any]:
    return {
        "outcome": outcome(job),
        "completion_seconds": job.completion_seconds,
        "slack_seconds": job.slack_seconds,
    }


def _parts(summaries: list[dict[str, Any]], changes: list[dict[str, Any]]) -> Iterator[str | Table]:
    names = [f"recorded ({summaries[0]['policy']})", f"what if ({summaries[1]['policy']})"]
    yield summary_table("the same submissions", summaries, names)
    if not changes:
        yield "Every job fares as it did."
        return
    rows = [
        [change["job_id"], _said(change["recorded"]), _said(change["what_if"])]
        for change in changes
    ]
    yield Table(("job", "recorded", "what if"), rows, "jobs that fare otherwise")


def _said(side: dict[str, Any]) -> str:
    slack = side["slack_seconds"]
    if slack is None:
        return str(side["outcome"])
    return f"{side['outcome']}, slack {duration_text(slack)}"
