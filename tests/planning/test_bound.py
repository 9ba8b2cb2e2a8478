from __future__ import annotations

import csv
import itertools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.bound import (
    AdmissionBound,
    DeadlineJob,
    SolverError,
    can_all_meet,
    fractional_plan,
    most_deadlines_upper_bound,
)
from resilin.planning.capacity import CapacityProfile
from resilin.planning.concave import upper_concave_hull
from resilin.planning.curves import ThroughputCurve

LINEAR = {count: float(count) for count in (1, 2, 4, 8)}
PAPER = {1: 1.0, 2: 1.5, 4: 2.0}
"""The scaling curve of ElasticFlow, figure 4(a)."""


def job(
    work: float, deadline: float, rates: Mapping[int, float] = PAPER, release: float = 0.0
) -> DeadlineJob:
    return DeadlineJob("job", release, deadline, work, ThroughputCurve.from_mapping(rates))


def gpus(count: int) -> CapacityProfile:
    return CapacityProfile(0.0, count)


def stepped(*steps: tuple[float, int]) -> CapacityProfile:
    profile = CapacityProfile(*steps[0])
    profile.times[1:] = [moment for moment, _ in steps[1:]]
    profile.free[1:] = [count for _, count in steps[1:]]
    return profile


# --- an independent planner: every schedule on a grid of one-second slots ---------------


def most_on_the_grid(jobs: Sequence[DeadlineJob], count: int) -> int:
    """The most deadlines that any schedule meets which changes at whole seconds only."""
    sizes = [(0, *(size for size in job.curve.workers if size <= count)) for job in jobs]
    choices = [choice for choice in itertools.product(*sizes) if sum(choice) <= count]
    reached = {tuple(0.0 for _ in jobs)}
    for second in range(int(max(job.deadline_seconds for job in jobs))):
        later: set[tuple[float, ...]] = set()
        for done, choice in itertools.product(sorted(reached), choices):
            later.add(
                tuple(
                    min(part + one.curve.rate(size), one.iterations)
                    if one.release_seconds <= second < one.deadline_seconds
                    else part
                    for one, part, size in zip(jobs, done, choice, strict=True)
                )
            )
        reached = later
    return max(
        sum(part >= one.iterations for one, part in zip(jobs, done, strict=True))
        for done in reached
    )


def met_one_after_the_other(jobs: Sequence[DeadlineJob], count: int) -> int:
    """Deadlines met by the simplest planner: earliest deadline first, alone on the cluster."""
    now, met = 0.0, 0
    for one in sorted(jobs, key=lambda one: one.deadline_seconds):
        fastest = upper_concave_hull(one.curve, count)[-1][1]
        if fastest == 0:
            continue
        end = max(now, one.release_seconds) + one.iterations / fastest
        if end <= one.deadline_seconds:
            now, met = end, met + 1
    return met


whole_rates = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)).map(
    lambda rise: {1: rise[0], 2: rise[0] + rise[1], 4: rise[0] + rise[1] + rise[2]}
)


@st.composite
def small_jobs(draw: st.DrawFn) -> DeadlineJob:
    release = draw(st.integers(0, 2))
    return job(
        draw(st.integers(1, 12)),
        release + draw(st.integers(1, 3 - release)) if release < 3 else 3,
        draw(whole_rates),
        release,
    )


@st.composite
def fractional_jobs(draw: st.DrawFn) -> DeadlineJob:
    rates = draw(st.dictionaries(st.sampled_from((1, 2, 4, 8)), st.floats(0.5, 20), min_size=1))
    release = draw(st.floats(0, 50))
    window = draw(st.floats(1, 50))
    return job(draw(st.floats(0.1, 300)), release + window, rates, release)


# --- can all be met? --------------------------------------------------------------------


def test_the_paper_example_needs_all_four_gpus_in_its_second_half() -> None:
    # ElasticFlow §4.1: C has 3 iterations and 2 time units, A and B hold 3 of 4 GPUs for one.
    assert can_all_meet([job(3.0, 2.0)], stepped((0.0, 1), (1.0, 4)))
    assert not can_all_meet([job(3.01, 2.0)], stepped((0.0, 1), (1.0, 4)))


