"""The training side of a worker: steps, switches, recoveries. Runs in the main thread.

A step ends with its gradients and the table of :mod:`.buckets` summed over the workers. Only
then is the optimizer stepped, the position moved on, and looked at what the table says besides:

    every row is ready for the same plan  -> change over, before the next step
    a row wishes to finish                -> the job is done, for everybody, at this step

A collective that fails leaves model, optimizer and position as they were after the step before.
The worker then stands still until the leader sends a restart plan; the group of that plan
agrees on the newest state among its members, and the minibatch is done again.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resilin.elastic import messages as msg
from resilin.elastic.api import EndCondition
from resilin.elastic.buckets import GradientBuckets
from resilin.elastic.checkpoint_io import CheckpointWriter, load_newest
from resilin.elastic.data import BatchReader, Feed, GlobalOrderFeed, OnDemandFeed
from resilin.elastic.groups import Graveyard, Group, GroupBroken, GroupBuild, Work
from resilin.elastic.link import Link, leave_process
from resilin.elastic.partitions import share_of
from resilin.elastic.program import EXIT_NO_LEADER, JobProgram, checkpoints_path
from resilin.elastic.recording import StepReports
from resilin.elastic.sync import Schedule, TrainingState

__all__ = ["Runtime", "UsageError"]

LONELY_SECONDS = 60.0
"""How long a worker that stands still waits for a leader."""
IDLE_STEP_SECONDS = 0.005


class UsageError(RuntimeError):
    """The user's code does not do what the runtime needs."""


