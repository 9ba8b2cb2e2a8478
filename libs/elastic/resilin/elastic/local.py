"""One job's leader and workers on this machine, without a scheduler: for tests and benchmarks.

::

    async with LocalRun(program, directory) as run:
        await run.resize(2)
        await run.switched(1)
        await run.resize(4)
        switched = await run.switched(2)     # with its stop time
        await run.wait_for(Completed)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from resilin.elastic.control import (
    Completed,
    ControlMessage,
    Failed,
    GenerationSwitched,
    Member,
    Resize,
    Stop,
    WorkerFailed,
    WorkerLeft,
    read_message,
    write_message,
)
from resilin.elastic.program import JobProgram, LeaderAddress

__all__ = ["LocalRun", "LocalRunError"]

Message = TypeVar("Message", bound=ControlMessage)
RECONNECT_SECONDS = 0.05


class LocalRunError(RuntimeError):
    """What was waited for cannot come any more, or did not in time."""


class LocalRun:
    """Starts, resizes and ends the processes of one job.

    Attributes:
        reports: Everything the leader has reported, in order.
        workers: The processes that were started, by worker, ended ones included.
        wanted: The workers of the newest resize.
    """

    def __init__(
        self, program: JobProgram, directory: Path, *, environment: dict[str, str] | None = None
    ) -> None:
        self.program = program
        self.directory = directory
        self.reports: list[ControlMessage] = []
        self.workers: dict[str, asyncio.subprocess.Process] = {}
        self.leaders: list[asyncio.subprocess.Process] = []
        self.wanted: tuple[str, ...] = ()
        self.generation = 0
        self._attempt = 0
        self._environment = os.environ | (environment or {})
        self._news = asyncio.Condition()
        self._newest: Resize | Stop | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None
        self._names = 0

    async def __aenter__(self) -> Self:
        """Write the program and start the leader."""
        self.program.save(self.directory)
        (self.directory / "logs").mkdir(exist_ok=True)
        await self.start_leader()
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill whatever is left."""
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        if self._writer is not None:
            self._writer.close()
        for process in [*self.workers.values(), *self.leaders]:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    # --- processes -------------------------------------------------------------------------

    async def start_leader(self) -> None:
        """Start a leader; beside a living one it waits to succeed it."""
        self.leaders.append(await self._start("leader", f"leader-{len(self.leaders)}"))

    async def start_worker(self, worker_id: str | None = None) -> str:
        """Start a worker, which no resize names yet; return its name."""
        worker_id = worker_id or self._new_name()
        self.workers[worker_id] = await self._start("worker", worker_id, "--worker-id", worker_id)
        return worker_id

    def _new_name(self) -> str:
        self._names += 1
        return f"w{self._names}"

    async def _start(self, module: str, name: str, *arguments: str) -> asyncio.subprocess.Process:
        with (self.directory / "logs" / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"resilin.elastic.{module}",
                "--directory",
                str(self.directory),
                *arguments,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def kill(self, worker_id: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a worker a signal."""
        self.workers[worker_id].send_signal(number)

    def kill_leader(self) -> None:
        """Kill the newest leader."""
        self.leaders[-1].kill()

    async def exit_code(self, worker_id: str, timeout_seconds: float = 120.0) -> int:
        """Wait until a worker's process has ended; return its exit code."""
        process = self.workers[worker_id]
        return await asyncio.wait_for(process.wait(), timeout_seconds)

    def log(self, name: str) -> str:
        """Return what a process has printed."""
        path = self.directory / "logs" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- commands --------------------------------------------------------------------------

    async def resize(
        self,
        workers: int | Sequence[str],
        *,
        global_batch: int | None = None,
        learning_rate: float | None = None,
        remove: Sequence[str] = (),
    ) -> int:
        """Ask for so many workers, or for these; return the generation.

        Args:
            workers: How many, or which: those that are not there yet are started.
            global_batch: The batch from then on; the program's by default.
            learning_rate: The learning rate from then on.
            remove: Which of the present ones go first; else the youngest do.
        """
        if isinstance(workers, int):
            kept = [each for each in self.wanted if each not in remove and self._runs(each)]
            names = kept[:workers]
            names += [self._new_name() for _ in range(workers - len(names))]
        else:
            names = list(workers)
        self.generation += 1
        self._attempt = 0
        # Said before they start: after a stop, who comes and is not wanted is sent away.
        self._say_resize(names, global_batch, learning_rate)
        for name in names:
            if name not in self.workers:
                await self.start_worker(name)
        return self.generation

    async def replace(self, dead: str) -> str:
        """Put a new worker in the place of a dead one, in the same generation."""
        fresh = self._new_name()
        self._attempt += 1
        names = [fresh if each == dead else each for each in self.wanted]
        self._say_resize(names, None, None)
        return await self.start_worker(fresh)

    def _say_resize(
        self, names: Sequence[str], global_batch: int | None, learning_rate: float | None
    ) -> None:
        self.wanted = tuple(names)
        self.say(
            Resize(
                generation=self.generation,
                attempt=self._attempt,
                workers=tuple(
                    Member(worker_id=name, server_id="local", gpu_index=index)
                    for index, name in enumerate(names)
                ),
                global_batch=global_batch or self.program.global_batch,
                learning_rate=learning_rate,
            )
        )

    def stop(self, *, keep_progress: bool = True) -> None:
        """Ask every worker to leave."""
        self.generation += 1
        self.say(Stop(generation=self.generation, keep_progress=keep_progress))

    def say(self, message: ControlMessage) -> None:
        """Send the leader a command, and again to every successor."""
        if isinstance(message, Resize | Stop):
            self._newest = message
        if self._writer is not None:
            write_message(self._writer, message)

    def _runs(self, worker_id: str) -> bool:
        return self.workers[worker_id].returncode is None

    # --- reports ---------------------------------------------------------------------------

    async def switched(self, generation: int, timeout_seconds: float = 120.0) -> GenerationSwitched:
        """Wait until a generation trains."""
        return await self.wait_for(
            GenerationSwitched, lambda said: said.generation == generation, timeout_seconds
        )

    async def left(self, worker_id: str, timeout_seconds: float = 120.0) -> WorkerLeft:
        """Wait until a worker has left."""
        return await self.wait_for(
            WorkerLeft, lambda said: said.worker_id == worker_id, timeout_seconds
        )

    async def failed(self, worker_id: str, timeout_seconds: float = 120.0) -> WorkerFailed:
        """Wait until a worker was given up."""
        return await self.wait_for(
            WorkerFailed, lambda said: said.worker_id == worker_id, timeout_seconds
        )

    async def wait_for(
        self,
        kind: type[Message],
        when: Callable[[Message], bool] = lambda _said: True,
        timeout_seconds: float = 120.0,
        *,
        since: int = 0,
    ) -> Message:
        """Wait for a report, or return it if it has come already.

        Args:
            kind: What it is.
            when: What must hold of it.
            timeout_seconds: For how long to wait.
            since: How many of the reports to pass over.

        Raises:
            LocalRunError: If it does not come; with what the processes printed.
        """

        def found() -> Message | None:
            for said in self.reports[since:]:
                if isinstance(said, kind) and when(said):
                    return said
            return None

        def over() -> bool:
            ends = any(isinstance(said, Completed | Failed) for said in self.reports)
            return found() is not None or (ends and kind not in (WorkerLeft, WorkerFailed))

        async with self._news:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait_for(over), timeout_seconds)
        if (said := found()) is None:
            logs = "".join(
                f"\n--- {name}\n{self.log(name)[-2000:]}"
                for name in [f"leader-{n}" for n in range(len(self.leaders))] + [*self.workers]
            )
            tail = "\n".join(str(said) for said in self.reports[-10:])
            raise LocalRunError(f"no {kind.__name__}; last reports:\n{tail}{logs}")
        return said

    async def _listen(self) -> None:
        while True:
            address = LeaderAddress.load(self.directory)
            try:
                if address is None:
                    raise ConnectionRefusedError
                reader, writer = await asyncio.open_connection(address.host, address.port)
            except OSError:
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            self._writer = writer
            if self._newest is not None:
                write_message(writer, self._newest)
            while (message := await read_message(reader)) is not None:
                async with self._news:
                    self.reports.append(message)
                    self._news.notify_all()
            self._writer = None
            writer.close()
