"""What an agent has running, on disk: so that the next one finds it, and only it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import Any

from resilin.agent.marked import started_at

__all__ = ["HomeInUseError", "Registry"]


class HomeInUseError(RuntimeError):
    """Another agent works in this directory."""


class Registry:
    """The files by which agents of one home directory know each other's processes.

    ``agent.lock`` is held by the agent that is alive, ``agent.json`` names the home and
    counts its agents, ``processes/`` has a file for each process that leads a session.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / "processes"
        self._lock: int | None = None

    def enter(self) -> tuple[str, str]:
        """Become this home's agent; return the mark of the home and that of this agent.

        Raises:
            HomeInUseError: If another agent is alive.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._home / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise HomeInUseError(f"another agent runs in {self._home}") from None
        self._lock = lock
        known: dict[str, Any] = {"home": uuid.uuid4().hex, "agents": 0}
        path = self._home / "agent.json"
        with contextlib.suppress(FileNotFoundError, ValueError):
            known |= json.loads(path.read_text())
        known["agents"] = int(known["agents"]) + 1
        _replace(path, json.dumps(known))
        home_mark = f"{known['home']}:"
        return home_mark, f"{home_mark}{known['agents']}:"

    def leave(self) -> None:
        """Let another agent in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def note(self, pid: int, mark: str) -> None:
        """Remember a process that leads a session."""
        _replace(self._folder / str(pid), json.dumps({"mark": mark, "started": started_at(pid)}))

    def drop(self, pid: int) -> None:
        """Forget a process; nothing of its session is left."""
        (self._folder / str(pid)).unlink(missing_ok=True)

    def sessions(self, mark: str) -> frozenset[int]:
        """Return the sessions whose processes bear, or bore, a mark that begins with this.

        A number that by now leads another session is not among them; while any process of a
        session lives, its number is not given to another.
        """
        found = []
        for pid, entry in self._entries(mark):
            now = started_at(pid)
            if now is None or now == entry["started"]:
                found.append(pid)
        return frozenset(found)

    def forget(self, mark: str) -> None:
        """Forget every process whose mark begins with this."""
        for pid, _ in self._entries(mark):
            self.drop(pid)

    def _entries(self, mark: str) -> list[tuple[int, dict[str, Any]]]:
        entries = []
        for path in self._folder.glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                entry = json.loads(path.read_text())
                if str(entry["mark"]).startswith(mark):
                    entries.append((int(path.name), entry))
        return entries


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
