"""Earliest deadline first: elastic up to each curve's peak, no promises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.policies.edf import EarliestDeadlineFirst
from resilin.planning.policies.policy import Admission
from resilin.planning.view import Binding, ClusterView

POLICY = EarliestDeadlineFirst(capped=True)
UNCAPPED = EarliestDeadlineFirst(capped=False)
CURVES = (
    {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0},
    {1: 1.0, 2: 1.5, 4: 1.4, 8: 1.2},
    {2: 1.0, 4: 1.5},
    {1: 1.0},
)


@pytest.mark.parametrize("binding", list(Binding))
def test_every_job_comes_in_without_a_promise(make, binding: Binding) -> None:
    job = make.job("job-1", make.table(CURVES[0]), 1e9, 1.0, binding=binding)
    view = ClusterView(0.0, 1, 1, ())
    assert POLICY.judge(view, job) == Admission(promised=False)
    assert POLICY.earliest_deadline(view, job) is None


def test_the_earliest_deadline_gets_all_it_can_use(make) -> None:
    table = make.table(CURVES[0])
    jobs = (
        make.job("none-0", table, 10.0, binding=Binding.BEST_EFFORT),
        make.job("late-1", table, 10.0, 90.0),
        make.job("early-2", table, 10.0, 30.0),
    )
    for gpus, early, late, none in ((1, 1, 0, 0), (8, 8, 0, 0), (11, 8, 2, 1), (24, 8, 8, 8)):
        workers = POLICY.plan(ClusterView(0.0, gpus, gpus, jobs)).workers
        assert workers == {"early-2": early, "late-1": late, "none-0": none}


def test_nobody_goes_past_the_peak_of_its_curve(make) -> None:
    jobs = tuple(make.job(f"job-{n}", make.table(CURVES[1]), 10.0, 9.0 + n) for n in range(3))
    assert POLICY.plan(ClusterView(0.0, 8, 8, jobs)).workers == {"job-0": 2, "job-1": 2, "job-2": 2}


def test_without_the_cap_it_gets_all_that_a_curve_is_known_for(make) -> None:
    jobs = tuple(make.whole_job(f"job-{n}", CURVES[1], 10.0, 9.0 + n) for n in range(3))
    view = ClusterView(0.0, 14, 14, jobs)
    assert UNCAPPED.plan(view).workers == {"job-0": 8, "job-1": 4, "job-2": 2}
    assert POLICY.plan(view).workers == {"job-0": 2, "job-1": 2, "job-2": 2}


def test_what_no_server_could_hold_is_refused(make) -> None:
    job = make.job("job-1", make.table(CURVES[2]), 10.0)
    assert not POLICY.judge(ClusterView(0.0, 1, 1, ()), job).admitted
    assert POLICY.judge(ClusterView(0.0, 1, 1, (), installed_gpus=2), job).admitted
    assert POLICY.judge(ClusterView(0.0, 0, 0, ()), job).admitted, "servers are still to come"


def test_equal_deadlines_go_by_submission(make) -> None:
    table = make.table(CURVES[3])
    jobs = (make.job("job-2", table, 9.0, 9.0), make.job("job-1", table, 9.0, 9.0))
    assert POLICY.plan(ClusterView(0.0, 1, 1, jobs)).workers == {"job-1": 1, "job-2": 0}


def test_an_earlier_deadline_takes_gpus_from_what_runs(make) -> None:
    table = make.table(CURVES[0])
    jobs = (
        make.job("runs-0", table, 10.0, 90.0, workers=8),
        make.job("comes-1", table, 10.0, 30.0),
    )
    assert POLICY.plan(ClusterView(0.0, 8, 8, jobs)).workers == {"runs-0": 0, "comes-1": 8}


def test_a_job_whose_smallest_size_does_not_fit_is_passed_over(make) -> None:
    jobs = (
        make.job("job-0", make.table(CURVES[2]), 10.0, 1.0),
        make.job("job-1", make.table(CURVES[3]), 10.0, 2.0),
    )
    assert POLICY.plan(ClusterView(0.0, 1, 1, jobs)).workers == {"job-0": 0, "job-1": 1}


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(CURVES), st.sampled_from((5.0, 7.0, math.inf))), max_size=7),
    st.integers(0, 20),
)
def test_each_in_turn_gets_its_largest_size_of_what_is_left(make, numbers, gpus: int) -> None:
    jobs = tuple(
        make.job(f"job-{n}", make.table(rates), 10.0, deadline)
        for n, (rates, deadline) in enumerate(numbers)
    )
    workers = POLICY.plan(ClusterView(0.0, gpus, gpus, jobs)).workers
    left = gpus
    for deadline in (5.0, 7.0, math.inf):
        for job in jobs:
            if job.deadline_seconds == deadline:
                fits = [size for size in job.table.sizes if size <= left]
                assert workers[job.job_id] == (fits[-1] if fits else 0)
                left -= workers[job.job_id]
    assert left >= 0
