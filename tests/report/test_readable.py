from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.report.readable import readable_count, readable_duration, readable_share


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0001, "0 s"),
        (0.012, "0.012 s"),
        (0.4512, "0.45 s"),
        (0.9999, "1 s"),
        (4.0, "4 s"),
        (4.26, "4.3 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (90.0, "1 min 30 s"),
        (3_599.7, "1 h"),
        (3_600.0, "1 h"),
        (7_500.0, "2 h 5 min"),
        (86_399.0, "1 d"),
        (90_000.0, "1 d 1 h"),
        (86_400.0 * 1_234, "1,234 d"),
        (-125.0, "\N{MINUS SIGN}2 min 5 s"),
    ],
)
def test_durations_read_as_people_write_them(seconds: float, text: str) -> None:
    assert readable_duration(seconds) == text


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.floats(10, 1e9))
def test_a_duration_is_right_to_its_finest_unit(seconds: float) -> None:
    sizes = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
    words = readable_duration(seconds).replace(",", "").split()
    numbers, units = words[::2], words[1::2]
    total = sum(int(number) * sizes[unit] for number, unit in zip(numbers, units, strict=True))
    assert len(units) <= 2
    coarsest = max(sizes[unit] for unit in units)
    finest = {86_400: 3_600, 3_600: 60, 60: 1, 1: 1}[coarsest]
    assert abs(total - seconds) <= finest / 2 + 1e-6


def test_counts_and_shares() -> None:
    assert readable_count(2_396) == "2,396"
    assert readable_count(-2_396.0) == "\N{MINUS SIGN}2,396"
    assert readable_share(0.46222) == "46.2 %"