def test_time_sharing_two_sizes_reaches_the_chord_between_them() -> None:
    # 3 GPUs on average: 1.75 iterations a second each, though no such size exists.
    assert can_all_meet([job(1.75, 1.0), job(1.75, 1.0)], gpus(6))
    assert not can_all_meet([job(1.76, 1.0), job(1.75, 1.0)], gpus(6))


def test_no_jobs_are_all_met() -> None:
    assert can_all_meet([], gpus(1))
    plan = fractional_plan([], gpus(1))
    assert plan is not None
    assert plan.shares == ()


def test_a_job_that_fits_no_size_is_not_met() -> None:
    assert not can_all_meet([job(1.0, 100.0, {4: 1.0})], gpus(3))
    assert can_all_meet([job(1.0, 100.0, {4: 1.0})], gpus(4))


def test_a_gap_in_capacity_counts_as_none_even_if_overcommitted() -> None:
    profile = stepped((0.0, 1), (1.0, -2), (3.0, 1))
    assert can_all_meet([job(2.0, 4.0)], profile)
    assert not can_all_meet([job(2.1, 4.0)], profile)
    assert not can_all_meet([job(0.1, 3.0, release=1.0)], profile)


def test_what_passes_the_test_need_not_pack_where_only_some_sizes_exist() -> None:
    # Each needs 64 of 96 GPUs for half of the window; no two of them run at once.
    halves = [job(1.0, 2.0, {64: 1.0})] * 3
    assert can_all_meet(halves, gpus(96))
    assert not can_all_meet(halves, gpus(95))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.1, 30), st.floats(0.5, 10)), min_size=1, max_size=6),
    st.sampled_from((1, 2, 4, 8)),
)
def test_linear_curves_follow_the_papers_condition(
    works: list[tuple[float, float]], count: int
) -> None:
    # ElasticFlow §4.1: by deadline, the GPU time due so far is at most what there was.
    by_deadline = sorted(works, key=lambda pair: pair[1])
    slack = min(
        count * deadline / math.fsum(work for work, _ in by_deadline[: position + 1])
        for position, (_, deadline) in enumerate(by_deadline)
    )
    jobs = [job(work, deadline, LINEAR) for work, deadline in works]
    if abs(slack - 1) > 1e-4:
        assert can_all_meet(jobs, gpus(count)) == (slack > 1)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(fractional_jobs(), min_size=1, max_size=6), st.sampled_from((2, 5, 16)))