class Runtime:
    """One worker of one job, from its warm-up to its leave."""

    def __init__(self, program: JobProgram, directory: Path, worker_id: str, link: Link) -> None:
        self.program = program
        self.end = EndCondition()
        self.evaluate: Callable[[], dict[str, float]] | None = None
        cuda = program.device == "cuda" or (program.device == "auto" and torch.cuda.is_available())
        self.device = torch.device("cuda", 0) if cuda else torch.device("cpu")
        self._worker_id = worker_id
        self._link = link
        self._status = link.status
        self._orders = link.orders
        self._folder = checkpoints_path(directory)
        self._writer = CheckpointWriter(program, self._folder, link)
        self._reports = StepReports(program, worker_id, link)
        self._graveyard = Graveyard()
        self._builds: dict[int, GroupBuild] = {}
        self._state: TrainingState | None = None
        self._fresh: dict[str, Any] | None = None
        self._buckets: GradientBuckets | None = None
        self._feed: Feed | None = None
        self._group: Group | None = None
        self._plan: msg.Plan | None = None
        self._promised: msg.Plan | None = None
        self._samples = 0
        self._trained = False
        self._wish = False
        self._warming = False
        self._pending = 0
        self._taken = 0
        self._weight = 0.0
        self._losses = 0.0
        self._indexes: list[int] = []
        self._step_began = 0.0
        self._step_ended = time.monotonic()

    @property
    def state(self) -> TrainingState:
        """Model, optimizer and progress.

        Raises:
            UsageError: If there is none yet.
        """
        if self._state is None:
            raise UsageError("call prepare(model, optimizer) first")
        return self._state

    @property
    def position(self) -> msg.Position:
        """Where training stands."""
        return self.state.progress.position

    # --- what user code calls --------------------------------------------------------------

    def prepare(
        self, model: nn.Module, optimizer: Optimizer, schedule: Schedule | None = None
    ) -> None:
        """Take model and optimizer into care."""
        self._state = TrainingState(model, optimizer, schedule)
        self._state.progress.learning_rate = self.program.learning_rate
        self._buckets = GradientBuckets(model.parameters(), self.program.bucket_bytes)
        norms = (nn.modules.batchnorm._BatchNorm,)  # noqa: SLF001 (the common base of all)
        if any(isinstance(module, norms) for module in model.modules()):
            sys.stderr.write(
                "the model has batch normalisation: its statistics are of local batches, so "
                "they depend on the number of workers; use group or layer normalisation for "
                "results that do not\n"
            )

    def batches(self, dataset: Any, collate: Any = None) -> Iterator[Any]:  # noqa: ANN401 (the user's types)
        """Yield batches until the job is done or this worker is to leave.

        After each, :meth:`backward` and :meth:`end_minibatch` are to be called once.
        """
        reader = BatchReader(dataset, collate, self.device)
        yield from self._warm_up(reader)
        self._feed = (
            GlobalOrderFeed(reader, self.program.seed)
            if self.program.data_mode == "global-order"
            else OnDemandFeed(reader, self._link, self._worker_id)
        )
        self._samples = reader.samples
        self._link.on_plan = self._planned
        self._status.warm = True
        self._link.say(msg.Warm())
        self._stand()
        while True:
            self._check_leave()
            if self._done:
                self._park(done=True)
                continue
            yield from self._minibatch()

    def backward(self, loss: Tensor, count: int) -> None:
        """Differentiate a mean loss over ``count`` samples, weighted for the global batch."""
        if self._warming:
            loss.backward()  # type: ignore[no-untyped-call]  # (PyTorch's own)
            return
        if self._pending == 0:
            raise UsageError("backward() belongs between a batch and end_minibatch()")
        if self._pending == 1:
            self._require_buckets().expect_last_backward()
        assert self._plan is not None  # noqa: S101 (a batch was yielded under one)
        self._weight += count
        self._losses += float(loss.detach()) * count
        (loss * (count / self._plan.global_batch)).backward()  # type: ignore[no-untyped-call]  # (PyTorch's own)

    def end_minibatch(self) -> None:
        """End one batch; after the last of a step, reduce, step and see what changes."""
        if self._warming:
            self._warming = False
            return
        if self._pending == 0:
            raise UsageError("end_minibatch() belongs after a batch, once")
        self._pending -= 1
        if self._pending == 0:
            self._finish_step()

    # --- one step --------------------------------------------------------------------------

    def _minibatch(self) -> Iterator[Any]:
        feed, plan, group = self._feed, self._plan, self._group
        assert feed is not None and plan is not None and group is not None  # noqa: S101,PT018 (it trains)
        self._step_began = time.monotonic()
        self._indexes = feed.next(self.position, plan, group.rank)
        self._taken, self._weight, self._losses = len(self._indexes), 0.0, 0.0
        self._seed_step(group.rank)
        size = self.program.micro_batch_max or max(1, self._taken)
        parts = -(-self._taken // size)
        if not parts:
            self._finish_step()
            return
        self._pending = parts
        for part in range(parts):
            first, last = share_of(self._taken, part, parts)
            yield feed.batch(self._indexes[first:last])
            if self._pending != parts - part - 1:
                raise UsageError("call end_minibatch() once after each batch")

    def _seed_step(self, rank: int) -> None:
        """Give dropout and the like a state that follows from the step: a step redone is equal."""
        seed = (self.program.seed * 1_000_003 + self.position.step) * 4_099 + rank
        torch.default_generator.manual_seed(seed % (1 << 63))
        if self.device.type == "cuda":
            torch.cuda.default_generators[self.device.index].manual_seed(seed % (1 << 63))
        random.seed(seed)
        np.random.seed(seed % (1 << 32))

    def _finish_step(self) -> None:
        buckets, state = self._require_buckets(), self.state
        plan = self._plan
        assert plan is not None  # noqa: S101 (a step is under one)
        computed = time.monotonic()
        ready = self._ready_for()
        row = (self._taken, self._weight, self._losses, ready, float(self._wish))
        try:
            buckets.launch_rest(row)
            rows = buckets.collect(self._given_up)
        except GroupBroken as broken:
            self._broke(str(broken))
            return
        samples = [int(row[0]) for row in rows]
        weight = sum(row[1] for row in rows)
        progress = state.progress
        if sum(samples):
            if weight > 0:
                buckets.correct(plan.global_batch / weight)
            state.optimizer.step()
            if state.schedule is not None:
                state.schedule.step()
            progress.loss = sum(row[2] for row in rows) / weight if weight > 0 else None
            self._move_on(samples)
            if self.end.loss_at_most is not None and progress.loss is not None:
                progress.finished |= progress.loss <= self.end.loss_at_most
        else:
            time.sleep(IDLE_STEP_SECONDS)
        progress.finished |= any(row[4] for row in rows)
        buckets.attach()
        began, self._step_ended = self._step_began, time.monotonic()
        self._status.position = progress.position
        if sum(samples):
            self._reports.step(
                progress.position,
                plan.number,
                (began, computed, self._step_ended),
                progress.loss,
                self._indexes,
            )
        self._checkpoint_if_due()
        distances = {int(row[3]) for row in rows}
        if len(distances) == 1 and (distance := distances.pop()) > 0:
            self._commit(plan.number + distance)

    def _move_on(self, samples: list[int]) -> None:
        """Move the position on by one step, in which each member trained on so many samples."""
        assert self._plan is not None  # noqa: S101 (a step is under one)
        was = self.position
        epoch, consumed = was.epoch, was.consumed + sum(samples)
        taken, inherited = dict(was.taken), was.inherited
        if self.program.data_mode == "on-demand":
            for worker_id, count in zip(self._plan.members, samples, strict=True):
                taken[worker_id] = taken.get(worker_id, 0) + count
        ended = consumed >= self._samples
        if ended:
            epoch, consumed, taken, inherited = epoch + 1, 0, {}, ()
        self.state.progress.position = msg.Position.model_construct(
            step=was.step + 1, epoch=epoch, consumed=consumed, taken=taken, inherited=inherited
        )
        if ended and self.evaluate is not None and self.end.metric is not None:
            self._evaluate()

    def _evaluate(self) -> None:
        """Ask for the metric, on one worker; the others learn of it with the next step."""
        if self._group is None or self._group.rank != 0 or self.evaluate is None:
            return
        self.state.model.eval()
        with torch.no_grad():
            metrics = self.evaluate()
        self.state.model.train()
        if self.end.metric not in metrics:
            raise UsageError(f"evaluate() returns no {self.end.metric!r}")
        assert self.end.at_least is not None  # noqa: S101 (set together)
        self._wish |= metrics[self.end.metric] >= self.end.at_least

    @property
    def _done(self) -> bool:
        if self.program.endless:
            return False
        position, total = self.position, self.program.total_iterations
        limits = [limit for limit in (total, self.end.max_iterations) if limit is not None]
        epochs = self.end.max_epochs
        return (
            self.state.progress.finished
            or any(position.step >= limit for limit in limits)
            or (epochs is not None and position.epoch >= epochs)
        )

    # --- changes ---------------------------------------------------------------------------

    def _planned(self, plan: msg.Plan) -> None:
        """A new plan has come (on the line's thread): begin to build its group."""
        for number, build in list(self._builds.items()):
            if number < plan.number and not build.over:
                build.abandon()
        if self._worker_id in plan.members:
            self._builds[plan.number] = GroupBuild(
                self._link,
                self._worker_id,
                plan,
                self.device,
                host=self.program.host,
                timeout_seconds=self.program.collective_timeout_seconds,
            )

    def _number(self) -> int:
        return 0 if self._plan is None else self._plan.number

    def _ready_for(self) -> int:
        """Return the distance to the newest plan if this worker could change over to it."""
        plan = self._orders.plan
        if plan is None or plan.number <= self._number() or plan.kind == "restart":
            return 0
        if plan.kind == "stop" or self._worker_id not in plan.members:
            self._promised = plan
            return plan.number - self._number()
        build = self._built(plan.number)
        if build is None:
            return 0
        self._promised = plan
        return plan.number - self._number()

    def _built(self, number: int) -> GroupBuild | None:
        """Return a build that is complete; tell the leader of one that has failed."""
        build = self._builds.get(number)
        if build is not None and build.failure is not None:
            self._link.say(msg.Broken(number=number, message=build.failure))
            del self._builds[number]
            return None
        return build if build is not None and build.group is not None else None

    def _given_up(self) -> bool:
        """Whether the leader says that the current group is over."""
        if self._orders.leave:
            return True
        plan = self._orders.plan
        return plan is not None and plan.kind == "restart" and plan.number > self._number()

    def _commit(self, number: int) -> None:
        """Change over: every worker has seen that every worker is ready."""
        plan = self._promised
        assert plan is not None and plan.number == number  # noqa: S101,PT018 (all promised it)
        self._reports.flush()
        if plan.kind == "stop":
            self._park(done=False, number=plan.number)
            return
        if self._worker_id not in plan.members:
            self._leave(plan.number)
        old, build = self._plan, self._builds[number]
        assert old is not None and build.group is not None  # noqa: S101,PT018 (it trained; it is built)
        if set(plan.members) - set(old.members):
            try:
                self.state.send(build.group, 0, self._given_up) if build.group.rank == 0 else (
                    self._receive(build.group, 0)
                )
            except GroupBroken as broken:
                self._enter(plan, build.group)
                self._broke(str(broken))
                return
        self._enter(plan, build.group)

    def _receive(self, group: Group, root: int) -> None:
        length, work = self.state.await_description(group, root)
        group.wait(work, self._given_up)
        self.state.receive(group, root, length, self._given_up)

    def _enter(self, plan: msg.Plan, group: Group) -> None:
        """Train under a plan from now on."""
        for number in [number for number in self._builds if number <= plan.number]:
            build = self._builds.pop(number)
            if number < plan.number:
                build.abandon()
                self._graveyard.bury(build.group)
        stopped = time.monotonic() - self._step_ended if self._trained else None
        self._graveyard.bury(self._group)
        self._plan, self._group, self._trained = plan, group, True
        self._set_learning_rate(plan)
        self._require_buckets().use(group)
        status = self._status
        status.plan, status.position = plan, self.position
        status.broken = status.parked = status.done = False
        status.stopped_seconds = stopped
        self._link.say(
            msg.Switched(number=plan.number, stopped_seconds=stopped, position=self.position)
        )
        if self._feed is not None:
            self._feed.resume(self.position, plan)
        self._graveyard.tidy(idle=False)

    def _set_learning_rate(self, plan: msg.Plan) -> None:
        """Scale every group's rate as the job's rate changes."""
        rate, progress = plan.learning_rate, self.state.progress
        if rate is None or rate == progress.learning_rate:
            return
        for group in self.state.optimizer.param_groups:
            known = progress.learning_rate
            group["lr"] = rate if known is None else group["lr"] * (rate / known)
        progress.learning_rate = rate

    def _broke(self, message: str) -> None:
        """A collective failed: let everything of the group go, and wait for the next."""
        self._check_leave()
        works = self._require_buckets().drop_group()
        group, self._group = self._group, None
        if group is not None:
            group.abort()
        self._graveyard.bury(group, works)
        self._pending = 0
        self._status.broken = True
        self._reports.flush()
        self._link.say(msg.Broken(number=self._number(), message=message))
        self._stand()

    # --- standing still --------------------------------------------------------------------

    def _park(self, *, done: bool, number: int | None = None) -> None:
        """Stand still with all others of the plan: nothing is left to train."""
        self._reports.flush()
        status = self._status
        status.parked, status.done = True, done
        self._link.say(
            msg.Parked(
                number=self._number() if number is None else number,
                done=done,
                position=self.position,
                loss=self.state.progress.loss,
            )
        )
        self._stand()

    def _stand(self) -> None:
        """Wait until this worker is part of a group that trains."""
        self._graveyard.tidy(idle=True)
        waiting: dict[int, tuple[GroupBuild, Tensor, Work]] = {}
        while True:
            self._check_leave()
            self._check_lonely()
            if self._orders.checkpoint and self._trained:
                self._orders.checkpoint = False
                self._writer.write_now(self.state)
            plan = self._orders.plan
            if plan is not None and plan.kind == "restart" and plan.number > self._number():
                if self._worker_id not in plan.members:
                    if self._trained:
                        self._leave(0)
                elif (build := self._built(plan.number)) is not None:
                    self._bury_waiting(waiting)
                    if self._restart(build):
                        return
                    continue
            if not self._trained and self._join_any(waiting):
                return
            if not waiting:
                self._link.wait(0.02)

    def _join_any(self, waiting: dict[int, tuple[GroupBuild, Tensor, Work]]) -> bool:
        """Wait a moment for the state to come over any group that might be switched to."""
        for number, build in list(self._builds.items()):
            if build.plan.kind == "switch" and number not in waiting:
                if self._built(number) is None or build.group is None:
                    continue
                length, work = self.state.await_description(build.group, 0)
                waiting[number] = (build, length, work)
        for number, (build, length, work) in list(waiting.items()):
            group = build.group
            assert group is not None  # noqa: S101 (it was built)
            try:
                if group.arrived(work):
                    self.state.receive(group, 0, length, self._given_up)
                    del waiting[number]
                    self._bury_waiting(waiting)
                    self._enter(build.plan, group)
                    return True
            except GroupBroken:
                del waiting[number]
                self._builds.pop(number, None)
                self._graveyard.bury(group, [work])
        return False

    def _bury_waiting(self, waiting: dict[int, tuple[GroupBuild, Tensor, Work]]) -> None:
        for number, (build, _, work) in waiting.items():
            self._builds.pop(number, None)
            self._graveyard.bury(build.group, [work])
        waiting.clear()

    def _restart(self, build: GroupBuild) -> bool:
        """Agree with the others of a restart plan on the newest state; whether it was done."""
        group = build.group
        assert group is not None  # noqa: S101 (it was built)
        standing = torch.zeros(group.size, 2, dtype=torch.int64, device=self.device)
        standing[group.rank] = torch.tensor([int(self._trained), self._standing_step()])
        try:
            group.wait(group.all_reduce(standing), self._superseded(build.plan))
            rows: list[list[int]] = standing.tolist()
            newest = max(rows)
            root = rows.index(newest)
            if not newest[0] and group.rank == root:
                self._begin()
            if not newest[0] or any(row != newest for row in rows):
                if group.rank == root:
                    self.state.send(group, root, self._superseded(build.plan))
                else:
                    length, work = self.state.await_description(group, root)
                    group.wait(work, self._superseded(build.plan))
                    self.state.receive(group, root, length, self._superseded(build.plan))
        except GroupBroken as broken:
            self._builds.pop(build.plan.number, None)
            self._graveyard.bury(group)
            self._link.say(msg.Broken(number=build.plan.number, message=str(broken)))
            return False
        self._enter(build.plan, group)
        return True

    def _standing_step(self) -> int:
        return self.position.step if self._trained else 0

    def _superseded(self, plan: msg.Plan) -> Callable[[], bool]:
        def newer() -> bool:
            newest = self._orders.plan
            return self._orders.leave or (newest is not None and newest.number > plan.number)

        return newer

    def _begin(self) -> None:
        """Take the state of the newest checkpoint, or that of a new job."""
        if self._fresh is not None:
            self.state.restore(self._fresh)
        if (loaded := load_newest(self._folder)) is not None:
            self.state.restore(loaded)
            self._writer.written_step = self.position.step

    # --- the beginning and the end ---------------------------------------------------------

    def _warm_up(self, reader: BatchReader) -> Iterator[Any]:
        """Run one step on nothing that counts, and leave no trace of it.

        Everything that is done for the first time (memory, kernels, the optimizer's state) is
        then done, with a batch of the size that is to come.
        """
        while (welcome := self._orders.welcome) is None:
            self._check_leave()
            self._check_lonely()
            self._link.wait(0.05)
        state = self.state
        self._fresh = state.snapshot()
        chances = (torch.get_rng_state(), random.getstate(), np.random.get_state())
        size = max(1, min(welcome.global_batch // welcome.workers, reader.samples))
        size = min(size, self.program.micro_batch_max or size)
        self._warming = True
        yield reader.batch(range(size))
        if self._warming:
            raise UsageError("call end_minibatch() once after each batch")
        state.optimizer.step()
        state.optimizer.zero_grad()
        # The optimizer's tensors stay: there will be a state to put into them.
        state.model.load_state_dict(self._fresh["model"])
        torch.set_rng_state(chances[0])
        random.setstate(chances[1])
        np.random.set_state(chances[2])

    def _checkpoint_if_due(self) -> None:
        ordered = self._orders.checkpoint
        first = self._group is not None and self._group.rank == 0
        if (ordered or (first and self._writer.due)) and self._writer.begin(self.state):
            self._orders.checkpoint = False

    def _check_leave(self) -> None:
        if self._orders.leave:
            self._leave(0)

    def _leave(self, number: int) -> None:
        self._reports.flush()
        self._writer.finish()
        position = self.position if self._state is not None else msg.Position()
        self._link.say_last(msg.Left(number=number, position=position))
        leave_process(0)

    def _check_lonely(self) -> None:
        if self._link.cut_seconds > LONELY_SECONDS:
            if self._trained:
                self._writer.write_now(self.state)
            sys.stderr.write("there is no leader: this worker leaves\n")
            leave_process(EXIT_NO_LEADER)

    def _require_buckets(self) -> GradientBuckets:
        if self._buckets is None:
            raise UsageError("call prepare(model, optimizer) first")
        return self._buckets
