"""What a job's workers print, on the machine that they run on: read as it grows."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import click

from resilin.cli.live import CellFold, LiveCell
from resilin.cli.logs import note_entry
from resilin.cli.output import OutputFormat, emit_one, safe_text
from resilin.report.history import History

__all__ = ["JobOutput", "OutputLine", "followed_output", "print_line"]

BYTES_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line of one process."""

    worker: str
    text: str

    def shown(self, *, several: bool) -> str:
        """Return the line as it is printed."""
        # A progress bar draws over its own line: the last drawing of it is the line.
        text = self.text.rstrip("\r").rpartition("\r")[2] if sys.stdout.isatty() else self.text
        text = safe_text(text, keep="\t") if sys.stdout.isatty() else text
        return f"[{self.worker}] {text}" if several else text


@dataclass(slots=True)
class _File:
    """One process's output, read as it grows and while its first half makes room."""

    path: Path
    worker: str
    stream: BinaryIO | None = None
    rest: bytes = b""

    def old_lines(self) -> Iterator[OutputLine]:
        """Yield the lines of the part before, which made room."""
        # Opened first: if it makes room meanwhile, it is the part before, and read as itself.
        self.stream = self._opened()
        before = _File(self.path.with_name(f"{self.path.name}.1"), self.worker)
        before.stream = before._opened()
        if self.stream is None or not before._same_as(self.stream):
            yield from before.new_lines()
            self.rest = before.rest
        before.close()

    def new_lines(self) -> Iterator[OutputLine]:
        """Yield the whole lines that were added."""
        if self.stream is None:
            self.stream = self._opened()
        while self.stream is not None:
            while data := self.stream.read(BYTES_AT_ONCE):
                *whole, self.rest = (self.rest + data).split(b"\n")
                for line in whole:
                    yield OutputLine(self.worker, line.decode("utf-8", "replace"))
            # What was renamed to make room is read to its end before the new file is.
            if self._is_current():
                return
            self.stream.close()
            self.stream = self._opened()

    def _opened(self) -> BinaryIO | None:
        try:
            return self.path.open("rb")
        except FileNotFoundError:
            return None

    def _same_as(self, other: BinaryIO) -> bool:
        stream = self.stream
        return stream is not None and os.path.sameopenfile(stream.fileno(), other.fileno())

    def _is_current(self) -> bool:
        assert self.stream is not None, "asked of a file that is open"  # noqa: S101 (invariant)
        try:
            return os.path.samestat(os.fstat(self.stream.fileno()), self.path.stat())
        except FileNotFoundError:
            return True

    def unfinished(self) -> Iterator[OutputLine]:
        """Yield the line that the file ends with, if it does not end with a whole one."""
        if self.rest:
            yield OutputLine(self.worker, self.rest.decode("utf-8", "replace"))
            self.rest = b""

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None


@dataclass(slots=True)
class JobOutput:
    """The files of a job's processes; more may come."""

    folder: Path
    worker: str | None
    known: dict[str, _File] = field(default_factory=dict)

    def look(self) -> None:
        """Find files that have come."""
        for path in sorted(self.folder.glob("*.log")):
            wanted = (path.stem, path.stem.removeprefix("worker-"))
            if self.worker is None or self.worker in wanted:
                self.known.setdefault(path.name, _File(path, path.stem))

    def last(self, count: int) -> list[OutputLine]:
        """Return each file's last lines, and stand at its end."""
        self.look()
        return [
            line
            for file in self.known.values()
            for line in deque(chain(file.old_lines(), file.new_lines()), maxlen=count)
        ]

    def new_lines(self) -> Iterator[OutputLine]:
        """Yield the whole lines that were added."""
        self.look()
        for file in self.known.values():
            yield from file.new_lines()

    def unfinished(self) -> Iterator[OutputLine]:
        """Yield the lines that the files end with, as far as they are not whole."""
        for file in self.known.values():
            yield from file.unfinished()

    def close(self) -> None:
        """Let go of the files."""
        for file in self.known.values():
            file.close()


def followed_output(live: LiveCell, job_id: str, files: JobOutput) -> Iterator[OutputLine]:
    """Yield what is added until the job has ended and its workers have left."""
    fold, past = CellFold(), History()
    for entry in live.follow():
        if entry is not None:
            fold.fold(entry)
            note_entry(past, entry, live.name)
            continue
        job = past.jobs.get(job_id)
        # Looked at before the files, so that what was written until the end is read.
        over = job is not None and job.outcome.terminal and job_id not in fold.cell.jobs
        yield from files.new_lines()
        if over:
            yield from files.unfinished()
            return


def print_line(output_format: OutputFormat, line: OutputLine, *, several: bool) -> None:
    """Print a line as it comes."""
    if output_format in ("json", "yaml"):
        emit_one(output_format, {"worker": line.worker, "text": line.text}, "")
    else:
        click.echo(line.shown(several=several), color=True)
