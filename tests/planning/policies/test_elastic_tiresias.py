"""Elastic-Tiresias: R1 halves when others wait, R2 grows when nobody does."""

from __future__ import annotations

from resilin.planning.policies.elastic_tiresias import ElasticTiresias
from resilin.planning.view import ClusterView, JobView

POLICY = ElasticTiresias()
RATES = {1: 1.0, 2: 1.9, 4: 3.0, 8: 3.5}


def job(make, number: int, attained: float, size: int, rates=RATES, **more: object) -> JobView:
    table = make.table(rates, more.pop("stop", 0.0))
    fields: dict[str, object] = {"requested_workers": size, "attained_gpu_seconds": attained}
    return make.job(f"job-{number}", table, 1000.0, **{**fields, **more})


def planned(gpus: int, *jobs: JobView) -> dict[str, int]:
    return {**POLICY.plan(ClusterView(0.0, gpus, gpus, jobs)).workers}


def test_r1_halves_all_but_the_first_queue(make) -> None:
    jobs = (job(make, 0, 50_000.0, 8, workers=8), job(make, 1, 0.0, 4))
    assert planned(8, *jobs) == {"job-0": 4, "job-1": 4}
    jobs = (job(make, 0, 50_000.0, 4, workers=4), job(make, 1, 60_000.0, 8))
    assert planned(6, *jobs) == {"job-0": 2, "job-1": 4}, "both are of the second queue"
    jobs = (job(make, 0, 50_000.0, 8, workers=4), job(make, 1, 60_000.0, 4))
    assert planned(7, *jobs) == {"job-0": 4, "job-1": 2}, "both are of the second queue"
    jobs = (job(make, 0, 500.0, 8, workers=8), job(make, 1, 0.0, 4))
    assert planned(8, *jobs) == {"job-0": 8, "job-1": 0}, "the first queue is not halved"


def test_a_job_with_one_worker_is_not_halved_to_none(make) -> None:
    assert planned(1, job(make, 0, 50_000.0, 1), job(make, 1, 0.0, 1)) == {"job-0": 0, "job-1": 1}


def test_r2_grows_by_relative_gain(make) -> None:
    # From 1 to 2: 0.9 against 0.5. From 2 to 4 for two more: 0.29 each against 0.17.
    flat = {1: 1.0, 2: 1.5, 4: 2.0}
    jobs = (job(make, 0, 0.0, 1, flat), job(make, 1, 0.0, 1))
    assert planned(3, *jobs) == {"job-0": 1, "job-1": 2}
    assert planned(4, *jobs) == {"job-0": 2, "job-1": 2}
    assert planned(6, *jobs) == {"job-0": 2, "job-1": 4}


def test_r2_leaves_idle_what_makes_nobody_faster(make) -> None:
    peaked = make.whole_job("job-0", {1: 1.0, 2: 2.0, 4: 1.0}, 10.0, requested_workers=2)
    assert planned(8, peaked) == {"job-0": 2}


def test_r2_does_not_stop_a_job_for_little(make) -> None:
    nearly_done = job(make, 0, 0.0, 2, workers=2, stop=4.0, remaining_iterations=10.0)
    assert planned(8, nearly_done) == {"job-0": 2}
    long = job(make, 0, 0.0, 2, workers=2, stop=4.0)
    assert planned(8, long) == {"job-0": 8}, "each step saves more than twice its stop"


def test_one_plan_holds_the_outcome_of_both_rules(make) -> None:
    """Halved by R1, and as that leaves nobody waiting, grown by R2: in one plan."""
    jobs = (job(make, 0, 50_000.0, 4, workers=4), job(make, 1, 50_000.0, 4))
    assert planned(6, *jobs) == {"job-0": 4, "job-1": 2}


def test_it_refuses_only_what_not_even_its_half_fits(make) -> None:
    view = ClusterView(0.0, 4, 4, ())
    assert POLICY.judge(view, job(make, 0, 0.0, 8)).admitted
    assert not POLICY.judge(view, make.job("job-0", make.table({8: 1.0}), 1.0)).admitted
