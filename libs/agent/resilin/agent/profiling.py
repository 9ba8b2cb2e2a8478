"""Trying a job out: a short run at every size that it may have here, for its throughput curve.

A profile is one run that grows from size to size, so that what a job needs to
start is paid once. At each size the first seconds do not count: they hold the switch and what
is slow only at first.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resilin.agent.agent_messages import Instructed, Slot
from resilin.agent.runner import JobRunner
from resilin.contracts import events as ev
from resilin.contracts.job_specification import Elastic, TrainingSpecification
from resilin.contracts.telemetry import StepSample
from resilin.contracts.values import Curve
from resilin.elastic import control as ctl

__all__ = ["ProfileCourse", "ProfileRun", "profile_failed", "sizes_to_try"]

Answer = ev.CurveProfiled | ev.ProfileFailed
OnReport = Callable[[ev.Event | StepSample], None]
OnMessage = Callable[[ctl.ControlMessage], None]

LONGEST_WAIT_FACTOR = 6.0
"""How many times its seconds a size may take until it has made the steps that it takes."""


def sizes_to_try(elastic: Elastic, slots: int) -> tuple[int, ...]:
    """Return the worker counts that a job may have on a node, increasing."""
    return tuple(count for count in range(1, slots + 1) if elastic.allows(count))


@dataclass(slots=True)
class ProfileCourse:
    """Where a profile stands: what it waits for, and what it has measured.

    Attributes:
        sizes: The sizes to try, in order.
        warm_up_seconds: What does not count after a switch.
        seconds: How long a size is measured, at least.
        least_steps: How many steps it has to make in that time, at least.
        rates: Iterations per second by size, as measured so far.
    """

    sizes: tuple[int, ...]
    warm_up_seconds: float = 2.0
    seconds: float = 4.0
    least_steps: float = 3.0
    rates: dict[int, float] = field(default_factory=dict)
    _place: int = 0
    _switched: tuple[float, float] | None = None
    _first: tuple[float, float] | None = None

    @property
    def generation(self) -> int:
        """The generation of the run that has the present size."""
        return self._place + 1

    @property
    def size(self) -> int | None:
        """The present size; None when all have been tried."""
        return self.sizes[self._place] if self._place < len(self.sizes) else None

    def take(self, message: ctl.ControlMessage, now: float) -> bool:
        """Take in what the leader says; return whether the present size is done with."""
        match message:
            case ctl.GenerationSwitched() if message.generation == self.generation:
                if self._switched is None:
                    self._switched = (message.iterations_done, now)
            case ctl.Progress() if message.generation == self.generation:
                return self._measure(message.iterations_done, now)
            case ctl.Completed(iterations_done=done):
                # It has no more to do: what was measured until here is all there is to know.
                self._conclude(done, now)
                self._place = len(self.sizes)
                return True
            case _:
                pass
        return False

    def _measure(self, done: float, now: float) -> bool:
        if self._switched is None or now - self._switched[1] < self.warm_up_seconds:
            return False
        if self._first is None:
            self._first = (done, now)
            return False
        steps, seconds = done - self._first[0], now - self._first[1]
        long_enough = seconds >= self.seconds and steps >= self.least_steps
        if not long_enough and seconds < self.seconds * LONGEST_WAIT_FACTOR:
            return False
        self._conclude(done, now)
        self._place += 1
        self._switched = self._first = None
        return True

    def _conclude(self, done: float, now: float) -> None:
        first = self._first or self._switched
        if first is not None and self.size is not None:
            steps, seconds = done - first[0], now - first[1]
            if steps > 0 and seconds > 0:
                self.rates[self.size] = steps / seconds


class ProfileRun:
    """One job that is being tried out.

    Args:
        job_id: The job.
        spec: What it says of itself.
        course: Which sizes to try, and how.
        make_runner: Makes what runs its processes, given who is told of reports and messages.
        folder: Its directory; removed when it is over.
        slots: Tells the slots in the order to use them, and how many of them are free.
        clock: The cell's time.
        wait_seconds: How long it waits for slots that are free.
        on_answer: Called once with what came of it, unless it is ended before.

    Attributes:
        job_id: See above.
        runner: Runs its processes.
    """

    def __init__(
        self,
        job_id: str,
        spec: TrainingSpecification,
        course: ProfileCourse,
        *,
        make_runner: Callable[[OnReport, OnMessage], JobRunner],
        folder: Path,
        slots: Callable[[], tuple[Sequence[Slot], int]],
        clock: Callable[[], float],
        wait_seconds: float,
        on_answer: Callable[[Answer], None],
    ) -> None:
        self.job_id = job_id
        self._spec = spec
        self._course = course
        self._folder = folder
        self._order = slots
        self._slots: tuple[Slot, ...] = ()
        self._clock = clock
        self._begins_by = clock() + wait_seconds
        self._on_answer = on_answer
        self._ended = False
        shutil.rmtree(folder, ignore_errors=True)
        self.runner = make_runner(self._take_report, self._take_message)

    @property
    def over(self) -> bool:
        """Whether it has ended and nothing of it is left."""
        return self._ended and self.runner.machine.idle

    def tick(self) -> None:
        """Let time pass; begin as soon as there is room, or at the latest when it is time."""
        self.runner.tick()
        if not self._slots and not self._ended:
            slots, free = self._order()
            if free >= max(self._course.sizes) or self._clock() >= self._begins_by:
                self._slots = tuple(slots)
                self._grow()

    def end(self) -> None:
        """End it; nobody waits for its answer any more."""
        self._ended = True
        machine = self.runner.machine
        if not machine.idle:
            self.runner.put(Instructed(machine.generation, (), ended=True))

    def clear(self) -> None:
        """Remove what it left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _grow(self) -> None:
        size = self._course.size
        if size is None:
            self._conclude()
            return
        self.runner.put(
            Instructed(
                generation=self._course.generation,
                slots=self._slots[:size],
                global_batch=self._spec.global_batch,
            )
        )

    def _take_message(self, message: ctl.ControlMessage) -> None:
        if not self._ended and self._course.take(message, self._clock()):
            self._grow()

    def _conclude(self) -> None:
        if self._course.rates:
            curve = Curve(
                model=self._spec.model,
                global_batch=self._spec.global_batch,
                iterations_per_second=self._course.rates,
            )
            self._answer(ev.CurveProfiled(job_id=self.job_id, curve=curve))
        else:
            message = "it ended before its throughput could be measured"
            self._answer(profile_failed(self.job_id, ev.FailureReason.CANNOT_START, message))

    def _take_report(self, report: ev.Event | StepSample) -> None:
        if isinstance(report, ev.JobFailed) and not self._ended:
            self._answer(
                ev.ProfileFailed(job_id=self.job_id, reason=report.reason, message=report.message)
            )

    def _answer(self, answer: Answer) -> None:
        self.end()
        self._on_answer(answer)


def profile_failed(job_id: str, reason: ev.FailureReason, message: str) -> ev.ProfileFailed:
    """Say that a job could not be tried out."""
    return ev.ProfileFailed(job_id=job_id, reason=reason, message=message)
