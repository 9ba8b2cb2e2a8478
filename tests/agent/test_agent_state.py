"""The core of a job on a node: what happened goes in, what to do comes out; no process at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from resilin.agent.agent_state import JobMachine
from resilin.contracts import events as ev
from resilin.elastic import control as ctl

LIMITS = Limits(
    max_failures=2,
    graceful_stop_seconds=30.0,
    kill_after_seconds=5.0,
    start_seconds=100.0,
    hang_seconds=60.0,
    word_seconds=2.0,
)
KILLED, RAISED, LEFT = Exit(-9), Exit(3, "ValueError: no"), Exit(0)


def slots(*indexes: int) -> tuple[Slot, ...]:
    return tuple(Slot("s1", index) for index in indexes)


class Job:
    """A machine with a clock, and the processes that it believes in."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.machine = JobMachine("a", limits)
        self.now = 0.0
        self.workers: dict[str, Slot] = {}
        self.leader = False
        self.done: list[Action] = []

    def put(self, happened: Input) -> list[Action]:
        actions = self.machine.step(happened, self.now)
        for action in actions:
            match action:
                case StartWorker(worker_id, slot):
                    assert worker_id not in self.workers
                    assert slot not in self.workers.values(), "a slot holds one worker"
                    self.workers[worker_id] = slot
                case StartLeader():
                    assert not self.leader
                    self.leader = True
                case EndWorker(worker_id, _):
                    assert worker_id in self.workers, "it ends what is there"
                case EndLeader():
                    assert self.leader
                case Report(ev.WorkersReleased(gpus=gpus)):
                    for slot in self.workers.values():
                        assert slot.gpu_index not in gpus.get(slot.server_id, ())
                case _:
                    pass
        self.done += actions
        return actions

    def instruct(self, generation: int, *indexes: int, leaving: Sequence[int] = ()) -> list[Action]:
        return self.put(Instructed(generation, slots(*indexes), slots(*leaving)))

    def end(self, worker_id: str, how: Exit) -> list[Action]:
        del self.workers[worker_id]
        return self.put(WorkerEnded(worker_id, how))

    def end_leader(self, how: Exit = KILLED) -> list[Action]:
        self.leader = False
        return self.put(LeaderEnded(how))

    def say(self, message: ctl.ControlMessage) -> list[Action]:
        return self.put(Said(message))

    def switch(self, generation: int, done: float = 0.0, stopped: float = 0.0) -> list[Action]:
        return self.say(
            ctl.GenerationSwitched(
                generation=generation, workers=1, stopped_seconds=stopped, iterations_done=done
            )
        )

    def progress(self, generation: int, done: float, saved: float = 0.0) -> list[Action]:
        return self.say(
            ctl.Progress(
                generation=generation,
                workers=1,
                iterations_done=done,
                iterations_per_second=1.0,
                checkpoint_iterations=saved,
            )
        )

    def tick(self, seconds: float = 0.0) -> list[Action]:
        self.now += seconds
        return self.put(Ticked())

    def worker(self, index: int) -> str:
        return next(name for name, slot in self.workers.items() if slot.gpu_index == index)


def reports(actions: Sequence[Action]) -> list[str]:
    return [type(action.report).__name__ for action in actions if isinstance(action, Report)]


def report(actions: Sequence[Action], kind: type[ev.Event]) -> ev.Event:
    (found,) = [a.report for a in actions if isinstance(a, Report) and isinstance(a.report, kind)]
    return found


def training(*indexes: int) -> Job:
    job = Job()
    job.instruct(1, *indexes)
    job.switch(1)
    return job


# --- starting, growing, shrinking ------------------------------------------------------------


def test_a_first_instruction_starts_a_leader_and_a_worker_in_each_slot() -> None:
    job = Job()
    actions = job.instruct(1, 0, 2)
    assert StartLeader(successor=False) in actions
    assert {slot.gpu_index for slot in job.workers.values()} == {0, 2}
    (said,) = [action.message for action in actions if isinstance(action, Say)]
    assert isinstance(said, ctl.Resize)
    assert {member.worker_id for member in said.workers} == set(job.workers)
    assert job.put(Linked()) == [Say(said)], "said again to whoever listens now"


def test_growth_keeps_who_is_there() -> None:
    job = training(0)
    before = dict(job.workers)
    job.instruct(2, 0, 1)
    assert before.items() <= job.workers.items()
    assert not any(isinstance(action, EndWorker) for action in job.done)


