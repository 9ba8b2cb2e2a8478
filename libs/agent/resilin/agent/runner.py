"""Runs one job's processes as its :class:`~.agent_state.JobMachine` says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resilin.agent.agent_messages import (
    Action,
    EndLeader,
    EndWorker,
    Exit,
    Input,
    LeaderEnded,
    Linked,
    Report,
    Said,
    Say,
    Slot,
    StartLeader,
    StartWorker,
    Ticked,
    WorkerEnded,
)
from resilin.agent.agent_state import JobMachine
from resilin.agent.job_directory import JobDirectory
from resilin.agent.leader_link import LeaderLink
from resilin.agent.processes import ChildProcess, Launcher, ProcessPlan
from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.elastic.control import ControlMessage
from resilin.elastic.program import JobProgram, leader_path

__all__ = ["Commands", "JobRunner", "Seats", "Surroundings"]

WORKER_NICE = 5
"""Training stands back behind the services that steer it."""

# What a leader keeps for its successor; out of date once no worker of it is left.
_OF_A_LEADER = ("leader-state.json", "lease.json", "lease.lock")


@dataclass(frozen=True, slots=True)
class Commands:
    """What leaders and workers are: a program and its first arguments."""

    leader: Sequence[str]
    worker: Sequence[str]


@dataclass(frozen=True, slots=True)
class Seats:
    """What a slot is on this machine.

    Attributes:
        cpus: The CPUs that the slot's worker keeps to.
        devices: The environment variables by which it sees its GPU, and no other.
    """

    cpus: tuple[int, ...]
    devices: dict[str, str]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all jobs of an agent share.

    Attributes:
        launcher: Starts their processes.
        commands: What those are.
        seat: Tells what a slot is.
        clock: The cell's time, never going back.
        on_failure: Told of errors of the agent itself.
    """

    launcher: Launcher
    commands: Commands
    seat: Callable[[Slot], Seats]
    clock: Callable[[], float]
    on_failure: Callable[[Exception], None]


class JobRunner:
    """One job's machine, its processes and the line to its leader.

    Args:
        machine: Decides.
        program: What its processes run.
        directory: Where it keeps its things.
        environment: Its workers' own environment variables.
        memory_bytes_max: What one worker may use; None is no limit.
        surroundings: What it shares with other jobs.
        on_report: Called with every report of the job, in order.
        on_message: Called with everything its leader says.

    Attributes:
        machine: See above.
    """

    def __init__(
        self,
        machine: JobMachine,
        program: JobProgram,
        directory: JobDirectory,
        *,
        environment: dict[str, str],
        memory_bytes_max: int | None,
        surroundings: Surroundings,
        on_report: Callable[[ev.Event | StepSample], None],
        on_message: Callable[[ControlMessage], None] = lambda _: None,
    ) -> None:
        self.machine = machine
        self._program = program
        self._directory = directory
        self._environment = environment
        self._memory_bytes_max = memory_bytes_max
        self._surroundings = surroundings
        self._on_report = on_report
        self._on_message = on_message
        self._workers: dict[str, ChildProcess] = {}
        self._leader: ChildProcess | None = None
        self._link: LeaderLink | None = None
        self._happened: deque[Input] = deque()

    def put(self, happened: Input) -> None:
        """Let the machine know what happened, and do what it says.

        What happens because of that comes after it.
        """
        self._happened.append(happened)
        if len(self._happened) > 1:
            return
        try:
            while self._happened:
                for action in self.machine.step(self._happened[0], self._surroundings.clock()):
                    self._do(action)
                self._happened.popleft()
        except Exception as error:
            self._surroundings.on_failure(error)

    def _do(self, action: Action) -> None:
        match action:
            case Report(report):
                self._on_report(report)
            case Say(message):
                if self._link is not None:
                    self._link.say(message)
            case StartLeader(successor):
                self._start_leader(successor=successor)
            case StartWorker(worker_id, slot):
                self._start_worker(worker_id, slot)
            case EndWorker(worker_id, at_once):
                _end(self._workers.get(worker_id), at_once=at_once)
            case EndLeader(at_once):
                _end(self._leader, at_once=at_once)

    def tick(self) -> None:
        """Let time pass."""
        for worker in [*self._workers.values()]:
            worker.check_memory()
        self.put(Ticked())

    def end_now(self) -> None:
        """End every process and wait for it; the agent itself is about to end."""
        if self._link is not None:
            self._link.close()
        for process in (*self._workers.values(), *([self._leader] if self._leader else ())):
            process.end_now()

    # --- the leader ------------------------------------------------------------------------

    def _start_leader(self, *, successor: bool) -> None:
        folder = self._directory.path
        try:
            self._program.save(folder)
            leader_path(folder).unlink(missing_ok=True)
            if not successor:
                for name in _OF_A_LEADER:
                    (folder / name).unlink(missing_ok=True)
            plan = ProcessPlan(
                command=[*self._surroundings.commands.leader, "--directory", str(folder)],
                directory=folder,
                environment={},
                log=self._directory.leader_log,
            )
            self._leader = self._surroundings.launcher.start(plan, self._leader_ended)
        except OSError as error:
            self.put(LeaderEnded(Exit(1, str(error), not_started=True)))
            return
        self._link = LeaderLink(folder, self._leader.pid, self._linked, self._said)

    def _leader_ended(self, how: Exit) -> None:
        self._leader = None
        if self._link is not None:
            self._link.close()
            self._link = None
        self.put(LeaderEnded(how))

    def _linked(self) -> None:
        self.put(Linked())

    def _said(self, message: ControlMessage) -> None:
        self._on_message(message)
        self.put(Said(message))

    # --- workers ---------------------------------------------------------------------------

    def _start_worker(self, worker_id: str, slot: Slot) -> None:
        self._directory.discard_old_logs()
        folder = self._directory.path
        seat = self._surroundings.seat(slot)
        threads = {"OMP_NUM_THREADS": str(max(1, len(seat.cpus)))}
        plan = ProcessPlan(
            command=[
                *self._surroundings.commands.worker,
                *("--directory", str(folder), "--worker-id", worker_id),
            ],
            directory=Path(self._program.directory),
            environment={**threads, **self._environment, **seat.devices},
            log=self._directory.worker_log(worker_id),
            cpus=seat.cpus,
            nice=WORKER_NICE,
            memory_bytes_max=self._memory_bytes_max,
        )
        try:
            self._workers[worker_id] = self._surroundings.launcher.start(
                plan, lambda how: self._worker_ended(worker_id, how)
            )
        except OSError as error:
            self.put(WorkerEnded(worker_id, Exit(1, str(error), not_started=True)))

    def _worker_ended(self, worker_id: str, how: Exit) -> None:
        del self._workers[worker_id]
        self.put(WorkerEnded(worker_id, how))


def _end(process: ChildProcess | None, *, at_once: bool) -> None:
    if process is not None and at_once:
        process.kill()
    elif process is not None:
        process.terminate()
