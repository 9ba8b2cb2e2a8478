"""The node agent: real local workers behind the executor.

It serves one machine, as one server of the cell or as several. Its processes die with it,
however it ends (:mod:`.launch`, :mod:`.warden`), so an agent that begins finds no workers: it
ends what may be left of them, and says that the jobs which the log believes here are back at
their checkpoints.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from resilin.agent.agent_messages import Found, Instructed, Limits, Slot
from resilin.agent.agent_state import JobMachine
from resilin.agent.job_directory import JobDirectory, jobs_folder
from resilin.agent.marked import end_marked
from resilin.agent.processes import Launcher, environment
from resilin.agent.profiling import (
    OnMessage,
    OnReport,
    ProfileCourse,
    ProfileRun,
    profile_failed,
    sizes_to_try,
)
from resilin.agent.registry import Registry
from resilin.agent.runner import Commands, JobRunner, Seats, Surroundings
from resilin.cell.state import JobState
from resilin.contracts import events as ev
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.values import GpuSet
from resilin.elastic.checkpoints import newest_step
from resilin.elastic.program import JobProgram
from resilin.executor.backend import Report
from resilin.executor.decider import ExecutorState, Instruction, profiles_wanted

__all__ = ["ELASTIC", "LocalBackend", "ProfileSettings"]

ELASTIC = Commands(
    leader=(sys.executable, "-m", "resilin.elastic.leader"),
    worker=(sys.executable, "-m", "resilin.elastic.worker"),
)
"""The runtime that comes with Resilin."""

_NEVER = 1e9
"""Between two checkpoints of a profile, in seconds."""

TICK_SECONDS = 0.5
CLOSE_SECONDS = 10.0
"""How long jobs may take to keep their progress when the agent is closed."""


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """How jobs are tried out.

    Attributes:
        warm_up_seconds: What does not count after each change of the size.
        seconds: How long each size is measured.
        wait_seconds: How long a profile waits for slots that nobody trains in; then it runs
            beside those who do.
    """

    warm_up_seconds: float = 2.0
    seconds: float = 4.0
    wait_seconds: float = 60.0


class LocalBackend:
    """A :class:`~resilin.executor.backend.WorkerBackend` of processes on this machine.

    To be used in one event loop, in a thread that outlives all jobs.

    Args:
        servers: The servers that it stands for, and the slots of each.
        home: The agent's directory; no other agent may use it.
        code: The directory that jobs' own directories are relative to.
        device: What a slot is: a share of the CPUs, or the GPU of its index.
        clock: The cell's time in seconds since the epoch.
        limits: How long things may take; what jobs say of themselves comes before.
        profiles: How jobs are tried out.
        commands: What leaders and workers are.
    """

    def __init__(
        self,
        servers: Mapping[str, int],
        home: Path,
        *,
        code: Path | None = None,
        device: Literal["cpu", "cuda"] = "cpu",
        clock: Callable[[], float] = time.time,
        limits: Limits | None = None,
        profiles: ProfileSettings | None = None,
        commands: Commands = ELASTIC,
    ) -> None:
        self._servers = dict(servers)
        self._home = home
        self._code = (code or Path.cwd()).absolute()
        self._device = device
        self._clock = _never_back(clock)
        self._limits = limits or Limits()
        self._profile_settings = profiles or ProfileSettings()
        self._commands = commands
        self._registry = Registry(home)
        self._surroundings: Surroundings | None = None
        self._warden: subprocess.Popen[bytes] | None = None
        self._jobs: dict[str, JobRunner] = {}
        self._profile: ProfileRun | None = None
        self._profiles_done: dict[str, ev.Event] = {}
        self._incarnations: dict[str, int] = {}
        self._state = ExecutorState()
        self._reports: deque[Report] = deque()
        self._something = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    # --- the port --------------------------------------------------------------------------

    async def take_over(self, state: ExecutorState, now_seconds: float) -> None:  # noqa: ARG002 (the port)
        """See :class:`~resilin.executor.backend.WorkerBackend`."""
        self._state = state
        self._reports.clear()
        begins = self._surroundings is None
        if begins:
            await self._begin()
        for server_id in self._servers:
            self._claim(server_id, state)
        for job in state.cell.jobs.values():
            if job.job_id in self._jobs:
                for report in self._jobs[job.job_id].machine.restated():
                    self._report(report)
            elif job.live and any(server in self._servers for server in job.placed):
                saved = await asyncio.to_thread(self._saved, job.job_id)
                self._runner(job).put(Found(job.generation, saved))
        for report in self._profiles_done.values():
            self._report(report)
        for server_id, incarnation in self._incarnations.items():
            self._report(ev.NodeJoined(server_id=server_id, incarnation=incarnation))

    def carry_out(
        self,
        state: ExecutorState,
        instructions: Sequence[Instruction],
        now_seconds: float,  # noqa: ARG002 (the port)
    ) -> None:
        """See :class:`~resilin.executor.backend.WorkerBackend`."""
        self._state = state
        self._announce(state)
        for instruction in instructions:
            self._instruct(state, instruction)
        for job_id, runner in [*self._jobs.items()]:
            if job_id not in state.cell.jobs and not runner.machine.idle:
                # It ended and the log has nothing more to say of it.
                over = Instructed(runner.machine.generation, (), ended=True)
                runner.put(over)
        self._forget_jobs()
        self._see_to_profiles()

    async def reports(self) -> Sequence[Report]:
        """See :class:`~resilin.executor.backend.WorkerBackend`."""
        while not self._reports:
            if self._failure is not None:
                raise self._failure
            self._something.clear()
            await self._something.wait()
        reports = tuple(self._reports)
        self._reports.clear()
        return reports

    async def close(self, *, stop_workers: bool) -> None:
        """End the agent.

        With ``stop_workers`` its jobs keep their progress first. Without, their processes
        end as they would if this process were killed: what was not saved is done again.
        """
        if self._surroundings is None:
            return
        if self._profile is not None:
            self._profile.end()
        if stop_workers:
            await self._stop_jobs()
        if self._ticking is not None:
            self._ticking.cancel()
        for runner in (*self._jobs.values(), *([self._profile.runner] if self._profile else ())):
            runner.end_now()
        warden = self._warden
        if warden is not None and warden.stdin is not None:
            warden.stdin.close()
            await asyncio.to_thread(warden.wait)
        self._registry.leave()
        self._surroundings = None

    async def _stop_jobs(self) -> None:
        for runner in self._jobs.values():
            if not runner.machine.idle:
                runner.put(Instructed(runner.machine.generation + 1, ()))
        until = self._clock() + CLOSE_SECONDS
        while self._clock() < until and not all(
            runner.machine.idle for runner in self._jobs.values()
        ):
            await asyncio.sleep(0.05)

    # --- beginning -------------------------------------------------------------------------

    async def _begin(self) -> None:
        """End what an earlier agent left, and be ready to start processes."""
        home_mark, mark = self._registry.enter()
        sessions = self._registry.sessions(home_mark)
        await asyncio.to_thread(end_marked, home_mark, sessions)
        self._registry.forget(home_mark)
        shutil.rmtree(self._home / "profiles", ignore_errors=True)
        jobs_folder(self._home).mkdir(parents=True, exist_ok=True)
        self._warden = subprocess.Popen(  # noqa: S603 (our own module)
            [
                *(sys.executable, "-m", "resilin.agent.warden"),
                *("--home", str(self._home), "--mark", mark),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(os.environ, {}),
            start_new_session=True,
        )
        self._surroundings = Surroundings(
            Launcher(self._registry, mark),
            self._commands,
            self._seat,
            self._clock,
            self._fail,
        )
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def _claim(self, server_id: str, state: ExecutorState) -> None:
        """Find out which start of the node this is; the one before, if any, is lost."""
        server = state.cell.servers.get(server_id)
        if server is None:
            return
        if server_id in self._incarnations and self._incarnations[server_id] >= server.incarnation:
            return
        if server.joined:
            self._report(ev.NodeLost(server_id=server_id, incarnation=server.incarnation))
        for runner in self._jobs.values():
            if any(slot.server_id == server_id for slot in runner.machine.occupied()):
                # Somebody else spoke for this node in between: the log has taken its jobs away.
                runner.put(Instructed(runner.machine.generation, ()))
        self._incarnations[server_id] = server.incarnation + 1

    def _announce(self, state: ExecutorState) -> None:
        """Join with the servers that the cell has come to know."""
        for server_id in self._servers:
            if server_id in state.cell.servers and server_id not in self._incarnations:
                self._claim(server_id, state)
                incarnation = self._incarnations[server_id]
                self._report(ev.NodeJoined(server_id=server_id, incarnation=incarnation))

    def _saved(self, job_id: str) -> float:
        directory = JobDirectory.of_job(self._home, job_id)
        return float(newest_step(directory.checkpoints) or 0)

    # --- jobs ------------------------------------------------------------------------------

    def _instruct(self, state: ExecutorState, instruction: Instruction) -> None:
        job = state.cell.jobs.get(instruction.job_id)
        slots, elsewhere = self._slots(instruction.gpus)
        leaving, _ = self._slots(instruction.leaving)
        runner = self._jobs.get(instruction.job_id)
        if job is None or (runner is None and not slots and not leaving):
            return
        if elsewhere and slots:
            self._report(_refused(instruction, "a job's workers have to be on one machine"))
            return
        if job.job.spec.worker is None:
            if slots:
                self._report(_refused(instruction, "it names no code to run: spec.worker"))
            if leaving:
                report = ev.WorkersReleased(
                    job_id=job.job_id,
                    generation=instruction.generation,
                    gpus=instruction.leaving,
                    iterations_done=job.iterations_done,
                )
                self._report(report)
            return
        if runner is None and instruction.generation == 1:
            # The job's very first start: what lies there is of an earlier log.
            shutil.rmtree(JobDirectory.of_job(self._home, job.job_id).path, ignore_errors=True)
        rate = job.job.spec.worker.learning_rate
        runner = runner or self._runner(job)
        runner.put(
            Instructed(
                generation=instruction.generation,
                slots=slots,
                leaving=leaving,
                ended=instruction.ended,
                global_batch=job.adapted_batch or job.job.spec.global_batch,
                learning_rate=None if rate is None else rate * job.learning_rate_factor,
            )
        )

    def _slots(self, gpus: GpuSet) -> tuple[tuple[Slot, ...], bool]:
        """Return the slots of a set of GPUs that are here, and whether others are elsewhere."""
        here = tuple(
            Slot(server, index)
            for server, indexes in gpus.items()
            if server in self._servers
            for index in indexes
        )
        return here, any(server not in self._servers for server in gpus)

    def _runner(self, job: JobState) -> JobRunner:
        machine = JobMachine(
            job.job_id,
            self._limits_of(job.job),
            failures=job.failures,
            iterations_done=job.iterations_done,
        )
        directory = JobDirectory.of_job(self._home, job.job_id)
        runner = self._make_runner(machine, job.job_id, job.job, directory, self._report)
        self._jobs[job.job_id] = runner
        return runner

    def _limits_of(self, job: JobSpecification) -> Limits:
        worker = job.spec.worker
        graceful = self._limits.graceful_stop_seconds
        return replace(
            self._limits,
            max_failures=job.spec.max_failures,
            graceful_stop_seconds=graceful if worker is None else worker.graceful_stop_seconds,
        )

    def _make_runner(
        self,
        machine: JobMachine,
        job_id: str,
        job: JobSpecification,
        directory: JobDirectory,
        on_report: OnReport,
        on_message: OnMessage = lambda _: None,
        *,
        profile: bool = False,
    ) -> JobRunner:
        assert self._surroundings is not None, "an executor takes over first"  # noqa: S101 (invariant)
        worker = job.spec.worker
        assert worker is not None, "jobs without code are not run"  # noqa: S101 (invariant)
        program = JobProgram(
            job_id=job_id,
            entrypoint=worker.entrypoint,
            directory=str(self._code / (worker.directory or ".")),
            hyperparameters=dict(worker.hyperparameters),
            global_batch=job.spec.global_batch,
            total_iterations=int(job.spec.total_iterations),
            endless=profile,
            learning_rate=worker.learning_rate,
            seed=worker.seed,
            data_mode=worker.data_mode,
            checkpoint_interval_seconds=_NEVER if profile else worker.checkpoint_interval_seconds,
            device=self._device,
        )
        return JobRunner(
            machine,
            program,
            directory,
            environment=dict(worker.env),
            memory_bytes_max=worker.memory_bytes_max,
            surroundings=self._surroundings,
            on_report=on_report,
            on_message=on_message,
        )

    def _forget_jobs(self) -> None:
        jobs = self._state.cell.jobs
        for job_id in [*self._jobs]:
            if job_id not in jobs and self._jobs[job_id].machine.idle:
                del self._jobs[job_id]
        for job_id in [*self._profiles_done]:
            if job_id not in jobs:
                del self._profiles_done[job_id]

    def _seat(self, slot: Slot) -> Seats:
        """Share the CPUs out over all slots; a GPU has the index of its slot."""
        cpus = sorted(os.sched_getaffinity(0))
        before = 0
        for server_id, count in self._servers.items():
            if server_id == slot.server_id:
                break
            before += count
        number, total = before + slot.gpu_index, sum(self._servers.values())
        first, last = number * len(cpus) // total, (number + 1) * len(cpus) // total
        share = tuple(cpus[first:last]) or (cpus[number % len(cpus)],)
        visible = str(slot.gpu_index) if self._device == "cuda" else ""
        return Seats(share, {"CUDA_VISIBLE_DEVICES": visible})

    # --- profiles --------------------------------------------------------------------------

    def _see_to_profiles(self) -> None:
        """Have the first job tried out that is to be; end a profile that nobody wants any more."""
        wanted = profiles_wanted(self._state)
        profile = self._profile
        if profile is not None:
            if profile.job_id not in wanted:
                profile.end()
            if not profile.over:
                return
            profile.clear()
            self._profile = None
        waiting = [job_id for job_id in wanted if job_id not in self._profiles_done]
        if waiting and self._surroundings is not None:
            self._profile = self._start_profile(self._state.cell.jobs[waiting[0]])

    def _start_profile(self, job: JobState) -> ProfileRun | None:
        slots = [
            Slot(server, index) for server, count in self._servers.items() for index in range(count)
        ]
        sizes = sizes_to_try(job.job.spec.elastic, len(slots))
        if not sizes:
            message = f"none of the worker counts that it allows fits the {len(slots)} slots here"
            self._profiled(profile_failed(job.job_id, ev.FailureReason.CANNOT_START, message))
            return None
        settings = self._profile_settings
        course = ProfileCourse(
            sizes, warm_up_seconds=settings.warm_up_seconds, seconds=settings.seconds
        )
        directory = JobDirectory.of_profile(self._home, job.job_id)
        limits = replace(self._limits_of(job.job), max_failures=0)

        def make_runner(on_report: OnReport, on_message: OnMessage) -> JobRunner:
            machine = JobMachine(job.job_id, limits)
            return self._make_runner(
                machine, job.job_id, job.job, directory, on_report, on_message, profile=True
            )

        def order() -> tuple[list[Slot], int]:
            busy = self._busy_slots()
            return sorted(slots, key=lambda slot: slot in busy), len(slots) - len(busy)

        return ProfileRun(
            job.job_id,
            job.job.spec,
            course,
            make_runner=make_runner,
            folder=directory.path,
            slots=order,
            clock=self._clock,
            wait_seconds=settings.wait_seconds,
            on_answer=self._profiled,
        )

    def _profiled(self, report: ev.CurveProfiled | ev.ProfileFailed) -> None:
        self._profiles_done[report.job_id] = report
        self._report(report)

    def _busy_slots(self) -> set[Slot]:
        """Return the slots that jobs are in, or are meant to be in."""
        busy: set[Slot] = set()
        for job in self._state.cell.jobs.values():
            busy.update(self._slots(job.held)[0])
        for runner in self._jobs.values():
            busy |= runner.machine.occupied()
        return busy

    # --- time and reports ------------------------------------------------------------------

    async def _tick(self) -> None:
        try:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                for runner in [*self._jobs.values()]:
                    runner.tick()
                if self._profile is not None:
                    self._profile.tick()
                self._forget_jobs()
                self._see_to_profiles()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Hand an error of the agent itself to whoever waits for reports."""
        self._failure = self._failure or error
        self._something.set()

    def _report(self, report: Report) -> None:
        self._reports.append(report)
        self._something.set()


def _refused(instruction: Instruction, message: str) -> ev.JobFailed:
    return ev.JobFailed(
        job_id=instruction.job_id,
        generation=instruction.generation,
        reason=ev.FailureReason.CANNOT_START,
        message=message,
    )


def _never_back(clock: Callable[[], float]) -> Callable[[], float]:
    """Return a clock that starts as this one and goes on evenly, whatever becomes of this one."""
    ahead = clock() - time.monotonic()
    return lambda: ahead + time.monotonic()
