"""The leader's core by itself: stories of one job, told in messages."""

from __future__ import annotations

import pytest
from tests.elastic.world import World

from resilin.elastic import messages as msg
from resilin.elastic.control import (
    Completed,
    Failed,
    GenerationReady,
    GenerationSwitched,
    Member,
    Progress,
    Resize,
    Stop,
    WorkerFailed,
    WorkerLeft,
)
from resilin.elastic.leader_state import Action, Durable, Hangup, LeaderState, Tell, TellAgent


def resize(generation: int, *names: str, attempt: int = 0, batch: int = 8, rate=None) -> Resize:
    members = tuple(Member(worker_id=n, server_id="s", gpu_index=i) for i, n in enumerate(names))
    return Resize(
        generation=generation,
        attempt=attempt,
        workers=members,
        global_batch=batch,
        learning_rate=rate,
    )


def at(step: int) -> msg.Position:
    return msg.Position(step=step, consumed=step)


def register(worker_id: str, **fields) -> msg.Register:
    return msg.Register(worker_id=worker_id, pid=1, **fields)


class Story:
    """A leader, and what it has said."""

    def __init__(self, leader: LeaderState | None = None) -> None:
        self.leader = leader or LeaderState(
            seed=0, partition_size=None, lease_seconds=10.0, now=0.0
        )
        self.actions: list[Action] = []

    def agent(self, command) -> None:
        self.actions = self.leader.agent_said(command)

    def hears(self, worker_id: str, message: msg.FromWorker) -> None:
        self.actions = self.leader.worker_said(worker_id, message)

    def closes(self, worker_id: str) -> None:
        self.actions = self.leader.closed(worker_id)

    def ticks(self, now: float) -> None:
        self.actions = self.leader.tick(now)

    def join(self, *names: str) -> None:
        for name in names:
            self.hears(name, register(name))
            self.hears(name, msg.Warm())

    def train(self, *names: str, step: int = 0) -> msg.Plan:
        """Everybody named changes over to the plan that was said last."""
        plan = self.leader.proposal
        assert plan is not None
        for name in names:
            stayed = name in self.leader._members
            said = msg.Switched(
                number=plan.number, stopped_seconds=0.25 if stayed else None, position=at(step)
            )
            self.hears(name, said)
        return plan

    def start(self, *names: str) -> msg.Plan:
        self.agent(resize(1, *names))
        self.join(*names)
        return self.train(*names)

    def told(self, kind: type) -> dict[str, msg.ToWorker]:
        """What of a kind was just said to whom."""
        return {
            action.worker_id: action.message
            for action in self.actions
            if isinstance(action, Tell) and isinstance(action.message, kind)
        }

    def reported(self, kind: type) -> list:
        return [
            action.message
            for action in self.actions
            if isinstance(action, TellAgent) and isinstance(action.message, kind)
        ]


# --- beginning and growing -----------------------------------------------------------------


def test_a_job_starts_once_every_wanted_worker_is_warm() -> None:
    story = Story()
    story.agent(resize(1, "a", "b"))
    story.hears("a", register("a"))
    assert story.told(msg.Welcome)["a"] == msg.Welcome(term=1, workers=2, global_batch=8)
    story.hears("a", msg.Warm())
    story.hears("b", register("b"))
    assert story.told(msg.Plan) == {}
    story.hears("b", msg.Warm())
    assert story.reported(GenerationReady) == [GenerationReady(generation=1)]
    plans = story.told(msg.Plan)
    assert set(plans) == {"a", "b"}
    assert plans["a"].kind == "restart"
    assert plans["a"].members == ("a", "b")
    story.train("a")
    assert story.reported(GenerationSwitched) == []
    story.hears("b", msg.Switched(number=plans["b"].number, position=at(0)))
    said = story.reported(GenerationSwitched)
    assert [(each.generation, each.workers, each.stopped_seconds) for each in said] == [(1, 2, 0)]


def test_a_worker_that_comes_before_its_resize_waits_for_it() -> None:
    story = Story()
    story.join("a")
    assert story.told(msg.Leave) == {}
    story.agent(resize(1, "a"))
    assert set(story.told(msg.Plan)) == {"a"}