def test_who_leaves_is_given_its_time_from_the_switch_on() -> None:
    job = training(0, 1)
    leaver = job.worker(1)
    job.instruct(2, 0, leaving=[1])
    assert job.tick(50.0) == [], "the state is handed over at the switch, not before"
    job.switch(2, 10.0)
    assert job.tick(29.0) == []
    assert job.tick(2.0) == [EndWorker(leaver, at_once=False)]
    assert job.tick(6.0) == [EndWorker(leaver, at_once=True)]
    assert reports(job.end(leaver, KILLED)) == ["WorkersReleased"]


def test_where_a_leaver_got_to_may_be_told_after_its_end() -> None:
    job = training(0)
    leaver = job.worker(0)
    job.instruct(2, leaving=[0])
    assert job.end(leaver, LEFT) == []
    actions = job.say(ctl.WorkerLeft(worker_id=leaver, iterations_done=70.0))
    released = report(actions, ev.WorkersReleased)
    assert isinstance(released, ev.WorkersReleased)
    assert released.iterations_done == 70.0


def test_a_slot_that_is_given_back_waits_for_who_was_in_it() -> None:
    job = training(0, 1)
    leaver = job.worker(1)
    job.instruct(2, 0, leaving=[1])
    job.switch(2)
    job.instruct(3, 0, 1)
    assert list(job.workers.values()).count(Slot("s1", 1)) == 1
    job.end(leaver, KILLED)
    assert job.worker(1) != leaver


def test_who_has_not_left_yet_stays_if_it_is_wanted_again() -> None:
    job = training(0, 1)
    there = dict(job.workers)
    job.instruct(2, 0, leaving=[1])
    job.instruct(3, 0, 1)
    assert job.workers == there


def test_a_suspended_job_begins_anew_only_when_nothing_of_it_is_left() -> None:
    job = training(0)
    old = job.worker(0)
    job.instruct(2, leaving=[0])
    job.say(ctl.WorkerLeft(worker_id=old, iterations_done=5.0))
    job.instruct(3, 1)
    assert list(job.workers) == [old]
    job.end(old, LEFT)
    assert job.leader, "its leader goes next"
    actions = job.end_leader(LEFT)
    assert StartLeader(successor=False) in actions
    assert list(job.workers.values()) == [Slot("s1", 1)]
    assert "WorkerLost" not in reports(job.done)


def test_instructions_that_are_repeated_or_out_of_date_change_nothing() -> None:
    job = training(0, 1)
    assert job.instruct(1, 0, 1) == []
    job.instruct(2, 0, 1, 2)
    assert job.instruct(1, 3) == []
    assert job.instruct(2, 0, 1, 2) == []


def test_gpus_that_nobody_ever_was_on_are_released_at_once() -> None:
    job = Job()
    assert reports(job.instruct(4, leaving=[2])) == ["WorkersReleased"]
    assert job.machine.idle


# --- what is told ----------------------------------------------------------------------------


def test_a_switch_is_told_once_and_progress_now_and_then() -> None:
    job = Job()
    job.instruct(1, 0)
    assert reports(job.say(ctl.GenerationReady(generation=1))) == ["WorkersReady"]
    assert reports(job.switch(1, stopped=0.5)) == ["GenerationSwitched"]
    assert reports(job.switch(1)) == []
    assert reports(job.progress(1, 1.0)) == ["StepSample", "ProgressReported"]
    job.now += 1.0
    assert reports(job.progress(1, 2.0)) == ["StepSample"]
    job.now += 5.0
    assert reports(job.progress(1, 3.0)) == ["StepSample", "ProgressReported"]
    assert reports(job.progress(1, 3.0)) == [], "nothing new"
    assert reports(job.progress(0, 9.0)) == [], "of a generation that is over"


def test_progress_that_is_repeated_after_a_death_is_not_told_backwards() -> None:
    job = training(0, 1)
    job.progress(1, 100.0)
    job.instruct(2, 0)
    switched = report(job.switch(2, 99.0), ev.GenerationSwitched)
    assert isinstance(switched, ev.GenerationSwitched)
    assert switched.iterations_done == 100.0


