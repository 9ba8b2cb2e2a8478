"""Packing in order, rounds and leases: what policies without elasticity are made of."""

from __future__ import annotations

import math

from resilin.planning.policies.fixed_size import (
    kept,
    lease_plan,
    packed,
    requested_size,
    round_plan,
)
from resilin.planning.view import ClusterView

RATES = {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0}


def view_of(make, gpus: int, asked: list[tuple[int, int]], **more: object) -> ClusterView:
    """Jobs in order of submission, each with what it asked for and what it has."""
    table = make.table(RATES)
    jobs = tuple(
        make.job(f"job-{n}", table, 10.0, requested_workers=requested, workers=workers)
        for n, (requested, workers) in enumerate(asked)
    )
    return ClusterView(100.0, gpus, gpus, jobs, **more)  # type: ignore[arg-type]  # fields by name


def test_a_size_that_does_not_exist_is_rounded_down_else_up(make) -> None:
    job = make.job("job-0", make.table(RATES), 10.0, requested_workers=3)
    assert requested_size(job) == 2
    job = make.job("job-0", make.table({4: 1.0}), 10.0, requested_workers=3)
    assert requested_size(job) == 4


def test_who_does_not_fit_is_passed_over(make) -> None:
    view = view_of(make, 6, [(4, 0), (4, 0), (2, 0)])
    assert packed(view, view.jobs) == {"job-0": 4, "job-1": 0, "job-2": 2}
    assert packed(view, reversed(view.jobs)) == {"job-0": 0, "job-1": 4, "job-2": 2}


def test_what_jobs_have_is_kept_while_there_are_gpus(make) -> None:
    view = view_of(make, 6, [(4, 4), (4, 4), (2, 2), (1, 0)])
    assert kept(view) == {"job-0": 4, "job-1": 0, "job-2": 2, "job-3": 0}


def test_a_round_gives_idle_gpus_to_whoever_comes(make) -> None:
    view = view_of(make, 8, [(4, 0), (4, 4), (2, 0)], due_seconds=130.0)
    plan = round_plan(view, reversed(view.jobs), 60.0)
    assert plan.workers == {"job-0": 0, "job-1": 4, "job-2": 2}
    assert plan.look_again_seconds == 130.0, "the round goes on"
    view = view_of(make, 8, [(4, 0), (4, 4), (2, 0)], due_seconds=100.0)
    plan = round_plan(view, view.jobs, 60.0)
    assert plan.workers == {"job-0": 4, "job-1": 4, "job-2": 0}
    assert plan.look_again_seconds == 160.0


def test_leases_end_together_and_newcomers_wait_for_that(make) -> None:
    view = view_of(make, 8, [(4, 0), (4, 4)])
    plan = lease_plan(view, view.jobs, 60.0)
    assert plan.workers == {"job-0": 0, "job-1": 4}
    assert plan.look_again_seconds == 120.0, "the next multiple of a lease"
    view = view_of(make, 8, [(4, 0), (4, 4)], due_seconds=120.0)
    assert lease_plan(view, view.jobs, 60.0).look_again_seconds == 120.0
    view = view_of(make, 8, [(4, 0), (4, 4)], due_seconds=100.0)
    plan = lease_plan(view, view.jobs, 60.0)
    assert plan.workers == {"job-0": 4, "job-1": 4}
    assert plan.look_again_seconds is None, "nobody waits: no lease need end"


def test_no_round_is_held_for_who_cannot_fit(make) -> None:
    view = view_of(make, 4, [(8, 0), (4, 4)], due_seconds=100.0)
    for share in (round_plan, lease_plan):
        plan = share(view, view.jobs, 60.0)
        assert plan.workers == {"job-0": 0, "job-1": 4}
        assert plan.look_again_seconds is None


def test_a_view_knows_whether_a_round_is_under_way() -> None:
    assert ClusterView(100.0, 1, 1, ()).due
    assert ClusterView(100.0, 1, 1, (), due_seconds=100.0).due
    assert not ClusterView(100.0, 1, 1, (), due_seconds=100.1).due
    assert ClusterView(100.0, 4, 1, (), installed_gpus=2).most_gpus == 4
    assert math.isinf(ClusterView(100.0, 1, 1, ()).smallest_refused_gpu_seconds)
