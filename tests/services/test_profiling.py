"""Profiling before admission: a job nobody knows the throughput of is tried out first."""

from __future__ import annotations

from typing import Any

from tests.support.events import (
    admitted,
    cancellation_asked,
    curves_imported,
    deadline_asked,
    profile_asked,
    profile_failed,
    profiled,
    submitted,
)
from tests.support.log import HandMadeLog, a_cell, decided, folded, violations

from resilin.admission.decider import AdmissionDecider
from resilin.allocator.decider import AllocatorDecider
from resilin.cell.state import CellState
from resilin.contracts import events as ev
from resilin.contracts.job_specification import WorkerSpecification
from resilin.executor.decider import ExecutorDecider, profiles_wanted

ADMISSION = AdmissionDecider()
EXECUTOR = ExecutorDecider()
CODE = WorkerSpecification(entrypoint="train.py:Job")


def new_job(job_id: str = "a", **of_job: Any) -> ev.JobSubmitted:
    """A job with code of its own, of a model that nobody has run yet."""
    return submitted(job_id, **{"model": "new", "worker": CODE, **of_job})


def answered(log: HandMadeLog) -> list[ev.Event]:
    answers = decided(log, ADMISSION)
    if answers:
        log.add(*answers)
    return answers


def reported(log: HandMadeLog, report: ev.Event) -> list[ev.Event]:
    facts = list(EXECUTOR.accept(folded(log, EXECUTOR), report))
    if facts:
        log.add(*facts)
    return facts


def wanted(log: HandMadeLog) -> list[str]:
    return profiles_wanted(folded(log, EXECUTOR))


def cell_of(log: HandMadeLog) -> CellState:
    return folded(log, EXECUTOR).cell


def asked_for(answers: list[ev.Event]) -> list[tuple[str, str]]:
    return [(type(answer).__name__, getattr(answer, "job_id", "")) for answer in answers]


# --- one job -------------------------------------------------------------------------------


def test_a_job_with_code_and_no_curve_is_tried_out_and_then_answered() -> None:
    log = a_cell().given(new_job(deadline=200.0))
    assert asked_for(answered(log)) == [("ProfileRequested", "a")]
    assert answered(log) == [], "it waits"
    assert wanted(log) == ["a"]
    log.at(30.0)
    assert reported(log, profiled("a")) == [profiled("a")]
    assert wanted(log) == []
    (answer,) = answered(log)
    assert isinstance(answer, ev.JobAdmitted)
    assert answer.promised
    assert answered(log) == []
    assert violations(log) == []


