"""`resilin events`: the log itself, event by event."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

import click

from resilin.cli.event_text import ChosenEvents, LoggedEvent
from resilin.cli.live import (
    CellFold,
    LiveAddress,
    LiveCell,
    ReadableLog,
    live_options,
    open_live,
)
from resilin.cli.logs import resolve_job
from resilin.cli.output import (
    OutputFormat,
    Table,
    emit,
    emit_one,
    example,
    output_option,
    time_text,
)
from resilin.contracts import events as ev
from resilin.contracts.events import EVENT_TYPES

__all__ = ["command"]

_TYPES = tuple(event_type.__name__ for event_type in EVENT_TYPES)


@click.command(
    "events", epilog=example("resilin events --job nightly", "resilin events -f -o json")
)
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on with what is added.")
@click.option("--job", help="Only what is about this job: its id, or the beginning of it.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only events of this type, such as JobAdmitted; may be given more than once.",
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0, 10_000_000),
    default=20,
    show_default=True,
    help="So many of the past; 0 none.",
)
@click.option("--since", metavar="OFFSET", type=click.IntRange(min=0), help="All from here on.")
@live_options
@output_option
def command(
    *,
    follows: bool,
    job: str | None,
    types: tuple[str, ...],
    last: int,
    since: int | None,
    address: LiveAddress,
    output_format: OutputFormat,
) -> None:
    """Show the events of the live cell.

    With --follow every line is one event, and with -o json one object a line. Records that
    do not count, such as those of an instance that was replaced, are marked.
    """
    for name in types:
        if name not in _TYPES:
            raise click.BadParameter(
                f"{name!r} is no type of event; see docs/events.md", param_hint="'--type'"
            )
    with open_live(address) as live:
        job_id = None if job is None else _job(live.log, job, live.name)
        chosen = ChosenEvents(job_id, types)
        fold = CellFold()
        kept: deque[LoggedEvent] = deque(maxlen=last if since is None else None)
        for entry in live.log.read():
            kept.extend(
                logged
                for logged in chosen.of(entry, fold)
                if since is None or entry.offset >= since
            )
        wide = output_format == "wide"
        if not follows:
            answer = {"cell": live.name, "events": [logged.described() for logged in kept]}
            emit(output_format, answer, [_table(kept, whole=wide)] if kept else ["no event"])
            return
        for logged in chain(kept, _new(live, fold, chosen)):
            emit_one(output_format, logged.described(), _line(logged, whole=wide))


def _new(live: LiveCell, fold: CellFold, chosen: ChosenEvents) -> Iterator[LoggedEvent]:
    for entry in live.follow(fold.offset):
        if entry is not None:
            yield from chosen.of(entry, fold)


def _table(kept: Iterable[LoggedEvent], *, whole: bool) -> Table:
    rows = [
        [
            str(logged.entry.offset),
            time_text(logged.entry.record.timestamp),
            logged.entry.record.service,
            logged.type,
            logged.says(whole=whole),
        ]
        for logged in kept
    ]
    return Table(("offset", "at", "service", "event", "says"), rows, right=(0,))


def _line(logged: LoggedEvent, *, whole: bool) -> str:
    record = logged.entry.record
    return (
        f"{logged.entry.offset:>8}  {time_text(record.timestamp)}  {record.service:<18}"
        f"  {logged.type:<22}  {logged.says(whole=whole)}"
    )


def _job(log: ReadableLog, prefix: str, name: str) -> str:
    submitted = (
        event.job_id
        for entry in log.read()
        for event in entry.record.events
        if isinstance(event, ev.JobSubmitted)
    )
    return resolve_job(dict.fromkeys(submitted), prefix, name)
