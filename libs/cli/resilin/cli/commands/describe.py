"""`resilin describe`: all there is to know about one job."""

from __future__ import annotations

from typing import Any

import click

from resilin.audit.explain import Statement, explain_job
from resilin.cell.state import CellState
from resilin.cli.following import job_named
from resilin.cli.jobs import described_end, live_job
from resilin.cli.live import CellFold, LiveAddress, live_options, open_live
from resilin.cli.logs import note_entry
from resilin.cli.output import (
    OutputFormat,
    Table,
    duration_text,
    emit,
    example,
    note,
    number_text,
    output_option,
    time_text,
)
from resilin.cli.standing import standing
from resilin.contracts import events as ev
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.record import LogEntry
from resilin.report.history import History, JobHistory

__all__ = ["command"]


@click.command("describe", epilog=example("resilin describe nightly"))
@click.argument("job")
@click.option(
    "--last",
    type=click.IntRange(0, 100_000),
    default=10,
    show_default=True,
    help="Show so many statements of its story; `resilin explain` tells all.",
)
@live_options
@output_option
def command(*, job: str, last: int, address: LiveAddress, output_format: OutputFormat) -> int:
    """Show a job of the live cell: specification, phase, workers over time, plan and story."""
    with open_live(address) as live:
        job_id = job_named(live, job)
        seen = _Seen(job_id, live.name)
        story = list(explain_job(map(seen.note, live.log.read()), job_id))
    past = seen.history.jobs.get(job_id)
    if past is None or seen.job is None:
        note(f"{job_id} was sent and is not taken in yet; it is answered once the cell runs")
        emit(output_format, {"cell": address.name, "job_id": job_id, "status": "sent"}, [])
        return 0
    cell = seen.fold.cell
    answer = {
        "cell": address.name,
        "offset": seen.fold.offset,
        "standing": standing(past, cell),
        "job": _described(past, cell, seen.fold.now_seconds),
        "specification": seen.job.model_dump(mode="json", exclude_none=True),
        "workers": [list(change) for change in past.allocation],
        "resizes": past.resizes,
        "migrations": past.migrations,
        "story": [_statement(statement) for statement in story[max(0, len(story) - last) :]],
    }
    emit(output_format, answer, _parts(answer, past))
    return 0


class _Seen:
    """What a reading of the log has shown of a job."""

    def __init__(self, job_id: str, name: str) -> None:
        self.history = History()
        self.fold = CellFold()
        self.job: JobSpecification | None = None
        self._job_id = job_id
        self._name = name

    def note(self, entry: LogEntry) -> LogEntry:
        note_entry(self.history, entry, self._name)
        if self.fold.fold(entry):
            for event in entry.record.events:
                if isinstance(event, ev.JobSubmitted) and event.job_id == self._job_id:
                    self.job = event.job
        return entry


def _described(past: JobHistory, cell: CellState, now_seconds: float) -> dict[str, Any]:
    ended = described_end(past)
    live = cell.jobs.get(past.job_id)
    known = {
        "answered_at_seconds": past.answered_at_seconds,
        "started_at_seconds": past.started_at_seconds,
        "earliest_deadline_seconds": past.earliest_deadline_seconds,
    }
    if live is None or live.phase.terminal:
        return ended | known
    return ended | known | live_job(live, cell, now_seconds)


def _statement(statement: Statement) -> dict[str, Any]:
    return {
        "offset": statement.offset,
        "at_seconds": statement.at_seconds,
        "service": statement.service,
        "what": statement.what,
        "because": statement.because,
    }


# --- for people ----------------------------------------------------------------------------


def _parts(answer: dict[str, Any], past: JobHistory) -> list[str | Table]:
    submitted = past.submitted_at_seconds
    parts: list[str | Table] = [answer["standing"], Table((), _figures(answer))]
    if answer["workers"]:
        rows = [[duration_text(at - submitted), str(count)] for at, count in answer["workers"]]
        parts.append(
            Table(("after submission", "workers"), rows, "workers over time", right=(0, 1))
        )
    plan = answer["job"].get("plan")
    if plan:
        rows = [
            [duration_text(begin - submitted), duration_text(end - submitted), str(workers)]
            for begin, end, workers in plan
        ]
        parts.append(
            Table(("from", "to", "workers"), rows, "plan, after submission", right=(0, 1, 2))
        )
    if answer["story"]:
        rows = [
            [
                str(said["offset"]),
                duration_text(said["at_seconds"] - submitted),
                said["service"],
                said["what"],
                said["because"],
            ]
            for said in answer["story"]
        ]
        columns = ("offset", "after submission", "service", "the job ...", "because")
        parts.append(Table(columns, rows, "last of its story", right=(0, 1)))
    return parts


def _figures(answer: dict[str, Any]) -> list[list[str]]:
    job, spec = answer["job"], answer["specification"]["spec"]
    rows = [
        ["job", job["job_id"]],
        ["name", answer["specification"]["metadata"]["name"]],
        ["status", job["status"]],
        ["model", f"{spec['model']}, global batch {spec['globalBatch']}"],
        ["virtual cluster, tenant", f"{spec['virtualCluster']}, {spec['tenant']}"],
        ["submitted", time_text(job["submitted_at_seconds"])],
    ]
    if job["deadline_seconds"] is not None:
        promise = "promised" if job["promised"] else "not promised"
        rows.append(["deadline", f"{time_text(job['deadline_seconds'])}, {promise}"])
    if job.get("reason"):
        rows.append(["reason", job["reason"]])
    if job["slack_seconds"] is not None:
        rows.append(["deadline slack", duration_text(round(job["slack_seconds"]))])
    if "progress_ratio" in job:
        done, total = job["iterations_done"], job["total_iterations"]
        figures = f"{number_text(int(done))} of {number_text(int(total))} iterations"
        rows.append(["done", f"{job['progress_ratio']:.1%}, {figures}"])
        rows.append(["workers, wanted", f"{job['workers']}, {job['wanted_workers']}"])
        rows.append(["generation", str(job["generation"])])
        gpus = [f"{server}: {', '.join(map(str, held))}" for server, held in job["gpus"].items()]
        rows.append(["GPUs", "; ".join(gpus) or "none"])
    rows.append(["resizes, migrations", f"{answer['resizes']}, {answer['migrations']}"])
    return rows
