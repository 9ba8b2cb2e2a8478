"""A worker that only pretends, and misbehaves as a test wants it to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from frames import behaviour, receive, send


def note(directory: Path, pid: int) -> None:
    """Leave a process's number where the test finds it."""
    folder = directory / "started"
    folder.mkdir(exist_ok=True)
    (folder / str(pid)).touch()


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def connect(directory: Path) -> socket.socket:
    while True:
        try:
            address = json.loads((directory / "leader.json").read_text())
            return socket.create_connection((address["host"], address["port"]))
        except (OSError, ValueError):
            time.sleep(0.01)


def main() -> int:
    directory, worker_id = Path(sys.argv[2]), sys.argv[4]
    wish = behaviour(directory)
    note(directory, os.getpid())
    say(f"worker {worker_id} is here")
    if wish.get("dies_at_start"):
        say("no such device")
        return 1
    if wish.get("never_joins"):
        time.sleep(3600)
    if wish.get("forks"):
        for command in (["sleep", "3600"], ["setsid", "sleep", "3600"]):
            note(directory, subprocess.Popen(command).pid)  # noqa: S603 (a child to be ended)
        # One that clears its environment but stays in the session.
        bare = subprocess.Popen(["sleep", "3600"], env={"PATH": "/usr/bin:/bin"})  # noqa: S607 (found on any system)
        note(directory, bare.pid)
    if wish.get("prints_megabytes"):
        for _ in range(wish["prints_megabytes"]):
            say("x" * 99 + "\n" + ("y" * 99 + "\n") * 9_999, end="")
        say("printed it all")
    if wish.get("ignores_signals"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    leader = connect(directory)
    send(leader, {"role": "worker", "worker_id": worker_id})
    if wish.get("raises"):
        time.sleep(0.1)
        text = "Traceback (most recent call last):\nValueError: the loss is no number"
        say(text)
        if wish["raises"] == "and tells":
            send(leader, {"type": "UserFailed", "message": text})
        return 3
    if wish.get("eats_memory"):
        hoard = []
        while True:
            hoard.append(bytes(range(256)) * 4096 * 8)
            time.sleep(0.001)
    while True:
        while (order := receive(leader)) is not None:
            if order["type"] == "Leave" and not wish.get("ignores_signals"):
                return 0
        leader = connect(directory)  # the leader is gone: its successor will be there
        send(leader, {"role": "worker", "worker_id": worker_id})


if __name__ == "__main__":
    sys.exit(main())
