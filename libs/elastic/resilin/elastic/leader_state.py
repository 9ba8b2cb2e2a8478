"""The leader's core: what happened goes in, what is to be said comes out. No I/O, no clock.

One picture of who trains (``current``), at most one change under way (``proposal``), and what
the agent wants (``desired``). After everything that happens the core looks at all three and
takes the one next step towards what is wanted::

    somebody who trains is dead       -> restart plan for the survivors
    nobody trains, all wanted are warm -> restart plan from the newest checkpoint
    what trains is not what is wanted -> switch plan, once all wanted are warm
    the job is to stop                -> stop plan; then a checkpoint; then everybody leaves
    all of the plan are parked, done  -> a checkpoint; then everybody leaves; the job is over

A plan's number is higher than every number before it. Workers commit a switch among themselves,
in band: the leader learns of it afterwards (:class:`~.messages.Switched`), perhaps from a plan
that it has since replaced. Nothing here assumes that a message comes once, soon or in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, Field

from resilin.elastic import messages as msg
from resilin.elastic.control import (
    Completed,
    ControlMessage,
    Failed,
    GenerationReady,
    GenerationSwitched,
    Progress,
    Resize,
    Stop,
    TakeCheckpoint,
    WorkerFailed,
    WorkerLeft,
    WorkerSample,
)
from resilin.elastic.partitions import Book, Books

__all__ = ["Action", "Durable", "Hangup", "LeaderState", "Tell", "TellAgent"]

PROGRESS_SECONDS = 1.0
UNASKED = -1
"""The attempt of a plan that no resize asked for: of survivors, or to stop."""
BROKEN_SECONDS = 1.0
"""How long a failed collective waits for the death that explains it."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Say something to a worker."""

    worker_id: str
    message: msg.ToWorker


