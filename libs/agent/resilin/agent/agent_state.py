"""One job on this node: what is to happen and what happened go in, what to do comes out.

No process is started and no clock is read here. The shell (:mod:`.runner`) does what the
:class:`Action` list says and tells what came of it::

    Instructed   -> StartLeader, StartWorker...      a first generation
                 -> Say(Resize), StartWorker...      another size; the leader tells who leaves
                 -> Say(Stop)                        suspended or ended
    Said         -> Report...                        what the leader tells, for the log
    WorkerEnded  -> StartWorker, Say(Resize)         died beside others: replaced in its slot
                 -> Report(WorkerLost), End...       died, and nobody else can go on
                 -> Report(WorkersReleased)          left: its slot is free
    LeaderEnded  -> StartLeader                      a successor; the workers train on
    Ticked       -> End...                           does not leave, not start or not step

A job is in one of three modes. ``running``: its processes are what its newest generation
wants, or on the way there. ``winding down``: everything ends, and what was instructed since
begins only when nothing is left. ``idle``: nothing is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from resilin.agent.agent_messages import (
    Action,
    EndLeader,
    EndWorker,
    Exit,
    Found,
    Input,
    Instructed,
    LeaderEnded,
    Limits,
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
from resilin.contracts import events as ev
from resilin.contracts.events import FailureReason
from resilin.contracts.telemetry import StepSample, WorkerSample
from resilin.contracts.values import GpuSet
from resilin.elastic import control as ctl

__all__ = ["JobMachine"]

USER_CODE_EXIT = 3
"""The exit status of a worker whose own code raised."""

MESSAGE_CHARACTERS = 4000
"""The end of a job's output that goes into the log."""


