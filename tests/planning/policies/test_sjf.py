"""Shortest job first: of the waiting jobs the shortest is next, and nobody overtakes it."""

from __future__ import annotations

from resilin.planning.policies.sjf import ShortestJobFirst
from resilin.planning.view import ClusterView

POLICY = ShortestJobFirst()
RATES = {1: 1.0, 2: 2.0, 4: 4.0}


def planned(make, gpus: int, jobs: list[tuple[float, int, int]]) -> list[int]:
    """Plan for jobs with so much work, on so many workers, that have so many."""
    table = make.table(RATES)
    views = tuple(
        make.job(f"job-{n}", table, work, requested_workers=size, workers=workers)
        for n, (work, size, workers) in enumerate(jobs)
    )
    return [*POLICY.plan(ClusterView(0.0, gpus, gpus, views)).workers.values()]


def test_the_shortest_is_next_at_the_size_it_asked_for(make) -> None:
    assert planned(make, 2, [(30.0, 1, 0), (10.0, 1, 0), (20.0, 1, 0)]) == [0, 1, 1]
    assert planned(make, 4, [(30.0, 1, 0), (80.0, 4, 0)]) == [0, 4], "20 seconds against 30"


def test_a_running_job_is_not_stopped_for_a_shorter_one(make) -> None:
    assert planned(make, 1, [(30.0, 1, 1), (10.0, 1, 0)]) == [1, 0]


def test_nobody_overtakes_the_shortest(make) -> None:
    assert planned(make, 2, [(4.0, 4, 0), (10.0, 1, 1), (20.0, 1, 0)]) == [0, 1, 1]
    assert planned(make, 4, [(4.0, 4, 0), (10.0, 1, 1), (20.0, 1, 0)]) == [0, 1, 0]


def test_equals_go_by_submission(make) -> None:
    assert planned(make, 1, [(10.0, 1, 0), (10.0, 1, 0)]) == [1, 0]
