"""`resilin state`: the state at any moment of a log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from pydantic import TypeAdapter

from resilin.audit.replay import fold_log
from resilin.cell import gpu_sets
from resilin.cell.state import CellState
from resilin.cli.jobs import described_job
from resilin.cli.logs import Moment, Source, note_entry, read_moment, resolve_job, source_argument
from resilin.cli.output import (
    OutputFormat,
    Table,
    duration_text,
    emit,
    example,
    number_text,
    output_option,
    time_text,
)
from resilin.cli.standing import outcome, standing
from resilin.executor.decider import ExecutorDecider
from resilin.kernel.decider import Decider
from resilin.kernel.host import Folded
from resilin.report.history import History, JobHistory
from resilin.simulation.simulation import deciders

__all__ = ["command"]


@click.command("state", epilog=example("resilin state run/log.resilin --at +6h"))
@source_argument
@click.option(
    "--at",
    "moment",
    metavar="OFFSET|TIME",
    callback=read_moment,
    help="An offset (1200), a time of the cell's clock (86400s, 2026-01-31T18:00:00Z), or a time"
    " after the first submission (+6h).  [default: the end]",
)
@click.option("--service", help="Everything that this service knows, instead of the cell.")
@click.option("--job", help="One job only, by its id or the beginning of it.")
@output_option
def command(
    *,
    source: Source,
    moment: Moment | None,
    service: str | None,
    job: str | None,
    output_format: OutputFormat,
) -> None:
    """Show the state at any moment of a log, or of a live cell.

    Of the cell, or of one job or one service.
    """
    if service is not None and job is not None:
        raise click.UsageError("--job shows a job of the cell: leave it or --service out")
    decider = ExecutorDecider() if service is None else _decider(service)
    history = History()
    with source.open() as log:
        bound = {} if moment is None else moment.through(log, source.name)
        folded = fold_log(
            log.read(),
            decider,
            observe=lambda entry: note_entry(history, entry, source.name),
            **bound,
        )
    asked = bound.get("through_seconds")
    at_seconds = folded.timestamp if asked is None else max(asked, folded.timestamp)
    answer: dict[str, Any] = {
        "log": source.name,
        "offset": folded.offset,
        "at_seconds": at_seconds,
    }
    if service is not None:
        _show_service(output_format, answer, decider, folded)
        return
    cell: CellState = folded.state.cell
    cell.now_seconds = at_seconds
    if job is not None:
        _show_job(
            output_format, answer, history.jobs[resolve_job(history.jobs, job, source.name)], cell
        )
        return
    _show_cell(output_format, answer, history, cell)


def _decider(service: str) -> Decider[Any]:
    for decider in deciders():
        if decider.service == service:
            return decider
    known = ", ".join(decider.service for decider in deciders())
    raise click.BadParameter(
        f"{service!r} is no service; choose of {known}", param_hint="'--service'"
    )


def _show_service(
    output_format: OutputFormat, answer: dict[str, Any], decider: Decider[Any], folded: Folded[Any]
) -> None:
    plain = TypeAdapter(decider.state_type).dump_python(folded.state, mode="json")
    answer |= {"service": decider.service, "state": plain}
    # A service's state has no shape that a table could show.
    emit("yaml" if output_format in ("table", "wide") else output_format, answer, ())


def _show_job(
    output_format: OutputFormat, answer: dict[str, Any], job: JobHistory, cell: CellState
) -> None:
    sentence = standing(job, cell)
    past = asdict(job) | {"outcome": outcome(job)}
    live = cell.jobs.get(job.job_id)
    answer |= {
        "standing": sentence,
        "job": past | ({} if live is None else described_job(live, cell)),
    }
    rows = [[name, _shown(name, value)] for name, value in answer["job"].items()]
    emit(output_format, answer, [sentence, Table((), rows)])


def _shown(name: str, value: object) -> str:
    if isinstance(value, list | tuple | dict):
        return f"{len(value)} entries, see -o json" if len(value) > 4 else str(value)
    if name.endswith(("at_seconds", "deadline_seconds")):
        return time_text(value) if isinstance(value, float) else "-"
    return number_text(value)


def _show_cell(
    output_format: OutputFormat, answer: dict[str, Any], history: History, cell: CellState
) -> None:
    jobs = [described_job(job, cell) for job in cell.jobs.values()]
    busy = sum(gpu_sets.count(job.held) for job in cell.jobs.values())
    outcomes: dict[str, int] = {}
    for job in history.jobs.values():
        outcomes[outcome(job)] = outcomes.get(outcome(job), 0) + 1
    servers = list(cell.servers.values())
    answer |= {
        "policies": {c.name: c.policy for c in cell.configuration.virtual_clusters},
        "servers": len(servers),
        "servers_usable": sum(server.usable for server in servers),
        "gpus": sum(server.server.gpus for server in servers if server.works),
        "gpus_busy": busy,
        "jobs_by_outcome": outcomes,
        "jobs": jobs,
    }
    head = (
        f"At {time_text(answer['at_seconds'])} (offset {answer['offset']}): {busy} of"
        f" {answer['gpus']} GPUs on {answer['servers_usable']} servers are busy;"
        f" jobs: {', '.join(f'{count} {name}' for name, count in outcomes.items()) or 'none'}."
    )
    columns = ("job", "phase", "workers", "wanted", "done", "deadline in", "promised")
    rows = [_row(job, cell.now_seconds) for job in jobs]
    tables = [Table(columns, rows, right=(2, 3, 4, 5))] if rows else []
    emit(output_format, answer, [head, *tables])


def _row(job: dict[str, Any], now_seconds: float) -> list[str]:
    deadline = job["deadline_seconds"]
    return [
        job["job_id"],
        job["phase"],
        str(job["workers"]),
        str(job["wanted_workers"]),
        f"{job['iterations_done'] / job['total_iterations']:.1%}",
        "-" if deadline is None else duration_text(deadline - now_seconds),
        "yes" if job["promised"] else "no",
    ]
