"""Finding and ending processes by a mark in their environment, across sessions and reparenting.

A process inherits its environment from whoever started it, so every process that a worker
starts, however it hides (a session of its own, a parent that ended), bears the worker's mark,
unless it clears its environment. Those that do are found by their session. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "MARK",
    "end_marked",
    "kill_marked",
    "marked_processes",
    "memory_bytes",
    "started_at",
]

MARK = "RESILIN_PROCESS"
"""The environment variable that holds the mark."""

_PROC = Path("/proc")
_AGAIN_SECONDS = 0.02


def marked_processes(mark: str, sessions: frozenset[int] = frozenset()) -> list[int]:
    """Return the processes that bear a mark, or one that begins with it, or are of a session.

    Zombies are not among them: nothing of them is left but a number.
    """
    pids = [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 (thousands)
    return [pid for pid in pids if _bears(pid, mark) or _session(pid) in sessions]


def end_marked(
    mark: str,
    sessions: frozenset[int] = frozenset(),
    *,
    spare: int | None = None,
    within_seconds: float = 10.0,
) -> int:
    """Kill every process that bears a mark, until none is left; return how many there were.

    Args:
        mark: The mark, or its beginning.
        sessions: Sessions whose processes are killed as well.
        spare: A process to leave alone, marked or not.
        within_seconds: When to give up; a process in the kernel's hands may not end.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        left = kill_marked(mark, sessions, spare=spare)
        if not left:
            break
        killed.update(left)
        time.sleep(_AGAIN_SECONDS)
    return len(killed)


def kill_marked(
    mark: str, sessions: frozenset[int] = frozenset(), *, spare: int | None = None
) -> list[int]:
    """Kill every process that bears a mark now; return which: they take a moment to be gone."""
    there = [pid for pid in marked_processes(mark, sessions) if pid != spare]
    return [pid for pid in there if _kill(pid, mark, sessions)]


def _kill(pid: int, mark: str, sessions: frozenset[int]) -> bool:
    """Kill one process; a number that has come to mean another process kills nobody."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # Looked at once more while the handle holds on to it.
            if _bears(pid, mark) or _session(pid) in sessions:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
    return False


def started_at(pid: int) -> int | None:
    """Return when a process started, in the kernel's ticks since boot; None if it is gone."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def memory_bytes(pids: Iterable[int]) -> int:
    """Return the memory that processes hold for themselves, shared pages left out."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            _, resident, shared, *_ = (_PROC / str(pid) / "statm").read_text().split()
            total += (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return total


def _bears(pid: int, mark: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"\0{MARK}={mark}".encode() in b"\0" + environment


def _session(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[3])


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process after its name, from its state on."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
