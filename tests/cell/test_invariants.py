"""Every invariant: a hand-made log that breaks it is caught there and then, a sound one passes."""

from __future__ import annotations

from collections.abc import Callable

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
    migrated,
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
    worker_replaced,
)
from tests.support.log import HandMadeLog, a_cell, violations

from resilin.cell.invariants import InvariantChecker, Violation
from resilin.contracts import events as ev
from resilin.contracts.job_specification import DeadlinePolicy
from resilin.contracts.values import GpuSet, VirtualCluster

FOUR: GpuSet = {"s1": (0, 1, 2, 3)}


def found(log: HandMadeLog) -> list[tuple[int, int]]:
    """The offset and number of everything that is wrong."""
    return [(violation.offset, violation.invariant) for violation in violations(log)]


def promised(deadline: float = 60.0, cell: HandMadeLog | None = None) -> HandMadeLog:
    """Job ``a`` is promised and trains with four workers: it will be done at 25 s."""
    log = (cell or a_cell(servers=2)).given(submitted("a", deadline=deadline))
    log.given(admitted("a", (0.0, 25.0, 4)), planned({"a": 4}), placed("a", 1, FOUR))
    return log.given(switched("a", 1, 4))


def later(log: HandMadeLog, seconds: float = 1.0) -> int:
    """Let time pass: what was true up to now is checked at this entry."""
    return log.at(seconds).add(cancellation_asked("nobody"))


def test_a_whole_sound_life_breaks_nothing() -> None:
    log = promised().at(10.0).given(progressed("a", 1, 40.0))
    log.given(submitted("b"), admitted("b"), planned({"a": 2, "b": 2}, plans={"a": [(10, 40, 2)]}))
    log.given(placed("a", 2, {"s1": (0, 1)}), released("a", 2, {"s1": (2, 3)}, 40.0))
    log.given(switched("a", 2, 2, 40.0), placed("b", 1, {"s1": (2, 3)}), switched("b", 1, 2))
    log.at(40.0).given(completed("a", 2), released("a", 2, {"s1": (0, 1)}, 100.0))
    log.given(migrated("b", 2, {"s2": (0, 1)}), suspended("b", 3), ev.JobCancelled(job_id="b"))
    later(log, 50.0)
    assert found(log) == []


# --- 1: no GPU belongs to two jobs ---------------------------------------------------------


@pytest.mark.parametrize("place", [placed, migrated])
def test_1_a_gpu_that_another_job_holds(place: Callable[..., ev.Event]) -> None:
    log = promised().given(submitted("b"), admitted("b"))
    assert found(log) == []
    offset = log.add(place("b", 1, {"s1": (3,)}))
    assert found(log) == [(offset, 1)]
    (violation,) = violations(log)
    assert "s1/3 is held by a and b" in violation.message


def test_1_a_gpu_whose_workers_have_not_left_yet() -> None:
    log = promised().given(submitted("b"), admitted("b"), suspended("a", 2))
    offset = log.add(placed("b", 1, {"s1": (0,)}))
    assert found(log) == [(offset, 1)]
    sound = promised().given(submitted("b"), admitted("b"), suspended("a", 2))
    sound.given(released("a", 2, FOUR), placed("b", 1, {"s1": (0,)}))
    assert found(sound) == []


def test_1_a_gpu_of_a_job_that_has_ended_but_still_holds_it() -> None:
    log = promised().given(submitted("b"), admitted("b"), completed("a", 1))
    offset = log.add(placed("b", 1, {"s1": (0,)}))
    assert found(log) == [(offset, 1)]


@pytest.mark.parametrize("gpus", [{"s1": (4,)}, {"s9": (0,)}, {"s1": (-1,)}])
def test_1_a_gpu_that_does_not_exist(gpus: GpuSet) -> None:
    log = a_cell(gpus=4).given(submitted("b"), admitted("b"))
    offset = log.add(placed("b", 1, gpus))
    assert found(log) == [(offset, 1)]


