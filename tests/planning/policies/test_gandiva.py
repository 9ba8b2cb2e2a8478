"""Gandiva: a slice for everyone in turn."""

from __future__ import annotations

from resilin.planning.policies.gandiva import Gandiva
from resilin.planning.view import ClusterView

POLICY = Gandiva()
RATES = {1: 1.0, 2: 1.9, 4: 3.5}


def planned(make, gpus: int, jobs: list[tuple[int, int, float]], due: float | None) -> list[int]:
    """Plan for jobs with so many requested and present workers, as they are since then."""
    table = make.table(RATES)
    views = tuple(
        make.job(f"job-{n}", table, 10.0, requested_workers=size, workers=has, since_seconds=since)
        for n, (size, has, since) in enumerate(jobs)
    )
    plan = POLICY.plan(ClusterView(100.0, gpus, gpus, views, due_seconds=due))
    return [*plan.workers.values()]


def test_who_waited_longest_is_next_and_who_ran_longest_gives_way(make) -> None:
    jobs = [(1, 1, 40.0), (1, 1, 70.0), (1, 0, 90.0), (1, 0, 50.0)]
    assert planned(make, 1, jobs, due=100.0) == [0, 0, 0, 1]
    assert planned(make, 2, jobs, due=100.0) == [0, 0, 1, 1]
    assert planned(make, 3, jobs, due=100.0) == [0, 1, 1, 1], "job-0 has run longest"


def test_within_a_slice_nobody_gives_way(make) -> None:
    jobs = [(1, 1, 40.0), (1, 0, 50.0)]
    assert planned(make, 1, jobs, due=120.0) == [1, 0]
    assert planned(make, 2, jobs, due=120.0) == [1, 1], "idle GPUs are given out at once"


def test_a_small_job_slips_in_beside_one_that_does_not_fit(make) -> None:
    assert planned(make, 4, [(4, 0, 50.0), (2, 0, 40.0), (2, 2, 60.0)], due=100.0) == [0, 2, 2]


def test_the_next_slice_is_a_minute_away_if_anybody_waits(make) -> None:
    table = make.table(RATES)
    jobs = tuple(make.job(f"job-{n}", table, 10.0, requested_workers=2) for n in range(2))
    assert POLICY.plan(ClusterView(100.0, 2, 2, jobs)).look_again_seconds == 160.0
    assert POLICY.plan(ClusterView(100.0, 4, 4, jobs)).look_again_seconds is None