class _Mode(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    WINDING_DOWN = "winding down"


@dataclass(slots=True)
class _Worker:
    """A worker that was asked for and has not been settled."""

    worker_id: str
    slot: Slot
    generation: int
    started_at: float | None = None
    leaves: bool = False
    trained: bool = False
    ending_since: float | None = None
    terminated_at: float | None = None
    killed: bool = False
    failed: ctl.WorkerFailed | None = None
    fence_at: float | None = None
    left: bool = False
    problem: str = ""
    exit: Exit | None = None
    exited_at: float = 0.0

    @property
    def runs(self) -> bool:
        return self.started_at is not None and self.exit is None


@dataclass(slots=True)
class JobMachine:
    """The processes of one job on this node.

    Attributes:
        job_id: The job.
        limits: Its limits.
        failures: How many of its workers have failed by themselves, in its whole life.
        iterations_done: The work done, as far as known.
        checkpoint_iterations: The work that is safe.
        generation: The newest generation instructed.
    """

    job_id: str
    limits: Limits
    failures: int = 0
    iterations_done: float = 0.0
    checkpoint_iterations: float = 0.0
    generation: int = 0
    _mode: _Mode = _Mode.IDLE
    _instructed: Instructed | None = None
    _attempt: int = 0
    _started_workers: int = 0
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _members: dict[Slot, str] = field(default_factory=dict)
    _leaving: dict[Slot, None] = field(default_factory=dict)
    _command: ctl.Resize | ctl.Stop | None = None
    _leader_runs: bool = False
    _leader_ending_since: float | None = None
    _leader_killed: bool = False
    _leader_failures: int = 0
    _ready: bool = False
    _switched: ev.GenerationSwitched | None = None
    _trained: bool = False
    _keeps_progress: bool = False
    _parted: bool = False
    _lost: ev.WorkerLost | None = None
    _outcome: ev.JobCompleted | ev.JobFailed | None = None
    _replaced: list[tuple[Slot, int, str]] = field(default_factory=list)
    _stepped_at: float = 0.0
    _step_seconds: float = 0.0
    _progress_at: float = float("-inf")
    _progress_said: float = -1.0
    _samples: int = 0
    _sampled_at: float = 0.0
    _actions: list[Action] = field(default_factory=list)

    # --- what others may know ----------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether none of its processes is there, and none is to be."""
        return self._mode is _Mode.IDLE

    @property
    def outcome(self) -> ev.JobCompleted | ev.JobFailed | None:
        """How it ended, if it did by itself."""
        return self._outcome

    def occupied(self) -> set[Slot]:
        """Return the slots in which processes of it are, or are about to be."""
        return {worker.slot for worker in self._workers.values()} | set(self._members)

    def restated(self) -> list[ev.Event]:
        """Return once more where the job stands, for an executor that may have missed it."""
        if self._outcome is not None:
            return [self._outcome]
        if self._lost is not None and self._lost.generation == self.generation:
            return [self._lost]
        if self._switched is None:
            return []
        progress = ev.ProgressReported(
            job_id=self.job_id, generation=self.generation, iterations_done=self.iterations_done
        )
        return [self._switched, progress]

    # --- one step ----------------------------------------------------------------------------

    def step(self, happened: Input, now: float) -> list[Action]:
        """Take in what happened and return what to do, in order."""
        match happened:
            case Instructed():
                self._take_instruction(happened, now)
            case Found(generation, saved):
                self.generation = generation
                self._lose("the node agent started anew", saved, now)
            case Linked():
                if self._command is not None:
                    self._do(Say(self._command))
            case Said(message):
                self._take_message(message, now)
            case WorkerEnded(worker_id, how):
                self._worker_ended(worker_id, how, now)
            case LeaderEnded(how):
                self._leader_ended(how, now)
            case Ticked():
                self._watch(now)
        self._proceed(now)
        actions, self._actions = self._actions, []
        return actions

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _tell(self, report: ev.Event | StepSample) -> None:
        self._actions.append(Report(report))

    # --- instructions ------------------------------------------------------------------------

    def _take_instruction(self, instructed: Instructed, now: float) -> None:
        if instructed.generation < self.generation:
            return
        newer = instructed.generation > self.generation
        before = self._instructed
        self.generation = instructed.generation
        self._leaving = dict.fromkeys(instructed.leaving)
        self._instructed = instructed
        if instructed.ended:
            self._wind_down(now, keep_progress=False)
        elif self._outcome is not None:
            return
        elif newer:
            self._ready, self._switched, self._lost, self._replaced = False, None, None, []
            self._attempt = 0
            self._leader_failures = 0
            if self._mode is _Mode.RUNNING and instructed.slots:
                self._resize(now)
            elif self._mode is _Mode.RUNNING:
                self._wind_down(now, keep_progress=True)
        elif not instructed.slots and self._lost is None and before is not None and before.slots:
            # The log took the generation away (its node counts as lost): nothing of it stays.
            self._wind_down(now, keep_progress=True)

    def _wanted_slots(self) -> tuple[Slot, ...]:
        instructed = self._instructed
        stands = instructed is None or instructed.ended or self._outcome is not None
        lost = self._lost is not None and self._lost.generation == self.generation
        return () if stands or lost or instructed is None else instructed.slots

    def _proceed(self, now: float) -> None:
        """Take the steps that wait for something to be gone."""
        self._settle_ended(now)
        if self._mode is _Mode.WINDING_DOWN and not self._workers:
            if self._leader_runs:
                self._end_leader(now)
            else:
                self._mode = _Mode.IDLE
                if self._keeps_progress and not self._parted:
                    self._lose("it did not stop in time", self.checkpoint_iterations, now)
                self._keeps_progress = False
        if self._mode is _Mode.IDLE and self._wanted_slots():
            self._mode = _Mode.RUNNING
            self._trained = False
            self._resize(now)
        self._start_waiting(now)
        self._release()

    def _release(self) -> None:
        """Report the slots that the log waits for and that nobody is in any more."""
        busy = {worker.slot for worker in self._workers.values()}
        free = [slot for slot in self._leaving if slot not in busy]
        if not free:
            return
        for slot in free:
            del self._leaving[slot]
        self._tell(
            ev.WorkersReleased(
                job_id=self.job_id,
                generation=self.generation,
                gpus=_gpu_set(free),
                iterations_done=self.iterations_done,
            )
        )

    # --- growing and shrinking ---------------------------------------------------------------

    def _resize(self, now: float) -> None:
        """Have the leader bring the job to the slots wanted, with a worker in each."""
        instructed = self._instructed
        assert instructed is not None, "a size is instructed"  # noqa: S101 (invariant)
        members: dict[Slot, str] = {}
        for slot in instructed.slots:
            there = self._members.get(slot)
            worker = None if there is None else self._workers.get(there)
            stays = worker is not None and not worker.leaves and worker.exit is None
            members[slot] = there if stays and there is not None else self._new_worker(slot)
        self._members = members
        if not self._leader_runs:
            self._do(StartLeader(successor=False))
            self._leader_runs, self._leader_ending_since, self._leader_killed = True, None, False
        self._stepped_at = now
        self._command = ctl.Resize(
            generation=self.generation,
            attempt=self._attempt,
            workers=tuple(
                ctl.Member(worker_id=worker_id, server_id=slot.server_id, gpu_index=slot.gpu_index)
                for slot, worker_id in members.items()
            ),
            global_batch=instructed.global_batch,
            learning_rate=instructed.learning_rate,
        )
        self._do(Say(self._command))

    def _new_worker(self, slot: Slot) -> str:
        self._started_workers += 1
        worker_id = f"g{self.generation}-{slot.gpu_index}-{self._started_workers}"
        self._workers[worker_id] = _Worker(worker_id, slot, self.generation)
        return worker_id

    def _start_waiting(self, now: float) -> None:
        """Start the workers whose slots are free of their predecessors."""
        if self._mode is not _Mode.RUNNING:
            return
        busy = {worker.slot for worker in self._workers.values() if worker.started_at is not None}
        for worker in list(self._workers.values()):
            if worker.started_at is not None:
                continue
            if self._members.get(worker.slot) != worker.worker_id:
                del self._workers[worker.worker_id]  # not wanted any more before it began
            elif worker.slot not in busy:
                worker.started_at = now
                busy.add(worker.slot)
                self._do(StartWorker(worker.worker_id, worker.slot))

    def _wind_down(self, now: float, *, keep_progress: bool) -> None:
        """Have everything end: in good order where there is something to keep, else at once."""
        if self._mode is _Mode.IDLE:
            return
        self._members, self._replaced = {}, []
        if self._mode is _Mode.RUNNING or not keep_progress:
            self._command = ctl.Stop(generation=self.generation, keep_progress=keep_progress)
            self._do(Say(self._command))
        self._mode = _Mode.WINDING_DOWN
        self._keeps_progress, self._parted = keep_progress and self._trained, False
        self._forget_unstarted()
        for worker in self._workers.values():
            if self._trained or self._outcome is not None:
                self._ask_to_leave(worker, now)
            else:
                self._end(worker, now, at_once=True)

    def _ask_to_leave(self, worker: _Worker, now: float) -> None:
        worker.leaves = True
        if worker.ending_since is None:
            worker.ending_since = now

    def _end(self, worker: _Worker, now: float, *, at_once: bool) -> None:
        self._ask_to_leave(worker, now)
        if worker.exit is not None or worker.killed:
            return
        if at_once:
            worker.killed = True
            self._do(EndWorker(worker.worker_id, at_once=True))
        elif worker.terminated_at is None:
            worker.terminated_at = now
            self._do(EndWorker(worker.worker_id, at_once=False))

    def _end_leader(self, now: float) -> None:
        if self._leader_ending_since is None:
            self._leader_ending_since = now
            self._do(EndLeader(at_once=False))
        elif (
            now - self._leader_ending_since >= self.limits.kill_after_seconds
            and not self._leader_killed
        ):
            self._leader_killed = True
            self._do(EndLeader(at_once=True))

    def _forget_unstarted(self) -> None:
        self._workers = {
            worker_id: worker
            for worker_id, worker in self._workers.items()
            if worker.started_at is not None
        }

    # --- what the leader says ----------------------------------------------------------------

    def _take_message(self, message: ctl.ControlMessage, now: float) -> None:
        match message:
            case ctl.GenerationReady(generation=generation):
                if generation == self.generation and self._runs and not self._ready:
                    self._ready = True
                    if self._switched is None:
                        self._tell(ev.WorkersReady(job_id=self.job_id, generation=generation))
            case ctl.GenerationSwitched(generation=generation) if generation == self.generation:
                self._take_switch(message, now)
            case ctl.Progress():
                self._take_progress(message, now)
            case ctl.WorkerLeft(worker_id=worker_id, iterations_done=done):
                self._advance(done, now)
                worker = self._workers.get(worker_id)
                if worker is not None:
                    worker.left = self._parted = True
                    self._ask_to_leave(worker, now)
            case ctl.WorkerFailed():
                self._take_failure(message, now)
            case ctl.Completed(iterations_done=done):
                self._advance(done, now)
                self._complete(now)
            case ctl.Failed(reason=reason, message=text):
                self._fail(_reason_of(reason, text), text, now)
            case _:
                pass  # a command of ours, sent back: nothing that a leader says

    @property
    def _runs(self) -> bool:
        return self._mode is _Mode.RUNNING and self._outcome is None

    def _take_switch(self, message: ctl.GenerationSwitched, now: float) -> None:
        self._advance(message.iterations_done, now)
        self._stepped_at = now
        if not self._runs:
            return
        self._trained = True
        for worker in self._workers.values():
            if self._members.get(worker.slot) == worker.worker_id:
                worker.trained = True
            else:
                self._ask_to_leave(worker, now)
        if self._switched is None:
            self._switched = ev.GenerationSwitched(
                job_id=self.job_id,
                generation=self.generation,
                workers=len(self._members),
                stopped_seconds=message.stopped_seconds,
                # Never less than was told before: a restart may repeat the very last step.
                iterations_done=self.iterations_done,
            )
            self._samples, self._sampled_at = 0, now
            self._tell(self._switched)
        replaced, self._replaced = self._replaced, []
        for slot, failures, why in replaced:
            self._tell(
                ev.WorkerReplaced(
                    job_id=self.job_id,
                    generation=self.generation,
                    server_id=slot.server_id,
                    gpu_index=slot.gpu_index,
                    failures=failures,
                    message=why,
                )
            )

    def _advance(self, iterations_done: float, now: float) -> None:
        if iterations_done > self.iterations_done:
            self.iterations_done = iterations_done
            self._stepped_at = now

    def _take_progress(self, message: ctl.Progress, now: float) -> None:
        before = self.iterations_done
        self._advance(message.iterations_done, now)
        self.checkpoint_iterations = max(self.checkpoint_iterations, message.checkpoint_iterations)
        rate = message.iterations_per_second
        if rate > 0:
            self._step_seconds = 1 / rate
        if not self._runs or message.generation != self.generation or self._switched is None:
            return
        if rate > 0 and self.iterations_done > before:
            self._tell(self._sample(message, now))
        due = now - self._progress_at >= self.limits.progress_seconds
        if due and self.iterations_done > self._progress_said:
            self._progress_at, self._progress_said = now, self.iterations_done
            self._tell(
                ev.ProgressReported(
                    job_id=self.job_id,
                    generation=self.generation,
                    iterations_done=self.iterations_done,
                )
            )

    def _sample(self, message: ctl.Progress, now: float) -> StepSample:
        slots = {worker.worker_id: worker.slot for worker in self._workers.values()}
        seconds, self._sampled_at = now - self._sampled_at, now
        self._samples += 1
        return StepSample(
            job_id=self.job_id,
            generation=self.generation,
            workers=max(1, message.workers),
            iterations_per_second=message.iterations_per_second,
            sequence=self._samples,
            ended_at_seconds=now,
            seconds=max(0.0, seconds),
            worker_samples=tuple(
                WorkerSample(
                    server_id=slots[sample.worker_id].server_id,
                    gpu_index=slots[sample.worker_id].gpu_index,
                    step_seconds=sample.step_seconds,
                    compute_seconds=sample.compute_seconds,
                )
                for sample in message.samples
                if sample.worker_id in slots
            ),
        )

    def _take_failure(self, message: ctl.WorkerFailed, now: float) -> None:
        """The leader has given a worker up: it ends soon by itself, or is ended."""
        worker = self._workers.get(message.worker_id)
        if worker is None or worker.leaves or not self._runs:
            return
        worker.failed = message
        # A moment, so that one that is just ending can say how, in its exit status.
        worker.fence_at = now + self.limits.word_seconds

    # --- how things end ----------------------------------------------------------------------

    def _worker_ended(self, worker_id: str, how: Exit, now: float) -> None:
        worker = self._workers.get(worker_id)
        if worker is not None and worker.exit is None:
            worker.exit, worker.exited_at = how, now

    def _settle_ended(self, now: float) -> None:
        """Draw the consequences of every worker's end, once all is known that will be."""
        for worker in [*self._workers.values()]:
            how = worker.exit
            if how is None or worker.worker_id not in self._workers:
                continue
            waited = now - worker.exited_at >= self.limits.word_seconds
            if worker.leaves or not self._runs:
                # Where a leaver got to is in its farewell, which may come after its end.
                if worker.left or waited or how.status != 0 or self._outcome is not None:
                    del self._workers[worker.worker_id]
            elif how.out_of_memory or (how.status != 0 and _lacks_memory(how.output)):
                self._fail(FailureReason.OUT_OF_MEMORY, _told(worker, how), now)
            elif how.not_started:
                self._fail(FailureReason.CANNOT_START, _told(worker, how), now)
            elif how.status == USER_CODE_EXIT:
                self._fail(FailureReason.USER_CODE_FAILED, _told(worker, how), now)
            elif worker.failed is not None or worker.problem or waited:
                self._replace(worker, how, now)

    def _replace(self, worker: _Worker, how: Exit, now: float) -> None:
        """Replace a worker that failed where it was, if others hold what it had."""
        del self._workers[worker.worker_id]
        message = _told(worker, how)
        self.failures += 1
        if self.failures > self.limits.max_failures:
            started = self._trained
            kind = FailureReason.TOO_MANY_FAILURES if started else FailureReason.CANNOT_START
            self._fail(kind, message, now)
            return
        if worker.failed is not None:
            go_on = worker.failed.survivors > 0
        else:
            others = [other for other in self._workers.values() if other.runs and not other.leaves]
            go_on = any(other.trained or not self._trained for other in others)
        if not go_on:
            saved = self.checkpoint_iterations
            if worker.failed is not None:
                saved = worker.failed.iterations_done
            self._lose(message, saved, now)
            return
        self._replaced.append((worker.slot, self.failures, message))
        self._attempt += 1
        self._resize(now)

    def _lose(self, message: str, saved: float, now: float) -> None:
        """Give the generation up: it stands at its checkpoint and has to be placed again."""
        self.iterations_done = self.checkpoint_iterations = saved
        self._progress_said = -1.0
        self._lost = ev.WorkerLost(
            job_id=self.job_id,
            generation=self.generation,
            iterations_done=saved,
            message=message,
            failures=self.failures,
        )
        self._tell(self._lost)
        self._switched, self._keeps_progress = None, False
        self._end_all(now)

    def _complete(self, now: float) -> None:
        if self._outcome is not None:
            return
        self._outcome = ev.JobCompleted(
            job_id=self.job_id, generation=self.generation, iterations_done=self.iterations_done
        )
        self._tell(self._outcome)
        self._leaving |= dict.fromkeys(self.occupied())
        self._members, self._replaced = {}, []
        if self._mode is _Mode.RUNNING:
            self._mode = _Mode.WINDING_DOWN
        self._forget_unstarted()
        for worker in self._workers.values():
            self._ask_to_leave(worker, now)

    def _fail(self, reason: FailureReason, message: str, now: float) -> None:
        if self._outcome is not None:
            return
        self._outcome = ev.JobFailed(
            job_id=self.job_id,
            generation=self.generation,
            reason=reason,
            message=message[-MESSAGE_CHARACTERS:],
        )
        self._tell(self._outcome)
        self._end_all(now)

    def _end_all(self, now: float) -> None:
        """End every process now; none of them has anything worth keeping."""
        self._leaving |= dict.fromkeys(self.occupied())
        self._members, self._replaced, self._command = {}, [], None
        if self._mode is _Mode.RUNNING:
            self._mode = _Mode.WINDING_DOWN
        self._forget_unstarted()
        for worker in self._workers.values():
            self._end(worker, now, at_once=True)

    def _leader_ended(self, how: Exit, now: float) -> None:
        self._leader_runs = False
        self._leader_ending_since, self._leader_killed = None, False
        if not self._runs:
            return
        self._leader_failures += 1
        if how.not_started or self._leader_failures > max(1, self.limits.max_failures):
            reason = (
                FailureReason.TOO_MANY_FAILURES if self._trained else FailureReason.CANNOT_START
            )
            self._fail(reason, f"the leader ended: {how}\n{how.output}", now)
            return
        self._do(StartLeader(successor=True))
        self._leader_runs = True

    # --- time --------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        for worker in [*self._workers.values()]:
            self._hurry(worker, now)
        if self._runs:
            self._watch_start(now)
        if self._runs and self._trained:
            self._watch_steps(now)

    def _hurry(self, worker: _Worker, now: float) -> None:
        """End a worker that was to leave and does not: first by asking, then by force."""
        if worker.fence_at is not None and now >= worker.fence_at and not worker.killed:
            worker.killed = True
            if worker.runs:
                self._do(EndWorker(worker.worker_id, at_once=True))
        if worker.ending_since is None or not worker.runs:
            return
        if worker.terminated_at is not None:
            if now - worker.terminated_at >= self.limits.kill_after_seconds:
                self._end(worker, now, at_once=True)
        elif now - worker.ending_since >= self.limits.graceful_stop_seconds:
            self._end(worker, now, at_once=False)

    def _watch_steps(self, now: float) -> None:
        still = now - self._stepped_at
        if still > max(self.limits.hang_seconds, self.limits.hang_steps * self._step_seconds):
            self._hung(FailureReason.HUNG, f"no step for {still:.0f} s", now)

    def _watch_start(self, now: float) -> None:
        """Give up who does not come to train: all, or those whom others go on without."""
        late = [
            worker
            for worker in self._workers.values()
            if worker.runs and not worker.trained and not worker.leaves and not worker.killed
            if now - (worker.started_at or 0.0) > self.limits.start_seconds
        ]
        if not late:
            return
        message = f"it did not train within {self.limits.start_seconds:.0f} s"
        if not self._trained:
            self._hung(FailureReason.CANNOT_START, message, now)
            return
        for worker in late:
            worker.problem = message
            worker.killed = True
            self._do(EndWorker(worker.worker_id, at_once=True))

    def _hung(self, reason: FailureReason, message: str, now: float) -> None:
        self.failures += 1
        if self.failures > self.limits.max_failures:
            self._fail(reason, message, now)
        else:
            self._lose(message, self.checkpoint_iterations, now)


def _gpu_set(slots: Iterable[Slot]) -> GpuSet:
    gpus: dict[str, list[int]] = {}
    for slot in sorted(slots):
        gpus.setdefault(slot.server_id, []).append(slot.gpu_index)
    return {server: tuple(indexes) for server, indexes in gpus.items()}


def _told(worker: _Worker, how: Exit) -> str:
    """Say how a worker ended, and the last that it wrote."""
    why = worker.problem or (worker.failed.message if worker.failed is not None else "")
    head = f"{worker.slot.server_id}/{worker.slot.gpu_index}: {how}"
    text = f"{head} ({why})" if why else head
    room = MESSAGE_CHARACTERS - len(text) - 1
    return f"{text}\n{how.output[-room:]}" if how.output else text


# What libraries say when memory that they asked for is not to be had.
_NO_MEMORY = (
    *("MemoryError", "not enough memory", "can't allocate memory", "Cannot allocate memory"),
    *("bad_alloc", "CUDA out of memory", "OutOfMemoryError", "failed to map segment"),
)


def _lacks_memory(output: str) -> bool:
    return any(sign in output for sign in _NO_MEMORY)


def _reason_of(reason: str, message: str) -> FailureReason:
    """Tell a lack of memory from other errors of the job's own code."""
    if _lacks_memory(message):
        return FailureReason.OUT_OF_MEMORY
    known: Mapping[str, FailureReason] = {kind.value: kind for kind in FailureReason}
    return known.get(reason, FailureReason.USER_CODE_FAILED)