def test_the_end_is_told_once_and_everything_is_released() -> None:
    job = training(0, 1)
    done = ctl.Completed(generation=1, iterations_done=100.0)
    assert reports(job.say(done)) == ["JobCompleted"]
    assert reports(job.say(done)) == []
    for worker_id in list(job.workers):
        job.end(worker_id, LEFT)
    job.end_leader(LEFT)
    assert job.machine.idle
    released = [a.report for a in job.done if isinstance(a, Report)][1:]
    assert [each.gpus for each in released if isinstance(each, ev.WorkersReleased)] == [
        {"s1": (0,)},
        {"s1": (1,)},
    ]
    assert job.instruct(2, 0) == [], "a generation placed too late"


def test_there_is_one_end_and_the_first_one_counts() -> None:
    job = training(0)
    job.say(ctl.Completed(generation=1, iterations_done=100.0))
    assert reports(job.say(ctl.Failed(generation=1, reason="Late", message="no"))) == []
    assert reports(job.end(job.worker(0), RAISED)) == ["WorkersReleased"]


def test_where_it_stands_can_be_told_again() -> None:
    job = Job()
    assert job.machine.restated() == []
    job.instruct(1, 0)
    job.switch(1, 5.0)
    assert [type(each).__name__ for each in job.machine.restated()] == [
        "GenerationSwitched",
        "ProgressReported",
    ]
    job.say(ctl.Failed(generation=1, reason="UserCodeFailed", message="no"))
    (failed,) = job.machine.restated()
    assert isinstance(failed, ev.JobFailed)


# --- failures --------------------------------------------------------------------------------


def lost_by_leader(worker_id: str, survivors: int, done: float = 40.0) -> ctl.WorkerFailed:
    return ctl.WorkerFailed(
        worker_id=worker_id,
        message="its connection closed",
        survivors=survivors,
        iterations_done=done,
    )


def test_who_dies_beside_others_is_replaced_and_told_once_it_trains() -> None:
    job = training(0, 1)
    victim = job.worker(1)
    job.say(lost_by_leader(victim, survivors=1))
    actions = job.end(victim, KILLED)
    assert reports(actions) == []
    (said,) = [action.message for action in actions if isinstance(action, Say)]
    assert isinstance(said, ctl.Resize)
    assert (said.generation, said.attempt) == (1, 1)
    assert job.worker(1) != victim
    replaced = report(job.switch(1), ev.WorkerReplaced)
    assert isinstance(replaced, ev.WorkerReplaced)
    assert (replaced.gpu_index, replaced.failures) == (1, 1)


def test_the_leaders_word_is_waited_for_but_not_for_ever() -> None:
    job = training(0, 1)
    job.end(job.worker(1), KILLED)
    assert len(job.workers) == 1
    job.tick(2.0)
    assert len(job.workers) == 2


def test_who_is_given_up_by_the_leader_is_ended() -> None:
    job = training(0, 1)
    victim = job.worker(1)
    assert job.say(lost_by_leader(victim, survivors=1)) == []
    assert job.tick(1.0) == [], "it may be just ending, and say how"
    assert job.tick(1.0) == [EndWorker(victim, at_once=True)]


def test_without_survivors_the_generation_is_lost() -> None:
    job = training(0, 1)
    job.progress(1, 50.0, saved=40.0)
    first, second = job.worker(0), job.worker(1)
    job.say(lost_by_leader(first, survivors=0))
    actions = job.end(first, KILLED)
    lost = report(actions, ev.WorkerLost)
    assert isinstance(lost, ev.WorkerLost)
    assert (lost.generation, lost.iterations_done, lost.failures) == (1, 40.0, 1)
    assert EndWorker(second, at_once=True) in actions
    job.end(second, KILLED)
    job.end_leader(KILLED)
    assert job.machine.idle
    assert job.instruct(1, 0, 1) == [], "it is not begun again by itself"
    job.instruct(2, 0)
    assert len(job.workers) == 1


def test_a_failure_too_many_ends_the_job() -> None:
    job = training(0, 1)
    for _ in range(2):
        victim = job.worker(1)
        job.say(lost_by_leader(victim, survivors=1))
        job.end(victim, KILLED)
        job.switch(1)
    victim = job.worker(1)
    job.say(lost_by_leader(victim, survivors=1))
    failed = report(job.end(victim, Exit(-9, "the last line")), ev.JobFailed)
    assert isinstance(failed, ev.JobFailed)
    assert failed.reason == "TooManyFailures"
    assert failed.message.endswith("the last line")


