"""EDF with elastic scaling: minimum shares by deadline, the late ones behind, spare GPUs spread."""

from __future__ import annotations

from resilin.planning.policies.edf_elastic import EarliestDeadlineFirstElastic
from resilin.planning.view import Binding, ClusterView

POLICY = EarliestDeadlineFirstElastic()
LINEAR = {1: 1.0, 2: 2.0, 4: 4.0}


def test_everybody_comes_in(make) -> None:
    view = ClusterView(0.0, 4, 4, ())
    assert POLICY.judge(view, make.job("job-0", make.table(LINEAR), 1e9, 1.0)).admitted


def test_an_early_deadline_takes_no_more_than_it_needs(make) -> None:
    table = make.table({1: 1.0, 2: 1.9, 4: 3.6})
    jobs = (make.job("job-0", table, 10.0, 10.0), make.job("job-1", table, 20.0, 20.0))
    plan = POLICY.plan(ClusterView(0.0, 2, 2, jobs))
    assert plan.workers == {"job-0": 1, "job-1": 1}, "plain EDF would give job-0 both"
    assert plan.plans == {}, "nothing is promised"


def test_who_cannot_be_in_time_goes_behind(make) -> None:
    table = make.table(LINEAR)
    jobs = (make.job("job-0", table, 100.0, 10.0), make.job("job-1", table, 30.0, 10.0))
    plan = POLICY.plan(ClusterView(0.0, 4, 4, jobs))
    assert plan.workers == {"job-0": 0, "job-1": 4}
    assert plan.look_again_seconds == 7.5, "then job-0 has its turn"


def test_best_effort_gets_what_is_spare(make) -> None:
    table = make.table(LINEAR)
    jobs = (
        make.job("job-0", table, 10.0, 10.0),
        make.job("job-1", table, 10.0, binding=Binding.BEST_EFFORT),
    )
    workers = POLICY.plan(ClusterView(0.0, 2, 2, jobs)).workers
    assert workers == {"job-0": 1, "job-1": 1}
