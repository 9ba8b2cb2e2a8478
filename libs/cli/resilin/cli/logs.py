"""Logs on the command line: opening and writing them, moments in them, jobs by prefix.

A command that only reads takes a log file or the log of a live cell, and does the same with
both.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from resilin.cli.errors import InputError
from resilin.cli.live import LOG_NAME, LiveAddress, ReadableLog, live_options, open_live
from resilin.contracts import events as ev
from resilin.contracts.job_specification import parse_deadline
from resilin.contracts.record import LogEntry
from resilin.eventlog.port import EventLog
from resilin.eventlog.sqlite import SqliteLog
from resilin.report.history import History

__all__ = [
    "LOG_NAME",
    "Moment",
    "Source",
    "fold_history",
    "log_argument",
    "new_log",
    "note_entry",
    "open_log",
    "output_folder",
    "read_moment",
    "resolve_job",
    "source_argument",
    "source_of",
]

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])

log_argument = click.argument("log_file", metavar="LOG", type=click.Path(path_type=Path))
"""The log that a command asks, passed to it as ``log_file``."""


# --- reading -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """What a command reads: a log file, or a live cell where there is none.

    Attributes:
        log_file: The file, if one was named.
        address: The cell, if not.
    """

    log_file: Path | None
    address: LiveAddress

    @property
    def name(self) -> str:
        """The log in a message."""
        return self.address.name if self.log_file is None else str(self.log_file)

    @contextmanager
    def open(self) -> Iterator[ReadableLog]:
        """Open the log to read it.

        Raises:
            InputError: If there is nothing in it, or no cell.
            LogFileError: If it is no log.
        """
        if self.log_file is not None:
            with open_log(self.log_file) as log:
                yield log
            return
        with open_live(self.address) as live:
            if live.log.end_offset() < 0:
                raise InputError(f"{live.name}: the log is empty")
            yield live.log


def source_argument(command: AnyCommand) -> AnyCommand:
    """Give a command an optional LOG and the live options, passed to it as ``source``."""

    @click.argument("log_file", metavar="[LOG]", type=click.Path(path_type=Path), required=False)
    @live_options
    @wraps(command)
    def call(
        *arguments: object, log_file: Path | None, address: LiveAddress, **options: object
    ) -> object:
        return command(*arguments, source=source_of(log_file, address), **options)

    return call  # type: ignore[return-value]  # what click sees is the same command


def source_of(log_file: Path | None, address: LiveAddress) -> Source:
    """Return what is to be read.

    Raises:
        click.UsageError: If both are named on the command line.
    """
    if log_file is not None and address.typed:
        raise click.UsageError(
            f"LOG {log_file} and the live cell {address.name} are both named: drop one"
        )
    return Source(log_file, address)


def open_log(path: Path, *, read_only: bool = True) -> SqliteLog:
    """Open an existing log.

    Raises:
        InputError: If there is nothing in it.
        LogFileError: If it is no log.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the log in it, such as {path / LOG_NAME}")
    # Opened for reading first: opening for writing would make a log of an empty file.
    log = SqliteLog(path, read_only=True)
    try:
        if log.end_offset() < 0:
            raise InputError(f"{path}: the log is empty")
    except BaseException:
        log.close()
        raise
    if read_only:
        return log
    log.close()
    return SqliteLog(path)


def fold_history(entries: Iterable[LogEntry], name: object) -> History:
    """Fold a log into its history.

    Raises:
        InputError: If a record does not fit those before it.
    """
    history = History()
    for entry in entries:
        note_entry(history, entry, name)
    return history


def note_entry(history: History, entry: LogEntry, name: object) -> None:
    """Fold one entry into a history.

    Raises:
        InputError: If it does not fit those before it.
    """
    try:
        history.fold(entry)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # The services write no such log: this one was altered.
        raise InputError(
            f"{name}: offset {entry.offset}: the record does not fit those before it"
            f" ({type(error).__name__}: {error}); `resilin verify` says more"
        ) from None


