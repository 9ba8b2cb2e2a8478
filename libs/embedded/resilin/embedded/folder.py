"""A cell at home: everything an embedded cell keeps is in one folder.

log.resilin      the log and its snapshots; the only truth
topics.sqlite    commands of clients, and dead letters
cell.json        what was settled when the cell was new
lock             held by the process that runs the cell
up.json          that process: its id and its address
up.output        what it says
jobs/            programs, checkpoints and output of the workers
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Home", "HomeBusyError", "HomeSettings", "Running"]

_PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 0.02


class HomeBusyError(RuntimeError):
    """Another process runs a cell in this folder; the text says which."""


@dataclass(frozen=True, slots=True)
class Running:
    """The process that runs a home's cell."""

    pid: int
    port: int
    started_at_seconds: float

    @property
    def url(self) -> str:
        """Where health and metrics are."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class HomeSettings:
    """What does not change in the life of a home's cell.

    Attributes:
        slots: How many workers this machine runs at once.
        origin_seconds: When its time begins to run faster, if it does; time never goes back.
    """

    slots: int
    origin_seconds: float


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one embedded cell."""

    path: Path

    @property
    def log(self) -> Path:
        """The log's file."""
        return self.path / "log.resilin"

    @property
    def topics(self) -> Path:
        """The file of commands and dead letters."""
        return self.path / "topics.sqlite"

    @property
    def output(self) -> Path:
        """What the cell's process says."""
        return self.path / "up.output"

    @property
    def _up(self) -> Path:
        return self.path / "up.json"

    def settings(self, slots: int) -> HomeSettings:
        """Return what was settled when the cell was new; settle it now if it is."""
        path = self.path / "cell.json"
        try:
            return HomeSettings(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            settings = HomeSettings(slots, time.time())
            self.path.mkdir(parents=True, exist_ok=True)
            # Whole or not at all: a process may be killed in the middle.
            new = path.with_name("cell.json.new")
            new.write_text(json.dumps(asdict(settings)))
            new.replace(path)
            return settings

    def running(self) -> Running | None:
        """Return the process that runs the cell; None if none does."""
        with suppress(HomeBusyError), self._lock():
            return None
        try:
            return Running(**json.loads(self._up.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @contextmanager
    def _lock(self, patience_seconds: float = 0.0) -> Iterator[None]:
        """Hold the folder; it is let go of with the process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + patience_seconds
        with (self.path / "lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise HomeBusyError(f"a cell runs in {self.path} already") from None
                time.sleep(_LOOK_SECONDS)
            yield

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder.

        Raises:
            HomeBusyError: If another process does.
        """
        # Somebody who only looks whether a cell runs holds it for a moment.
        with self._lock(_PATIENCE_SECONDS):
            self._up.unlink(missing_ok=True)  # of a process that was killed
            try:
                yield
            finally:
                self._up.unlink(missing_ok=True)

    def announce(self, port: int) -> None:
        """Say that this process, which holds the folder, runs the cell."""
        self._up.write_text(json.dumps(asdict(Running(os.getpid(), port, time.time()))))
