"""From the cell's state to numbers: what planning algorithms see of jobs and servers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.support.events import (
    admitted,
    cancellation_asked,
    configured,
    cordoned,
    curves_imported,
    joined,
    lost,
    measured,
    placed,
    planned,
    server_added,
    server_removed,
    submitted,
    suspended,
    switched,
    worker_lost,
)
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.admission.decider import AdmissionDecider
from resilin.cell.state import CellState
from resilin.cell.view import cluster_view, job_view, stop_seconds
from resilin.contracts.job_specification import DeadlinePolicy
from resilin.contracts.values import StopCost, VirtualCluster
from resilin.planning.view import Binding, JobView


def cell(log: HandMadeLog) -> CellState:
    return folded(log, AdmissionDecider()).cell


def view_of(log: HandMadeLog, job_id: str = "a") -> JobView:
    state = cell(log)
    view = job_view(state, state.jobs[job_id])
    assert view is not None
    return view


def one_job(stop_cost: StopCost | None = None, **of_job: Any) -> HandMadeLog:
    return a_cell(stop_cost=stop_cost).given(submitted("a", **of_job), admitted("a"))


# --- stops ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "seconds"), [(1, 4.0), (2, 6.0), (4, 8.0), (8, 10.0)])
def test_the_modelled_stop_is_2_and_2_a_doubling(workers: int, seconds: float) -> None:
    assert stop_seconds(StopCost.modelled(), workers) == seconds


def test_a_stop_is_free_by_default() -> None:
    assert stop_seconds(StopCost(), 64) == 0.0


# --- a cluster -----------------------------------------------------------------------------


def test_only_servers_that_may_get_work_count() -> None:
    log = a_cell(servers=5).given(cordoned("s1"), server_removed("s2"), lost("s3"))
    log.given(server_added("s6", 2))  # its node never joined
    view = cluster_view(cell(log), "default")
    assert (view.gpus, view.promised_gpus) == (8, 8)


def test_the_largest_servers_are_the_reserve() -> None:
    log = a_cell(0, 4, VirtualCluster(reserve_servers=1))
    for name, gpus in (("small", 2), ("large", 8), ("middle", 4)):
        log.given(server_added(name, gpus), joined(name))
    view = cluster_view(cell(log), "default")
    assert (view.gpus, view.promised_gpus) == (14, 6)


def test_while_servers_are_lost_the_reserve_is_used_first() -> None:
    log = a_cell(3, 4, VirtualCluster(reserve_servers=1)).given(lost("s1"))
    view = cluster_view(cell(log), "default")
    assert (view.gpus, view.promised_gpus) == (8, 8)
    log.given(lost("s2"))
    view = cluster_view(cell(log), "default")
    assert (view.gpus, view.promised_gpus) == (4, 4)


def test_a_cluster_sees_its_own_servers_and_live_jobs_only() -> None:
    log = a_cell(1, 4, VirtualCluster(), VirtualCluster(name="other"))
    log.given(server_added("t1", 2, "other"), joined("t1"))
    for job_id, cluster in (("a", "default"), ("b", "other"), ("asked", "default")):
        log.given(submitted(job_id, virtual_cluster=cluster))
    log.given(admitted("a"), admitted("b"))
    default, other = (cluster_view(cell(log), name) for name in ("default", "other"))
    assert (default.gpus, [job.job_id for job in default.jobs]) == (4, ["a"])
    assert (other.gpus, [job.job_id for job in other.jobs]) == (2, ["b"])


def test_a_cluster_nobody_configured_is_empty_but_harmless() -> None:
    view = cluster_view(cell(a_cell()), "nowhere")
    assert (view.gpus, view.promised_gpus, view.jobs) == (0, 0, ())


def test_the_view_is_of_the_states_moment_with_the_cells_margin() -> None:
    log = a_cell(margin=7.0).at(12.0).given(cancellation_asked("a"))
    view = cluster_view(cell(log), "default")
    assert (view.now_seconds, view.margin_seconds) == (12.0, 7.0)


# --- a job ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_job", "binding", "deadline"),
    [
        ({}, Binding.BEST_EFFORT, math.inf),
        ({"deadline": 50.0}, Binding.GUARANTEED, 50.0),
        ({"deadline": 50.0, "policy": DeadlinePolicy.SOFT}, Binding.SOFT, 50.0),
    ],
)
def test_how_binding_a_deadline_is(
    of_job: dict[str, Any], binding: Binding, deadline: float
) -> None:
    view = view_of(one_job(**of_job))
    assert (view.binding, view.deadline_seconds) == (binding, deadline)


def test_a_job_has_the_sizes_it_allows_and_that_are_known() -> None:
    assert view_of(one_job()).table.sizes == (1, 2, 4, 8)
    assert view_of(one_job(sizes=(2, 3, 8))).table.sizes == (2, 8)


def test_without_a_known_size_there_is_no_view() -> None:
    state = cell(one_job(sizes=(3,)))
    assert job_view(state, state.jobs["a"]) is None
    assert cluster_view(state, "default").jobs == ()


def test_sizes_past_the_peak_are_left_out() -> None:
    log = one_job().given(curves_imported(linear={1: 1.0, 2: 3.0, 4: 2.0, 8: 2.5}))
    assert view_of(log).table.sizes == (1, 2)


def test_a_measured_curve_keeps_the_size_that_is_running() -> None:
    log = one_job().given(placed("a", 1, {"s1": (0, 1, 2, 3)}), switched("a", 1, 4))
    log.given(measured("a", 1, 4, 0.9))
    view = view_of(log)
    assert 4 in view.table.sizes
    assert view.table.rate_at[4] == 0.9


@pytest.mark.parametrize(("requested", "expected"), [(None, 1), (4, 4), (3, 3)])
def test_the_fixed_size_is_the_one_asked_for_or_the_smallest(
    requested: int | None, expected: int
) -> None:
    assert view_of(one_job(requested=requested)).requested_workers == expected


def test_what_is_left_shrinks_as_it_trains() -> None:
    log = one_job().given(planned({"a": 4}), placed("a", 1, {"s1": (0, 1, 2, 3)}))
    assert view_of(log).remaining_iterations == 100.0
    log.given(switched("a", 1, 4)).at(10.0).given(cancellation_asked("b"))
    assert view_of(log).remaining_iterations == 60.0


def test_an_overdue_job_is_never_out_of_work() -> None:
    log = one_job().given(placed("a", 1, {"s1": (0, 1, 2, 3)}), switched("a", 1, 4))
    log.at(99.0).given(cancellation_asked("b"))
    assert view_of(log).remaining_iterations == 60.0 * 4.0
    log.given(suspended("a", 2))
    assert 0 < view_of(log).remaining_iterations < 1


def test_a_job_that_changes_resumes_after_its_stop() -> None:
    log = one_job(StopCost.modelled()).at(10.0).given(placed("a", 1, {"s1": (0, 1)}))
    assert view_of(log).workers == 2
    assert view_of(log).resumes_at_seconds == 16.0
    log.at(20.0).given(cancellation_asked("b"))  # it takes longer than believed
    assert view_of(log).resumes_at_seconds == 20.0
    log.given(switched("a", 1, 2))
    assert view_of(log).resumes_at_seconds == -math.inf


@pytest.mark.parametrize("end", [suspended("a", 2), worker_lost("a", 1)])
def test_a_job_without_workers_has_nothing_to_wait_for(end: Any) -> None:
    view = view_of(one_job(StopCost.modelled()).given(placed("a", 1, {"s1": (0, 1)}), end))
    assert (view.workers, view.resumes_at_seconds) == (0, -math.inf)


def test_every_size_has_its_stop() -> None:
    table = view_of(one_job(StopCost.modelled())).table
    assert [table.stop_at[size] for size in table.sizes] == [4.0, 6.0, 8.0, 10.0]


def test_a_change_of_settings_reaches_every_job() -> None:
    log = one_job().given(configured(stop_cost=StopCost(fixed_seconds=9.0)))
    assert view_of(log).table.stop_at[1] == 9.0
