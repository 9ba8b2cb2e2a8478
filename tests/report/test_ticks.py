from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.report.ticks import count_ticks, gpu_ticks, time_ticks


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.floats(0, 1e7), st.sampled_from([count_ticks, gpu_ticks]))
def test_ticks_of_counts_are_whole_and_reach_the_top(
    highest: float, ticks_of: Callable[[float], list[float]]
) -> None:
    ticks = ticks_of(highest)
    assert ticks[0] == 0
    assert ticks[-1] >= max(1, highest * (1 - 1e-6))
    assert all(tick == int(tick) for tick in ticks)
    assert 2 <= len(ticks) <= 6
    assert all(later > earlier for earlier, later in pairwise(ticks))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.floats(1e-6, 1e12))
def test_ticks_of_time_stay_within_it_and_are_few(seconds: float) -> None:
    ticks = time_ticks(seconds)
    assert ticks[0] == 0
    assert ticks[-1] <= seconds * (1 + 1e-6)
    assert 3 <= len(ticks) <= 10


@pytest.mark.parametrize(
    ("seconds", "step"),
    [(0.5, 0.1), (45.0, 5.0), (400.0, 60.0), (86_400.0, 10_800.0), (59 * 86_400.0, 604_800.0)],
)
def test_steps_of_time_are_those_of_clocks_and_calendars(seconds: float, step: float) -> None:
    assert time_ticks(seconds)[1] == pytest.approx(step)


def test_gpus_are_counted_in_powers_of_two() -> None:
    assert gpu_ticks(128.0) == [0, 32, 64, 96, 128]
    assert gpu_ticks(100.0) == [0, 32, 64, 96, 128]
    assert gpu_ticks(4.0) == [0, 1, 2, 3, 4]


def test_nothing_to_show_still_has_an_axis() -> None:
    assert time_ticks(0.0) == [0.0]
    assert count_ticks(0.0) == gpu_ticks(0.0) == [0.0, 1.0]