def test_without_code_a_job_is_refused_as_ever() -> None:
    log = a_cell().given(submitted("a", model="new"))
    (answer,) = answered(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is ev.RejectionReason.CURVE_UNKNOWN


def test_a_known_curve_spares_the_profile() -> None:
    log = a_cell().given(submitted("a", worker=CODE))
    assert asked_for(answered(log)) == [("JobAdmitted", "a")]


def test_the_profile_takes_its_time_out_of_the_deadline() -> None:
    log = a_cell().given(new_job(iterations=100, deadline=40.0))
    answered(log)
    reported(log.at(30.0), profiled("a"))
    (answer,) = answered(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is ev.RejectionReason.DEADLINE_UNREACHABLE


def test_a_profile_that_failed_is_the_reason_to_refuse() -> None:
    log = a_cell().given(new_job())
    answered(log)
    assert len(reported(log, profile_failed("a"))) == 1
    (answer,) = answered(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is ev.RejectionReason.PROFILE_FAILED
    assert answer.message == "UserCodeFailed: it raised"
    assert violations(log) == []


def test_a_profile_that_tells_nothing_of_its_sizes_is_not_repeated_for_ever() -> None:
    log = a_cell().given(new_job(sizes=(3,)))
    answered(log)
    reported(log, profiled("a", n1=1.0))
    (answer,) = answered(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is ev.RejectionReason.CURVE_UNKNOWN


def test_a_change_of_the_deadline_waits_for_the_answer() -> None:
    log = a_cell().given(new_job(deadline=1000.0))
    answered(log)
    log.given(deadline_asked("a", 2000.0))
    assert answered(log) == []
    reported(log, profiled("a"))
    assert asked_for(answered(log)) == [("JobAdmitted", "a")]
    assert asked_for(answered(log)) == [("DeadlineChanged", "a")]


# --- several jobs --------------------------------------------------------------------------


def test_two_jobs_of_one_curve_are_tried_out_once() -> None:
    log = a_cell().given(new_job("a"), new_job("b"))
    assert asked_for(answered(log)) == [("ProfileRequested", "a")]
    log.given(new_job("c"))
    assert answered(log) == []
    reported(log, profiled("a"))
    assert asked_for(answered(log)) == [(("JobAdmitted"), job) for job in ("a", "b", "c")]


def test_other_models_do_not_wait() -> None:
    log = a_cell().given(new_job("a"))
    answered(log)
    log.given(submitted("b"), new_job("c", model="newer"))
    assert asked_for(answered(log)) == [("JobAdmitted", "b"), ("ProfileRequested", "c")]
    assert wanted(log) == ["a", "c"]


def test_if_one_fails_the_next_is_tried_out_with_its_own_code() -> None:
    log = a_cell().given(new_job("a"), new_job("b"))
    answered(log)
    reported(log, profile_failed("a"))
    assert asked_for(answered(log)) == [("JobRejected", "a"), ("ProfileRequested", "b")]
    assert wanted(log) == ["b"]


def test_a_cancelled_job_ends_its_profile_and_the_next_takes_its_turn() -> None:
    log = a_cell().given(new_job("a"), new_job("b"))
    answered(log)
    log.given(cancellation_asked("a"))
    assert asked_for(answered(log)) == [("JobCancelled", "a"), ("ProfileRequested", "b")]
    assert wanted(log) == ["b"]
    assert reported(log, profiled("a")) == [], "too late"
    assert violations(log) == []


def test_an_imported_curve_answers_too_and_ends_the_profile() -> None:
    log = a_cell().given(new_job("a"))
    answered(log)
    log.given(curves_imported(new={1: 5.0}))
    assert asked_for(answered(log)) == [("JobAdmitted", "a")]
    assert wanted(log) == []
    assert reported(log, profiled("a")) == []
    assert cell_of(log).curves["new/64"] == {1: 5.0}


# --- facts ---------------------------------------------------------------------------------


def test_reports_of_a_profile_are_taken_once_and_only_of_a_job_that_waits() -> None:
    log = a_cell().given(new_job("a"))
    assert reported(log, profiled("a")) == [], "nobody asked"
    answered(log)
    assert reported(log, profiled("nobody")) == []
    assert len(reported(log, profiled("a"))) == 1
    assert reported(log, profiled("a")) == []
    assert reported(log, profile_failed("a")) == []


def test_a_profile_adds_to_a_curve_and_replaces_nothing() -> None:
    log = a_cell().given(curves_imported(new={8: 3.0}), new_job("a", sizes=(1, 2)))
    assert asked_for(answered(log)) == [("ProfileRequested", "a")]
    reported(log, profiled("a", n1=1.0, n2=1.5, n8=9.0))
    assert cell_of(log).curves["new/64"] == {1: 1.0, 2: 1.5, 8: 3.0}
    assert violations(log) == []


def test_the_allocator_looks_again_when_a_curve_grows() -> None:
    log = a_cell().given(new_job("a"))
    answered(log)
    allocator = AllocatorDecider()
    log.add(*allocator.decide(folded(log, allocator)))
    assert decided(log, allocator) == []
    reported(log, profiled("a"))
    assert decided(log, allocator) != []


def test_a_profile_out_of_turn_breaks_an_invariant() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), profile_asked("a"))
    (found,) = violations(log)
    assert (found.invariant, "profiled" in found.message) == (2, True)
    again = a_cell().given(new_job("a"), profile_asked("a"), profile_asked("a"))
    assert [found.invariant for found in violations(again)] == [2]