def test_1_is_said_again_as_long_as_it_is_so() -> None:
    log = promised().given(submitted("b"), admitted("b"), placed("b", 1, {"s1": (0,)}))
    offset = log.add(progressed("a", 1, 1.0))
    assert found(log)[-1] == (offset, 1)


# --- 2: one terminal event -----------------------------------------------------------------

ENDS: list[ev.Event] = [
    rejected("a"),
    ev.JobCancelled(job_id="a"),
    completed("a", 1),
    ev.JobFailed(job_id="a", generation=1, reason="Crashed", message=""),
]


@pytest.mark.parametrize("second", ENDS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("first", ENDS, ids=lambda event: type(event).__name__)
def test_2_a_job_that_ends_twice(first: ev.Event, second: ev.Event) -> None:
    log = a_cell().given(submitted("a"), admitted("a"), first)
    assert found(log) == []
    offset = log.add(second)
    assert found(log) == [(offset, 2)]


@pytest.mark.parametrize("second", ENDS[1:], ids=lambda event: type(event).__name__)
def test_2_an_end_that_was_overtaken_by_another(second: ev.Event) -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    basis = log.add(placed("a", 1, {"s1": (0,)}))
    overtaking = log.add(ENDS[3] if isinstance(second, ev.JobCancelled) else ENDS[1])
    log.add(second, basis=basis)
    assert found(log) == []
    knew = log.add(second, basis=overtaking)
    assert found(log) == [(knew, 2)]


def test_2_a_placement_that_was_overtaken_by_the_end() -> None:
    log = a_cell().given(submitted("a"))
    basis = log.add(admitted("a"))
    overtaking = log.add(ev.JobCancelled(job_id="a"))
    log.add(placed("a", 1, {"s1": (0,)}), basis=basis)
    assert found(log) == []
    knew = log.add(placed("a", 1, {"s1": (0,)}), basis=overtaking)
    assert found(log) == [(knew, 2)]


@pytest.mark.parametrize("end", ENDS, ids=lambda event: type(event).__name__)
def test_2_a_job_that_ends_without_having_been_submitted(end: ev.Event) -> None:
    log = a_cell()
    offset = log.add(end)
    assert found(log) == [(offset, 2)]


@pytest.mark.parametrize("ended", [False, True])
def test_2_a_job_that_is_submitted_twice(ended: bool) -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    if ended:
        log.given(ev.JobCancelled(job_id="a"))
    offset = log.add(submitted("a"))
    assert found(log) == [(offset, 2)]


def test_2_an_admission_that_nobody_waits_for() -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    offset = log.add(admitted("a"))
    assert found(log) == [(offset, 2)]
    unknown = a_cell()
    offset = unknown.add(admitted("a"))
    assert found(unknown) == [(offset, 2)]


def test_2_a_placement_of_a_job_that_is_not_live() -> None:
    log = a_cell().given(submitted("a"))
    offset = log.add(placed("a", 1, {"s1": (0,)}))
    assert found(log) == [(offset, 2)]


# --- 3: promised deadlines are met ---------------------------------------------------------


def test_3_a_promised_job_that_is_done_too_late() -> None:
    log = promised(deadline=30.0)
    log.at(30.1)
    offset = log.add(completed("a", 1))
    assert found(log) == [(offset, 3)]
    (violation,) = violations(log)
    assert "0.100 s after its deadline" in violation.message


@pytest.mark.parametrize("seconds", [25.0, 30.0, 30.0005])
def test_3_a_promised_job_that_is_done_in_time(seconds: float) -> None:
    assert found(promised(deadline=30.0).at(seconds).given(completed("a", 1))) == []


def test_3_the_deadline_in_force_counts() -> None:
    log = promised(deadline=30.0)
    log.given(ev.DeadlineChanged(job_id="a", deadline_seconds=50.0, plan=((0.0, 25.0, 4),)))
    assert found(log.at(45.0).given(completed("a", 1))) == []


def test_3_a_job_without_a_promise_may_be_late() -> None:
    log = a_cell().given(submitted("a", deadline=30.0), admitted("a", promised=False))
    log.given(placed("a", 1, FOUR), switched("a", 1, 4))
    assert found(log.at(99.0).given(completed("a", 1))) == []


EXCUSES: list[list[ev.Event]] = [
    [measured("a", 1, 4, 3.9)],
    [worker_lost("a", 1)],
    [worker_replaced("a", 1)],
    [lost("s1")],
    [lost("s2")],
    [joined("s1", 2)],
    [server_removed("s2")],
    [cordoned("s2")],
    [configured(margin=5.0)],
    [curves_imported(linear={1: 1.0, 2: 2.0, 4: 3.9, 8: 8.0})],
]


@pytest.mark.parametrize("excuse", EXCUSES, ids=lambda events: type(events[0]).__name__)
def test_3_a_cell_that_lost_more_than_it_promised_for_is_excused(excuse: list[ev.Event]) -> None:
    log = promised(deadline=30.0).given(*excuse)
    assert found(log.at(99.0).given(completed("a", 1))) == []


NO_EXCUSES: list[ev.Event] = [
    measured("a", 1, 4, 4.1),
    configured(),
    curves_imported(linear={1: 1.0, 2: 2.0, 4: 4.1, 8: 8.0}),
    curves_imported(other={1: 1.0}),
    server_added("s3"),
    cordoned("nowhere"),
    cordoned("s2", cordon=False),
    server_removed("nowhere"),
]


@pytest.mark.parametrize("event", NO_EXCUSES, ids=lambda e: type(e).__name__)
def test_3_what_takes_nothing_from_the_cell_excuses_nobody(event: ev.Event) -> None:
    log = promised(deadline=30.0).given(event).at(99.0)
    offset = log.add(completed("a", 1))
    assert found(log) == [(offset, 3)]


def reserving(servers: int = 3) -> HandMadeLog:
    return promised(30.0, a_cell(servers, 4, VirtualCluster(reserve_servers=1)))


def test_3_a_loss_within_the_reserve_excuses_only_those_who_were_there() -> None:
    for within in (lost("s2"), cordoned("s2")):
        elsewhere = reserving().given(within).at(99.0)
        offset = elsewhere.add(completed("a", 1))
        assert found(elsewhere) == [(offset, 3)]
    assert found(reserving().given(lost("s1")).at(99.0).given(completed("a", 1))) == []


def test_3_a_server_that_was_out_of_use_already_is_no_further_loss() -> None:
    log = reserving().given(cordoned("s2"), lost("s2")).at(99.0)
    offset = log.add(completed("a", 1))
    assert found(log) == [(offset, 3)]


@pytest.mark.parametrize("first", [lost("s2"), cordoned("s2")], ids=["lost", "cordoned"])
def test_3_a_loss_beyond_the_reserve_excuses_those_promised_after_the_first(
    first: ev.Event,
) -> None:
    cell = a_cell(3, 4, VirtualCluster(reserve_servers=1)).given(first)
    log = promised(30.0, cell).given(lost("s3"))
    assert found(log.at(99.0).given(completed("a", 1))) == []


# --- 4: the plan keeps the promise ---------------------------------------------------------


def test_4_a_plan_that_does_not_keep_its_promise() -> None:
    log = a_cell().given(submitted("a", deadline=20.0), admitted("a", (0.0, 25.0, 4)))
    assert found(log) == []  # not before time moves on: a better plan may follow at once
    offset = later(log)
    assert found(log) == [(offset, 4)]


def test_4_a_plan_that_keeps_its_promise() -> None:
    log = a_cell().given(submitted("a", deadline=25.0), admitted("a", (0.0, 25.0, 4)))
    later(log, 0.0005)
    assert found(log) == []


def test_4_a_plan_that_is_mended_before_time_moves_on() -> None:
    log = a_cell().given(submitted("a", deadline=30.0), admitted("a", (0.0, 10.0, 4)))
    log.given(planned(plans={"a": [(0.0, 25.0, 4)]}))
    later(log, 0.0005)
    assert found(log) == []


def test_4_a_plan_that_is_not_followed() -> None:
    log = a_cell().given(submitted("a", deadline=30.0), admitted("a", (0.0, 25.0, 4)))
    later(log, 10.0)  # nobody placed the job
    offset = later(log, 11.0)
    assert found(log) == [(offset, 4)]


def test_4_a_plan_may_slip_by_the_margin() -> None:
    log = a_cell(margin=15.0).given(submitted("a", deadline=40.0), admitted("a", (0.0, 25.0, 4)))
    later(log, 10.0)
    later(log, 11.0)
    assert found(log) == []


def test_4_is_not_asked_while_workers_are_on_their_way_out() -> None:
    log = a_cell(servers=2).given(submitted("b"), admitted("b"), placed("b", 1, FOUR))
    log.given(submitted("a", deadline=30.0), admitted("a", (0.0, 25.0, 4)), suspended("b", 2))
    later(log, 10.0)
    later(log, 11.0)
    assert found(log) == []
    log.given(released("b", 2, FOUR))
    offset = later(log, 12.0)
    assert found(log) == [(offset, 4)]


def test_4_an_empty_plan_promises_nothing_it_could_keep() -> None:
    log = a_cell().given(submitted("a", deadline=1e6), admitted("a", promised=True))
    offset = later(log)
    assert found(log) == [(offset, 4)]


@pytest.mark.parametrize("binding", [DeadlinePolicy.SOFT, None])
def test_4_only_promises_need_a_plan(binding: DeadlinePolicy | None) -> None:
    deadline = None if binding is None else 1.0
    log = a_cell().given(submitted("a", deadline=deadline, policy=binding), admitted("a"))
    later(log)
    assert found(log) == []


# --- 5: progress ---------------------------------------------------------------------------


FALLS: list[ev.Event] = [
    progressed("a", 1, 39.0),
    switched("a", 2, 4, 39.0),
    released("a", 2, {"s1": (0,)}, 39.0),
    completed("a", 1, 39.0),
]


@pytest.mark.parametrize("event", FALLS, ids=lambda event: type(event).__name__)
def test_5_progress_that_falls(event: ev.Event) -> None:
    log = promised().at(10.0).given(progressed("a", 1, 40.0))
    offset = log.add(event)
    assert found(log) == [(offset, 5)]


@pytest.mark.parametrize("event", FALLS[:3], ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(
    "loss", [worker_lost("a", 1, 39.0), lost("s1"), joined("s1", 2)], ids=["worker", "node", "anew"]
)
def test_5_progress_may_fall_to_a_checkpoint_when_workers_are_lost(
    event: ev.Event, loss: ev.Event
) -> None:
    log = promised().at(10.0).given(progressed("a", 1, 40.0), loss, event)
    assert found(log) == []


def test_5_progress_must_not_fall_below_the_checkpoint_either() -> None:
    log = promised().at(10.0).given(progressed("a", 1, 40.0), worker_lost("a", 1, 30.0))
    log.given(placed("a", 2, FOUR))
    offset = log.add(switched("a", 2, 4, 20.0))
    assert found(log) == [(offset, 5)]


def test_5_a_loss_elsewhere_is_no_reason_to_fall() -> None:
    log = promised().at(10.0).given(progressed("a", 1, 40.0), lost("s2"))
    offset = log.add(progressed("a", 1, 39.0))
    assert found(log) == [(offset, 5)]


# --- 9: writers and natures ----------------------------------------------------------------


def test_9_an_event_of_another_service() -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    offset = log.add(placed("a", 1, {"s1": (0,)}), service="allocator")
    assert found(log) == [(offset, 9)]


@pytest.mark.parametrize(
    ("event", "nature"), [(placed("a", 1, {"s1": (0,)}), "facts"), (joined("s1", 2), "decision")]
)
def test_9_a_fact_in_a_decision_or_a_decision_among_facts(event: ev.Event, nature: str) -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    offset = log.add(event, nature=nature)  # type: ignore[arg-type]  # one of the two
    assert found(log) == [(offset, 9)]


def test_9_a_decision_in_a_claim() -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    offset = log.add(placed("a", 1, {"s1": (0,)}), nature="claim", epoch=2)
    assert found(log) == [(offset, 9)]


def test_9_an_executor_on_a_node_writes_as_one_of_them() -> None:
    log = a_cell()
    log.add(ev.LeadershipClaimed(instance="n1"), service="executor/n1")
    log.add(joined("s1", 2), service="executor/n1")
    assert found(log) == []
    log.add(ev.LeadershipClaimed(instance="n1"), service="allocator/n1")
    offset = log.add(joined("s1", 3), service="allocator/n1")
    assert found(log) == [(offset, 9)]


def test_9_timers_are_anybodys() -> None:
    log = a_cell()
    log.add(ev.ClockTicked(due_seconds=0.0), service="placement")
    assert found(log) == []


# --- 10: sizes -----------------------------------------------------------------------------


def test_10_a_size_the_job_does_not_allow() -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    offset = log.add(placed("a", 1, {"s1": (0, 1, 2)}))
    assert found(log) == [(offset, 10)]


def test_10_the_jobs_own_list_of_sizes_counts() -> None:
    log = a_cell().given(
        submitted("a", sizes=(3,)), admitted("a"), placed("a", 1, {"s1": (0, 1, 2)})
    )
    assert found(log) == []
    offset = log.add(migrated("a", 2, {"s1": (0, 1)}))
    assert found(log) == [(offset, 10)]


# --- 11: the clock -------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [0, 1, 100])
def test_11_a_basis_that_is_not_before_the_record(ahead: int) -> None:
    log = a_cell()
    offset = log.add(joined("s1", 2), basis=len(log.entries) + ahead)
    assert found(log) == [(offset, 11)]


def test_11_a_basis_that_is_not_in_the_log() -> None:
    log = a_cell().given(joined("s1", 2), joined("s1", 3))
    assert found(log) == []
    del log.entries[-2]
    offset = log.entries[-1].offset
    assert found(log) == [(offset, 11)]
    (violation,) = violations(log)
    assert str(offset - 1) in violation.message


def test_11_an_entry_that_is_no_basis_may_be_missing() -> None:
    log = a_cell()
    log.add(joined("s1", 2))
    log.add(joined("s1", 3), basis=len(log.entries) - 2)
    del log.entries[-2]
    assert found(log) == []


def test_11_a_time_before_that_of_the_basis() -> None:
    log = a_cell().at(10.0).given(joined("s1", 2)).at(9.0)
    offset = log.add(joined("s1", 3))
    assert found(log) == [(offset, 11)]


def test_11_a_service_that_is_behind_may_write_a_time_before_the_newest() -> None:
    log = a_cell()
    basis = len(log.entries) - 1
    log.at(10.0).given(joined("s1", 2)).at(9.0)
    log.add(submitted("a"), basis=basis)
    assert found(log) == []


# --- what does not count -------------------------------------------------------------------


def test_records_of_a_stale_epoch_break_nothing() -> None:
    log = promised().given(submitted("b"), admitted("b"))
    log.add(ev.LeadershipClaimed(instance="placement-2"), service="placement", epoch=2)
    log.add(placed("b", 1, {"s1": (0,)}), epoch=1)
    assert found(log) == []


def test_a_repeated_record_breaks_nothing() -> None:
    log = a_cell()
    offset = log.add(submitted("a"))
    log.add(submitted("a"), basis=offset - 1)
    assert found(log) == []


def test_unknown_events_break_nothing() -> None:
    log = promised()
    log.add(ev.UnknownEvent(type="FutureEvent", version=1, content={}))
    assert found(log) == []


def test_a_violation_says_where_which_and_what() -> None:
    assert str(Violation(7, 3, "too late")) == "offset 7: invariant 3: too late"


def test_what_is_found_belongs_to_the_entry_just_folded() -> None:
    log = promised().given(submitted("b"), admitted("b"))
    offset = log.add(submitted("a"))
    log.given(progressed("a", 1, 1.0))
    checker = InvariantChecker()
    by_entry = {entry.offset: checker.fold(entry) for entry in log.entries}
    assert [entry for entry, some in by_entry.items() if some] == [offset]