def resolve_job(job_ids: Iterable[str], prefix: str, name: object) -> str:
    """Return the job with this id, or the only one whose id begins so.

    Raises:
        InputError: If there is none, or more than one.
    """
    known = list(job_ids)
    if prefix in known:
        return prefix
    found = [job_id for job_id in known if job_id.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"{name}: no job's id begins with {prefix!r}; it has {len(known)} jobs")
    shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    raise InputError(f"{name}: the ids of {len(found)} jobs begin with {prefix!r}: {shown}")


# --- moments -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in a log as it was given: one of the three.

    Attributes:
        offset: The last record.
        at_seconds: A time of the cell's clock.
        after_seconds: A time after the first submission.
    """

    offset: int | None = None
    at_seconds: float | None = None
    after_seconds: float | None = None

    def through(self, log: EventLog, name: object) -> dict[str, Any]:
        """Return the bound that :func:`resilin.audit.replay.fold_log` takes.

        Args:
            log: The log.
            name: How messages call it.

        Raises:
            InputError: If it lies outside the log.
        """
        if self.offset is not None:
            end = log.end_offset()
            if self.offset > end:
                raise InputError(f"{name}: has no offset {self.offset}; it ends at {end}")
            return {"through_offset": self.offset}
        moment = self.at_seconds
        if self.after_seconds is not None:
            moment = _first_submission(log, name) + self.after_seconds
        begins = next(iter(log.read())).record.timestamp
        if moment is not None and moment < begins:
            raise InputError(f"{name}: begins at {begins} s, after {moment} s")
        return {"through_seconds": moment}


def _first_submission(log: EventLog, name: object) -> float:
    for entry in log.read():
        for event in entry.record.events:
            if isinstance(event, ev.JobSubmitted):
                return event.submitted_at_seconds
    raise InputError(f"{name}: no job was submitted, so there is no time after the first")


def read_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> Moment | None:
    """Read an offset or a time; a callback for an option.

    Raises:
        click.BadParameter: If it is neither.
    """
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,18}", value):
        return Moment(offset=int(value))
    try:
        if value.startswith("+"):
            return Moment(after_seconds=_seconds(value[1:]))
        return Moment(at_seconds=_seconds(value))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no offset such as 1200, no time of the cell's clock such as 86400s"
            " or 2026-01-31T18:00:00Z, and no time after the first submission such as +6h",
            ctx,
            param,
        ) from None


def _seconds(text: str) -> float:
    if re.fullmatch(r"0+(\.0+)?[smhd]", text):
        return 0.0
    moment = parse_deadline(text)
    return moment.total_seconds() if isinstance(moment, timedelta) else moment.timestamp()


# --- writing -------------------------------------------------------------------------------


@contextmanager
def output_folder(folder: Path, logs: Iterable[str], *, force: bool) -> Iterator[None]:
    """Make a folder for results; leave none behind that an error would leave empty.

    Raises:
        InputError: If it is no folder or holds one of these logs already and ``force`` is off.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file, not a folder; choose another")
    held = [name for name in logs if (folder / name).exists()]
    if held and not force:
        raise InputError(
            f"{folder}: already holds {held[0]}; choose another folder, or --force to replace it"
        )
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def new_log(path: Path) -> Iterator[SqliteLog]:
    """Write a log that appears under its name once it is whole, as one file."""
    partial = path.with_name(f".{path.name}.partial")
    _remove(partial)
    try:
        with SqliteLog(partial, durable=False) as log:
            yield log
        # A log in SQLite's usual mode of a log being written grows two files beside it
        # whenever somebody reads it.
        connection = sqlite3.connect(partial)
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            connection.close()
        # What a log of that name has left beside it must not be taken for this one's.
        _remove(path)
        partial.replace(path)
    finally:
        _remove(partial)


def _remove(file: Path) -> None:
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)
