"""Processes of jobs: started in a session of their own, watched, and ended with all they started.

Everything runs in one event loop, in the thread that stays as long as the agent: the kernel
ends a process that is tied to its parent when the *thread* that started it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from resilin.agent.agent_messages import Exit
from resilin.agent.job_directory import LogFile
from resilin.agent.marked import MARK, end_marked, kill_marked, marked_processes, memory_bytes
from resilin.agent.registry import Registry

__all__ = ["ChildProcess", "Launcher", "ProcessPlan", "environment"]

OUTPUT_LINES = 30
"""Lines of a process's output that go with its end."""

_CHUNK = 64 << 10
_DRAIN_CHUNKS = 64
_SWEEP_SECONDS = 0.02
_LAUNCH = Path(__file__).with_name("launch.py")

# What a program needs of the world; of the agent's own settings, some of them secret, nothing.
_PASSED_ON = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME"),
}
_PASSED_ON_PREFIXES = ("LC_", "PYTHON", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "OMP_", "MKL_")


def environment(inherited: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job's process: what every program needs, and its own."""
    passed = {
        name: value
        for name, value in inherited.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return {**passed, "PYTHONUNBUFFERED": "1", **own}


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """What to run, and how.

    Attributes:
        command: The program and its arguments.
        directory: Its working directory.
        environment: Its own environment variables.
        log: Where its output goes.
        cpus: The CPUs it keeps to; none for all.
        nice: How far it stands back behind others.
        memory_bytes_max: What it may use with all that it starts; None is no limit.
    """

    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    log: Path
    cpus: tuple[int, ...] = ()
    nice: int = 0
    memory_bytes_max: int | None = None


class Launcher:
    """Starts processes that bear the agent's mark.

    Args:
        registry: Where they are noted.
        mark: The agent's mark.
    """

    def __init__(self, registry: Registry, mark: str) -> None:
        self._registry = registry
        self._mark = mark
        self._started = 0

    def start(self, plan: ProcessPlan, on_end: Callable[[Exit], None]) -> ChildProcess:
        """Start a process; ``on_end`` is called once it is gone with all that it started.

        Raises:
            OSError: If it cannot be started.
        """
        self._started += 1
        return ChildProcess(plan, f"{self._mark}{self._started}", self._registry, on_end)


class ChildProcess:
    """One process of a job, and whatever it starts.

    Attributes:
        pid: Its number; that of its session and its group, too.
    """

    def __init__(
        self, plan: ProcessPlan, mark: str, registry: Registry, on_end: Callable[[Exit], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # A mark ends with a sign of its own, so that none begins with another.
        self._mark = f"{mark};"
        self._registry = registry
        self._on_end = on_end
        self._memory_bytes_max = plan.memory_bytes_max
        self._out_of_memory = False
        self._killed = False
        self._over = False
        self._kernel_kills = _kernel_kills()
        settings = {
            "agent": os.getpid(),
            "cpus": plan.cpus,
            "nice": plan.nice,
            "memory_bytes_max": plan.memory_bytes_max,
        }
        self._log = LogFile(plan.log)
        try:
            self._popen = subprocess.Popen(  # noqa: S603 (running jobs' code is what an agent is for)
                [sys.executable, "-I", "-S", str(_LAUNCH), json.dumps(settings), *plan.command],
                cwd=plan.directory,
                env={**environment(os.environ, plan.environment), MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:
            self._log.close()
            raise
        self.pid = self._popen.pid
        try:
            registry.note(self.pid, self._mark)
        except OSError:
            self._popen.kill()
            self._popen.communicate()
            self._log.close()
            raise
        assert self._popen.stdout is not None, "its output is a pipe"  # noqa: S101 (invariant)
        self._output = self._popen.stdout.fileno()
        os.set_blocking(self._output, False)
        self._output_open = True
        self._loop.add_reader(self._output, self._take_output)
        self._handle = os.pidfd_open(self.pid)
        self._loop.add_reader(self._handle, self._main_ended)

    # --- ending ----------------------------------------------------------------------------

    def terminate(self) -> None:
        """Ask it to end; what it started is asked, too, as far as it is of its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; what it started follows."""
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def end_now(self) -> None:
        """End it and all that it started, and wait for that: the agent itself is about to end."""
        if self._over:
            return
        self.kill()
        end_marked(self._mark, frozenset((self.pid,)))
        self._let_go()

    # --- memory ----------------------------------------------------------------------------

    def check_memory(self) -> None:
        """End it if it takes more memory than it may, with all that it started."""
        if self._memory_bytes_max is None or self._out_of_memory:
            return
        there = marked_processes(self._mark, frozenset((self.pid,)))
        if memory_bytes(there) > self._memory_bytes_max:
            self._out_of_memory = True
            self.kill()

    # --- what happens ----------------------------------------------------------------------

    def _take_output(self) -> bool:
        """Take some output in; return whether there may be more."""
        if not self._output_open:
            return False
        try:
            chunk = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return False
        if chunk:
            self._log.write(chunk)
        else:
            self._close_output()
        return bool(chunk)

    def _close_output(self) -> None:
        if self._output_open:
            self._output_open = False
            self._loop.remove_reader(self._output)
            assert self._popen.stdout is not None, "its output is a pipe"  # noqa: S101 (invariant)
            self._popen.stdout.close()

    def _main_ended(self) -> None:
        """It has ended; it stays a zombie, so that its number stays its own, until all is gone."""
        self._loop.remove_reader(self._handle)
        self._sweep()

    def _sweep(self) -> None:
        if self._over:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if kill_marked(self._mark, frozenset((self.pid,))):
            self._loop.call_later(_SWEEP_SECONDS, self._sweep)
            return
        for _ in range(_DRAIN_CHUNKS):
            if not self._take_output():
                break
        status = self._let_go()
        # A kill that is not ours, and the kernel has just killed for want of memory.
        by_kernel = status == -signal.SIGKILL and not self._killed
        by_kernel = by_kernel and _kernel_kills() > self._kernel_kills
        output = self._log.tail(OUTPUT_LINES)
        self._on_end(Exit(status, output, self._out_of_memory or by_kernel))

    def _let_go(self) -> int:
        """Let go of everything that was held for it; return how it ended."""
        self._over = True
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._close_output()
        self._log.close()
        self._registry.drop(self.pid)
        return self._popen.wait()


def _kernel_kills() -> int:
    """Return how often the kernel has killed a process on this machine for want of memory."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
