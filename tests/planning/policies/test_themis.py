"""Themis: the worst off is served first when leases end."""

from __future__ import annotations

import pytest

from resilin.planning.policies.themis import Themis, finish_time_fairness
from resilin.planning.view import ClusterView, JobView

POLICY = Themis()
RATES = {1: 1.0, 2: 2.0, 4: 4.0}


def job(make, number: int, left: float, submitted: float, size: int = 1, **more) -> JobView:
    return make.job(
        f"job-{number}",
        make.table(RATES),
        left,
        requested_workers=size,
        total_iterations=100.0,
        submitted_at_seconds=submitted,
        **more,
    )


def test_fairness_by_hand(make) -> None:
    one, two = job(make, 0, 50.0, 0.0), job(make, 1, 100.0, 600.0, 4)
    view = ClusterView(720.0, 4, 4, (one, two))
    # job-0 has taken 720 s and needs 50 more; alone it would have taken 100.
    assert finish_time_fairness(view, one) == pytest.approx(7.7)
    # job-1 will have taken 145 s; alone, on 2 of the 4 GPUs it asked for, 50.
    assert finish_time_fairness(view, two) == pytest.approx(2.9)


def test_the_worst_off_gets_the_lease(make) -> None:
    jobs = (job(make, 0, 50.0, 600.0, workers=1), job(make, 1, 100.0, 0.0))
    at_the_end = ClusterView(720.0, 1, 1, jobs, due_seconds=720.0)
    plan = POLICY.plan(at_the_end)
    assert plan.workers == {"job-0": 0, "job-1": 1}
    assert plan.look_again_seconds == 1080.0
    in_between = ClusterView(719.0, 1, 1, jobs, due_seconds=720.0)
    assert POLICY.plan(in_between).workers == {"job-0": 1, "job-1": 0}
