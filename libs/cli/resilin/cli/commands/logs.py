"""`resilin logs`: what a job's workers print."""

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

from resilin.agent.job_directory import JobDirectory
from resilin.cli.errors import InputError
from resilin.cli.following import job_named
from resilin.cli.live import CellFold, LiveAddress, LiveCell, live_options, open_live
from resilin.cli.logs import note_entry
from resilin.cli.output import OutputFormat, emit, emit_one, example, output_option, safe_text
from resilin.report.history import History

__all__ = ["command"]

BYTES_AT_ONCE = 1 << 16


@click.command("logs", epilog=example("resilin logs nightly -f", "resilin logs nightly --worker 2"))
@click.argument("job")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--worker", metavar="WORKER", help="Only this worker, such as 2, or leader.  [default: all]"
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    help="So many of the last lines of each.",
)
@live_options
@output_option
def command(
    *,
    job: str,
    follows: bool,
    worker: str | None,
    last: int,
    address: LiveAddress,
    output_format: OutputFormat,
) -> None:
    """Print what a job's workers print, in an embedded cell.

    Each line begins with its worker where there are several. On a terminal, characters that
    could steer it are escaped; into a pipe or file they go as they are.
    """
    if address.bootstrap is not None:
        raise InputError(
            f"{address.name}: workers' output is kept on the servers that they run on; `resilin"
            " logs` reads that of an embedded cell (--home)"
        )
    with open_live(address) as live:
        job_id = job_named(live, job)
        folder = JobDirectory.of_job(address.home, job_id).logs
        files = _Files(folder, worker)
        try:
            lines = files.last(last)
            if not follows:
                if not files.known:
                    which = "" if worker is None else f" of worker {worker}"
                    raise InputError(f"{job_id}: there is no output{which} in {folder} yet")
                _emit(output_format, job_id, files, lines)
                return
            for line in chain(lines, _followed(live, job_id, files)):
                _print(output_format, line, several=len(files.known) > 1)
        finally:
            files.close()


@dataclass(frozen=True, slots=True)
class _Line:
    worker: str
    text: str

    def shown(self, *, several: bool) -> str:
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

    def old_lines(self) -> Iterator[_Line]:
        """Yield the lines of the part before, which made room."""
        # Opened first: if it makes room meanwhile, it is the part before, and read as itself.
        self.stream = self._opened()
        before = _File(self.path.with_name(f"{self.path.name}.1"), self.worker)
        before.stream = before._opened()
        if self.stream is None or not before._same_as(self.stream):
            yield from before.new_lines()
            self.rest = before.rest
        before.close()

    def new_lines(self) -> Iterator[_Line]:
        """Yield the whole lines that were added."""
        if self.stream is None:
            self.stream = self._opened()
        while self.stream is not None:
            while data := self.stream.read(BYTES_AT_ONCE):
                *whole, self.rest = (self.rest + data).split(b"\n")
                for line in whole:
                    yield _Line(self.worker, line.decode("utf-8", "replace"))
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

    def unfinished(self) -> Iterator[_Line]:
        """Yield the line that the file ends with, if it does not end with a whole one."""
        if self.rest:
            yield _Line(self.worker, self.rest.decode("utf-8", "replace"))
            self.rest = b""

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None


@dataclass(slots=True)
class _Files:
    """The files of a job's processes; more may come."""

    folder: Path
    worker: str | None
    known: dict[str, _File] = field(default_factory=dict)

    def look(self) -> None:
        for path in sorted(self.folder.glob("*.log")):
            wanted = (path.stem, path.stem.removeprefix("worker-"))
            if self.worker is None or self.worker in wanted:
                self.known.setdefault(path.name, _File(path, path.stem))

    def last(self, count: int) -> list[_Line]:
        """Return each file's last lines, and stand at its end."""
        self.look()
        return [
            line
            for file in self.known.values()
            for line in deque(chain(file.old_lines(), file.new_lines()), maxlen=count)
        ]

    def new_lines(self) -> Iterator[_Line]:
        self.look()
        for file in self.known.values():
            yield from file.new_lines()

    def unfinished(self) -> Iterator[_Line]:
        for file in self.known.values():
            yield from file.unfinished()

    def close(self) -> None:
        for file in self.known.values():
            file.close()


def _followed(live: LiveCell, job_id: str, files: _Files) -> Iterator[_Line]:
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


def _emit(output_format: OutputFormat, job_id: str, files: _Files, lines: list[_Line]) -> None:
    lines = [*lines, *files.unfinished()]
    several = len(files.known) > 1
    if output_format in ("json", "yaml"):
        listed = [{"worker": line.worker, "text": line.text} for line in lines]
        emit(output_format, {"job_id": job_id, "lines": listed}, ())
        return
    for line in lines:
        click.echo(line.shown(several=several), color=True)


def _print(output_format: OutputFormat, line: _Line, *, several: bool) -> None:
    if output_format in ("json", "yaml"):
        emit_one(output_format, {"worker": line.worker, "text": line.text}, "")
    else:
        click.echo(line.shown(several=several), color=True)