@dataclass(frozen=True, slots=True)
class TellAgent:
    """Say something to whoever started the job."""

    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the connection of a worker that is given up."""

    worker_id: str


Action = Tell | TellAgent | Hangup


class Durable(BaseModel):
    """What a successor cannot learn from the workers; small, and replaced as a whole."""

    number: int = 0
    desired: Resize | Stop | None = None
    current: msg.Plan | None = None
    open: tuple[msg.Plan, ...] = ()
    named: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    outcome: Completed | Failed | None = None
    checkpoint_step: int = 0
    books: dict[int, dict[str, object]] = Field(default_factory=dict)


@dataclass(slots=True)
class Worker:
    """A worker that is connected."""

    worker_id: str
    seen_seconds: float
    warm: bool = False
    parked: bool = False
    done: bool = False
    told_to_leave: bool = False
    switched: int = 0
    step: int = 0
    count: int = 0
    step_seconds: float = 0.0
    compute_seconds: float = 0.0


@dataclass(slots=True)
class _Switch:
    """A change that the workers have begun to report."""

    plan: msg.Plan
    waiting: set[str]
    stopped_seconds: float = 0.0


@dataclass(slots=True)
class LeaderState:
    """The state machine of one leader.

    Attributes:
        seed: Orders the partitions.
        partition_size: Samples in a partition; None for four local batches.
        lease_seconds: How long a worker may be silent.
        checkpoint_step: The step of the newest checkpoint known.
    """

    seed: int
    partition_size: int | None
    lease_seconds: float
    now: float
    checkpoint_step: int = 0
    term: int = 1
    desired: Resize | Stop | None = None
    current: msg.Plan | None = None
    proposal: msg.Plan | None = None
    outcome: Completed | Failed | None = None
    books: Books = field(default_factory=Books)
    position: msg.Position = field(default_factory=msg.Position)
    workers: dict[str, Worker] = field(default_factory=dict)
    durable_version: int = 0
    """Grows whenever :meth:`durable` would return something else."""
    _number: int = 0
    _open: dict[int, msg.Plan] = field(default_factory=dict)
    _named: dict[str, None] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)
    _switch: _Switch | None = None
    _ready_said: tuple[int, int] | None = None
    _switched_said: GenerationSwitched | None = None
    _broken_since: float | None = None
    _propose_from: float = 0.0
    _assembling_until: float | None = None
    _checkpointing: str | None = None
    _loss: float | None = None
    _progress_at: float = 0.0
    _progress_step: int = 0
    _actions: list[Action] = field(default_factory=list)

    # --- succession ------------------------------------------------------------------------

    def durable(self) -> Durable:
        """Return what a successor needs beside what the workers will tell it."""
        return Durable(
            number=self._number,
            desired=self.desired,
            current=self.current,
            open=tuple(self._open.values()),
            named=tuple(self._named),
            gone=tuple(self._gone),
            outcome=self.outcome,
            checkpoint_step=self.checkpoint_step,
            books={
                epoch: {
                    "samples": book.samples,
                    "inherited": book.inherited,
                    "free": book.free,
                    "given": book.given,
                }
                for epoch, book in self.books.books.items()
            },
        )

    def succeed(self, durable: Durable) -> None:
        """Begin where an earlier leader ended; its workers get a lease's time to come back."""
        self._number = durable.number
        self.desired = durable.desired
        self.current = durable.current
        self._open = {plan.number: plan for plan in durable.open}
        self.outcome = durable.outcome
        self._named = dict.fromkeys(durable.named)
        self._gone = dict.fromkeys(durable.gone)
        self.checkpoint_step = max(self.checkpoint_step, durable.checkpoint_step)
        for epoch, book in durable.books.items():
            self.books.books[epoch] = _BookRecord.model_validate(book).book(epoch)
        if self.current is not None and self.outcome is None:
            self._assembling_until = self.now + self.lease_seconds
            self._switch = _Switch(self.current, set(self.current.members))

    @property
    def open_numbers(self) -> Sequence[int]:
        """The plans whose groups may be built now."""
        return tuple(self._open)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do: the job is over, or stopped, and all have left."""
        ended = self.outcome is not None or isinstance(self.desired, Stop)
        return ended and not self.workers

    # --- from the agent --------------------------------------------------------------------

    def agent_connected(self) -> list[Action]:
        """Say where the job stands to an agent that has just come."""
        if self.outcome is not None:
            self._tell_agent(self.outcome)
            return self._flush()
        if self._switched_said is not None and self.current is not None:
            self._tell_agent(self._switched_said)
        if isinstance(self.desired, Resize) and self._ready_said == _key(self.desired):
            self._tell_agent(GenerationReady(generation=self.desired.generation))
        return self._flush()

    def agent_said(self, message: ControlMessage) -> list[Action]:
        """Take a command; what is older than the newest changes nothing."""
        if self.outcome is not None:
            return self._flush()
        match message:
            case TakeCheckpoint():
                self._take_checkpoint()
            case Resize() | Stop() if self._newer(message):
                self.desired = message
                if isinstance(message, Resize):
                    self._named.update(dict.fromkeys(m.worker_id for m in message.workers))
                self._changed()
                self._reconcile()
            case _:
                pass
        return self._flush()

    def _newer(self, message: Resize | Stop) -> bool:
        def order(command: Resize | Stop) -> tuple[int, int, int]:
            if isinstance(command, Stop):
                return (command.generation, 1, 0)
            return (command.generation, 0, command.attempt)

        return self.desired is None or order(message) > order(self.desired)

    # --- from the workers ------------------------------------------------------------------

    def worker_said(self, worker_id: str, message: msg.FromWorker) -> list[Action]:
        """Take what a worker said; what it said under a plan that is over changes nothing."""
        if isinstance(message, msg.Register):
            self._register(message)
            return self._flush()
        worker = self.workers.get(worker_id)
        if worker is None:
            return self._flush()
        worker.seen_seconds = self.now
        match message:
            case msg.Warm():
                worker.warm = True
                self._reconcile()
            case msg.Switched():
                self._switched(worker, message)
                self._reconcile()
            case msg.Broken(number=number):
                self._broken(number)
            case msg.Steps():
                self._steps(worker, message)
            case msg.Parked():
                self._parked(worker, message)
                self._reconcile()
            case msg.Checkpointed(step=step):
                self._checkpointed(worker_id, step)
                self._reconcile()
            case msg.UserFailed(reason=reason, message=text):
                self._end(Failed(generation=self._generation, reason=reason, message=text))
            case msg.Left():
                self._left(worker_id, message)
                self._reconcile()
            case msg.PartitionsWanted():
                self._give(worker_id, message)
            case msg.RangesWanted(request=request, position=position):
                ranges = self.books.used(position)
                self._tell(worker_id, msg.Ranges(request=request, ranges=ranges))
            case _:
                pass
        return self._flush()

    def closed(self, worker_id: str) -> list[Action]:
        """A worker's connection closed: unless it has left, it is dead."""
        if worker_id in self.workers:
            self._dead(worker_id, "its connection closed")
            self._reconcile()
        return self._flush()

    def tick(self, now: float) -> list[Action]:
        """Let time pass: leases, the wait for absent workers, progress once a second."""
        pause, self.now = now - self.now, now
        if pause > self.lease_seconds / 2:
            for worker in self.workers.values():  # it was this process that stood still
                worker.seen_seconds = now
        for worker in list(self.workers.values()):
            if now - worker.seen_seconds > self.lease_seconds:
                self._actions.append(Hangup(worker.worker_id))
                self._dead(worker.worker_id, "its lease ran out")
        if self._assembling_until is not None and now >= self._assembling_until:
            self._assembled()
        if now - self._progress_at >= PROGRESS_SECONDS:
            if self.current is not None and self.outcome is None:
                self._tell_agent(self._progress(now - self._progress_at))
            self._progress_at = now
            self._progress_step = self.position.step
        self._reconcile()
        return self._flush()

    # --- who is there ----------------------------------------------------------------------

    def _register(self, message: msg.Register) -> None:
        worker_id = message.worker_id
        if worker_id in self._gone:
            self._tell(worker_id, msg.Leave(fenced=True))
            return
        worker = self.workers.setdefault(worker_id, Worker(worker_id, self.now))
        worker.seen_seconds = self.now
        worker.warm |= message.warm
        worker.step = message.position.step
        resize = self.desired if isinstance(self.desired, Resize) else None
        self._tell(
            worker_id,
            msg.Welcome(
                term=self.term,
                workers=max(1, len(resize.workers)) if resize else 1,
                global_batch=resize.global_batch if resize else 1,
            ),
        )
        if (plan := message.plan) is not None:
            self._returned(worker, plan, message)
        elif self.proposal is not None and worker_id in self.proposal.members:
            self._tell(worker_id, self.proposal)
        self._reconcile()

    def _returned(self, worker: Worker, plan: msg.Plan, message: msg.Register) -> None:
        """A worker that trains has come back after a loss of the connection."""
        self._number = max(self._number, plan.number)
        if self.current is None or plan.number > self.current.number:
            self._open.setdefault(plan.number, plan)
        said = msg.Switched(
            number=plan.number, stopped_seconds=message.stopped_seconds, position=message.position
        )
        self._switched(worker, said)
        if message.parked:
            parked = msg.Parked(number=plan.number, done=message.done, position=message.position)
            self._parked(worker, parked)
        if self.proposal is not None and self.proposal.number > plan.number:
            self._tell(worker.worker_id, self.proposal)
        if message.broken:
            self._broken(plan.number)
        if self._assembling_until is not None and not self._absent():
            self._assembled()

    def _absent(self) -> list[str]:
        return [w for w in self._members if w not in self.workers and w not in self._gone]

    def _assembled(self) -> None:
        """All workers of the leader before have come back, or had the time to."""
        self._assembling_until = None
        for worker_id in self._absent():
            self._dead(worker_id, "it did not come back to the new leader")

    def _dead(self, worker_id: str, why: str) -> None:
        worker = self.workers.pop(worker_id, None)
        self._gone[worker_id] = None
        self._changed()
        if self._checkpointing == worker_id:
            self._checkpointing = None
        wanted = self._wanted or (worker_id,)
        left = worker_id not in wanted and worker_id not in self._in_play()
        if self._ending or left or (worker is not None and worker.told_to_leave):
            self._tell_agent(WorkerLeft(worker_id=worker_id, iterations_done=self.position.step))
            return
        survivors = sum(
            other.worker_id in self._members and not other.told_to_leave
            for other in self.workers.values()
        )
        done = self.position.step if survivors else self.checkpoint_step
        self._tell_agent(
            WorkerFailed(
                worker_id=worker_id, message=why, survivors=survivors, iterations_done=done
            )
        )

    def _left(self, worker_id: str, said: msg.Left) -> None:
        plan = self._open.get(said.number)
        if plan is not None and plan.kind == "switch":
            self._commit(plan, said.position)  # it has left because that was committed
        if self.workers.pop(worker_id, None) is not None:
            self._gone[worker_id] = None
            self._changed()
            done = said.position.step
            self._tell_agent(WorkerLeft(worker_id=worker_id, iterations_done=done))

    @property
    def _members(self) -> tuple[str, ...]:
        return () if self.current is None else self.current.members

    @property
    def _wanted(self) -> tuple[str, ...]:
        resize = self.desired
        return tuple(m.worker_id for m in resize.workers) if isinstance(resize, Resize) else ()

    @property
    def _generation(self) -> int:
        return 0 if self.desired is None else self.desired.generation

    @property
    def _ending(self) -> bool:
        return self.outcome is not None

    # --- the change under way --------------------------------------------------------------

    def _reconcile(self) -> None:
        """Take the next step towards what is wanted, if there is one to take now."""
        if self._assembling_until is not None:
            return
        if self._ending:
            self._dismiss(list(self.workers))
            return
        if self.current is not None and not any(w in self.workers for w in self._members):
            self._forget_current()
        if self._restart_if_broken() or self._restarting or self._broken_since is not None:
            return
        if self.current is not None and self._all_parked():
            self._finish_parked()
            return
        match self.desired:
            case Stop():
                self._towards_stop()
            case Resize() as resize:
                self._towards(resize)
            case None:
                pass

    def _towards(self, resize: Resize) -> None:
        wanted = self._wanted
        self._dismiss_unwanted(wanted)
        if not all(w in self.workers and self.workers[w].warm for w in wanted):
            return
        if any(self.workers[w].told_to_leave for w in wanted):
            return
        if self._ready_said != _key(resize):
            self._ready_said = _key(resize)
            self._tell_agent(GenerationReady(generation=resize.generation))
        old = tuple(w for w in self._members if w in wanted)
        if self.current is None:
            if self.proposal is None:
                self.books = Books()  # what the checkpoint inherited says what is used up
                self._propose("restart", wanted, resize)
            return
        if not old:
            # The state is handed on by somebody who has it: one old worker goes along, and
            # leaves with the next change, which follows at once.
            old = self._members[:1]
        members = (*old, *(w for w in wanted if w not in old))
        newest = self.proposal or self.current
        if not _is(newest, resize, members) and self.now >= self._propose_from:
            self._propose("switch", members, resize)

    def _towards_stop(self) -> None:
        if self.current is None:
            self._dismiss(list(self.workers))
            return
        self._dismiss([w for w in self.workers if w not in self._in_play()])
        if self.proposal is None or self.proposal.kind != "stop":
            self._propose("stop", (), None)

    def _restart_if_broken(self) -> bool:
        """Begin anew with the survivors if one who trains is dead; whether it is begun now."""
        running = self.proposal if self._restarting else self.current
        if running is None:
            return False
        dead = any(w not in self.workers for w in running.members)
        overdue = self._broken_since is not None and (
            self.now - self._broken_since >= BROKEN_SECONDS
        )
        if not dead and not overdue:
            return False
        alive = [w for w in running.members if w in self.workers]
        if self.current is None:
            self.proposal = None  # the first start; what is wanted says who starts instead
            self._broken_since = None
            return False
        if not alive:
            self._forget_current()
            return False
        keep = [w for w in alive if w in self._wanted]
        self._propose("restart", tuple(keep or alive), None)
        return True

    @property
    def _restarting(self) -> bool:
        return self.proposal is not None and self.proposal.kind == "restart"

    def _propose(
        self,
        kind: Literal["switch", "restart", "stop"],
        members: tuple[str, ...],
        resize: Resize | None,
    ) -> None:
        if resize is not None:
            (generation, attempt), batch = _key(resize), resize.global_batch
            rate = resize.learning_rate
        else:
            assert self.current is not None  # noqa: S101 (only what trains restarts or stops)
            generation, attempt = self.current.generation, UNASKED
            batch, rate = self.current.global_batch, self.current.learning_rate
        self._number += 1
        plan = msg.Plan(
            number=self._number,
            kind=kind,
            generation=generation,
            attempt=attempt,
            members=members,
            global_batch=batch,
            learning_rate=rate,
        )
        self.proposal = plan
        self._open[plan.number] = plan
        if kind == "restart":
            self._broken_since = None
            self._switch = None
        self._changed()
        for worker_id in self._in_play():
            if worker_id in self.workers:
                self._tell(worker_id, plan)

    def _switched(self, worker: Worker, said: msg.Switched) -> None:
        """A worker trains under a plan: the first to say so tells that it was committed."""
        if (plan := self._open.get(said.number)) is not None:
            self._commit(plan, said.position)
        if self.current is None or said.number != self.current.number:
            return
        if said.position.step > self.position.step:
            self.position = said.position
            self._progress_step = max(self._progress_step, said.position.step)
        worker.switched = said.number
        worker.step = max(worker.step, said.position.step)
        if self._switch is not None:
            if said.stopped_seconds is not None:
                self._switch.stopped_seconds = max(
                    self._switch.stopped_seconds, said.stopped_seconds
                )
            self._switch.waiting.discard(worker.worker_id)
            self._report_switch()

    def _commit(self, plan: msg.Plan, position: msg.Position) -> None:
        """The workers have changed over to a plan."""
        if self.current is not None and plan.number <= self.current.number:
            return
        if self.current is None:
            self._progress_step = position.step
        self.current = plan
        self._open = {n: later for n, later in self._open.items() if n > plan.number}
        if self.proposal is not None and self.proposal.number <= plan.number:
            self.proposal = None
        self.position = position
        self.books.settle(position)
        self._switch = _Switch(plan, set(plan.members))
        self._broken_since = None
        for worker in self.workers.values():
            worker.parked = worker.done = False
        self._changed()

    def _report_switch(self) -> None:
        """Tell the agent once every member trains and they are the ones it wanted."""
        switch, wanted = self._switch, self.desired
        if switch is None or not switch.waiting <= self._gone.keys():
            return
        self._switch = None
        plan = switch.plan
        if not isinstance(wanted, Resize) or set(plan.members) != set(self._wanted):
            return
        if plan.generation != wanted.generation:
            return
        said = GenerationSwitched(
            generation=plan.generation,
            workers=len(plan.members),
            stopped_seconds=switch.stopped_seconds,
            iterations_done=self.position.step,
        )
        self._switched_said = said
        self._tell_agent(said)

    def _broken(self, number: int) -> None:
        if self.current is not None and number == self.current.number:
            if self._broken_since is None:
                self._broken_since = self.now
            self._reconcile()
        elif self.proposal is not None and number == self.proposal.number:
            if self._restarting:
                if self._broken_since is None:
                    self._broken_since = self.now
            else:
                self.proposal = None  # it may yet commit; the next number replaces it
                self._propose_from = self.now + BROKEN_SECONDS

    def _forget_current(self) -> None:
        # Open plans stay: a worker that joined in the last moment may have the state.
        self.current = None
        self.proposal = None
        self._switch = None
        self._switched_said = None
        self._broken_since = None
        self.position = msg.Position(step=self.checkpoint_step)
        self._changed()

    # --- the end ---------------------------------------------------------------------------

    def _parked(self, worker: Worker, said: msg.Parked) -> None:
        if self.current is None:
            return
        stop = self._open.get(said.number)
        if said.number != self.current.number and (stop is None or stop.kind != "stop"):
            return
        worker.parked = True
        worker.done = said.done
        worker.step = said.position.step
        self._loss = said.loss if said.loss is not None else self._loss
        if said.position.step >= self.position.step:
            self.position = said.position

    def _all_parked(self) -> bool:
        alive = [self.workers[w] for w in self._members if w in self.workers]
        return bool(alive) and all(worker.parked for worker in alive)

    def _finish_parked(self) -> None:
        keep = any(self.workers[w].done for w in self._members if w in self.workers)
        if isinstance(self.desired, Stop):
            keep |= self.desired.keep_progress
        if keep and self.checkpoint_step < self.position.step:
            if self._checkpointing is None:
                self._take_checkpoint()
            return
        if any(self.workers[w].done for w in self._members if w in self.workers):
            self._end(
                Completed(
                    generation=self._generation,
                    iterations_done=self.position.step,
                    loss=self._loss,
                )
            )
            return
        if isinstance(self.desired, Stop):
            self._forget_current()
            self._open.clear()  # everybody has stopped: nothing can be committed any more
            self._dismiss(list(self.workers))
        else:
            # The stop was replaced by a resize after it had been committed: begin again from
            # where everybody stands.
            alive = tuple(w for w in self._members if w in self.workers)
            self._propose("restart", alive, None)

    def _end(self, outcome: Completed | Failed) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._changed()
            self._tell_agent(outcome)
            self._dismiss(list(self.workers))

    def _take_checkpoint(self) -> None:
        for worker_id in self._members:
            if worker_id in self.workers:
                self._checkpointing = worker_id
                self._tell(worker_id, msg.CheckpointNow())
                return

    def _checkpointed(self, worker_id: str, step: int) -> None:
        if self._checkpointing == worker_id:
            self._checkpointing = None
        if step > self.checkpoint_step:
            self.checkpoint_step = step
            self._changed()

    def _dismiss(self, worker_ids: Sequence[str]) -> None:
        for worker_id in worker_ids:
            worker = self.workers[worker_id]
            if not worker.told_to_leave:
                worker.told_to_leave = True
                self._tell(worker_id, msg.Leave())

    def _in_play(self) -> dict[str, None]:
        """Workers that train, or may by now without the leader's knowledge."""
        joining = (w for plan in self._open.values() for w in plan.members)
        return dict.fromkeys((*self._members, *joining))

    def _dismiss_unwanted(self, wanted: Sequence[str]) -> None:
        """Send away who was wanted once, is not any more, and cannot have begun to train."""
        in_play = self._in_play()
        self._dismiss(
            [w for w in self.workers if w in self._named and w not in wanted and w not in in_play]
        )

    # --- data and reports ------------------------------------------------------------------

    def _give(self, worker_id: str, wanted: msg.PartitionsWanted) -> None:
        ranges: tuple[msg.Range, ...] = ()
        trains = self.current is not None and worker_id in self._in_play()
        if trains and not self._restarting and self._assembling_until is None:
            newest = self.current
            assert newest is not None  # noqa: S101 (it trains)
            if wanted.number >= newest.number:
                workers = max(1, len(newest.members))
                local = -(-newest.global_batch // workers)
                partition = self.partition_size or 4 * local
                book = self.books.open(
                    wanted.epoch, wanted.samples, partition, self.seed, wanted.inherited
                )
                left = sum(stop - start for start, stop in book.free)
                cut = max(-(-local // 2), -(-left // (2 * workers)))
                known = len(book.given.get(worker_id, ()))
                ranges = book.give(worker_id, wanted.have, cut)
                if len(book.given[worker_id]) != known:
                    self._changed()
        self._tell(
            worker_id,
            msg.Partitions(
                request=wanted.request,
                number=wanted.number,
                epoch=wanted.epoch,
                have=wanted.have,
                ranges=ranges,
            ),
        )

    def _steps(self, worker: Worker, said: msg.Steps) -> None:
        if self.current is None or said.number != self.current.number:
            return
        worker.step = max(worker.step, said.position.step)
        worker.count += said.count
        worker.step_seconds += said.step_seconds * said.count
        worker.compute_seconds += said.compute_seconds * said.count
        if said.position.step > self.position.step:
            self.position = said.position
            self._loss = said.loss

    def _progress(self, seconds: float) -> Progress:
        samples = []
        for worker in self.workers.values():
            if worker.count:
                samples.append(
                    WorkerSample(
                        worker_id=worker.worker_id,
                        step_seconds=worker.step_seconds / worker.count,
                        compute_seconds=worker.compute_seconds / worker.count,
                    )
                )
                worker.count, worker.step_seconds, worker.compute_seconds = 0, 0.0, 0.0
        steps = max(0, self.position.step - self._progress_step)
        return Progress(
            generation=0 if self.current is None else self.current.generation,
            workers=len(self._members),
            iterations_done=self.position.step,
            iterations_per_second=steps / seconds if seconds > 0 else 0.0,
            checkpoint_iterations=self.checkpoint_step,
            loss=self._loss,
            samples=tuple(samples),
        )

    # --- what is said ----------------------------------------------------------------------

    def _tell(self, worker_id: str, message: msg.ToWorker) -> None:
        self._actions.append(Tell(worker_id, message))

    def _tell_agent(self, message: ControlMessage) -> None:
        self._actions.append(TellAgent(message))

    def _changed(self) -> None:
        self.durable_version += 1

    def _flush(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


def _key(resize: Resize) -> tuple[int, int]:
    return (resize.generation, resize.attempt)


def _is(plan: msg.Plan, resize: Resize, members: tuple[str, ...]) -> bool:
    """Whether a plan already is what a resize asks for."""
    same = (plan.kind != "stop", plan.generation, plan.members, plan.global_batch)
    rates = (None, plan.learning_rate)
    return (
        same == (True, resize.generation, members, resize.global_batch)
        and resize.learning_rate in rates
        and plan.attempt in (resize.attempt, UNASKED)
    )


class _BookRecord(BaseModel):
    """A book as it was written down."""

    samples: int
    inherited: tuple[msg.Range, ...]
    free: list[msg.Range]
    given: dict[str, list[msg.Range]]

    def book(self, epoch: int) -> Book:
        return Book(epoch, self.samples, self.inherited, self.free, self.given)
