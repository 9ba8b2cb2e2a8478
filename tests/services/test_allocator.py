"""The allocator: a whole plan whenever something changed, and never a change overlooked."""

from __future__ import annotations

import pytest
from tests.support.events import (
    admitted,
    cancellation_asked,
    completed,
    configured,
    cordoned,
    curves_imported,
    joined,
    lost,
    measured,
    placed,
    planned,
    progressed,
    rejected,
    released,
    server_added,
    server_removed,
    submitted,
    suspended,
    switched,
    worker_lost,
)
from tests.support.log import HandMadeLog, a_cell, decided, folded

from resilin.allocator.decider import AllocatorDecider
from resilin.contracts import events as ev
from resilin.contracts.job_specification import DeadlinePolicy
from resilin.contracts.values import GpuSet, StopCost, VirtualCluster

ALLOCATOR = AllocatorDecider()


def plans(log: HandMadeLog) -> list[ev.AllocationPlanned]:
    """What the allocator decides at the end of a log, and adds it."""
    decision = decided(log, ALLOCATOR)
    if decision:
        log.add(*decision)
    return [event for event in decision if isinstance(event, ev.AllocationPlanned)]


def workers(plan: ev.AllocationPlanned) -> dict[str, int]:
    return {change.job_id: change.allocation.workers for change in plan.changes}


def settled(log: HandMadeLog) -> HandMadeLog:
    """Let the allocator answer everything that has happened so far."""
    plans(log)
    assert decided(log, ALLOCATOR) == []
    return log


# --- when it decides -----------------------------------------------------------------------

RUNNING: GpuSet = {"s1": (0, 1)}


def running() -> HandMadeLog:
    """A cell in which job ``a`` runs on two of four GPUs as promised, all answered."""
    log = a_cell(gpus=4).given(submitted("a", deadline=60.0), admitted("a", (0.0, 50.0, 2)))
    log.given(planned({"a": 2}), placed("a", 1, RUNNING), switched("a", 1, 2))
    return settled(log)


TRIGGERS = [
    admitted("b"),
    ev.JobCancelled(job_id="a"),
    completed("a", 1),
    ev.JobFailed(job_id="a", generation=1, reason="Crashed", message=""),
    ev.DeadlineChanged(job_id="a", deadline_seconds=99.0),
    worker_lost("a", 1),
    joined("s2"),
    lost("s1"),
    server_added("s3"),
    server_removed("s1"),
    cordoned("s1"),
    ev.ServerLoaned(server_id="s1", lender="default", borrower="other"),
    ev.ServerReclaimed(server_id="s1", lender="default", borrower="other"),
    configured(),
    curves_imported(),
    measured("a", 1, 2, 1.0),
    ev.ClockTicked(due_seconds=1.0),
]


@pytest.mark.parametrize("event", TRIGGERS, ids=lambda event: type(event).__name__)
def test_what_changes_the_question_is_answered_once(event: ev.Event) -> None:
    log = running()
    log.add(event, service="allocator" if isinstance(event, ev.ClockTicked) else None)
    assert len(plans(log)) == 1
    assert decided(log, ALLOCATOR) == []


CHANGES_NOTHING = [
    submitted("b"),
    rejected("b"),
    cancellation_asked("a"),
    placed("a", 2, {"s1": (0,)}),
    released("a", 2, {"s1": (1,)}),
    switched("a", 1, 2),
    progressed("a", 1, 1.0),
    ev.JobStabilized(job_id="a", generation=1, iterations_per_second=2.0),
    ev.ClockTicked(due_seconds=1.0),  # another service's timer
    ev.UnknownEvent(type="FutureEvent", version=1, content={}),
]


@pytest.mark.parametrize("event", CHANGES_NOTHING, ids=lambda event: type(event).__name__)
def test_what_changes_nothing_is_not_answered(event: ev.Event) -> None:
    log = running()
    log.add(event, service="placement" if isinstance(event, ev.ClockTicked) else None)
    assert decided(log, ALLOCATOR) == []


def test_a_burst_costs_one_decision() -> None:
    log = a_cell(gpus=4)
    for number in range(10):
        log.given(submitted(f"j{number}"), admitted(f"j{number}"))
    (plan,) = plans(log)
    assert sum(workers(plan).values()) == 4
    assert decided(log, ALLOCATOR) == []


def test_a_trigger_between_basis_and_record_is_not_lost() -> None:
    log = a_cell(gpus=4).given(submitted("a"), admitted("a"))
    decision = decided(log, ALLOCATOR)
    basis = len(log.entries) - 1
    # The world does not wait: this lands before the decision does.
    log.given(submitted("b"), admitted("b"))
    log.add(*decision, basis=basis)
    (plan,) = plans(log)
    assert workers(plan) == {"a": 2, "b": 2}
    assert decided(log, ALLOCATOR) == []