def test_a_plan_keeps_every_rule(jobs: list[DeadlineJob], count: int) -> None:
    profile = stepped((0.0, count), (20.0, count // 2), (60.0, count))
    plan = fractional_plan(jobs, profile)
    if plan is None:
        return
    used: dict[float, float] = {}
    for one, shares in zip(jobs, plan.shares, strict=True):
        done = 0.0
        for start, end, average, rate in shares:
            assert one.release_seconds <= start < end <= one.deadline_seconds
            used[start] = used.get(start, 0.0) + average
            done += rate * (end - start)
            corners = upper_concave_hull(one.curve, profile.free_at(start))
            assert average <= corners[-1][0] * (1 + 1e-6)
            height = min(
                low + (high - low) * (average - left) / (right - left)
                for (left, low), (right, high) in itertools.pairwise(corners)
            )
            assert rate <= height * (1 + 1e-6) + 1e-9
        assert done == pytest.approx(one.iterations, rel=1e-5)
    for start, total in used.items():
        assert total <= profile.free_at(start) * (1 + 1e-6)


# --- the bound --------------------------------------------------------------------------


def test_it_is_tight_where_half_jobs_would_run_at_their_efficient_size() -> None:
    # Each job needs 2 GPUs to be in time: 6 of 12. On one GPU each it would get 5/6 of its
    # work done, ten jobs' worth in total, and a program without width rows says 10.
    result = most_deadlines_upper_bound([job(1.2, 1.0, {1: 1.0, 2: 1.2})] * 12, gpus(12))
    assert (result.ceiling, result.bound, result.met) == (12, 6, 6)
    assert result.relaxation == pytest.approx(6.0)
    assert result.is_exact


def test_the_ceiling_counts_jobs_that_make_it_alone() -> None:
    jobs = [job(2.0, 1.0), job(2.0, 1.0), job(2.01, 1.0)]
    result = most_deadlines_upper_bound(jobs, gpus(4))
    assert (result.jobs, result.ceiling, result.bound, result.met) == (3, 2, 1, 1)
    assert result.chosen in {(0,), (1,)}


def test_no_jobs_have_a_bound_of_none() -> None:
    expected = AdmissionBound(jobs=0, ceiling=0, relaxation=0.0, bound=0, met=0, chosen=())
    assert most_deadlines_upper_bound([], gpus(4)) == expected


def test_a_crowd_that_fits_is_all_met_however_many() -> None:
    result = most_deadlines_upper_bound([job(1.0, 1.0, {1: 1.0})] * 300, gpus(300))
    assert (result.bound, result.met) == (300, 300)


@pytest.mark.parametrize(("seconds", "bounds"), [(0.0, {4}), (1e-6, {3, 4}), (60.0, {3})])
def test_branch_and_bound_closes_what_the_program_leaves_open(
    seconds: float, bounds: set[int]
) -> None:
    jobs = [
        job(13, 7, {1: 3, 2: 6}, release=4),
        job(11, 5, {1: 2, 2: 4, 4: 5}),
        job(11, 4, {1: 3, 2: 4, 4: 7}, release=2),
        job(12, 5, {1: 2, 4: 4}, release=1),
        job(13, 7, {1: 4, 2: 6, 4: 7}, release=5),
    ]
    result = most_deadlines_upper_bound(jobs, gpus(4), integer_seconds=seconds)
    assert result.bound in bounds
    assert 2 <= result.met <= 3
    assert result.met == 3 or seconds < 60
    assert 4 <= result.relaxation < 5


def test_a_job_with_a_fraction_is_met_if_it_fits_as_a_whole() -> None:
    jobs = [
        job(14, 7, {1: 2, 2: 3}, release=1),
        job(11, 10, {1: 2, 2: 3}, release=4),
        job(6, 2, {1: 1, 2: 4}),
        job(7, 3, {1: 3, 2: 4}),
    ]
    result = most_deadlines_upper_bound(jobs, gpus(2))
    assert result.relaxation % 1 > 0.1
    assert result.met == 3


def test_branch_and_bound_finds_jobs_that_rounding_misses() -> None:
    jobs = [
        job(14, 8, {1: 4, 2: 6}, release=5),
        job(8, 5, {1: 2, 2: 4}),
        job(8, 5, {1: 3}, release=2),
        job(9, 10, {1: 1, 2: 4}, release=5),
        job(11, 6, {1: 3, 2: 6}, release=2),
        job(7, 8, {1: 1, 2: 2}, release=2),
        job(7, 3, {1: 4, 2: 5}, release=2),
        job(4, 2, {1: 1, 2: 4}),
        job(4, 8, {1: 2}, release=3),
    ]
    rounded = most_deadlines_upper_bound(jobs, gpus(2))
    best = most_deadlines_upper_bound(jobs, gpus(2), integer_seconds=60.0)
    assert 5 <= rounded.met <= rounded.bound == 6
    assert (best.bound, best.met) == (6, 6)
    assert can_all_meet([jobs[position] for position in best.chosen], gpus(2))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(small_jobs(), min_size=1, max_size=3), st.integers(1, 4))
def test_no_schedule_on_a_grid_beats_the_bound(jobs: list[DeadlineJob], count: int) -> None:
    best = most_on_the_grid(jobs, count)
    result = most_deadlines_upper_bound(jobs, gpus(count), integer_seconds=10.0)
    assert best <= result.met == result.bound <= result.ceiling
    if best == len(jobs):
        assert can_all_meet(jobs, gpus(count))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(fractional_jobs(), min_size=1, max_size=10), st.sampled_from((1, 3, 8)))
