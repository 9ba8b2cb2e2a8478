"""A world of pure workers around the pure leader: messages late, deaths at the worst moment.

The workers here keep the rules of the real ones (:mod:`resilin.elastic.runtime`), but their
collectives are plain function calls that may fail halfway: some members have then done a step,
a change or a recovery, and others have not. Every worker's state carries the samples that its
model was trained on in this epoch, so that exactly-once is checked where it matters: in the
line of states that survives.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from resilin.elastic import messages as msg
from resilin.elastic.control import (
    Completed,
    ControlMessage,
    Failed,
    GenerationSwitched,
    Member,
    Resize,
    Stop,
)
from resilin.elastic.leader_state import Durable, Hangup, LeaderState, Tell, TellAgent
from resilin.elastic.partitions import first_of, share_of

__all__ = ["SimWorker", "State", "World"]


@dataclass(frozen=True)
class State:
    """What a worker's model is: where it stands, and what it saw in this epoch."""

    position: msg.Position = field(default_factory=msg.Position)
    seen: tuple[int, ...] = ()


@dataclass(eq=False)
class SimWorker:
    worker_id: str
    state: State | None = None
    plan: msg.Plan | None = None
    newest: msg.Plan | None = None
    heard: dict[int, msg.Plan] = field(default_factory=dict)
    broken: bool = False
    parked: bool = False
    done: bool = False
    alive: bool = True
    epoch: int = -1
    ranges: list[msg.Range] = field(default_factory=list)
    asked: bool = False
    dry: bool = False
    inbox: deque[msg.ToWorker] = field(default_factory=deque)
    outbox: deque[msg.FromWorker | None] = field(default_factory=deque)

    @property
    def number(self) -> int:
        return 0 if self.plan is None else self.plan.number

    def register(self) -> None:
        self.inbox.clear()
        self.outbox.clear()
        self.asked = False
        self.outbox.append(
            msg.Register(
                worker_id=self.worker_id,
                pid=1,
                warm=True,
                plan=self.plan,
                broken=self.broken,
                parked=self.parked,
                done=self.done,
                stopped_seconds=0.0,
                position=self.state.position if self.state else msg.Position(),
            )
        )

    def say(self, message: msg.FromWorker) -> None:
        self.outbox.append(message)

    def end(self) -> None:
        """The process is gone: what it has sent still arrives, then the connection closes."""
        self.alive = False
        self.inbox.clear()
        self.outbox.append(None)

    @property
    def stands(self) -> bool:
        """Whether it takes part in no collective of its plan."""
        restart = self.newest is not None and self.newest.kind == "restart"
        given_up = restart and self.newest is not None and self.newest.number > self.number
        return not self.alive or self.broken or self.parked or given_up or self.plan is None

    def upcoming(self) -> list[int]:
        """Its next samples, in order."""
        assert self.state is not None
        if self.epoch != self.state.position.epoch:
            self.epoch, self.ranges, self.dry = self.state.position.epoch, [], False
        used = self.state.position.taken.get(self.worker_id, 0)
        return [index for start, stop in self.ranges for index in range(start, stop)][used:]


