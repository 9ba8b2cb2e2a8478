"""The executor: each report becomes a fact once, and only while it can still be true."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.events import (
    admitted,
    completed,
    joined,
    lost,
    placed,
    planned,
    profile_asked,
    profile_failed,
    profiled,
    progressed,
    released,
    server_added,
    server_removed,
    submitted,
    suspended,
    switched,
    worker_lost,
    worker_replaced,
)
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.contracts import events as ev
from resilin.contracts.values import GpuSet
from resilin.executor.decider import ExecutorDecider, Instruction, instructions

EXECUTOR = ExecutorDecider()


def reported(log: HandMadeLog, report: ev.Event) -> list[ev.Event]:
    """What the executor adds to a log for a report, and adds it."""
    facts = list(EXECUTOR.accept(folded(log, EXECUTOR), report))
    if facts:
        log.add(*facts)
    return facts


def placed_job(*, switch: bool = True) -> HandMadeLog:
    """A cell of two servers in which job ``a`` was placed on one of them."""
    log = a_cell(servers=2).given(submitted("a"), admitted("a"), planned({"a": 4}))
    log.given(placed("a", 1, {"s1": (0, 1, 2, 3)}))
    return log.given(switched("a", 1, 4)) if switch else log


def failed(job_id: str = "a", generation: int = 1) -> ev.JobFailed:
    return ev.JobFailed(job_id=job_id, generation=generation, reason="Crashed", message="")


def ready(job_id: str = "a", generation: int = 1) -> ev.WorkersReady:
    return ev.WorkersReady(job_id=job_id, generation=generation)


# --- every report once ---------------------------------------------------------------------

ONCE: list[tuple[HandMadeLog, ev.Event]] = [
    (a_cell(0).given(server_added("s1")), joined("s1", 1)),
    (a_cell(), lost("s1", 1)),
    (placed_job(switch=False), switched("a", 1, 4)),
    (placed_job(), progressed("a", 1, 5.0)),
    (placed_job().given(suspended("a", 2)), released("a", 2, {"s1": (0, 1, 2, 3)})),
    (placed_job(), worker_lost("a", 1)),
    (placed_job(), worker_replaced("a", 1)),
    (a_cell().given(submitted("b"), profile_asked("b")), profiled("b")),
    (a_cell().given(submitted("b"), profile_asked("b")), profile_failed("b")),
    (placed_job(), completed("a", 1)),
    (placed_job(), failed()),
]


@pytest.mark.parametrize(("log", "report"), ONCE, ids=[type(report).__name__ for _, report in ONCE])
def test_a_report_is_admitted_once(log: HandMadeLog, report: ev.Event) -> None:
    again = HandMadeLog()
    again.entries = list(log.entries)
    assert reported(again, report) == [report]
    assert reported(again, report) == []


def test_workers_that_are_ready_are_noted_until_they_train() -> None:
    log = placed_job(switch=False)
    assert reported(log, ready()) == [ready()]
    log.given(switched("a", 1, 4))
    assert reported(log, ready()) == []


@pytest.mark.parametrize(
    "report",
    [
        switched("nobody", 1, 4),
        ready("nobody"),
        progressed("nobody", 1, 5.0),
        released("nobody", 1, {"s1": (0,)}),
        worker_lost("nobody", 1),
        worker_replaced("nobody", 1),
        profiled("nobody"),
        profile_failed("nobody"),
        completed("nobody", 1),
        failed("nobody"),
        joined("nowhere"),
        lost("nowhere"),
    ],
    ids=lambda report: type(report).__name__,
)
def test_reports_about_the_unknown_are_dropped(report: ev.Event) -> None:
    assert reported(placed_job(), report) == []


def test_what_no_executor_reports_is_dropped() -> None:
    assert reported(placed_job(), ev.JobCancelled(job_id="a")) == []


# --- generations ---------------------------------------------------------------------------


def second_generation() -> HandMadeLog:
    return placed_job().given(placed("a", 2, {"s2": (0, 1, 2, 3)}))


@pytest.mark.parametrize(
    "report",
    [switched("a", 1, 4), progressed("a", 1, 50.0), worker_lost("a", 1), ready("a", 1)],
    ids=lambda report: type(report).__name__,
)
def test_reports_of_a_stale_generation_are_dropped(report: ev.Event) -> None:
    assert reported(second_generation(), report) == []


@pytest.mark.parametrize(
    "report",
    [switched("a", 3, 4), progressed("a", 3, 50.0), worker_lost("a", 3), ready("a", 3)],
    ids=lambda report: type(report).__name__,
)
def test_reports_of_a_generation_nobody_placed_are_dropped(report: ev.Event) -> None:
    assert reported(second_generation(), report) == []


def test_a_generation_that_lost_its_workers_cannot_train() -> None:
    log = placed_job(switch=False).given(worker_lost("a", 1))
    assert reported(log, switched("a", 1, 4)) == []
    assert reported(log, progressed("a", 1, 1.0)) == []


def test_a_suspended_job_makes_no_progress() -> None:
    log = placed_job().given(suspended("a", 2))
    assert reported(log, switched("a", 2, 4)) == []
    assert reported(log, progressed("a", 2, 1.0)) == []


def test_progress_counts_only_while_it_trains_and_if_it_is_more() -> None:
    assert reported(placed_job(switch=False), progressed("a", 1, 1.0)) == []
    log = placed_job()
    assert len(reported(log, progressed("a", 1, 10.0))) == 1
    assert reported(log, progressed("a", 1, 9.0)) == []
    assert len(reported(log, progressed("a", 1, 11.0))) == 1


@pytest.mark.parametrize("first", [completed("a", 1), failed()], ids=["completed", "failed"])
@pytest.mark.parametrize("second", [completed("a", 1), failed()], ids=["completed", "failed"])
def test_a_job_ends_once(first: ev.Event, second: ev.Event) -> None:
    log = placed_job()
    assert len(reported(log, first)) == 1
    assert reported(log, second) == []


def test_a_job_that_was_cancelled_cannot_complete() -> None:
    log = placed_job().given(ev.JobCancelled(job_id="a"))
    assert reported(log, completed("a", 1)) == []


def test_a_job_that_is_done_is_done_whatever_was_planned_meanwhile() -> None:
    assert len(reported(second_generation(), completed("a", 1))) == 1


# --- releases ------------------------------------------------------------------------------


def test_gpus_that_nobody_took_away_are_not_released() -> None:
    assert reported(placed_job(), released("a", 1, {"s1": (0, 1)})) == []


def test_only_what_was_taken_away_is_released() -> None:
    log = placed_job().given(placed("a", 2, {"s1": (0, 1)}))
    (fact,) = reported(log, released("a", 2, {"s1": (0, 1, 2, 3), "s2": (0,)}))
    assert fact == released("a", 2, {"s1": (2, 3)})


def test_gpus_may_be_released_one_by_one() -> None:
    log = placed_job().given(suspended("a", 2))
    for index in range(4):
        assert len(reported(log, released("a", 2, {"s1": (index,)}))) == 1
    assert folded(log, EXECUTOR).cell.jobs["a"].held == {}


def test_a_late_repeat_does_not_release_gpus_that_the_job_got_back() -> None:
    log = placed_job().given(suspended("a", 2))
    report = released("a", 2, {"s1": (0, 1, 2, 3)})
    assert len(reported(log, report)) == 1
    log.given(placed("a", 3, {"s1": (0, 1, 2, 3)}), switched("a", 3, 4))
    assert reported(log, report) == []
    # Nor once a later generation has taken them away again.
    log.given(suspended("a", 4))
    assert reported(log, report) == []
    assert len(reported(log, released("a", 4, {"s1": (0, 1, 2, 3)}))) == 1


def test_gpus_given_back_before_they_were_released_stay_held() -> None:
    log = placed_job().given(suspended("a", 2), placed("a", 3, {"s1": (0, 1)}))
    (fact,) = reported(log, released("a", 2, {"s1": (0, 1, 2, 3)}))
    assert fact == released("a", 2, {"s1": (2, 3)})
    assert folded(log, EXECUTOR).cell.jobs["a"].held == {"s1": (0, 1)}


def test_an_executor_that_skipped_a_generation_releases_what_it_took_away() -> None:
    log = placed_job().given(suspended("a", 2), placed("a", 3, {"s2": (0, 1, 2, 3)}))
    report = released("a", 3, {"s1": (0, 1, 2, 3)})
    assert reported(log, report) == [report]


def test_the_gpus_of_a_job_that_ended_are_released_and_it_is_forgotten() -> None:
    log = placed_job().given(completed("a", 1))
    assert len(reported(log, released("a", 1, {"s1": (0, 1, 2, 3)}))) == 1
    assert folded(log, EXECUTOR).cell.jobs == {}


# --- nodes ---------------------------------------------------------------------------------


def test_a_node_joins_anew_only_with_a_later_incarnation() -> None:
    log = a_cell()
    assert reported(log, joined("s1", 1)) == []
    assert reported(log, joined("s1", 2)) == [joined("s1", 2)]
    assert reported(log, joined("s1", 1)) == []


def test_a_late_loss_of_an_earlier_incarnation_is_dropped() -> None:
    log = a_cell()
    reported(log, joined("s1", 2))
    assert reported(log, lost("s1", 1)) == []
    assert reported(log, lost("s1", 2)) == [lost("s1", 2)]


def test_a_late_join_of_a_lost_incarnation_is_dropped() -> None:
    log = a_cell()
    reported(log, lost("s1", 1))
    assert reported(log, joined("s1", 1)) == []
    assert reported(log, joined("s1", 2)) == [joined("s1", 2)]


def test_a_node_that_never_joined_cannot_be_lost() -> None:
    assert reported(a_cell(0).given(server_added("s1")), lost("s1", 1)) == []


def test_the_node_of_a_removed_server_still_reports() -> None:
    assert len(reported(a_cell().given(server_removed("s1")), lost("s1", 1))) == 1


# --- instructions --------------------------------------------------------------------------


def test_a_placement_becomes_an_instruction() -> None:
    state = folded(placed_job(switch=False), EXECUTOR)
    assert instructions(state) == [
        Instruction("a", 1, gpus={"s1": (0, 1, 2, 3)}, leaving={}, ended=False)
    ]


def test_an_instruction_names_what_the_log_waits_for() -> None:
    state = folded(placed_job().given(placed("a", 2, {"s1": (0, 1)})), EXECUTOR)
    assert instructions(state) == [
        Instruction("a", 2, gpus={"s1": (0, 1)}, leaving={"s1": (2, 3)}, ended=False)
    ]


def test_a_suspended_job_is_to_have_no_gpus_and_an_ended_one_is_to_go() -> None:
    everything: GpuSet = {"s1": (0, 1, 2, 3)}
    log = placed_job().given(suspended("a", 2))
    assert instructions(folded(log, EXECUTOR)) == [
        Instruction("a", 2, gpus={}, leaving=everything, ended=False)
    ]
    log.given(ev.JobCancelled(job_id="a"))
    assert instructions(folded(log, EXECUTOR)) == [
        Instruction("a", 2, gpus={}, leaving=everything, ended=True)
    ]


def test_a_job_that_was_never_placed_needs_no_instruction() -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    assert instructions(folded(log, EXECUTOR)) == []


def test_only_the_jobs_asked_for_are_instructed() -> None:
    log = placed_job().given(submitted("b"), admitted("b"), placed("b", 1, {"s2": (0,)}))
    state = folded(log, EXECUTOR)
    assert [one.job_id for one in instructions(state)] == ["a", "b"]
    assert [one.job_id for one in instructions(state, ["b", "nobody"])] == ["b"]


def test_the_executor_decides_nothing_and_has_no_timer() -> None:
    state = folded(placed_job(), EXECUTOR)
    assert (EXECUTOR.decide(state), EXECUTOR.next_timer(state)) == ((), None)


# --- any order, any number -----------------------------------------------------------------

_REPORTS: list[ev.Event] = [
    *(switched("a", generation, 4) for generation in (1, 2, 3)),
    *(progressed("a", generation, done) for generation in (1, 3) for done in (5.0, 10.0)),
    *(
        released("a", generation, {server: (0, 1, 2, 3)})
        for generation in (1, 2, 3)
        for server in ("s1", "s2")
    ),
    *(worker_lost("a", generation) for generation in (1, 2, 3)),
    *(joined(server, incarnation) for server in ("s1", "s2") for incarnation in (1, 2)),
    *(lost(server, incarnation) for server in ("s1", "s2") for incarnation in (1, 2)),
    completed("a", 1),
    completed("a", 3),
]
_STEPS: list[ev.Event] = [
    placed("a", 1, {"s1": (0, 1, 2, 3)}),
    suspended("a", 2),
    placed("a", 3, {"s2": (0, 1, 2, 3)}),
    ev.JobCancelled(job_id="a"),
]


@given(st.lists(st.sampled_from(_REPORTS + _STEPS * 3), max_size=30))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_in_any_order_no_report_is_admitted_twice_in_a_row_nor_one_that_frees_the_running(
    events: list[ev.Event],
) -> None:
    log = a_cell(servers=2).given(submitted("a"), admitted("a"), planned({"a": 4}))
    for event in events:
        if event in _STEPS:
            log.add(event)
            continue
        for fact in reported(log, event):
            assert EXECUTOR.accept(folded(log, EXECUTOR), fact) == ()
        for job in folded(log, EXECUTOR).cell.jobs.values():
            on = {(server, i) for server, indexes in job.placed.items() for i in indexes}
            held = {(server, i) for server, indexes in job.held.items() for i in indexes}
            assert on <= held


# --- replaced workers ------------------------------------------------------------------------


def test_every_failure_is_noted_once_and_counted() -> None:
    log = placed_job()
    assert len(reported(log, worker_replaced("a", 1, failures=1))) == 1
    assert len(reported(log, worker_replaced("a", 1, failures=2, index=3))) == 1
    assert reported(log, worker_replaced("a", 1, failures=1)) == [], "a late repeat"
    assert folded(log, EXECUTOR).cell.jobs["a"].failures == 2


def test_a_replacement_is_of_the_generation_and_on_a_gpu_of_the_job() -> None:
    assert reported(second_generation(), worker_replaced("a", 1)) == []
    assert reported(placed_job(), worker_replaced("a", 1, server="s2")) == []
    assert reported(placed_job(), worker_replaced("a", 1, index=7)) == []


def test_failures_are_counted_over_lost_generations_too() -> None:
    lost_twice = worker_lost("a", 1).model_copy(update={"failures": 2})
    log = placed_job()
    reported(log, lost_twice)
    assert folded(log, EXECUTOR).cell.jobs["a"].failures == 2
