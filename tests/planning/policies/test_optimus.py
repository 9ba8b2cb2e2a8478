"""Optimus: GPUs one step at a time, to whom each saves most."""

from __future__ import annotations

from resilin.planning.policies.optimus import Optimus
from resilin.planning.view import ClusterView

POLICY = Optimus()
RATES = {1: 1.0, 2: 1.8, 4: 3.0}


def planned(make, gpus: int, work: list[float], **more: object) -> dict[str, int]:
    table = make.table(RATES)
    jobs = tuple(make.job(f"job-{n}", table, left) for n, left in enumerate(work))
    return {**POLICY.plan(ClusterView(0.0, gpus, gpus, jobs, **more)).workers}  # type: ignore[arg-type]  # fields by name


def test_each_job_has_its_smallest_size_before_any_grows(make) -> None:
    assert planned(make, 2, [900.0, 100.0]) == {"job-0": 1, "job-1": 1}
    assert planned(make, 1, [900.0, 100.0]) == {"job-0": 0, "job-1": 1}, "the shortest first"


def test_a_gpu_goes_where_it_saves_most_time(make) -> None:
    # From 1 to 2 workers saves 0.44 of the remaining seconds: 400 against 44.
    assert planned(make, 3, [900.0, 100.0]) == {"job-0": 2, "job-1": 1}
    # From 2 to 4 it saves job-0 another 200, for 2 GPUs: 100 each, still above 44.
    assert planned(make, 5, [900.0, 100.0]) == {"job-0": 4, "job-1": 1}
    assert planned(make, 6, [900.0, 100.0]) == {"job-0": 4, "job-1": 2}


def test_within_a_round_only_newcomers_get_something(make) -> None:
    table = make.table(RATES)
    jobs = (make.job("job-0", table, 100.0, workers=2), make.job("job-1", table, 100.0))
    plan = POLICY.plan(ClusterView(50.0, 8, 8, jobs, due_seconds=600.0))
    assert plan.workers == {"job-0": 2, "job-1": 1}
    assert plan.look_again_seconds == 600.0
    plan = POLICY.plan(ClusterView(600.0, 8, 8, jobs, due_seconds=600.0))
    assert plan.workers == {"job-0": 4, "job-1": 4}
    assert plan.look_again_seconds == 1200.0
