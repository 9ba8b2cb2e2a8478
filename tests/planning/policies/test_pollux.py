"""Pollux: speedups shared fairly, batches by goodput, and a search that misses little."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.goodput import iteration_worth
from resilin.planning.policies.pollux import Pollux
from resilin.planning.view import ClusterView, JobView

POLICY = Pollux()
LINEAR = {1: 1.0, 2: 2.0, 4: 4.0}
FLAT = {1: 1.0, 2: 1.1, 4: 1.15}
CURVES = (LINEAR, FLAT, {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5}, {2: 1.0, 4: 1.7})


def planned(gpus: int, *jobs: JobView, **more: object) -> dict[str, int]:
    view = ClusterView(100.0, gpus, gpus, jobs, **more)  # type: ignore[arg-type]  # fields by name
    return {**POLICY.plan(view).workers}


def test_everyone_gets_all_it_can_use_while_that_fits(make) -> None:
    jobs = [make.job(f"job-{n}", make.table(LINEAR), 100.0) for n in range(2)]
    assert planned(8, *jobs) == {"job-0": 4, "job-1": 4}


def test_gpus_go_where_they_speed_up(make) -> None:
    flat, linear = (
        make.job("job-0", make.table(FLAT), 9.0),
        make.job("job-1", make.table(LINEAR), 9.0),
    )
    assert planned(5, flat, linear) == {"job-0": 1, "job-1": 4}


def test_nobody_is_left_with_nothing_for_anothers_speed(make) -> None:
    jobs = [make.job(f"job-{n}", make.table(LINEAR), 100.0) for n in range(4)]
    assert planned(4, *jobs) == {f"job-{n}": 1 for n in range(4)}


def test_a_job_that_was_moved_often_is_left_alone(make) -> None:
    def job(generation: int) -> JobView:
        table = make.table({1: 1.0, 2: 1.2}, 10.0)
        return make.job("job-0", table, 1e4, workers=1, generation=generation)

    assert planned(2, job(0)) == {"job-0": 2}
    assert planned(2, job(5)) == {"job-0": 1}, "of its 100 seconds 50 went into changes"


def with_batches(make, noise: float | None, **more: object) -> JobView:
    """A job of batch 64 that may be trained with 128 or 256 as well."""
    tables = (
        (64, make.table({1: 4.0, 2: 5.0})),
        (128, make.table({1: 2.4, 2: 4.0})),
        (256, make.table({1: 1.2, 2: 2.4})),
    )
    return make.job(
        "job-0",
        tables[0][1],
        1e4,
        requested_batch=64,
        global_batch=more.pop("global_batch", 64),
        gradient_noise_scale=noise,
        batch_tables=tables,
        **more,
    )


@pytest.mark.parametrize(
    ("noise", "batch"),
    [(None, 64), (0.0, 64), (300.0, 128), (100_000.0, 256)],
)
def test_the_noisier_the_gradient_the_larger_the_batch(make, noise, batch: int) -> None:
    # On 2 GPUs an endless noise would make it 5, 8 and 9.6 iterations of batch 64 a second.
    view = ClusterView(100.0, 2, 2, (with_batches(make, noise),))
    plan = POLICY.plan(view)
    assert plan.workers == {"job-0": 2}
    assert plan.global_batches == {"job-0": batch}
    assert plan.learning_rate_factors == {"job-0": iteration_worth(batch, 64, noise or 0.0)}


def test_a_batch_is_not_changed_for_little(make) -> None:
    # At this noise batch 256 is 2 % better than 128 on 2 GPUs.
    noise = 600.0
    best = 2.4 * iteration_worth(256, 64, noise)
    assert 1.0 < best / (4.0 * iteration_worth(128, 64, noise)) < 1.05
    view = ClusterView(100.0, 2, 2, (with_batches(make, noise, global_batch=128),))
    assert POLICY.plan(view).global_batches == {"job-0": 128}
    view = ClusterView(100.0, 2, 2, (with_batches(make, noise),))
    assert POLICY.plan(view).global_batches == {"job-0": 256}


def test_between_rounds_everything_stays(make) -> None:
    job = with_batches(make, 100_000.0, workers=1, global_batch=128)
    plan = POLICY.plan(ClusterView(100.0, 2, 2, (job,), due_seconds=130.0))
    assert plan.workers == {"job-0": 1}
    assert plan.global_batches == {"job-0": 128}
    assert plan.look_again_seconds == 130.0


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.integers(0, len(CURVES) - 1), min_size=1, max_size=4), st.integers(1, 14))
def test_the_search_finds_what_trying_everything_finds(make, curves: list[int], gpus: int) -> None:
    jobs = [make.job(f"job-{n}", make.table(CURVES[c]), 100.0) for n, c in enumerate(curves)]
    workers = planned(gpus, *jobs)
    best = min(
        _cost(gpus, jobs, sizes)
        for sizes in itertools.product(*((0, *job.table.sizes) for job in jobs))
        if sum(sizes) <= gpus
    )
    assert _cost(gpus, jobs, tuple(workers.values())) == pytest.approx(best)


def _cost(gpus: int, jobs: list[JobView], sizes: tuple[int, ...]) -> float:
    """The sum of one over the speedups, which the best harmonic mean makes least."""
    cost = 0.0
    for job, size in zip(jobs, sizes, strict=True):
        fair = job.table.floor(gpus // len(jobs)) or job.table.sizes[0]
        speedup = job.table.rate_at[size] / job.table.rate_at[fair] if size else 0.01
        cost += 1 / max(speedup, 0.01)
    return cost
