from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.concave import upper_concave_hull
from resilin.planning.curves import ThroughputCurve

curves = st.dictionaries(st.integers(1, 64), st.floats(0.01, 100), min_size=1, max_size=8).map(
    ThroughputCurve.from_mapping
)


def test_a_concave_curve_is_its_own_hull() -> None:
    curve = ThroughputCurve((1, 2, 4), (1.0, 1.5, 2.0))
    assert upper_concave_hull(curve, 8) == ((0, 0), (1, 1.0), (2, 1.5), (4, 2.0))


def test_a_dent_is_bridged_and_what_lies_past_the_peak_is_dropped() -> None:
    curve = ThroughputCurve((1, 2, 4, 8, 16), (2.0, 2.5, 8.0, 12.0, 11.0))
    assert upper_concave_hull(curve, 64) == ((0, 0), (4, 8.0), (8, 12.0))


def test_counts_beyond_the_cluster_do_not_exist() -> None:
    curve = ThroughputCurve((2, 4, 8), (2.0, 3.0, 4.0))
    assert upper_concave_hull(curve, 7) == ((0, 0), (2, 2.0), (4, 3.0))
    assert upper_concave_hull(curve, 1) == ((0, 0),)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(curves, st.integers(1, 64))
def test_the_hull_is_concave_increasing_and_the_least_above_the_curve(
    curve: ThroughputCurve, most: int
) -> None:
    corners = upper_concave_hull(curve, most)
    slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(corners)]
    assert all(slope > 0 for slope in slopes)
    assert all(later < earlier for earlier, later in pairwise(slopes))
    points = {
        (float(count), rate)
        for count, rate in zip(curve.workers, curve.iterations_per_second, strict=True)
        if count <= most
    }
    # Least: every corner is a point of the curve. Above: no point lies over an edge, and
    # none lies over the level of the peak.
    assert set(corners[1:]) <= points
    for count, rate in points:
        assert rate <= corners[-1][1]
        for (left, low), (right, high) in pairwise(corners):
            if left <= count <= right:
                height = low + (high - low) * (count - left) / (right - left)
                assert rate <= height or rate == pytest.approx(height)
