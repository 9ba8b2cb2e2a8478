"""Chronus: the program meets the most deadlines, held against trying everything out."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("scipy")

from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.policies.chronus import Chronus
from resilin.planning.view import Binding, ClusterView, JobView

POLICY = Chronus()
RATES = {1: 1.0, 2: 2.0, 4: 4.0}
NOW = 3000.0
LEASE = 300.0


def job(make, number: int, seconds: float, deadline: float, size: int = 1, **more) -> JobView:
    """A job that needs so many seconds at the size that it asked for."""
    return make.job(
        f"job-{number}",
        make.table(RATES),
        seconds * RATES[size],
        NOW + deadline,
        requested_workers=size,
        **more,
    )


def chosen(gpus: int, *jobs: JobView) -> dict[str, int]:
    return {**POLICY.plan(ClusterView(NOW, gpus, gpus, jobs, due_seconds=NOW)).workers}


def test_two_small_deadlines_are_worth_more_than_a_large_one(make) -> None:
    large = job(make, 0, 300.0, 300.0, 2)
    small = [job(make, n, 300.0, 320.0) for n in (1, 2)]
    assert chosen(2, large, *small) == {"job-0": 0, "job-1": 1, "job-2": 1}


def test_who_can_wait_does(make) -> None:
    patient, urgent = job(make, 0, 300.0, 900.0), job(make, 1, 300.0, 310.0)
    assert chosen(1, patient, urgent) == {"job-0": 0, "job-1": 1}
    assert chosen(1, urgent, patient) == {"job-0": 0, "job-1": 1}


def test_who_cannot_be_in_time_makes_room(make) -> None:
    hopeless, other = job(make, 0, 300.0, 299.0, workers=1), job(make, 1, 250.0, 400.0)
    assert chosen(1, hopeless, other) == {"job-0": 0, "job-1": 1}


def test_best_effort_gets_what_is_left_shortest_first(make) -> None:
    jobs = (
        job(make, 0, 900.0, 0.0, binding=Binding.BEST_EFFORT),
        job(make, 1, 90.0, 0.0, binding=Binding.BEST_EFFORT),
        job(make, 2, 300.0, 310.0),
    )
    assert chosen(2, *jobs) == {"job-0": 0, "job-1": 1, "job-2": 1}


def test_of_equals_the_running_one_goes_on(make) -> None:
    jobs = (job(make, 0, 300.0, 310.0), job(make, 1, 300.0, 310.0, workers=1))
    assert chosen(1, *jobs) == {"job-0": 0, "job-1": 1}
    jobs = (job(make, 0, 300.0, 310.0), job(make, 1, 300.0, 310.0))
    assert chosen(1, *jobs) == {"job-0": 1, "job-1": 0}


def test_a_lease_lasts(make) -> None:
    jobs = (job(make, 0, 900.0, 2000.0, workers=1), job(make, 1, 300.0, 310.0))
    view = ClusterView(NOW, 1, 1, jobs, due_seconds=NOW + 1.0)
    assert POLICY.plan(view).workers == {"job-0": 1, "job-1": 0}


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 5), st.sampled_from((1, 2))),
        min_size=1,
        max_size=4,
    )
)
def test_nobody_could_meet_more(make, numbers: list[tuple[int, int, int]]) -> None:
    """In whole leases, on 2 GPUs, the choice leaves the most deadlines within reach."""
    shapes = [(work, max(work, due), size) for work, due, size in numbers]
    jobs = [job(make, n, w * LEASE, d * LEASE, s) for n, (w, d, s) in enumerate(shapes)]
    workers = chosen(2, *jobs)
    best = _most_met(tuple(shapes))
    after = tuple(
        (work - 1 if workers[f"job-{n}"] else work, due - 1, size)
        for n, (work, due, size) in enumerate(shapes)
    )
    assert _most_met(after) == best


def _most_met(shapes: tuple[tuple[int, int, int], ...]) -> int:
    """Try every choice of who runs in each lease."""
    if all(work <= 0 or due <= 0 for work, due, _ in shapes):
        return sum(work <= 0 for work, _, _ in shapes)
    runnable = [n for n, (work, due, _) in enumerate(shapes) if work > 0 and due > 0]
    best = 0
    for runs in itertools.product((False, True), repeat=len(runnable)):
        running = {n for n, flag in zip(runnable, runs, strict=True) if flag}
        if sum(shapes[n][2] for n in running) <= 2:
            after = tuple(
                (work - (n in running), due - 1, size) if work > 0 else (work, due, size)
                for n, (work, due, size) in enumerate(shapes)
            )
            best = max(best, _most_met(after))
    return best
