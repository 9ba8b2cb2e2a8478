"""What the core of a job on this node is told, and what it wants done: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.elastic import control as ctl

__all__ = [
    "Action",
    "EndLeader",
    "EndWorker",
    "Exit",
    "Found",
    "Input",
    "Instructed",
    "LeaderEnded",
    "Limits",
    "Linked",
    "Report",
    "Said",
    "Say",
    "Slot",
    "StartLeader",
    "StartWorker",
    "Ticked",
    "WorkerEnded",
]


class Slot(NamedTuple):
    """A place for one worker."""

    server_id: str
    gpu_index: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, and how often they may fail.

    Attributes:
        max_failures: Workers that may fail by themselves before the job does.
        graceful_stop_seconds: What a worker that is to leave is given.
        kill_after_seconds: What a process is given after SIGTERM.
        start_seconds: From an instruction until the generation trains.
        hang_seconds: Without a step, at least; and at least ``hang_steps`` steps' time.
        hang_steps: See there.
        word_seconds: How long a worker's end waits for what the leader says of it.
        progress_seconds: Between two reports of progress to the log.
    """

    max_failures: int = 3
    graceful_stop_seconds: float = 30.0
    kill_after_seconds: float = 5.0
    start_seconds: float = 300.0
    hang_seconds: float = 300.0
    hang_steps: float = 20.0
    word_seconds: float = 2.0
    progress_seconds: float = 5.0


# --- what goes in --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instructed:
    """What the log says that the job's workers are to be.

    Attributes:
        generation: The generation.
        slots: Where they are to run; none to stop them all.
        leaving: Slots that the log waits for.
        ended: Whether the job is over.
        global_batch: Samples in an iteration.
        learning_rate: None leaves it to the code.
    """

    generation: int
    slots: tuple[Slot, ...]
    leaving: tuple[Slot, ...] = ()
    ended: bool = False
    global_batch: int = 1
    learning_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """An earlier agent ran the job and left nothing of it but a checkpoint.

    Attributes:
        generation: The generation that the log believes in.
        saved: The work that the checkpoint holds.
    """

    generation: int
    saved: float


@dataclass(frozen=True, slots=True)
class Linked:
    """The connection to the leader is open."""


@dataclass(frozen=True, slots=True)
class Said:
    """The leader said something."""

    message: ctl.ControlMessage


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, with all that it had started.

    Attributes:
        status: Its exit status, or minus the signal that ended it.
        output: The last lines that it wrote.
        out_of_memory: Whether it is known to have needed too much memory.
        not_started: Whether it could not even be started.
    """

    status: int
    output: str = ""
    out_of_memory: bool = False
    not_started: bool = False

    def __str__(self) -> str:
        if self.not_started:
            return "it could not be started"
        how = f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"
        return "out of memory" if self.out_of_memory else how


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker's process is gone, and every process that it had started."""

    worker_id: str
    exit: Exit


@dataclass(frozen=True, slots=True)
class LeaderEnded:
    """The leader's process is gone."""

    exit: Exit


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""


Input = Instructed | Found | Linked | Said | WorkerEnded | LeaderEnded | Ticked

# --- what comes out ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartLeader:
    """Start a leader.

    Attributes:
        successor: Whether workers go on that an earlier leader led; otherwise what it left
            behind is out of date.
    """

    successor: bool


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker in its slot."""

    worker_id: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the leader; nothing is lost if no leader listens, :class:`Linked` says it again."""

    message: ctl.Resize | ctl.Stop


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End a worker's process by SIGTERM, or at once with all that it started."""

    worker_id: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class EndLeader:
    """End the leader's process."""

    at_once: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the executor."""

    report: ev.Event | StepSample


Action = StartLeader | StartWorker | Say | EndWorker | EndLeader | Report