def test_growing_keeps_old_ranks_first_and_reports_the_longest_stop() -> None:
    story = Story()
    story.start("b", "a")
    story.agent(resize(2, "c", "a", "b"))
    story.join("c")
    plan = story.leader.proposal
    assert plan is not None
    assert (plan.kind, plan.members) == ("switch", ("b", "a", "c"))
    story.hears("c", msg.Switched(number=plan.number, position=at(5)))
    story.hears("b", msg.Switched(number=plan.number, stopped_seconds=0.5, position=at(5)))
    story.hears("a", msg.Switched(number=plan.number, stopped_seconds=0.75, position=at(5)))
    (said,) = story.reported(GenerationSwitched)
    assert (said.generation, said.workers, said.stopped_seconds) == (2, 3, 0.75)
    assert said.iterations_done == 5


def test_a_newer_resize_replaces_a_pending_one_and_sends_the_unwanted_away() -> None:
    story = Story()
    story.start("a")
    story.agent(resize(2, "a", "b"))
    story.hears("b", register("b"))
    story.agent(resize(3, "a", "c"))
    assert set(story.told(msg.Leave)) == {"b"}
    story.hears("b", msg.Left())
    assert [said.worker_id for said in story.reported(WorkerLeft)] == ["b"]


def test_a_joiner_that_may_have_begun_to_train_is_not_sent_away_before_that_is_known() -> None:
    story = Story()
    story.start("a")
    story.agent(resize(2, "a", "b"))
    story.join("b")
    story.agent(resize(3, "a"))
    assert story.told(msg.Leave) == {}
    plan = story.leader.proposal
    assert plan is not None
    assert plan.members == ("a",)
    assert set(story.told(msg.Plan)) == {"a", "b"}, "b may have to agree to it"
    story.train("a")
    assert set(story.told(msg.Leave)) == {"b"}


def test_a_plan_that_was_replaced_may_still_have_been_committed() -> None:
    story = Story()
    story.start("a")
    story.agent(resize(2, "a", "b"))
    story.join("b")
    replaced = story.leader.proposal
    story.agent(resize(3, "a", "b", "c"))
    story.join("c")
    newest = story.leader.proposal
    assert replaced is not None
    assert newest is not None
    assert newest.number > replaced.number
    story.hears("a", msg.Switched(number=replaced.number, stopped_seconds=0.1, position=at(3)))
    assert story.leader.current == replaced
    assert story.leader.proposal == newest
    story.train("a", "b", "c", step=4)
    assert [said.generation for said in story.reported(GenerationSwitched)] == [3]


def test_batch_and_rate_change_at_the_same_boundary_even_without_new_workers() -> None:
    story = Story()
    story.start("a")
    story.agent(resize(2, "a", batch=16, rate=0.2))
    plan = story.leader.proposal
    assert plan is not None
    assert (plan.members, plan.global_batch, plan.learning_rate) == (("a",), 16, 0.2)


def test_when_nobody_stays_one_old_worker_hands_the_state_on_first() -> None:
    story = Story()
    story.start("a", "b")
    story.agent(resize(2, "c", "d"))
    story.join("c", "d")
    plan = story.leader.proposal
    assert plan is not None
    assert plan.members == ("a", "c", "d")
    story.train("a", "c", "d", step=2)
    assert story.reported(GenerationSwitched) == []
    plan = story.leader.proposal
    assert plan is not None
    assert plan.members == ("c", "d")
    story.train("c", "d", step=3)
    assert [said.workers for said in story.reported(GenerationSwitched)] == [2]


# --- leaving and dying ---------------------------------------------------------------------


def test_a_worker_that_left_by_a_plan_tells_that_it_was_committed() -> None:
    story = Story()
    story.start("a", "b")
    story.agent(resize(2, "b"))
    plan = story.leader.proposal
    assert plan is not None
    story.hears("a", msg.Left(number=plan.number, position=at(7)))
    assert story.leader.current == plan
    assert story.leader.proposal is None, "nobody is missing: no restart"
    story.closes("a")
    assert story.reported(WorkerFailed) == []