class World:
    """One job: its leader, its workers, and an agent that repairs what breaks."""

    def __init__(self, seed: int, *, samples: int, batch: int, total: int | None = None) -> None:
        self.chance = random.Random(seed)
        self.samples = samples
        self.batch = batch
        self.total = total
        self.seed = seed
        self.now = 0.0
        self.workers: dict[str, SimWorker] = {}
        self.reports: list[ControlMessage] = []
        self.checkpoint: State | None = None
        self.epochs_done = 0
        self.epoch_steps: list[int] = []
        self.steps_in_epoch = 0
        self.leader: LeaderState | None = self._new_leader(1)
        self.term = 1
        self.kept = "{}"
        self.newest: Resize | Stop | None = None
        self.count = 0
        self.built: set[int] = set()

    def lives_through(self, disturb: Callable[[World], None], *, often: float, epochs: int) -> bool:
        """Let the job train while things happen to it; say whether it got so many epochs done.

        Args:
            disturb: Lets one thing happen.
            often: The chance of it, a turn.
            epochs: How many.
        """
        for _ in range(400_000):
            if self.epochs_done >= epochs:
                return True
            if self.chance.random() < often:
                disturb(self)
            self.turn()
            if self.chance.random() < 0.03:
                self.succeed_leader()
                self.repair()
            if not self.wanted() and self.chance.random() < 0.01:
                self.resize(self.chance.randint(1, 4))
        return False

    def _new_leader(self, term: int) -> LeaderState:
        return LeaderState(
            seed=self.seed,
            partition_size=None,
            lease_seconds=10.0,
            now=self.now,
            term=term,
            checkpoint_step=0 if self.checkpoint is None else self.checkpoint.position.step,
        )

    # --- the agent -------------------------------------------------------------------------

    def resize(self, count: int, remove: str | None = None) -> None:
        """Ask for so many workers."""
        stay = [w for w in self.wanted() if w != remove and self.workers[w].alive]
        self.chance.shuffle(stay)
        stay = stay[:count]
        while len(stay) < count:
            stay.append(self.spawn())
        generation = 1 if self.newest is None else self.newest.generation + 1
        self._command(generation, 0, stay)

    def repair(self) -> None:
        """Replace wanted workers whose process is gone."""
        if isinstance(self.newest, Resize):
            wanted = [w if self.workers[w].alive else self.spawn() for w in self.wanted()]
            if wanted != self.wanted():
                self._command(self.newest.generation, self.newest.attempt + 1, wanted)

    def _command(self, generation: int, attempt: int, wanted: list[str]) -> None:
        members = tuple(
            Member(worker_id=w, server_id="s", gpu_index=i) for i, w in enumerate(wanted)
        )
        self.newest = Resize(
            generation=generation, attempt=attempt, workers=members, global_batch=self.batch
        )
        self.tell_leader(self.newest)

    def stop(self, *, keep: bool = True) -> None:
        generation = 1 if self.newest is None else self.newest.generation + 1
        self.newest = Stop(generation=generation, keep_progress=keep)
        self.tell_leader(self.newest)

    def wanted(self) -> list[str]:
        if isinstance(self.newest, Resize):
            return [member.worker_id for member in self.newest.workers]
        return []

    def spawn(self) -> str:
        self.count += 1
        worker = SimWorker(f"w{self.count}")
        self.workers[worker.worker_id] = worker
        worker.register()
        return worker.worker_id

    def tell_leader(self, command: ControlMessage) -> None:
        if self.leader is not None:
            self._act(self.leader.agent_said(command))

    # --- chance ----------------------------------------------------------------------------

    def alive(self) -> list[SimWorker]:
        return [w for w in self.workers.values() if w.alive]

    def trainers(self) -> list[SimWorker]:
        return [w for w in self.alive() if not w.stands]

    def turn(self) -> None:
        """Let one thing happen that can happen."""
        kind = self.chance.random()
        if kind < 0.55:
            self._deliver()
        elif kind < 0.65:
            self._build()
        elif kind < 0.70:
            self.tick(0.3)
        else:
            self._collective(dying=None)

    def kill(self, worker: SimWorker) -> None:
        worker.end()

    def lose_leader(self) -> None:
        """The leader is gone with everything that was under way to or from it."""
        if self.leader is not None:
            self.kept = self.leader.durable().model_dump_json()
            self.leader = None
            for worker in self.workers.values():
                worker.inbox.clear()
                worker.outbox.clear()
                worker.asked = False
                worker.dry = True

    def succeed_leader(self) -> None:
        if self.leader is None:
            self.term += 1
            self.leader = self._new_leader(self.term)
            self.leader.succeed(Durable.model_validate_json(self.kept))
            for worker in self.alive():
                worker.register()
            self._act(self.leader.agent_connected())
            if self.newest is not None:
                self.tell_leader(self.newest)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        if self.leader is not None:
            for worker in self.alive():
                if not any(isinstance(each, msg.Register) for each in worker.outbox):
                    self._act(self.leader.worker_said(worker.worker_id, msg.Heartbeat()))
            self._act(self.leader.tick(self.now))

    # --- messages --------------------------------------------------------------------------

    def _deliver(self) -> None:
        if self.leader is None:
            return
        ways = [(w, out) for w in self.workers.values() for out in (w.outbox, w.inbox) if out]
        if not ways:
            return
        worker, way = self.chance.choice(ways)
        if way is worker.outbox:
            said = worker.outbox.popleft()
            if said is None:
                self._act(self.leader.closed(worker.worker_id))
            else:
                self._act(self.leader.worker_said(worker.worker_id, said))
        else:
            self._hear(worker, worker.inbox.popleft())

    def _act(self, actions) -> None:
        for action in actions:
            match action:
                case Tell(worker_id=worker_id, message=message):
                    if self.workers[worker_id].alive:
                        self.workers[worker_id].inbox.append(message)
                case TellAgent(message=message):
                    self.reports.append(message)
                case Hangup(worker_id=worker_id):
                    self.workers[worker_id].alive = False

    def _hear(self, worker: SimWorker, message: msg.ToWorker) -> None:
        match message:
            case msg.Plan():
                worker.heard[message.number] = message
                if worker.newest is None or message.number > worker.newest.number:
                    worker.newest = message
                    worker.dry = False
                    excluded = worker.worker_id not in message.members
                    if message.kind == "restart" and excluded and worker.state is not None:
                        self._leave(worker, 0)
            case msg.Leave():
                self._leave(worker, 0)
            case msg.CheckpointNow():
                if worker.state is not None and self.leader is not None:
                    self._checkpoint(worker)
            case msg.Partitions():
                worker.asked = False
                asked = (message.epoch, message.number, message.have)
                if asked == (worker.epoch, worker.number, len(worker.ranges)):
                    worker.ranges += message.ranges
                    worker.dry = not message.ranges
            case _:
                pass

    def _leave(self, worker: SimWorker, number: int) -> None:
        position = worker.state.position if worker.state else msg.Position()
        worker.say(msg.Left(number=number, position=position))
        worker.end()

    def _checkpoint(self, worker: SimWorker) -> None:
        assert worker.state is not None
        assert self.leader is not None
        position = worker.state.position
        ranges = self.leader.books.used(position)
        used = sorted(index for start, stop in ranges for index in range(start, stop))
        assert used == sorted(worker.state.seen), "the books tell what was trained on"
        settled = position.model_copy(update={"taken": {}, "inherited": ranges})
        if self.checkpoint is None or settled.step >= self.checkpoint.position.step:
            self.checkpoint = replace(worker.state, position=settled)
        worker.say(msg.Checkpointed(step=position.step))

    # --- collectives -----------------------------------------------------------------------

    def _build(self) -> None:
        """A group whose members have all heard of it, and of nothing newer, is built."""
        for worker in self.alive():
            plan = worker.newest
            if plan is not None and plan.number not in self.built:
                members = [self.workers[w] for w in plan.members]
                if all(m.alive and m.newest == plan for m in members):
                    self.built.add(plan.number)
                    return

    def _collective(self, dying: SimWorker | None) -> None:
        """Let some group do its next thing; ``dying`` dies in the middle of it."""
        groups: dict[int, msg.Plan] = {}
        for worker in self.alive():
            newest = worker.newest
            if newest is not None and newest.kind == "restart" and newest.number > worker.number:
                groups[newest.number] = newest
            if not worker.stands:
                assert worker.plan is not None
                groups[worker.plan.number] = worker.plan
        if not groups:
            return
        plan = groups[self.chance.choice(sorted(groups))]
        members = [self.workers[w] for w in plan.members]
        if all(m.alive and m.plan == plan and not m.stands for m in members):
            self._step(plan, members, dying if dying in members else None)
        elif plan.kind == "restart" and plan.number in self.built:
            if all(m.alive and m.newest == plan and m.number < plan.number for m in members):
                self._restart(plan, members, dying if dying in members else None)
        else:
            for member in members:  # the group is broken: who is in it notices
                if member.plan == plan and not member.stands:
                    gone = [m for m in members if not m.alive or m.broken or m.plan != plan]
                    if gone:
                        self._break(member)

    def die_in_collective(self, worker: SimWorker) -> None:
        """A worker dies in the middle of whatever it takes part in."""
        for _ in range(8):
            self._collective(worker)
            if not worker.alive:
                return
        worker.end()

    def break_one(self, worker: SimWorker) -> None:
        """A connection breaks though nobody dies."""
        self._break(worker)

    def _break(self, worker: SimWorker) -> None:
        worker.broken = True
        worker.say(msg.Broken(number=worker.number, message="peer gone"))

    def _step(self, plan: msg.Plan, members: list[SimWorker], dying: SimWorker | None) -> None:
        first = members[0].state
        assert first is not None
        assert all(m.state == first for m in members), "all members of a group are equal"
        if self.total is not None and first.position.step >= self.total:
            for member in members:
                member.parked = member.done = True
                member.say(msg.Parked(number=plan.number, done=True, position=first.position))
            return
        takes = {}
        for rank, member in enumerate(members):
            low, high = share_of(plan.global_batch, rank, len(members))
            ahead = member.upcoming()
            if len(ahead) < high - low and not member.dry:
                if not member.asked:
                    member.asked = True
                    member.say(self._wanted(member))
                return  # it waits for its data, and all others for it
            takes[member.worker_id] = ahead[: high - low]
        survivors = [m for m in members if m is not dying]
        finishers = survivors
        if dying is not None:
            dying.end()
            finishers = [m for m in survivors if self.chance.random() < 0.5]
        after = self._moved_on(first, takes, counted=bool(finishers))
        ready = [self._ready(m) for m in members]
        for member in finishers:
            member.state = after
            member.dry = False if after.position.epoch != first.position.epoch else member.dry
        if after != first:
            for member in finishers:
                member.say(
                    msg.Steps(
                        number=plan.number,
                        position=after.position,
                        count=1,
                        step_seconds=0.1,
                        compute_seconds=0.1,
                    )
                )
        for member in members:
            member.dry = member.alive and self.leader is None
        agreed = set(ready)
        if len(agreed) == 1 and (number := agreed.pop()) and finishers:
            self._commit(plan, number, finishers, broken=dying is not None)
        if dying is not None:
            for member in survivors:
                if member.alive and not member.stands:
                    self._break(member)

    def _wanted(self, member: SimWorker) -> msg.PartitionsWanted:
        assert member.state is not None
        return msg.PartitionsWanted(
            request=0,
            number=member.number,
            epoch=member.state.position.epoch,
            have=len(member.ranges),
            samples=self.samples,
            inherited=member.state.position.inherited,
        )

    def _moved_on(self, state: State, takes: dict[str, list[int]], *, counted: bool) -> State:
        got = [index for taken in takes.values() for index in taken]
        if not got:
            return state
        position = state.position
        taken = dict(position.taken)
        for worker_id, indexes in takes.items():
            taken[worker_id] = taken.get(worker_id, 0) + len(indexes)
        seen = (*state.seen, *got)
        assert len(set(seen)) == len(seen), f"trained twice: {sorted(seen)}"
        consumed = position.consumed + len(got)
        assert consumed == len(seen)
        self.steps_in_epoch += counted
        if consumed < self.samples:
            return State(
                position.model_copy(
                    update={"step": position.step + 1, "consumed": consumed, "taken": taken}
                ),
                seen,
            )
        assert sorted(seen) == list(range(self.samples)), "an epoch misses samples"
        if counted:
            self.epochs_done += 1
            self.epoch_steps.append(self.steps_in_epoch)
            self.steps_in_epoch = 0
        return State(msg.Position(step=position.step + 1, epoch=position.epoch + 1))

    def _ready(self, member: SimWorker) -> int:
        plan = member.newest
        if plan is None or plan.number <= member.number or plan.kind == "restart":
            return 0
        if plan.kind == "stop" or member.worker_id not in plan.members:
            return plan.number
        return plan.number if plan.number in self.built else 0

    def _commit(
        self, old: msg.Plan, number: int, finishers: list[SimWorker], *, broken: bool
    ) -> None:
        plan = finishers[0].heard[number]
        state = finishers[0].state
        assert state is not None
        for worker in finishers:
            if plan.kind == "stop":
                worker.parked = True
                worker.say(msg.Parked(number=number, done=False, position=state.position))
            elif worker.worker_id not in plan.members:
                self._leave(worker, number)
            else:
                self._enter(worker, plan, state)
        if plan.kind == "stop":
            return
        for worker_id in plan.members:
            joiner = self.workers[worker_id]
            if worker_id not in old.members and joiner.alive and not broken:
                restart = joiner.newest is not None and joiner.newest.kind == "restart"
                if restart and joiner.newest is not None and joiner.newest.number > number:
                    continue
                self._enter(joiner, plan, state)

    def _enter(self, worker: SimWorker, plan: msg.Plan, state: State) -> None:
        stayed = 0.0 if worker.state is not None else None
        worker.plan, worker.state = plan, state
        if worker.epoch == state.position.epoch:
            used = state.position.taken.get(worker.worker_id, 0)
            worker.ranges = first_of(worker.ranges, used)[0]
        worker.broken = worker.parked = worker.done = worker.dry = False
        worker.say(
            msg.Switched(number=plan.number, stopped_seconds=stayed, position=state.position)
        )

    def _restart(self, plan: msg.Plan, members: list[SimWorker], dying: SimWorker | None) -> None:
        trained = [m.state for m in members if m.state is not None]
        newest = max(trained, key=lambda state: state.position.step, default=None)
        if newest is None:
            newest = self.checkpoint or State()
        entering = members
        if dying is not None:
            dying.end()
            entering = [m for m in members if m is not dying and self.chance.random() < 0.5]
        for member in entering:
            self._enter(member, plan, newest)
        if dying is not None:
            for member in members:
                if member.alive and member in entering:
                    self._break(member)
                elif member.alive:
                    member.say(msg.Broken(number=plan.number, message="peer gone"))

    # --- what a story waits for ------------------------------------------------------------

    def run_until(self, reached, turns: int = 20_000) -> None:
        """Let things happen until something is reached."""
        for _ in range(turns):
            if reached():
                return
            self.turn()
        raise AssertionError("nothing moves any more:\n" + self.describe())

    def describe(self) -> str:
        lines = [f"leader {self.leader and (self.leader.current, self.leader.proposal)}"]
        lines += [f"desired {self.newest}", f"built {sorted(self.built)[-5:]}"]
        lines += [str(worker) for worker in self.alive()]
        return "\n".join(lines)

    def switched(self, generation: int) -> bool:
        return any(
            isinstance(said, GenerationSwitched) and said.generation == generation
            for said in self.reports
        )

    def ended(self) -> bool:
        return any(isinstance(said, Completed | Failed) for said in self.reports)
