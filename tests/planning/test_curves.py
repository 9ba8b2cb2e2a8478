"""Throughput curves, and the size tables made of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.curves import ThroughputCurve, powers_of_two
from resilin.planning.view import SizeTable

CURVES = st.dictionaries(
    st.integers(1, 40), st.floats(0.01, 100.0, allow_nan=False), min_size=1, max_size=10
)


@pytest.mark.parametrize(
    ("most", "counts"), [(1, (1,)), (2, (1, 2)), (7, (1, 2, 4)), (8, (1, 2, 4, 8)), (0, ())]
)
def test_powers_of_two_go_up_to_the_most(most: int, counts: tuple[int, ...]) -> None:
    assert powers_of_two(most) == counts


@pytest.mark.parametrize(
    ("workers", "rates", "problem"),
    [
        ((), (), "at least one"),
        ((1, 2), (1.0,), "one rate for each"),
        ((0, 1), (1.0, 2.0), "increase from at least 1"),
        ((2, 1), (1.0, 2.0), "increase"),
        ((1, 1), (1.0, 2.0), "increase"),
        ((1, 2), (1.0, 0.0), "at 2 workers must be above 0"),
        ((1,), (-1.0,), "at 1 workers"),
        ((1,), (math.nan,), "at 1 workers"),
        ((4,), (math.inf,), "at 4 workers"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(
    workers: tuple[int, ...], rates: tuple[float, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        ThroughputCurve(workers, rates)


def test_a_mapping_may_come_in_any_order() -> None:
    assert ThroughputCurve.from_mapping({4: 3, 1: 1, 2: 2}) == ThroughputCurve(
        (1, 2, 4), (1.0, 2.0, 3.0)
    )


def test_cut_at_peak_drops_what_is_not_faster_than_all_before() -> None:
    curve = ThroughputCurve((1, 2, 3, 4, 8, 16), (1.0, 3.0, 3.0, 2.0, 4.0, 3.9))
    assert curve.cut_at_peak() == ThroughputCurve((1, 2, 8), (1.0, 3.0, 4.0))


def test_levelled_keeps_every_count() -> None:
    curve = ThroughputCurve((1, 2, 3, 4), (2.0, 1.0, 3.0, 2.5))
    assert curve.levelled() == ThroughputCurve((1, 2, 3, 4), (2.0, 2.0, 3.0, 3.0))


@settings(deadline=None, max_examples=80, derandomize=True)
@given(CURVES)
def test_cut_and_levelled_curves_never_lie_about_the_peak(rates: dict[int, float]) -> None:
    curve = ThroughputCurve.from_mapping(rates)
    cut, levelled = curve.cut_at_peak(), curve.levelled()
    best = max(rates.values())
    assert cut.iterations_per_second[-1] == best
    assert cut.workers[-1] == min(count for count, rate in rates.items() if rate == best)
    assert list(cut.iterations_per_second) == sorted(set(cut.iterations_per_second))
    assert all(rates[count] == cut.rate(count) for count in cut.workers)
    for count, rate in rates.items():
        fastest_so_far = max(rates[smaller] for smaller in rates if smaller <= count)
        assert levelled.rate(count) == fastest_so_far
        assert (count in cut.workers) == all(
            rates[smaller] < rate for smaller in rates if smaller < count
        )
    assert cut.cut_at_peak() == cut
    assert levelled.levelled() == levelled


@settings(deadline=None, max_examples=80, derandomize=True)
@given(CURVES, st.integers(-3, 50))
def test_floor_and_rate_agree_with_a_plain_search(rates: dict[int, float], workers: int) -> None:
    curve = ThroughputCurve.from_mapping(rates)
    assert curve.floor(workers) == max((n for n in rates if n <= workers), default=0)
    if workers in rates:
        assert curve.rate(workers) == rates[workers]
    elif workers == 0:
        assert curve.rate(workers) == 0.0
    else:
        with pytest.raises(KeyError, match=f"at {workers} workers"):
            curve.rate(workers)


@settings(deadline=None, max_examples=80, derandomize=True)
@given(CURVES, st.integers(-3, 50))
def test_a_size_table_answers_like_its_curve(rates: dict[int, float], workers: int) -> None:
    curve = ThroughputCurve.from_mapping(rates).cut_at_peak()
    table = SizeTable(curve, [count / 8 for count in curve.workers])
    assert table.sizes == curve.workers
    assert table.largest == curve.workers[-1]
    assert table.floor(workers) == curve.floor(workers)
    assert table.next_above(workers) == min((n for n in table.sizes if n > workers), default=None)
    for count in range(table.largest + 1):
        known = count in table.sizes
        assert table.rate_at[count] == (rates[count] if known else 0.0)
        assert table.stop_at[count] == (count / 8 if known else 0.0)
        assert table.floor_at[count] == curve.floor(count)


def test_a_size_table_needs_one_stop_for_each_size() -> None:
    with pytest.raises(ValueError, match="zip"):
        SizeTable(ThroughputCurve((1, 2), (1.0, 2.0)), [0.0])


def test_a_step_up_is_always_to_a_faster_size() -> None:
    levelled = ThroughputCurve((1, 2, 4, 8), (1.0, 0.9, 3.0, 2.0)).levelled()
    table = SizeTable(levelled, [0.0] * 4)
    assert [table.next_above(workers) for workers in (0, 1, 2, 4, 8)] == [1, 4, 4, None, None]
