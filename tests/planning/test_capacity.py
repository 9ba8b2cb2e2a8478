"""Capacity profiles against a plain table of free GPUs by whole second."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.capacity import CapacityProfile
from resilin.planning.view import Plan

START, END = 5, 30  # the profile's start, and the last second that any plan uses


@st.composite
def plans_in_seconds(draw: st.DrawFn, earliest: int = START) -> Plan:
    """A plan of whole seconds: segments in order, disjoint, with and without gaps."""
    moments = sorted(draw(st.lists(st.integers(earliest, END), max_size=6, unique=True)))
    pairs = itertools.pairwise(moments)
    segments = ((float(start), float(end), draw(st.integers(0, 4))) for start, end in pairs)
    return tuple(segment for segment in segments if segment[2])


def table_of(gpus: int, plans: list[Plan]) -> dict[int, int]:
    """Free GPUs in each second, and after the last."""
    free = dict.fromkeys(range(START, END + 2), gpus)
    for plan in plans:
        for start, end, workers in plan:
            for second in range(max(START, int(start)), int(end)):
                free[second] -= workers
    return free


def as_function(profile: CapacityProfile) -> list[tuple[float, int]]:
    """The profile without breakpoints at which nothing changes."""
    steps: list[tuple[float, int]] = []
    for moment, free in zip(profile.times, profile.free, strict=True):
        if not steps or steps[-1][1] != free:
            steps.append((moment, free))
    return steps


def assert_is(profile: CapacityProfile, table: dict[int, int]) -> None:
    assert profile.times[0] == START
    assert all(a < b for a, b in zip(profile.times, profile.times[1:], strict=False))
    for second, free in table.items():
        assert profile.free_at(second) == profile.free_at(second + 0.5) == free
    assert profile.least() == min(table.values())


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.integers(0, 8), st.lists(plans_in_seconds(), max_size=6))
def test_taking_plans_one_by_one_is_sweeping_over_all(gpus: int, plans: list[Plan]) -> None:
    one_by_one = CapacityProfile(START, gpus)
    for taken, plan in enumerate(plans):
        one_by_one.take(plan)
        assert_is(one_by_one, table_of(gpus, plans[: taken + 1]))
    at_once = CapacityProfile.after(START, gpus, plans)
    assert_is(at_once, table_of(gpus, plans))
    assert as_function(at_once) == as_function(one_by_one)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.integers(0, 8), st.lists(plans_in_seconds(earliest=0), max_size=6))
def test_what_is_over_when_the_profile_starts_does_not_count(gpus: int, plans: list[Plan]) -> None:
    assert_is(CapacityProfile.after(START, gpus, plans), table_of(gpus, plans))


@settings(deadline=None, max_examples=50, derandomize=True)
@given(plans_in_seconds(), plans_in_seconds(), plans_in_seconds())
def test_a_copy_is_independent(before: Plan, here: Plan, there: Plan) -> None:
    original = CapacityProfile(START, 6)
    original.take(before)
    twin = original.copy()
    assert_is(twin, table_of(6, [before]))
    original.take(here)
    twin.take(there)
    assert_is(original, table_of(6, [before, here]))
    assert_is(twin, table_of(6, [before, there]))


def test_an_untouched_profile_is_flat_for_ever() -> None:
    profile = CapacityProfile(START, 3)
    assert (profile.free_at(START), profile.free_at(1e12), profile.least()) == (3, 3, 3)


def test_a_profile_may_be_over_committed() -> None:
    profile = CapacityProfile.after(START, 2, [((6.0, 8.0, 2),), ((7.0, 9.0, 1),)])
    assert profile.least() == -1
    assert [profile.free_at(second) for second in (5, 6, 7, 8, 9)] == [2, 0, -1, 1, 2]


def test_empty_segments_take_nothing() -> None:
    profile = CapacityProfile(START, 2)
    profile.take(((6.0, 6.0, 2), (7.0, 9.0, 0)))
    assert as_function(profile) == [(START, 2)]


@pytest.mark.parametrize("direction", [-math.inf, math.inf])
def test_rounding_tears_no_gap_between_plans_that_follow_on_each_other(direction: float) -> None:
    """Neither a moment with GPUs free that are not, nor one with more planned than there is."""
    end = math.nextafter(26.066418766524365, direction)
    before, after = ((5.0, end, 2),), ((26.066418766524365, 40.0, 2),)
    profile = CapacityProfile.after(START, 2, [before, after])
    assert profile.least() == 0
    assert [free for _, free in as_function(profile)] == [0, 2]


def test_a_hundredth_of_a_millisecond_is_no_rounding() -> None:
    profile = CapacityProfile.after(START, 2, [((5.0, 8.0, 2),), ((8.00001, 9.0, 2),)])
    assert as_function(profile) == [(5.0, 0), (8.0, 2), (8.00001, 0), (9.0, 2)]
