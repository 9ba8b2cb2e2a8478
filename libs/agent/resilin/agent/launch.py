"""Becomes a worker or a leader: sets what a process can only set of itself, then runs the rest.

``python -I -S launch.py SETTINGS COMMAND...`` where the settings are JSON. The process dies
with its agent (Linux' parent-death signal), dumps no core, and keeps to its CPUs and memory.
It runs before anything else is imported, so it is small and needs the standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Set this process up and become the command."""
    settings, command = json.loads(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"cannot be tied to the agent: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != settings["agent"]:
        sys.exit("the agent ended before this process began")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = settings["memory_bytes_max"]
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if settings["cpus"]:
        os.sched_setaffinity(0, settings["cpus"])
    os.nice(settings["nice"])
    os.execvp(command[0], command)  # noqa: S606 (what this module is for; no shell)


if __name__ == "__main__":
    main(sys.argv[1:])