def test_it_lies_between_a_simple_planner_and_the_ceiling(
    jobs: list[DeadlineJob], count: int
) -> None:
    result = most_deadlines_upper_bound(jobs, gpus(count))
    assert met_one_after_the_other(jobs, count) <= result.bound
    assert result.met <= result.bound <= result.ceiling <= result.jobs
    assert result.met == len(result.chosen)
    assert can_all_meet([jobs[position] for position in result.chosen], gpus(count))
    assert (result.bound == len(jobs)) == can_all_meet(jobs, gpus(count))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(fractional_jobs(), min_size=1, max_size=10), st.integers(1, 12))
def test_more_gpus_never_lower_it(jobs: list[DeadlineJob], count: int) -> None:
    fewer = most_deadlines_upper_bound(jobs, gpus(count))
    more = most_deadlines_upper_bound(jobs, gpus(count + 1))
    assert fewer.bound <= more.bound
    assert fewer.ceiling <= more.ceiling


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(fractional_jobs(), min_size=2, max_size=10), st.integers(1, 12))
def test_one_job_more_adds_at_most_one(jobs: list[DeadlineJob], count: int) -> None:
    without = most_deadlines_upper_bound(jobs[1:], gpus(count), integer_seconds=10.0)
    with_it = most_deadlines_upper_bound(jobs, gpus(count), integer_seconds=10.0)
    assert without.bound <= with_it.bound <= without.bound + 1
    assert without.is_exact
    assert with_it.is_exact


# --- bad input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "deadline", "iterations", "message"),
    [
        (0.0, 0.0, 1.0, "job j: the deadline .* after the release"),
        (0.0, math.inf, 1.0, "job j: release and deadline must be finite"),
        (0.0, 1.0, 0.0, "job j: iterations must be above 0"),
        (0.0, 1.0, math.nan, "job j: iterations must be above 0"),
    ],
)
def test_a_job_out_of_range_is_refused(
    release: float, deadline: float, iterations: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DeadlineJob("j", release, deadline, iterations, ThroughputCurve((1,), (1.0,)))


def test_a_release_before_the_profile_is_refused() -> None:
    with pytest.raises(ValueError, match=r"job job is released at 0.0 s, before the capacity"):
        can_all_meet([job(1.0, 2.0)], CapacityProfile(0.5, 4))


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(SolverError, match=r"resilin\[bound\]"):
        can_all_meet([job(1.0, 1.0)], gpus(1))


# --- a published trace ------------------------------------------------------------------


def published_jobs(folder: Path) -> list[DeadlineJob]:
    curves: dict[tuple[str, str], ThroughputCurve] = {}
    for profile in sorted((folder / "profiles" / "throughputs_A100").glob("*.csv")):
        with profile.open() as lines:
            for row in csv.DictReader(lines):
                batch = row.pop("global_batch_size")
                rates = {
                    int(count): float(rate) for count, rate in row.items() if float(rate or 0) > 0
                }
                curves[profile.stem, batch] = ThroughputCurve.from_mapping(rates)
    with (folder / "traces" / "195job.csv").open() as lines:
        return [
            DeadlineJob(
                row["job_id"],
                float(row["submission_time"]),
                float(row["deadline"]),
                float(row["num_iteration"]),
                curves[row["model_name"], row["batch_size"]],
            )
            for row in csv.DictReader(lines)
        ]


@pytest.mark.skipif(
    "RESILIN_TRACES" not in os.environ, reason="RESILIN_TRACES names no folder of traces"
)
@pytest.mark.parametrize(("count", "most"), [(128, 183), (64, 174)])
def test_what_a_clairvoyant_meets_of_the_elasticflow_trace(count: int, most: int) -> None:
    jobs = published_jobs(Path(os.environ["RESILIN_TRACES"]) / "elasticflow")
    result = most_deadlines_upper_bound(jobs, gpus(count))
    assert (result.jobs, result.ceiling, result.bound, result.met) == (195, 184, most, most)