def test_survivors_of_a_death_get_a_restart_plan_at_once() -> None:
    story = Story()
    story.start("a", "b", "c")
    story.closes("a")
    (failed,) = story.reported(WorkerFailed)
    assert (failed.worker_id, failed.survivors) == ("a", 2)
    plans = story.told(msg.Plan)
    assert {plan.kind for plan in plans.values()} == {"restart"}
    assert plans["b"].members == ("b", "c")
    story.train("b", "c", step=4)
    assert story.reported(GenerationSwitched) == [], "not what the agent wants yet"
    story.agent(resize(1, "d", "b", "c", attempt=1))
    story.join("d")
    story.train("b", "c", "d", step=9)
    assert [said.workers for said in story.reported(GenerationSwitched)] == [3]


def test_a_second_death_during_the_recovery_begins_it_again() -> None:
    story = Story()
    story.start("a", "b", "c")
    story.closes("a")
    story.closes("b")
    plan = story.leader.proposal
    assert plan is not None
    assert (plan.kind, plan.members) == ("restart", ("c",))


def test_when_the_last_worker_dies_the_job_stands_at_its_checkpoint() -> None:
    story = Story()
    story.start("a")
    story.hears("a", msg.Checkpointed(step=40))
    story.hears(
        "a",
        msg.Steps(number=1, position=at(55), count=5, step_seconds=0.1, compute_seconds=0.1),
    )
    story.closes("a")
    (failed,) = story.reported(WorkerFailed)
    assert (failed.survivors, failed.iterations_done) == (0, 40)
    story.agent(resize(2, "b"))
    story.join("b")
    plan = story.leader.proposal
    assert plan is not None
    assert plan.kind == "restart"


def test_a_failed_collective_without_a_death_is_repeated_by_all_after_a_while() -> None:
    story = Story()
    story.start("a", "b")
    story.hears("a", msg.Broken(number=1, message="connection reset"))
    assert story.leader.proposal is None
    story.ticks(0.5)
    story.ticks(1.2)
    plan = story.leader.proposal
    assert plan is not None
    assert (plan.kind, plan.members) == ("restart", ("a", "b"))


def test_a_resize_does_not_hide_that_a_collective_has_failed() -> None:
    story = Story()
    story.start("a", "b")
    story.hears("a", msg.Broken(number=1, message="connection reset"))
    story.agent(resize(2, "b"))
    story.ticks(1.2)
    plan = story.leader.proposal
    assert plan is not None
    assert plan.kind == "restart"


def test_a_collective_that_fails_while_a_change_is_under_way_restarts_as_well() -> None:
    story = Story()
    story.start("a", "b")
    story.agent(resize(2, "b"))
    story.hears("a", msg.Broken(number=1, message="connection reset"))
    story.ticks(1.2)
    plan = story.leader.proposal
    assert plan is not None
    assert (plan.kind, plan.members) == ("restart", ("b",))
    story.train("b", step=3)
    plan = story.leader.proposal
    assert plan is not None
    assert (plan.kind, plan.generation) == ("switch", 2)


def test_a_silent_worker_loses_its_lease_and_its_name() -> None:
    story = Story()
    story.start("a", "b")
    for second in range(1, 12):
        story.hears("b", msg.Heartbeat())
        story.ticks(float(second))
    assert "a" not in story.leader.workers
    assert story.leader.proposal is not None
    story.hears("a", register("a"))
    assert story.told(msg.Leave) == {"a": msg.Leave(fenced=True)}


def test_a_leader_that_stood_still_itself_blames_nobody() -> None:
    story = Story()
    story.start("a")
    story.ticks(100.0)
    assert "a" in story.leader.workers
    assert not any(isinstance(action, Hangup) for action in story.actions)


# --- late, repeated, reordered -------------------------------------------------------------


def test_what_is_said_of_an_older_plan_changes_nothing() -> None:
    story = Story()
    first = story.start("a")
    story.agent(resize(2, "a", "b"))
    story.join("b")
    second = story.train("a", "b", step=3)
    before = story.leader.durable()
    story.hears("a", msg.Switched(number=first.number, position=at(0)))
    story.hears("a", msg.Broken(number=first.number, message="late"))
    story.hears("b", msg.Switched(number=99, position=at(50)))
    story.hears("a", msg.Parked(number=first.number, done=True, position=at(1)))
    story.hears("nobody", msg.Warm())
    story.ticks(5.0)
    assert story.leader.durable() == before
    assert story.leader.current == second
    assert story.leader.proposal is None


