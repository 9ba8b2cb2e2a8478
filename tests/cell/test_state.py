"""The cell's fold: what every event makes of jobs, servers and settings; total on any log."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
)
from tests.support.log import HandMadeLog, a_cell, folded
from tests.support.strategies import any_entries, any_events

from resilin.admission.decider import AdmissionDecider
from resilin.cell import gpu_sets
from resilin.cell.state import CellState, JobState, Phase, curve_key, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry, Record
from resilin.contracts.values import GpuSet, VirtualCluster
from resilin.kernel.snapshot import state_hash

FOUR: GpuSet = {"s1": (0, 1, 2, 3)}


def cell(log: HandMadeLog) -> CellState:
    return folded(log, AdmissionDecider()).cell


def job_of(log: HandMadeLog, job_id: str = "a") -> JobState:
    return cell(log).jobs[job_id]


def running(at: float = 0.0) -> HandMadeLog:
    """Job ``a`` of 100 iterations trains with four workers from ``at`` on."""
    log = a_cell(servers=2).given(submitted("a", deadline=1000.0), admitted("a", (0, 25, 4)))
    return log.given(planned({"a": 4}), placed("a", 1, FOUR)).at(at).given(switched("a", 1, 4))


# --- settings and servers ------------------------------------------------------------------


def test_settings_are_those_configured_last() -> None:
    log = a_cell().given(configured(VirtualCluster(name="new")))
    assert cell(log).configuration.virtual_cluster("new") is not None
    assert cell(log).configuration.virtual_cluster("default") is None


def test_curves_are_kept_by_model_and_batch_in_order_of_workers() -> None:
    log = a_cell().given(curves_imported(odd={4: 3.0, 1: 1.0}))
    assert list(cell(log).curves[curve_key("odd", 64)].items()) == [(1, 1.0), (4, 3.0)]
    log.given(curves_imported(odd={2: 2.0}))
    assert cell(log).curves["odd/64"] == {2: 2.0}


def test_a_server_can_be_used_once_its_node_has_joined() -> None:
    log = HandMadeLog().given(server_added("s1"))
    assert not cell(log).servers["s1"].usable
    assert cell(log.given(joined("s1"))).servers["s1"].usable


def test_a_cordoned_server_works_but_gets_nothing_new() -> None:
    server = cell(a_cell().given(cordoned("s1"))).servers["s1"]
    assert (server.works, server.usable) == (True, False)
    assert cell(a_cell().given(cordoned("s1"), cordoned("s1", cordon=False))).servers["s1"].usable


def test_a_removed_server_does_not_work_until_it_returns() -> None:
    log = a_cell().given(cordoned("s1"), server_removed("s1"))
    assert not cell(log).servers["s1"].works
    assert cell(log.given(server_added("s1"))).servers["s1"].usable


def test_a_server_on_loan_works_for_its_borrower() -> None:
    loan = {"server_id": "s1", "lender": "default", "borrower": "other"}
    log = a_cell().given(ev.ServerLoaned(**loan))
    assert cell(log).servers["s1"].virtual_cluster == "other"
    log.given(ev.ServerReclaimed(**loan))
    assert cell(log).servers["s1"].virtual_cluster == "default"


def test_only_a_later_incarnation_joins_and_only_the_current_one_is_lost() -> None:
    log = a_cell().given(lost("s1", 2))
    assert cell(log).servers["s1"].joined
    log.given(lost("s1", 1), joined("s1", 1))
    assert not cell(log).servers["s1"].joined
    log.given(joined("s1", 2), lost("s1", 1))
    server = cell(log).servers["s1"]
    assert (server.joined, server.incarnation) == (True, 2)


# --- a job's life --------------------------------------------------------------------------


def test_a_job_is_submitted_admitted_and_ends() -> None:
    log = a_cell().given(submitted("a"))
    assert job_of(log).phase is Phase.SUBMITTED
    log.given(admitted("a", (0, 50, 2)))
    job = job_of(log)
    assert (job.phase, job.promised, job.finish_promised_seconds) == (Phase.ADMITTED, True, 50)
    assert job.plan == ((0, 50, 2),)


def test_jobs_are_numbered_in_order_of_submission() -> None:
    log = a_cell().given(submitted("b"), submitted("a"), rejected("b"), submitted("c"))
    assert {job_id: job.order for job_id, job in cell(log).jobs.items()} == {"a": 1, "c": 2}
    assert cell(log).submitted == 3


def test_a_second_submission_of_a_live_job_changes_nothing() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), submitted("a", deadline=7.0))
    assert job_of(log).deadline_seconds is None
    assert cell(log).submitted == 1


@pytest.mark.parametrize(
    "end",
    [
        ev.JobCancelled(job_id="a"),
        completed("a", 1),
        rejected("a"),
        ev.JobFailed(job_id="a", generation=1, reason="Crashed", message=""),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_job_that_ends_without_gpus_is_forgotten(end: ev.Event) -> None:
    assert cell(a_cell().given(submitted("a"), admitted("a"), end)).jobs == {}


@pytest.mark.parametrize(
    ("end", "phase"),
    [
        (ev.JobCancelled(job_id="a"), Phase.CANCELLED),
        (completed("a", 1), Phase.COMPLETED),
        (ev.JobFailed(job_id="a", generation=1, reason="Crashed", message=""), Phase.FAILED),
    ],
    ids=["cancelled", "completed", "failed"],
)
def test_a_job_that_ends_stays_until_its_gpus_are_free(end: ev.Event, phase: Phase) -> None:
    log = running().given(end)
    job = job_of(log)
    assert job.phase is phase
    assert (job.placed, job.held, job.wanted_workers, job.plan) == ({}, FOUR, 0, ())
    log.given(released("a", 1, {"s1": (0, 1)}))
    assert job_of(log).held == {"s1": (2, 3)}
    assert cell(log.given(released("a", 1, {"s1": (2, 3)}))).jobs == {}


def test_nothing_happens_to_a_job_that_has_ended() -> None:
    log = running().given(completed("a", 1))
    before = copy.deepcopy(job_of(log))
    log.given(
        admitted("a"),
        planned({"a": 2}),
        placed("a", 2, {"s2": (0,)}),
        suspended("a", 3),
        switched("a", 4, 1),
        progressed("a", 1, 5.0),
        worker_lost("a", 1),
        ev.JobCancelled(job_id="a"),
    )
    after = job_of(log)
    assert (after.phase, after.held, after.placed, after.wanted_workers) == (
        before.phase,
        before.held,
        before.placed,
        before.wanted_workers,
    )


def test_plans_move_with_admissions_deadlines_and_allocations() -> None:
    log = a_cell().given(submitted("a", deadline=90.0), admitted("a", (0, 50, 2)), submitted("b"))
    moved = ((50.0, 75.0, 4),)
    log.add(admitted("b").model_copy(update={"plans_moved": {"a": moved, "nobody": ()}}))
    assert job_of(log).plan == moved
    log.given(planned(plans={"a": [(60, 85, 4)]}))
    assert job_of(log).plan == ((60, 85, 4),)
    log.given(ev.DeadlineChanged(job_id="a", deadline_seconds=70.0, plan=((0, 50, 2),)))
    assert (job_of(log).plan, job_of(log).deadline_seconds) == (((0, 50, 2),), 70.0)


# --- placement and progress ----------------------------------------------------------------


def test_a_placement_holds_its_gpus_until_they_are_released() -> None:
    log = running().at(10.0).given(placed("a", 2, {"s1": (2, 3), "s2": (0,)}))
    job = job_of(log)
    assert (job.generation, job.placed_workers, job.placed_at_seconds) == (2, 3, 10.0)
    assert job.held == {"s1": (0, 1, 2, 3), "s2": (0,)}
    assert job.leaving == {"s1/0": 2, "s1/1": 2}
    assert not job.trains
    log.given(released("a", 2, {"s1": (0, 1)}))
    assert (job_of(log).held, job_of(log).leaving) == (job.placed, {})


def test_a_stale_placement_changes_nothing() -> None:
    log = running().given(placed("a", 1, {"s2": (0,)}), migrated("a", 1, {"s2": (0,)}))
    log.given(suspended("a", 1))
    assert job_of(log).placed == FOUR


def test_a_suspension_takes_all_gpus_away() -> None:
    job = job_of(running().given(suspended("a", 2)))
    assert (job.placed, job.placed_workers, job.held) == ({}, 0, FOUR)
    assert set(job.leaving.values()) == {2}


def test_gpus_taken_away_twice_count_from_the_first_time() -> None:
    job = job_of(running().given(suspended("a", 2), placed("a", 3, {"s2": (0,)})))
    assert set(job.leaving.values()) == {2}


def test_gpus_given_back_before_they_were_released_do_not_leave() -> None:
    log = running().given(suspended("a", 2), placed("a", 3, {"s1": (0, 1)}))
    assert job_of(log).leaving == {"s1/2": 2, "s1/3": 2}
    log.given(released("a", 2, FOUR))
    assert job_of(log).held == {"s1": (0, 1)}


def test_a_release_by_an_earlier_generation_frees_nothing() -> None:
    log = running().given(placed("a", 2, {"s2": (0,)}), released("a", 1, FOUR))
    assert job_of(log).held == {**FOUR, "s2": (0,)}


def test_work_done_is_extrapolated_while_it_trains() -> None:
    log = running(at=2.0).at(7.0).given(cancellation_asked("b"))
    state = cell(log)
    assert state.iterations_done(state.jobs["a"], 7.0) == 20.0
    assert state.iterations_done(state.jobs["a"], 1.0) == 0.0  # not before it began
    assert state.iterations_done(state.jobs["a"], 1e6) == 100.0  # nor beyond its end


def test_a_change_settles_the_work_done_and_it_stands_still() -> None:
    log = running().at(10.0).given(placed("a", 2, {"s2": (0,)}))
    state = cell(log.at(20.0).given(cancellation_asked("b")))
    assert state.iterations_done(state.jobs["a"], 20.0) == 40.0


def test_reports_correct_the_extrapolation() -> None:
    log = running().at(10.0).given(progressed("a", 1, 35.0))
    state = cell(log)
    assert state.iterations_done(state.jobs["a"], 11.0) == 39.0
    log.given(progressed("a", 7, 99.0))  # a generation that does not train
    assert cell(log).jobs["a"].iterations_done == 35.0


def test_a_measurement_settles_the_past_at_the_old_belief() -> None:
    log = running().at(10.0).given(measured("a", 1, 4, 2.0))
    state = cell(log)
    assert state.jobs["a"].iterations_done == 40.0
    assert state.iterations_done(state.jobs["a"], 20.0) == 60.0


def test_a_measured_rate_scales_the_rest_of_the_curve() -> None:
    state = cell(running().given(measured("a", 1, 4, 2.0)))
    assert state.believed_rates(state.jobs["a"]) == {1: 0.5, 2: 1.0, 4: 2.0, 8: 4.0}
    state = cell(running().given(measured("a", 1, 4, 2.0), measured("a", 2, 1, 1.0)))
    assert state.believed_rates(state.jobs["a"]) == {1: 1.0, 2: 1.5, 4: 2.0, 8: 6.0}


def test_a_generation_switches_once_and_only_the_newest_trains() -> None:
    log = running().given(placed("a", 2, {"s2": (0,)}), switched("a", 1, 4))
    assert not job_of(log).trains
    log.given(switched("a", 2, 1, done=3.0))
    assert (job_of(log).trains, job_of(log).iterations_done) == (True, 3.0)
    log.given(switched("a", 2, 1, done=0.0))
    assert job_of(log).iterations_done == 3.0


# --- losses --------------------------------------------------------------------------------


def test_a_lost_worker_takes_the_job_back_to_its_checkpoint() -> None:
    job = job_of(running().at(10.0).given(worker_lost("a", 1, 24.0)))
    assert (job.trains, job.placed, job.iterations_done) == (False, {}, 24.0)
    assert (job.held, set(job.leaving.values())) == (FOUR, {1})


def test_a_lost_worker_is_folded_once_a_generation() -> None:
    log = running().given(worker_lost("a", 1, 24.0), worker_lost("a", 1, 3.0))
    assert job_of(log).iterations_done == 24.0


def test_a_lost_node_frees_its_gpus_at_once() -> None:
    log = a_cell(servers=2).given(submitted("a"), admitted("a"), planned({"a": 8}))
    log.given(placed("a", 1, {"s1": (0, 1, 2, 3), "s2": (0, 1, 2, 3)}), switched("a", 1, 8))
    job = job_of(log.given(lost("s1")))
    assert (job.trains, job.placed, job.held) == (False, {}, {"s2": (0, 1, 2, 3)})
    assert set(job.leaving.values()) == {1}


def test_a_node_that_joins_anew_has_none_of_its_old_workers() -> None:
    job = job_of(running().given(joined("s1", 2)))
    assert (job.trains, job.placed, job.held) == (False, {}, {})


def test_other_jobs_are_untouched_by_a_lost_node() -> None:
    log = running().given(submitted("b"), admitted("b"), placed("b", 1, {"s2": (0,)}))
    before = copy.deepcopy(job_of(log, "b"))
    assert job_of(log.given(lost("s1")), "b") == before


# --- any log at all ------------------------------------------------------------------------


def fold_any(entries: list[LogEntry]) -> CellState:
    state = CellState()
    for entry in entries:
        for event in entry.record.events:
            state = evolve_cell(state, event, entry)
    return state


@given(any_entries())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_on_any_log_the_fold_holds_together(entries: list[LogEntry]) -> None:
    state = CellState()
    for entry in entries:
        before = state.now_seconds
        for event in entry.record.events:
            state = evolve_cell(state, event, entry)
        assert state.now_seconds >= before
        for job_id, job in state.jobs.items():
            held = set(gpu_sets.each(job.held))
            assert job.job_id == job_id
            assert set(gpu_sets.each(job.placed)) <= held
            assert {f"{server}/{index}" for server, index in held} >= job.leaving.keys()
            assert job.placed_workers == gpu_sets.count(job.placed)
            assert not job.trains or job.placed
            assert not job.phase.terminal or (job.held and not job.placed)


@given(any_entries(), st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_unknown_events_change_nothing(entries: list[LogEntry], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(entries)))
    unknown = ev.UnknownEvent(type="FutureEvent", version=3, content={"job_id": "a"})
    record = Record("executor", "main", 1, -1, "facts", -1e9, (unknown,))
    disturbed = [*entries[:position], LogEntry(99, record), *entries[position:]]
    assert state_hash(fold_any(disturbed), CellState) == state_hash(fold_any(entries), CellState)


@given(any_events)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_about_nothing_it_knows_an_event_invents_no_job_and_no_server(
    event: ev.Event | ev.UnknownEvent,
) -> None:
    record = Record("executor", "main", 1, -1, "facts", 1.0, (event,))
    state = evolve_cell(CellState(), event, LogEntry(0, record))
    assert bool(state.jobs) == isinstance(event, ev.JobSubmitted)
    assert bool(state.servers) == isinstance(event, ev.ServerAdded)
