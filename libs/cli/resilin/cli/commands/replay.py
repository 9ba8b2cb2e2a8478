"""`resilin replay`: fold a log for its services, as a restart does."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

import click

from resilin.audit.replay import fold_log
from resilin.cli.errors import InputError
from resilin.cli.live import ReadableLog
from resilin.cli.logs import Source, open_log, source_argument
from resilin.cli.output import OutputFormat, Table, emit, example, note, number_text, output_option
from resilin.cli.progress import progress
from resilin.eventlog.port import Snapshot
from resilin.kernel.decider import Decider
from resilin.kernel.host import Folded
from resilin.kernel.snapshot import SnapshotError, dump, load, state_hash
from resilin.simulation.simulation import deciders

__all__ = ["command"]


@click.command("replay", epilog=example("resilin replay run/log.resilin --service allocator"))
@source_argument
@click.option(
    "--service",
    "services",
    multiple=True,
    help="Fold this service only; may be given more than once.  [default: all]",
)
@click.option(
    "--snapshot/--no-snapshot",
    "from_snapshot",
    default=False,
    help="Start from the snapshots in the log.  [default: no]",
)
@click.option("--save-snapshot", is_flag=True, help="Store what was folded as snapshots.")
@click.option("--through", type=click.IntRange(min=0), help="Fold up to this offset only.")
@output_option
def command(
    *,
    source: Source,
    services: tuple[str, ...],
    from_snapshot: bool,
    save_snapshot: bool,
    through: int | None,
    output_format: OutputFormat,
) -> None:
    """Fold a log for each service, as a restart does.

    The log is a file, or that of a live cell up to now. Says how fast that was and what it
    came to. Two folds that came to the same state have the same state hash, with or without a
    snapshot, on any machine.
    """
    chosen = _chosen(services)
    if save_snapshot and source.log_file is None:
        raise click.UsageError(
            "--save-snapshot writes into a log file: name one; a live cell saves its own"
        )
    with _opened(source, save_snapshot=save_snapshot) as log:
        end = log.end_offset()
        if through is not None and through > end:
            raise InputError(f"{source.name}: has no offset {through}; it ends at {end}")
        folds = []
        for decider in chosen:
            start = _snapshot(log, decider, through) if from_snapshot else None
            folded, figures = _fold(log, decider, start, through)
            folds.append(figures)
            if save_snapshot:
                payload = dump(folded, decider.state_type)
                log.save(decider.service, Snapshot(folded.offset, payload))
    answer = {"log": source.name, "services": folds}
    emit(output_format, answer, [_table(folds)])


def _opened(source: Source, *, save_snapshot: bool) -> AbstractContextManager[ReadableLog]:
    if save_snapshot and source.log_file is not None:
        return open_log(source.log_file, read_only=False)
    return source.open()


def _chosen(names: tuple[str, ...]) -> list[Decider[Any]]:
    known = {decider.service: decider for decider in deciders()}
    for name in names:
        if name not in known:
            raise click.BadParameter(
                f"{name!r} is no service; choose of {', '.join(known)}", param_hint="'--service'"
            )
    return [known[name] for name in names or known]


def _snapshot(log: ReadableLog, decider: Decider[Any], through: int | None) -> Folded[Any] | None:
    snapshot = log.load(decider.service)
    if snapshot is None:
        note(f"{decider.service}: no snapshot; folding from the first record")
        return None
    if through is not None and snapshot.offset > through:
        note(f"{decider.service}: the snapshot is of a later offset; folding from the first record")
        return None
    try:
        return load(snapshot.payload, decider.state_type)
    except SnapshotError as error:
        note(f"{decider.service}: {error}; folding from the first record")
        return None


def _fold(
    log: ReadableLog, decider: Decider[Any], start: Folded[Any] | None, through: int | None
) -> tuple[Folded[Any], dict[str, Any]]:
    after = -1 if start is None else start.offset
    last = log.end_offset() if through is None else through
    records = 0
    with progress(f"folding {decider.service}", last - after) as advance:

        def observe(_: object) -> None:
            nonlocal records
            records += 1
            if advance is not None:
                advance()

        began = time.perf_counter()
        folded = fold_log(
            log.read(after), decider, folded=start, through_offset=through, observe=observe
        )
        seconds = time.perf_counter() - began
    return folded, {
        "service": decider.service,
        "from_offset": after + 1,
        "through_offset": folded.offset,
        "records": records,
        "seconds": seconds,
        "records_per_second": records / seconds if seconds else None,
        "state_hash": state_hash(folded.state, decider.state_type),
    }


def _table(folds: list[dict[str, Any]]) -> Table:
    columns = ("service", "offsets", "records", "seconds", "records/s", "state hash")
    rows = [
        [
            fold["service"],
            f"{fold['from_offset']} to {fold['through_offset']}",
            number_text(fold["records"]),
            number_text(fold["seconds"]),
            number_text(round(fold["records_per_second"] or 0)),
            fold["state_hash"],
        ]
        for fold in folds
    ]
    return Table(columns, rows, right=(2, 3, 4))