def test_repeated_and_older_commands_change_nothing() -> None:
    story = Story()
    story.start("a")
    story.agent(resize(3, "a", "b"))
    story.join("b")
    plan = story.leader.proposal
    for command in (
        resize(3, "a", "b"),
        resize(2, "a", "x"),
        Stop(generation=2, keep_progress=True),
    ):
        story.agent(command)
        assert story.actions == []
    assert story.leader.proposal == plan


def test_a_plan_that_is_said_twice_is_switched_to_once() -> None:
    world = World(3, samples=40, batch=8)
    world.resize(2)
    world.run_until(lambda: world.switched(1))
    world.resize(3)
    for worker in world.alive():
        if worker.newest is not None:
            worker.inbox.append(worker.newest)
    world.run_until(lambda: world.switched(2))
    assert len([said for said in world.reports if isinstance(said, GenerationSwitched)]) == 2


# --- the end -------------------------------------------------------------------------------


def test_a_job_is_complete_once_its_last_step_is_on_disk() -> None:
    story = Story()
    story.start("a", "b")
    story.hears("a", msg.Parked(number=1, done=True, position=at(100), loss=0.5))
    assert story.told(msg.CheckpointNow) == {}
    story.hears("b", msg.Parked(number=1, done=True, position=at(100), loss=0.5))
    (writer,) = story.told(msg.CheckpointNow)
    assert story.reported(Completed) == []
    story.hears(writer, msg.Checkpointed(step=100))
    assert story.reported(Completed) == [Completed(generation=1, iterations_done=100, loss=0.5)]
    assert set(story.told(msg.Leave)) == {"a", "b"}
    story.hears("a", msg.Left(position=at(100)))
    story.closes("b")
    assert story.reported(WorkerFailed) == []
    assert story.leader.over


def test_if_the_writer_of_the_last_checkpoint_dies_another_writes_it() -> None:
    story = Story()
    story.start("a", "b")
    for name in ("a", "b"):
        story.hears(name, msg.Parked(number=1, done=True, position=at(100)))
    (writer,) = story.told(msg.CheckpointNow)
    story.closes(writer)
    (left,) = story.told(msg.Plan)
    story.train(left, step=100)
    number = story.leader.current.number if story.leader.current else 0
    story.hears(left, msg.Parked(number=number, done=True, position=at(100)))
    assert set(story.told(msg.CheckpointNow)) == {left}


def test_a_stop_keeps_progress_and_a_resize_takes_it_up_again() -> None:
    world = World(5, samples=40, batch=8)
    world.resize(2)
    world.run_until(lambda: world.epochs_done >= 1)
    world.stop()
    world.run_until(lambda: not world.alive())
    assert world.checkpoint is not None
    kept = world.checkpoint.position.step
    world.resize(3)
    world.run_until(lambda: world.switched(3))
    back = [said for said in world.reports if isinstance(said, GenerationSwitched)][-1]
    assert back.iterations_done == kept


def test_a_stop_without_progress_writes_nothing() -> None:
    world = World(6, samples=40, batch=8)
    world.resize(2)
    world.run_until(lambda: world.epochs_done >= 1)
    world.stop(keep=False)
    world.run_until(lambda: not world.alive())
    assert world.checkpoint is None


def test_a_stop_that_was_taken_back_after_the_workers_had_stopped() -> None:
    story = Story()
    story.start("a")
    story.agent(Stop(generation=2, keep_progress=True))
    stop = story.leader.proposal
    assert stop is not None
    story.agent(resize(3, "a"))
    story.hears("a", msg.Parked(number=stop.number, done=False, position=at(6)))
    (writer,) = story.told(msg.Plan)
    plan = story.told(msg.Plan)[writer]
    assert (plan.kind, plan.members) == ("restart", ("a",))


