"""EDF behind an admission control: it refuses what EDF, played through, would not finish."""

from __future__ import annotations

import math

import pytest

from resilin.planning.policies.edf_admission import (
    EarliestDeadlineFirstWithAdmission,
    finish_times,
)
from resilin.planning.policies.policy import Refusal
from resilin.planning.view import Binding, ClusterView

POLICY = EarliestDeadlineFirstWithAdmission()
LINEAR = {1: 1.0, 2: 2.0}
PEAKED = {1: 4.0, 2: 2.0}


def test_edf_is_played_through(make) -> None:
    jobs = (
        make.whole_job("job-0", LINEAR, 20.0, 30.0),
        make.whole_job("job-1", LINEAR, 20.0, 15.0),
        make.whole_job("job-2", {1: 1.0}, 8.0, 40.0),
    )
    times = finish_times(ClusterView(0.0, 3, 3, jobs), jobs)
    # job-1 has 2 GPUs until 10 and job-0 one; then job-0 has 2 for its other 10 iterations.
    # job-2 gets the third GPU at 10.
    assert times == {"job-1": 10.0, "job-0": 15.0, "job-2": 18.0}


def test_stops_are_played_through_as_well(make) -> None:
    job = make.whole_job("job-0", LINEAR, 20.0, 30.0, stop=3.0)
    assert finish_times(ClusterView(5.0, 2, 2, ()), (job,)) == {"job-0": 18.0}
    job = make.whole_job("job-0", LINEAR, 20.0, 30.0, stop=3.0, workers=2, resumes_at_seconds=6.0)
    assert finish_times(ClusterView(5.0, 2, 2, ()), (job,)) == {"job-0": 16.0}
    assert finish_times(ClusterView(5.0, 0, 0, ()), (job,)) == {"job-0": math.inf}


def test_sizes_past_the_peak_are_used(make) -> None:
    job = make.whole_job("job-0", PEAKED, 20.0, 30.0)
    view = ClusterView(0.0, 2, 2, (job,))
    assert POLICY.plan(view).workers == {"job-0": 2}
    assert finish_times(view, view.jobs) == {"job-0": 10.0}


def test_who_would_be_late_is_refused(make) -> None:
    running = make.whole_job("job-0", LINEAR, 20.0, 10.0, workers=2)
    view = ClusterView(0.0, 2, 2, (running,))
    assert POLICY.judge(view, make.whole_job("job-1", LINEAR, 20.0, 20.0)).admitted
    refusal = POLICY.judge(view, make.whole_job("job-1", LINEAR, 20.0, 19.0))
    assert refusal == Refusal(reachable=True, minimum_workers=2, blocking=("job-0",))
    refusal = POLICY.judge(view, make.whole_job("job-1", LINEAR, 20.0, 9.0))
    assert refusal == Refusal(reachable=False, minimum_workers=None)


def test_who_would_make_others_late_is_refused(make) -> None:
    running = make.whole_job("job-0", LINEAR, 20.0, 11.0, workers=2)
    view = ClusterView(0.0, 2, 2, (running,))
    assert not POLICY.judge(view, make.whole_job("job-1", LINEAR, 4.0, 10.0)).admitted
    assert POLICY.judge(view, make.whole_job("job-1", LINEAR, 2.0, 10.0)).admitted


def test_one_that_is_late_anyway_refuses_nobody_and_goes_last(make) -> None:
    late = make.whole_job("job-0", LINEAR, 20.0, 11.0)
    view = ClusterView(12.0, 2, 2, (late,))
    newcomer = make.whole_job("job-1", LINEAR, 20.0, 22.0)
    assert POLICY.judge(view, newcomer).admitted
    view = ClusterView(12.0, 2, 2, (late, newcomer))
    assert POLICY.plan(view).workers == {"job-0": 0, "job-1": 2}


@pytest.mark.parametrize("binding", [Binding.SOFT, Binding.BEST_EFFORT])
def test_jobs_without_a_guarantee_come_in_and_go_behind(make, binding: Binding) -> None:
    running = make.whole_job("job-0", LINEAR, 20.0, 10.0, workers=2)
    other = make.whole_job("job-1", LINEAR, 20.0, 5.0, binding=binding)
    view = ClusterView(0.0, 2, 2, (running,))
    assert POLICY.judge(view, other).admitted
    view = ClusterView(0.0, 2, 2, (running, other))
    assert POLICY.plan(view).workers == {"job-0": 2, "job-1": 0}
    assert POLICY.earliest_deadline(view, other) is None


def test_the_counter_offer_is_the_earliest_that_is_accepted(make) -> None:
    running = make.whole_job("job-0", LINEAR, 20.0, 10.0, workers=2)
    view = ClusterView(0.0, 2, 2, (running,))
    offer = POLICY.earliest_deadline(view, make.whole_job("job-1", LINEAR, 20.0, 19.0))
    assert offer is not None
    assert 20.0 <= offer <= 21.0
    assert POLICY.judge(view, make.whole_job("job-1", LINEAR, 20.0, offer)).admitted
    nothing = ClusterView(0.0, 0, 0, (running,))
    assert POLICY.earliest_deadline(nothing, make.whole_job("job-1", LINEAR, 20.0, 19.0)) is None