def test_a_decision_that_changes_nothing_is_recorded_too() -> None:
    log = settled(a_cell())
    log.given(cordoned("s1", cordon=False))
    assert plans(log) == [ev.AllocationPlanned(virtual_cluster="default")]


def test_a_restarted_allocator_does_not_answer_again() -> None:
    assert decided(running(), AllocatorDecider()) == []


# --- what it decides -----------------------------------------------------------------------


def test_guaranteed_shares_come_first_then_spare_gpus() -> None:
    log = a_cell(gpus=4).given(
        submitted("promised", deadline=60.0),
        submitted("waits"),
        admitted("waits"),
        admitted("promised", (0.0, 50.0, 2)),
    )
    (plan,) = plans(log)
    assert workers(plan)["promised"] >= 2
    assert sum(workers(plan).values()) == 4
    assert workers(plan)["waits"] >= 1


def test_every_change_names_the_other_party() -> None:
    log = a_cell(gpus=4).given(submitted("old"), admitted("old"))
    (plan,) = plans(log)
    assert workers(plan) == {"old": 4}
    log.given(placed("old", 1, {"s1": (0, 1, 2, 3)}), switched("old", 1, 4))
    log.given(submitted("new", deadline=60.0), admitted("new", (0.0, 50.0, 2)))
    (plan,) = plans(log)
    changes = {change.job_id: change for change in plan.changes}
    assert workers(plan) == {"old": 2, "new": 2}
    assert (changes["old"].reason, changes["old"].because) == ("makes-room", ("new",))
    assert (changes["new"].reason, changes["new"].because) == ("guaranteed-share", ("old",))


def test_only_what_changes_is_named() -> None:
    log = running().given(submitted("b"), admitted("b"))
    first = plans(log)[0]
    assert "a" not in workers(first) or workers(first)["a"] != 2


def test_an_allocation_has_the_jobs_own_global_batch() -> None:
    log = a_cell(gpus=2).given(submitted("a"), admitted("a"))
    (plan,) = plans(log)
    (change,) = plan.changes
    assert change.allocation.local_batches() == (32, 32)


def test_soft_deadlines_come_before_none() -> None:
    log = a_cell(gpus=1).given(
        submitted("best-effort"),
        submitted("soft", deadline=50.0, policy=DeadlinePolicy.SOFT),
        admitted("best-effort"),
        admitted("soft"),
    )
    (plan,) = plans(log)
    assert workers(plan) == {"soft": 1}


def test_a_lost_server_is_made_up_for() -> None:
    log = a_cell(2, 4).given(submitted("a", deadline=60.0), admitted("a", (0.0, 50.0, 2)))
    log.given(planned({"a": 2}), placed("a", 1, RUNNING), switched("a", 1, 2))
    settled(log)
    log.at(10.0).given(lost("s1"), worker_lost("a", 1, 0.0))
    (plan,) = plans(log)
    # Nothing is saved, 50 s are left for 100 iterations: two workers still do it.
    new = plan.plans["a"]
    assert sum((end - start) * count for start, end, count in new) == pytest.approx(100.0)
    assert new[-1][1] <= 60.0
    assert folded(log, ALLOCATOR).cell.jobs["a"].plan == new


def test_a_slower_job_gets_a_plan_that_still_keeps_its_promise() -> None:
    log = running().at(10.0).given(measured("a", 1, 2, 1.0))
    (plan,) = plans(log)
    assert plan.plans["a"][-1][1] <= 60.0


def test_no_gpus_no_workers() -> None:
    log = a_cell(0).given(submitted("a"), admitted("a"))
    assert plans(log) == [ev.AllocationPlanned(virtual_cluster="default")]


def test_every_training_cluster_is_planned_by_its_own_policy() -> None:
    log = a_cell(
        1,
        4,
        VirtualCluster(),
        VirtualCluster(name="queue", policy="fifo"),
        VirtualCluster(name="serving", kind="inference"),
    )
    log.given(server_added("q1", 4, "queue"), joined("q1"))
    for name in ("q-first", "q-second", "q-third"):
        log.given(submitted(name, virtual_cluster="queue", requested=2), admitted(name))
    log.given(submitted("a"), admitted("a"))
    default, queue = plans(log)
    assert (default.virtual_cluster, workers(default)) == ("default", {"a": 4})
    assert queue.virtual_cluster == "queue"
    assert workers(queue) == {"q-first": 2, "q-second": 2}


