"""A cell at home: everything an embedded cell keeps is in one folder.

log.resilin      the log and its snapshots; the only truth
topics.sqlite    commands of clients, and dead letters
up.json          the running process: its id and its address
up.output        what that process says
clock.json       since when time runs faster, in a cell whose workers are simulated
jobs/            programs, checkpoints and output of the workers
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Home", "HomeBusyError", "HomeSettings", "Running"]


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

    def settings(self, slots: int) -> HomeSettings:
        """Return what was settled when the cell was new; settle it now if it is."""
        path = self.path / "cell.json"
        try:
            return HomeSettings(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            settings = HomeSettings(slots, time.time())
            self.path.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(settings)))
            return settings

    def running(self) -> Running | None:
        """Return the process that runs the cell; None if none does."""
        try:
            with self._lock(blocking=False):
                return None
        except HomeBusyError:
            pass
        try:
            return Running(**json.loads((self.path / "up.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @contextmanager
    def _lock(self, *, blocking: bool) -> Iterator[None]:
        """Hold the folder; it is let go of with the process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
            except BlockingIOError:
                raise HomeBusyError(f"a cell runs in {self.path} already") from None
            yield

    @contextmanager
    def held(self, port: int) -> Iterator[None]:
        """Hold the folder and say who does.

        Raises:
            HomeBusyError: If another process does.
        """
        with self._lock(blocking=False):
            running = Running(os.getpid(), port, time.time())
            (self.path / "up.json").write_text(json.dumps(asdict(running)))
            try:
                yield
            finally:
                (self.path / "up.json").unlink(missing_ok=True)
