"""Progressive filling, checked by the independent interpreter of plans."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.capacity import CapacityProfile
from resilin.planning.filling import (
    fill_at_level,
    minimum_satisfactory_share,
    projected_finish,
    trimmed_plan,
)
from resilin.planning.view import JobView, Plan

NEAR = 1e-6
# Rates and stops are sums of halves and quarters: what a plan does is exact in binary.
RATES = (
    {1: 1.0},
    {1: 1.0, 2: 1.5, 4: 2.0},
    {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0},
    {2: 1.0, 3: 1.25, 6: 2.0},
    {3: 2.0},
)
STOPS = (0.0, 0.5, 1.0, 2.25)


@dataclass(frozen=True)
class Case:
    """A job and a profile in plain numbers: what is free in each second from 10 to 30."""

    rates: dict[int, float]
    stop: tuple[float, ...]
    work: float
    workers: int
    resumes_in: float
    free: tuple[int, ...]
    limit: float
    allowance: float

    start = 10

    def profile(self) -> CapacityProfile:
        most = max(self.free)
        used = tuple(
            (self.start + second, self.start + second + 1.0, most - free)
            for second, free in enumerate(self.free)
        )
        return CapacityProfile.after(self.start, most, [used])

    def capped(self, sizes: tuple[int, ...], level: int) -> Plan:
        """Every second the largest size that is free and within the level."""
        plan = []
        for second, free in enumerate((*self.free, max(self.free))):
            end = self.start + second + 1.0 if second < len(self.free) else 1e6
            size = max((n for n in sizes if n <= min(level, free)), default=0)
            plan.append((float(self.start + second), end, size))
        return tuple(segment for segment in plan if segment[2])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rates = draw(st.sampled_from(RATES))
    stop = draw(st.sampled_from(STOPS))
    growth = draw(st.sampled_from((0.0, 0.25)))
    return Case(
        rates=rates,
        stop=tuple(stop + growth * place for place in range(len(rates))),
        work=draw(st.integers(1, 80)) / 4,
        workers=draw(st.sampled_from((0, *rates))),
        resumes_in=draw(st.sampled_from((-math.inf, 0.5, 1.75))),
        free=tuple(draw(st.lists(st.integers(-1, 7), min_size=1, max_size=10))),
        limit=10 + draw(st.integers(0, 80)) / 4,
        allowance=draw(st.sampled_from((0.0, 0.0, 0.5, 3.0))),
    )


def job_of(make, case: Case) -> JobView:
    resumes_at = case.start + case.resumes_in if case.workers else -math.inf
    return make.job(
        "job",
        make.table(case.rates, case.stop),
        case.work,
        workers=case.workers,
        resumes_at_seconds=resumes_at,
    )


@settings(deadline=None, max_examples=250, derandomize=True)
@given(cases(), st.integers(1, 8))
def test_a_filled_plan_does_the_work_in_time_with_what_is_free(
    make, plans, case: Case, level: int
) -> None:
    job, profile = job_of(make, case), case.profile()
    plan = fill_at_level(job, profile, level, case.limit, allowance_seconds=case.allowance)
    capped = plans.finish(job, case.capped(job.table.sizes, level), case.start, case.allowance)
    if plan is None:
        assert capped > case.limit - NEAR, "a plan at this level exists"
        return
    plans.assert_well_formed(job, plan, case.start)
    assert all(size <= level for _, _, size in plan)
    for moment in sorted({*profile.times, *(start for start, _, _ in plan)}):
        assert plans.in_use([plan], moment) <= max(0, profile.free_at(moment))
    finish = plan[-1][1]
    assert finish <= case.limit
    assert finish == pytest.approx(capped, abs=NEAR)
    training = plans.training(job, plan, case.start, case.allowance)
    done = sum((end - start) * rate for start, end, rate in training)
    assert done == pytest.approx(case.work, abs=1e-4), "neither too little nor too much"
    assert not any(a[1] == b[0] and a[2] == b[2] for a, b in itertools.pairwise(plan)), "one piece"


@settings(deadline=None, max_examples=150, derandomize=True)
@given(cases(), st.integers(1, 8), st.floats(0, 25), st.sampled_from((0.0, 0.5, 1.0, 3.0)))
def test_projected_finish_agrees_with_the_interpreter(
    make, plans, case: Case, level: int, later: float, allowance: float
) -> None:
    job = job_of(make, case)
    plan = case.capped(job.table.sizes, level)[:-1]
    for now in (case.start, case.start + later):
        told = projected_finish(job, plan, now, allowance_seconds=allowance)
        assert told == pytest.approx(plans.finish(job, plan, now, allowance), abs=2e-5)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(cases())
def test_the_share_is_the_smallest_level_that_works(make, case: Case) -> None:
    job, profile = job_of(make, case), case.profile()
    found = minimum_satisfactory_share(job, profile, case.limit, allowance_seconds=case.allowance)
    by_level = {
        level: fill_at_level(job, profile, level, case.limit, allowance_seconds=case.allowance)
        for level in range(1, 10)
    }
    working = [level for level, plan in by_level.items() if plan is not None]
    assert found == ((working[0], by_level[working[0]]) if working else None)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(cases())
def test_a_level_between_two_sizes_is_the_smaller_size(make, case: Case) -> None:
    job, profile = job_of(make, case), case.profile()
    for level in range(10):
        assert fill_at_level(job, profile, level, case.limit) == fill_at_level(
            job, profile, job.table.floor(level), case.limit
        )


@settings(deadline=None, max_examples=50, derandomize=True)
@given(cases())
def test_filling_changes_neither_the_profile_nor_its_answer(make, case: Case) -> None:
    job, profile = job_of(make, case), case.profile()
    times, free = profile.times.copy(), profile.free.copy()
    first = minimum_satisfactory_share(job, profile, case.limit)
    assert minimum_satisfactory_share(job, profile, case.limit) == first
    assert (profile.times, profile.free) == (times, free)


@pytest.mark.parametrize("stop", [0, 1])
def test_small_cases_exhaustively(make, plans, stop: int) -> None:
    """Every profile of four seconds with up to three free GPUs, every work and limit.

    Whether there is a plan is decided by running every level-capped forward fill through the
    interpreter, one second at a time.
    """
    table = make.table({1: 1.0, 2: 1.5, 3: 2.0}, stop)
    found = missed = 0
    for free in itertools.product(range(4), repeat=4):
        for work, limit in itertools.product((1.0, 1.625, 4.0, 6.0), (11.0, 12.0, 14.0)):
            case = Case({}, (), work, 0, 0.0, free, limit, 0.0)
            job = make.job("job", table, work)
            works = [
                level
                for level in table.sizes
                if plans.finish(job, case.capped(table.sizes, level), 10.0) <= limit
            ]
            answer = minimum_satisfactory_share(job, case.profile(), limit)
            assert (answer and answer[0]) == (works[0] if works else None)
            for second, gpus in enumerate(free if answer else ()):
                assert plans.in_use([answer[1]], 10.01 + second) <= gpus
            found, missed = found + bool(works), missed + (not works)
    assert found > 300, "the cases must show both answers"
    assert missed > 300, "the cases must show both answers"


def test_figure_4_of_the_paper(make) -> None:
    """ElasticFlow §4.1: alone job C needs 2 GPUs; beside A and B first 1 and then 4."""
    job_c = make.job("C", make.table({1: 1.0, 2: 1.5, 4: 2.0}), work=3.0)
    empty = CapacityProfile(0.0, 4)
    assert minimum_satisfactory_share(job_c, empty, 2.0) == (2, ((0.0, 2.0, 2),))
    beside = CapacityProfile.after(0.0, 4, [((0.0, 1.0, 1),), ((0.0, 1.0, 2),)])
    assert fill_at_level(job_c, beside, 2, 2.0) is None  # 1 + 1.5 iterations, less than 3
    assert minimum_satisfactory_share(job_c, beside, 2.0) == (4, ((0.0, 1.0, 1), (1.0, 2.0, 4)))


def test_the_paper_s_gpu_time_of_one_two_and_four_gpus(make) -> None:
    """§4.1: one iteration takes 1, 2/3 and 1/2 units and costs 1, 4/3 and 2 units of GPU time."""
    job = make.job("job", make.table({1: 1.0, 2: 1.5, 4: 2.0}), work=1.0)
    for limit, gpu_time in ((1.0, 1.0), (0.999, 4 / 3), (0.5, 2.0)):
        share = minimum_satisfactory_share(job, CapacityProfile(0.0, 4), limit)
        assert share is not None
        ((start, end, workers),) = share[1]
        assert (end - start) * workers == pytest.approx(gpu_time)
    assert minimum_satisfactory_share(job, CapacityProfile(0.0, 4), 0.499) is None


def test_every_change_of_size_and_every_return_stops_the_job(make) -> None:
    table = make.table({1: 1.0, 2: 2.0}, (0.5, 1.0))
    # From second 10: two GPUs, then one, then none, then one, then two for ever.
    case = Case({}, (), 0.0, 0, 0.0, (2, 2, 1, 1, 0, 1, 1, 2), math.inf, 0.0)
    waits = make.job("waits", table, work=2 + 1.5 + 1.5 + 3)
    runs = make.job("runs", table, work=4 + 1.5 + 1.5 + 3, workers=2)
    starts = make.job("starts", table, work=3 + 1.5 + 1.5 + 3, workers=2, resumes_at_seconds=10.5)
    for job in (waits, runs, starts):
        plan = fill_at_level(job, case.profile(), 2, math.inf)
        assert plan == ((10, 12, 2), (12, 14, 1), (15, 17, 1), (17, 19.5, 2)), job.job_id


def test_the_allowance_is_time_that_the_plan_can_stand_still(make) -> None:
    job = make.job("job", make.table({1: 1.0, 4: 2.0}), work=6.0)
    profile = CapacityProfile(0.0, 4)
    assert minimum_satisfactory_share(job, profile, 8.0, allowance_seconds=2.0) == (
        1,
        ((0.0, 8.0, 1),),
    )
    assert minimum_satisfactory_share(job, profile, 8.0, allowance_seconds=2.5) == (
        4,
        ((0.0, 5.5, 4),),
    )
    assert minimum_satisfactory_share(job, profile, 8.0, allowance_seconds=5.5) is None
    assert minimum_satisfactory_share(job, profile, 8.0, allowance_seconds=8.0) is None


def test_no_work_needs_no_share(make) -> None:
    job = make.job("job", make.table({1: 1.0}, 5.0), work=1e-9)
    assert minimum_satisfactory_share(job, CapacityProfile(0.0, 0), -1.0) == (0, ())
    assert projected_finish(job, (), 3.0) == 3.0


def test_no_gpu_is_no_share(make) -> None:
    job = make.job("job", make.table({1: 1.0}), work=1.0)
    for gpus in (0, -2):
        assert minimum_satisfactory_share(job, CapacityProfile(0.0, gpus), 1e9) is None
    assert minimum_satisfactory_share(job, CapacityProfile(0.0, 1), 0.0) is None


def test_a_size_that_the_curve_no_longer_knows_promises_nothing(make) -> None:
    job = make.job("job", make.table({1: 1.0, 4: 2.0}), work=4.0, workers=2)
    assert projected_finish(job, ((0.0, 10.0, 2),), 0.0) == math.inf
    assert projected_finish(job, ((0.0, 10.0, 8),), 0.0) == math.inf
    assert projected_finish(job, ((0.0, 1.0, 2), (1.0, 10.0, 4)), 0.0) == 3.0


def test_a_plan_that_ends_before_the_work_does_never_finishes(make) -> None:
    job = make.job("job", make.table({1: 1.0}), work=4.0)
    assert projected_finish(job, ((0.0, 3.5, 1),), 0.0) == math.inf
    assert projected_finish(job, ((0.0, 4.0, 1),), 0.0) == 4.0
    assert projected_finish(job, ((0.0, 4.0, 1),), 0.5) == math.inf  # it has not trained yet
    assert projected_finish(job, (), 0.0) == math.inf


@settings(deadline=None, max_examples=50, derandomize=True)
@given(cases(), st.integers(0, 60), st.integers(1, 60))
def test_a_trimmed_plan_is_the_plan_between_two_moments(
    make, plans, case: Case, first: int, last: int
) -> None:
    job = job_of(make, case)
    plan = case.capped(job.table.sizes, 8)
    now, finish = 10 + first / 4, 10 + (first + last) / 4
    trimmed = trimmed_plan(plan, now, finish)
    assert all(start < end for start, end, _ in trimmed)
    for quarter in range(160):
        moment = 5 + quarter / 4 + 0.125
        expected = plans.in_use([plan], moment) if now < moment < finish else 0
        assert plans.in_use([trimmed], moment) == expected