def test_jobs_of_a_cluster_that_is_gone_are_left_alone() -> None:
    other = VirtualCluster(name="other")
    log = a_cell(1, 4, VirtualCluster(), other)
    log.given(server_added("t1", 4, "other"), joined("t1"))
    log.given(submitted("b", virtual_cluster="other"), admitted("b"))
    plans(log)
    log.given(configured())
    (plan,) = plans(log)
    assert plan.virtual_cluster == "default"
    assert plan.changes == ()


# --- timers --------------------------------------------------------------------------------


def waiting() -> HandMadeLog:
    """A promised job whose plan begins only at 100 s, beside one that needs all until then."""
    log = a_cell(gpus=4).given(
        submitted("now", deadline=100.0, iterations=400),
        submitted("later", deadline=200.0),
        admitted("now", (0.0, 100.0, 4)),
        admitted("later", (100.0, 125.0, 4)),
    )
    return settled(log)


def test_the_plans_next_step_is_a_timer() -> None:
    assert ALLOCATOR.next_timer(folded(waiting(), ALLOCATOR)) == 100.0


def test_when_the_timer_fires_it_looks_again_and_the_timer_is_gone() -> None:
    log = waiting().given(placed("now", 1, {"s1": (0, 1, 2, 3)}), switched("now", 1, 4))
    log.at(100.0).given(completed("now", 1, 400.0))
    log.add(ev.ClockTicked(due_seconds=100.0), service="allocator")
    (plan,) = plans(log)
    assert plan.look_again_seconds is None
    assert ALLOCATOR.next_timer(folded(log, ALLOCATOR)) is None


def test_without_a_next_step_there_is_no_timer() -> None:
    assert ALLOCATOR.next_timer(folded(running(), ALLOCATOR)) is None


def test_the_first_of_several_clusters_timers_counts() -> None:
    log = a_cell(1, 4, VirtualCluster(), VirtualCluster(name="other"))
    log.add(planned(look_again=70.0), planned(look_again=50.0, virtual_cluster="other"))
    assert ALLOCATOR.next_timer(folded(log, ALLOCATOR)) == 50.0


def test_the_timer_of_a_cluster_that_is_gone_does_not_fire_for_ever() -> None:
    log = a_cell(1, 4, VirtualCluster(), VirtualCluster(name="other"))
    log.add(planned(look_again=70.0), planned(look_again=50.0, virtual_cluster="other"))
    log.given(configured())
    assert ALLOCATOR.next_timer(folded(log, ALLOCATOR)) == 70.0


# --- jobs that fall behind -----------------------------------------------------------------


def test_progress_far_behind_the_plan_is_answered() -> None:
    log = running().at(20.0).given(progressed("a", 1, 5.0))
    (plan,) = plans(log)
    # 95 iterations in 40 s: two workers would make 80.
    assert max(count for _, _, count in plan.plans["a"]) == 4


def test_progress_as_planned_is_not_answered() -> None:
    log = running().at(20.0).given(progressed("a", 1, 40.0))
    assert decided(log, ALLOCATOR) == []


def test_a_generation_that_comes_too_late_is_answered() -> None:
    log = a_cell(gpus=4, stop_cost=StopCost(fixed_seconds=2.0))
    log.given(submitted("a", deadline=55.0), admitted("a", (0.0, 52.0, 2)))
    log.given(planned({"a": 2}), placed("a", 1, RUNNING))
    settled(log)
    log.at(15.0).given(switched("a", 1, 2))
    assert len(plans(log)) == 1


def test_workers_that_leave_tell_how_far_the_job_is_too() -> None:
    log = running().given(planned({"a": 0}, plans={"a": [(20.0, 50.0, 2)]}), suspended("a", 2))
    settled(log)
    log.given(released("a", 2, {"s1": (0,)}, done=40.0))
    assert decided(log, ALLOCATOR) == []
    log.given(released("a", 2, {"s1": (1,)}, done=30.0))
    (plan,) = plans(log)
    assert plan.plans["a"][-1][1] <= 60.0


def test_jobs_without_a_promise_cannot_fall_behind() -> None:
    log = a_cell(gpus=4).given(submitted("a"), admitted("a"), planned({"a": 4}))
    log.given(placed("a", 1, {"s1": (0, 1, 2, 3)}), switched("a", 1, 4))
    settled(log)
    log.at(1000.0).given(progressed("a", 1, 1.0))
    assert decided(log, ALLOCATOR) == []


def test_a_curve_that_becomes_slower_is_answered_for_running_jobs() -> None:
    log = running().given(curves_imported(linear={1: 0.5, 2: 1.0, 4: 2.0}))
    (plan,) = plans(log)
    assert max(count for _, _, count in plan.plans["a"]) == 4