def test_planned_changes_never_count_as_failures() -> None:
    job = training(0, 1)
    for generation in range(2, 12):
        leaver = job.worker(1) if generation % 2 == 0 else None
        job.instruct(generation, *((0,) if generation % 2 == 0 else (0, 1)), leaving=[1])
        job.switch(generation)
        if leaver is not None:
            job.end(leaver, KILLED)
    assert job.machine.failures == 0
    assert "JobFailed" not in reports(job.done)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (RAISED, "UserCodeFailed"),
        (Exit(3, "MemoryError"), "OutOfMemory"),
        (Exit(1, "RuntimeError: DefaultCPUAllocator: can't allocate memory"), "OutOfMemory"),
        (Exit(-9, out_of_memory=True), "OutOfMemory"),
        (Exit(1, "no such directory", not_started=True), "CannotStart"),
    ],
)
def test_what_would_happen_again_ends_a_job_at_once(how: Exit, reason: str) -> None:
    job = training(0, 1)
    failed = report(job.end(job.worker(0), how), ev.JobFailed)
    assert isinstance(failed, ev.JobFailed)
    assert failed.reason == reason


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("UserCodeFailed", "ValueError: no", "UserCodeFailed"),
        ("UserCodeFailed", "torch.OutOfMemoryError: CUDA out of memory.", "OutOfMemory"),
        ("SomethingNew", "", "UserCodeFailed"),
        ("Hung", "", "Hung"),
    ],
)
def test_the_leaders_reasons_become_those_of_the_list(
    reason: str, message: str, expected: str
) -> None:
    job = training(0)
    said = ctl.Failed(generation=1, reason=reason, message=message)
    failed = report(job.say(said), ev.JobFailed)
    assert isinstance(failed, ev.JobFailed)
    assert failed.reason == expected


def test_no_step_for_far_longer_than_steps_take_is_a_hang() -> None:
    job = training(0)
    job.progress(1, 10.0, saved=8.0)
    assert job.tick(59.0) == []
    lost = report(job.tick(2.0), ev.WorkerLost)
    assert isinstance(lost, ev.WorkerLost)
    assert lost.iterations_done == 8.0


def test_slow_steps_are_no_hang() -> None:
    job = training(0)
    slow = ctl.Progress(
        generation=1,
        workers=1,
        iterations_done=1.0,
        iterations_per_second=0.01,
        checkpoint_iterations=0,
    )
    job.say(slow)
    assert job.tick(1900.0) == []
    assert "WorkerLost" in reports(job.tick(200.0))


def test_who_does_not_come_is_replaced_while_the_others_train_on() -> None:
    job = training(0)
    job.instruct(2, 0, 1)
    late = job.worker(1)
    for moment in range(101):
        job.now += 1.0
        job.progress(1, float(moment))
    assert job.tick() == [EndWorker(late, at_once=True)]
    job.end(late, KILLED)
    job.tick(2.0)
    assert job.worker(1) != late
    assert job.machine.failures == 1


def test_a_job_that_never_trains_cannot_start() -> None:
    job = Job()
    for generation in range(1, 4):
        job.instruct(generation, 0)
        job.tick(101.0)
        job.end(job.worker(0), KILLED)
        job.tick(0.0)
        if job.leader:
            job.end_leader()
    assert reports(job.done).count("WorkerLost") == 2
    failed = report(job.done, ev.JobFailed)
    assert isinstance(failed, ev.JobFailed)
    assert failed.reason == "CannotStart"


def test_a_leader_is_succeeded_while_there_are_workers() -> None:
    job = training(0)
    assert job.end_leader() == [StartLeader(successor=True)]
    assert list(job.workers.values()) == [Slot("s1", 0)]
    for _ in range(2):
        failed = reports(job.end_leader())
    assert failed == ["JobFailed"]


def test_progress_that_could_not_be_kept_is_owned_up_to() -> None:
    job = training(0)
    worker = job.worker(0)
    job.progress(1, 50.0, saved=40.0)
    job.instruct(2, leaving=[0])
    job.tick(31.0)
    job.tick(6.0)
    job.end(worker, KILLED)
    lost = report(job.end_leader(), ev.WorkerLost)
    assert isinstance(lost, ev.WorkerLost)
    assert (lost.generation, lost.iterations_done) == (2, 40.0)


