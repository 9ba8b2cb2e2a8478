"""`resilin list`: the jobs of the live cell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from resilin.cell import gpu_sets
from resilin.cell.state import CellState
from resilin.cli.jobs import described_end, ended_row, job_row, live_job
from resilin.cli.live import CellFold, LiveAddress, LiveCell, live_options, now_seconds, open_live
from resilin.cli.logs import note_entry
from resilin.cli.output import (
    OutputFormat,
    Table,
    duration_text,
    emit,
    emit_one,
    example,
    output_option,
    time_text,
)
from resilin.report.history import History

__all__ = ["command"]

REDRAW_SECONDS = 2.0
"""How often a list on a terminal is drawn anew although nothing happened: time goes on."""

_COLUMNS = ("job", "status", "workers", "wanted", "done", "deadline in", "slack", "promised")
_WIDE = ("model", "virtual cluster", "tenant", "generation", "gpus")


@click.command("list", epilog=example("resilin list", "resilin list --all -o wide"))
@click.option("-a", "--all", "with_ended", is_flag=True, help="Jobs that have ended, too.")
@click.option("-w", "--watch", "watches", is_flag=True, help="Go on, and show every change.")
@live_options
@output_option
def command(
    *, with_ended: bool, watches: bool, address: LiveAddress, output_format: OutputFormat
) -> None:
    """List the jobs of the live cell: what they do, and how they stand.

    Slack is the time between a job's deadline and the end of its plan (or, without a plan,
    the end at its present speed). Also `resilin ps`.
    """
    with open_live(address) as live:
        view = _View(live, with_ended=with_ended)
        if watches:
            _watch(view, output_format)
        else:
            answer = view.answer()
            emit(output_format, answer, view.parts(answer, wide=output_format == "wide"))


class _View:
    """The list, kept current by folding what is new."""

    def __init__(self, live: LiveCell, *, with_ended: bool) -> None:
        self.live = live
        self._history = History() if with_ended else None
        self._fold = CellFold()
        if self._history is None:
            self._fold = live.fold()
            return
        # A snapshot knows nothing of jobs that have ended.
        for entry in live.log.read():
            note_entry(self._history, entry, live.name)
            self._fold.fold(entry)

    def follow(self) -> Iterator[int]:
        """Fold what is new, for ever; yield the last offset after each look."""
        for entry in self.live.follow(self._fold.offset):
            if entry is None:
                yield self._fold.offset
                continue
            if self._history is not None:
                note_entry(self._history, entry, self.live.name)
            self._fold.fold(entry)

    def answer(self) -> dict[str, Any]:
        cell = self._fold.cell
        now = now_seconds(cell)
        servers = [server for server in cell.servers.values() if server.works]
        ended = [] if self._history is None else self._ended(self._history, cell)
        return {
            "cell": self.live.name,
            "offset": self._fold.offset,
            "at_seconds": now,
            "newest_record_at_seconds": cell.now_seconds,
            "gpus": sum(server.server.gpus for server in servers),
            "gpus_busy": sum(gpu_sets.count(job.held) for job in cell.jobs.values()),
            "servers": len(servers),
            "jobs": [live_job(job, cell, now) for job in cell.jobs.values()],
            "ended": ended,
        }

    def _ended(self, history: History, cell: CellState) -> list[dict[str, Any]]:
        return [
            described_end(job)
            for job in history.jobs.values()
            if job.outcome.terminal and job.job_id not in cell.jobs
        ]

    def parts(self, answer: dict[str, Any], *, wide: bool) -> list[str | Table]:
        age = answer["at_seconds"] - answer["newest_record_at_seconds"]
        head = (
            f"{answer['cell']} at {time_text(answer['at_seconds'])} (offset {answer['offset']},"
            f" {duration_text(max(0, round(age)))} old): {answer['gpus_busy']} of"
            f" {answer['gpus']} GPUs on {answer['servers']} servers are busy"
        )
        rows = [job_row(job, wide=wide) for job in answer["jobs"]]
        rows += [ended_row(job, wide=wide) for job in answer["ended"]]
        if not rows:
            hint = "" if self._history is not None else "; --all shows those that have ended"
            return [head, f"no job is live{hint}"]
        columns = (*_COLUMNS, *_WIDE) if wide else _COLUMNS
        return [head, Table(columns, rows, right=(2, 3, 4, 5, 6))]


def _watch(view: _View, output_format: OutputFormat) -> None:
    drawn_offset, drawn_at = -2, 0.0
    tables = output_format in ("table", "wide")
    for offset in view.follow():
        due = tables and time.monotonic() - drawn_at >= REDRAW_SECONDS
        if offset == drawn_offset and not due:
            continue
        drawn_offset, drawn_at = offset, time.monotonic()
        answer = view.answer()
        if tables:
            # On a terminal in place of the last one; nothing of it in a pipe.
            click.clear()
            emit(output_format, answer, view.parts(answer, wide=output_format == "wide"))
        else:
            emit_one(output_format, answer, "")
