"""What a job has had: GPU time, runs and waits, as the cell's events tell them."""

from __future__ import annotations

from tests.support.events import (
    admitted,
    completed,
    lost,
    placed,
    planned,
    released,
    submitted,
    suspended,
    switched,
    worker_lost,
)
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.admission.decider import AdmissionDecider
from resilin.cell.service_received import ServiceReceived
from resilin.cell.state import CellState
from resilin.cell.view import cluster_view, job_view
from resilin.planning.view import JobView


def cell(log: HandMadeLog) -> CellState:
    return folded(log, AdmissionDecider()).cell


def view_of(log: HandMadeLog) -> JobView:
    state = cell(log)
    view = job_view(state, state.jobs["a"])
    assert view is not None
    return view


def running() -> HandMadeLog:
    """Job ``a`` was submitted at 10 and has two GPUs since 40."""
    log = a_cell().at(10.0).given(submitted("a", at=10.0, requested=2), admitted("a"))
    return log.at(40.0).given(planned({"a": 2}), placed("a", 1, {"s1": (0, 1)}))


def test_time_with_gpus_counts_whether_it_trains_or_not() -> None:
    log = running().at(45.0).given(switched("a", 1, 2))
    log.at(60.0).given(planned())
    view = view_of(log)
    assert (view.attained_gpu_seconds, view.executed_seconds) == (40.0, 20.0)
    assert (view.submitted_at_seconds, view.since_seconds, view.waited_seconds) == (
        10.0,
        40.0,
        30.0,
    )
    assert (view.run_gpu_seconds, view.preemptions, view.generation) == (40.0, 0, 1)
    assert view.total_iterations == 100.0


def test_another_size_goes_on_with_the_run() -> None:
    log = running().at(50.0).given(planned({"a": 4}), placed("a", 2, {"s1": (0, 1, 2, 3)}))
    log.at(55.0).given(planned())
    view = view_of(log)
    assert view.attained_gpu_seconds == 2 * 10.0 + 4 * 5.0
    assert (view.since_seconds, view.run_gpu_seconds, view.preemptions) == (40.0, 40.0, 0)


def test_a_suspended_job_waits_and_begins_a_new_run() -> None:
    log = running().at(50.0).given(planned({"a": 0}), suspended("a", 2))
    log.given(released("a", 2, {"s1": (0, 1)}))
    log.at(70.0).given(planned())
    view = view_of(log)
    assert (view.attained_gpu_seconds, view.executed_seconds) == (20.0, 10.0)
    assert (view.since_seconds, view.preemptions, view.run_gpu_seconds) == (50.0, 1, 0.0)
    log.at(90.0).given(planned({"a": 1}), placed("a", 3, {"s1": (0,)}))
    log.at(95.0).given(planned())
    view = view_of(log)
    assert (view.attained_gpu_seconds, view.run_gpu_seconds) == (25.0, 5.0)
    assert (view.waited_seconds, view.since_seconds) == (40.0, 90.0)


def test_lost_workers_and_lost_nodes_end_a_run() -> None:
    for event in (worker_lost("a", 1), lost("s1")):
        log = running().at(50.0).given(event)
        log.at(70.0).given(planned())
        state = cell(log).jobs["a"].service
        assert (state.gpu_seconds, state.workers, state.since_seconds) == (20.0, 0, 50.0)


def test_the_cell_remembers_how_much_finished_jobs_took() -> None:
    log = running().at(60.0).given(completed("a", 1))
    assert cluster_view(cell(log), "default").finished_gpu_seconds == (40.0,)
    assert cluster_view(cell(log), "other").finished_gpu_seconds == ()


def test_a_clock_that_stands_still_adds_nothing() -> None:
    account = ServiceReceived()
    account.change(4, 100.0)
    account.change(0, 100.0)
    assert (account.gpu_seconds, account.seconds, account.preemptions) == (0.0, 0.0, 1)
    assert account.gpu_seconds_at(1e9) == account.seconds_at(1e9) == 0.0
