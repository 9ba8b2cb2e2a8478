"""Tells the story of a cell while it happens, from its log."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from resilin.audit.explain import explain_job
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.eventlog.sqlite import SqliteLog
from resilin.report.history import History

__all__ = ["Noted", "Story", "say", "table"]

LOOK_SECONDS = 0.1
UNTOLD = ("is placed on", "makes ", "its plan was made anew")
"""What a user need not follow; `resilin explain` tells it."""


def say(text: str = "") -> None:
    """Print a line at once, also into a file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, ["-" * width for width in widths], *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say(f"  {line.rstrip()}")


class Noted(NamedTuple):
    """An event about a job, and when."""

    at_seconds: float
    event: Any


class Story:
    """Follows a log, and prints a line for every change.

    Args:
        log_file: The log.
        patience_seconds: How long :meth:`wait` waits.

    Attributes:
        entries: The log as far as it has been read.
        history: Its jobs.
        workers: How many workers every job trains with.
    """

    def __init__(self, log_file: Path, patience_seconds: float) -> None:
        self._log_file = log_file
        self._log: SqliteLog | None = None
        self._patience_seconds = patience_seconds
        self._began = time.time()
        self.entries: list[LogEntry] = []
        self.history = History()
        self.workers: dict[str, int] = {}

    def open(self) -> None:
        """Begin to follow the log, which is there now."""
        self._log = SqliteLog(self._log_file, read_only=True)

    def close(self) -> None:
        """Follow the log no more."""
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- following -------------------------------------------------------------------------

    def look(self) -> None:
        """Read and tell what is new."""
        if self._log is None:
            return
        for entry in self._log.read(self.entries[-1].offset if self.entries else -1):
            self.entries.append(entry)
            self.history.fold(entry)
            self._count(entry)
            self._tell(entry)

    def wait(self, what: str, met: Callable[[], bool]) -> None:
        """Follow the log until something is so.

        Raises:
            TimeoutError: If that takes too long.
        """
        self.look()
        if not self.rest(self._patience_seconds, met):
            raise TimeoutError(f"waited {self._patience_seconds:g} s in vain until {what}")

    def rest(self, seconds: float, met: Callable[[], bool] = lambda: False) -> bool:
        """Let things go on for a while, or until something is so; say whether it is."""
        until = time.monotonic() + seconds
        while not met() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            self.look()
        return met()

    # --- asking ----------------------------------------------------------------------------

    def events(self, kind: type[ev.Event], job_id: str) -> list[Noted]:
        """Return a job's events of a kind."""
        return [noted for noted in self._about(job_id) if isinstance(noted.event, kind)]

    def ended(self, job_id: str) -> bool:
        """Say whether a job has ended."""
        job = self.history.jobs.get(job_id)
        return job is not None and job.outcome.terminal

    def sizes(self, job_id: str) -> list[tuple[int, float | None]]:
        """Return the worker counts a job trained with, and how long it stood still for each.

        That is None where it was no change of a job that trains: a start, or a start again.
        """
        sizes: list[tuple[int, float | None]] = []
        before = 0
        for _, event in self._about(job_id):
            match event:
                case ev.GenerationSwitched(workers=workers) if workers != before:
                    sizes.append((workers, event.stopped_seconds if before else None))
                    before = workers
                case ev.JobSuspended() | ev.WorkerLost():
                    before = 0
                case _:
                    pass
        return sizes

    def _about(self, job_id: str) -> Iterator[Noted]:
        for entry in self.entries:
            for event in entry.record.events:
                if getattr(event, "job_id", None) == job_id:
                    yield Noted(entry.record.timestamp, event)

    # --- telling ---------------------------------------------------------------------------

    def tell(self, what: str) -> None:
        """Print what happens beside the log."""
        say(f"{time.time() - self._began:6.1f}s  -- {what}")

    def _tell(self, entry: LogEntry) -> None:
        for job_id in self.history.jobs:
            for said in explain_job(self.entries, job_id):
                if said.offset != entry.offset or said.what.startswith(UNTOLD):
                    continue
                why = f" ({said.because.splitlines()[-1]})" if said.because else ""
                what = _readable(f"{said.what}{why}")
                running = ", ".join(f"{job} {count}" for job, count in self.workers.items())
                now = entry.record.timestamp - self._began
                say(f"{now:6.1f}s  [{running or 'nobody trains'}]  {job_id} {what}")

    def _count(self, entry: LogEntry) -> None:
        for event in entry.record.events:
            match event:
                case ev.GenerationSwitched(job_id=job_id, workers=workers):
                    self.workers[job_id] = workers
                case (
                    ev.JobSuspended(job_id=job_id)
                    | ev.WorkerLost(job_id=job_id)
                    | ev.JobCompleted(job_id=job_id)
                    | ev.JobFailed(job_id=job_id)
                ):
                    self.workers.pop(job_id, None)
                case _:
                    pass


def _readable(text: str) -> str:
    """Let one worker be one."""
    text = re.sub(r"\b1 workers are\b", "1 worker is", text)
    return re.sub(r"\b1 workers\b", "1 worker", text)