def test_what_an_earlier_agent_ran_is_lost_up_to_its_checkpoint() -> None:
    job = Job()
    lost = report(job.put(Found(7, 30.0)), ev.WorkerLost)
    assert isinstance(lost, ev.WorkerLost)
    assert (lost.generation, lost.iterations_done) == (7, 30.0)
    assert job.instruct(7, 0, 1) == []
    job.instruct(8, 0)
    assert len(job.workers) == 1


# --- whatever happens ------------------------------------------------------------------------

EXITS = st.sampled_from([KILLED, RAISED, LEFT, Exit(1, "no"), Exit(-9, out_of_memory=True)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("instruct"), st.integers(0, 2), st.sets(st.integers(0, 3), max_size=4)),
        st.tuples(st.just("over")),
        st.tuples(st.just("exit"), st.integers(0, 3), EXITS),
        st.tuples(st.just("leader exit")),
        st.tuples(st.just("switch"), st.integers(-1, 0)),
        st.tuples(st.just("progress"), st.integers(-1, 0), st.floats(0, 1000)),
        st.tuples(st.just("left"), st.integers(0, 3)),
        st.tuples(st.just("failed"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("completed")),
        st.tuples(st.just("user failed")),
        st.tuples(st.just("link")),
        st.tuples(st.just("tick"), st.sampled_from([0.5, 3.0, 40.0, 120.0])),
    ),
    max_size=60,
)


def told(job: Job, step: tuple[object, ...], generation: int) -> int:
    """Let one thing happen; return the newest generation."""
    names = list(job.workers)
    match step:
        case ("instruct", int(ahead), set(indexes)):
            generation += ahead
            job.put(Instructed(generation, slots(*sorted(indexes)), slots(0, 1, 2, 3)))
        case ("over",):
            job.put(Instructed(generation, (), slots(0, 1, 2, 3), ended=True))
        case ("exit", int(place), Exit() as how) if names:
            job.end(names[place % len(names)], how)
        case ("leader exit",) if job.leader:
            job.end_leader()
        case ("switch", int(behind)):
            job.switch(generation + behind, 10.0)
        case ("progress", int(behind), float(done)):
            job.progress(generation + behind, done, saved=done / 2)
        case ("left", int(place)) if names:
            job.say(ctl.WorkerLeft(worker_id=names[place % len(names)], iterations_done=20.0))
        case ("failed", int(place), int(survivors)) if names:
            job.say(lost_by_leader(names[place % len(names)], survivors))
        case ("completed",):
            job.say(ctl.Completed(generation=generation, iterations_done=1000.0))
        case ("user failed",):
            job.say(ctl.Failed(generation=generation, reason="UserCodeFailed", message="no"))
        case ("link",):
            job.put(Linked())
        case ("tick", float(seconds)):
            job.tick(seconds)
        case _:
            pass
    return generation


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_whatever_happens_it_ends_when_it_is_told_to(steps: list[tuple[object, ...]]) -> None:
    job, generation = Job(), 1
    for step in steps:
        generation = told(job, step, generation)
    # The job ends; every process that is asked by force to end, ends.
    job.put(Instructed(generation, (), slots(0, 1, 2, 3), ended=True))
    for _ in range(10):
        for action in job.tick(40.0):
            if isinstance(action, EndWorker) and action.at_once:
                job.end(action.worker_id, KILLED)
        for name in list(job.workers):
            if job.machine._workers[name].killed:
                job.end(name, KILLED)
        if job.leader and not job.workers:
            job.end_leader()
    assert job.workers == {}
    assert not job.leader
    assert job.machine.idle
    assert reports(job.done).count("JobCompleted") + reports(job.done).count("JobFailed") <= 1
    after = reports(job.done)
    if "JobFailed" in after:
        assert "WorkerReplaced" not in after[after.index("JobFailed") :]
    free = {Slot(server, index) for action in job.done for server, index in _released(action)}
    assert free >= set(slots(0, 1, 2, 3)), "everything that the log waits for is released"


def _released(action: Action) -> list[tuple[str, int]]:
    if isinstance(action, Report) and isinstance(action.report, ev.WorkersReleased):
        return [(s, index) for s, indexes in action.report.gpus.items() for index in indexes]
    return []


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_the_same_happenings_give_the_same_actions(steps: list[tuple[object, ...]]) -> None:
    runs = []
    for _ in range(2):
        job, generation = Job(), 1
        for step in steps:
            generation = told(job, step, generation)
        runs.append(job.done)
    assert runs[0] == runs[1]