def test_an_error_in_the_users_code_ends_the_job_for_everybody() -> None:
    story = Story()
    story.start("a", "b")
    story.hears("b", msg.UserFailed(reason="UserCodeFailed", message="ValueError: no"))
    assert story.reported(Failed) == [
        Failed(generation=1, reason="UserCodeFailed", message="ValueError: no")
    ]
    assert set(story.told(msg.Leave)) == {"a", "b"}
    story.closes("b")
    assert story.reported(WorkerFailed) == []
    story.actions = story.leader.agent_connected()
    assert len(story.reported(Failed)) == 1, "whoever comes later is told as well"


def test_progress_is_reported_once_a_second_with_each_workers_means() -> None:
    story = Story()
    story.start("a", "b")
    story.ticks(1.0)
    for name, compute in (("a", 0.02), ("b", 0.05)):
        story.hears(
            name,
            msg.Steps(
                number=1,
                position=at(20),
                count=20,
                step_seconds=0.06,
                compute_seconds=compute,
                loss=1.5,
            ),
        )
    story.ticks(1.5)
    assert story.reported(Progress) == []
    story.ticks(2.0)
    (progress,) = story.reported(Progress)
    assert (progress.iterations_done, progress.iterations_per_second) == (20, 20)
    assert {each.worker_id: each.compute_seconds for each in progress.samples} == {
        "a": pytest.approx(0.02),
        "b": pytest.approx(0.05),
    }
    assert progress.loss == 1.5


# --- succession ----------------------------------------------------------------------------


def successor(story: Story, now: float = 0.0) -> Story:
    kept = Durable.model_validate_json(story.leader.durable().model_dump_json())
    leader = LeaderState(seed=0, partition_size=None, lease_seconds=10.0, now=now, term=2)
    leader.succeed(kept)
    return Story(leader)


def test_a_successor_waits_for_the_workers_and_disturbs_nobody() -> None:
    first = Story()
    plan = first.start("a", "b")
    story = successor(first)
    story.hears("a", register("a", warm=True, plan=plan, position=at(30)))
    story.ticks(1.0)
    assert story.leader.proposal is None
    story.hears("b", register("b", warm=True, plan=plan, position=at(31)))
    assert [said.generation for said in story.reported(GenerationSwitched)] == [1]
    assert story.leader.proposal is None
    assert story.leader.position.step == 31


def test_a_successor_gives_up_who_does_not_come_back() -> None:
    first = Story()
    plan = first.start("a", "b")
    story = successor(first)
    story.hears("a", register("a", warm=True, plan=plan, broken=True, position=at(30)))
    for second in range(1, 11):
        story.hears("a", msg.Heartbeat())
        story.ticks(float(second))
    (failed,) = story.reported(WorkerFailed)
    assert (failed.worker_id, failed.survivors) == ("b", 1)
    assert story.leader.proposal is not None
    assert story.leader.proposal.members == ("a",)


def test_a_successor_learns_of_a_switch_that_happened_without_a_leader() -> None:
    first = Story()
    first.start("a")
    first.agent(resize(2, "a", "b"))
    first.join("b")
    plan = first.leader.proposal
    story = successor(first)
    story.hears("a", register("a", warm=True, plan=plan, stopped_seconds=0.2, position=at(8)))
    story.hears("b", register("b", warm=True, plan=plan, position=at(8)))
    assert story.leader.current == plan
    (said,) = story.reported(GenerationSwitched)
    assert (said.generation, said.stopped_seconds) == (2, 0.2)


def test_a_successor_numbers_its_plans_above_all_before() -> None:
    first = Story()
    plan = first.start("a")
    story = successor(first)
    story.hears("a", register("a", warm=True, plan=plan, position=at(8)))
    story.agent(resize(2, "a", "b"))
    story.join("b")
    assert story.leader.proposal is not None
    assert story.leader.proposal.number > plan.number


def test_the_end_of_a_job_outlives_its_leader() -> None:
    first = Story()
    first.start("a")
    first.hears("a", msg.UserFailed(reason="UserCodeFailed", message="no"))
    story = successor(first)
    story.actions = story.leader.agent_connected()
    assert len(story.reported(Failed)) == 1
