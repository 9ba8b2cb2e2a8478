"""Goodput: what an iteration of another batch is worth, and the seeded stream of numbers."""

from __future__ import annotations

import pytest

from resilin.planning.goodput import iteration_worth
from resilin.planning.number_stream import NumberStream


def test_the_submitted_batch_is_worth_one() -> None:
    assert iteration_worth(64, 64, 0.0) == iteration_worth(64, 64, 1e9) == 1.0


def test_without_noise_a_larger_batch_is_worth_no_more() -> None:
    assert iteration_worth(256, 64, 0.0) == 1.0
    assert iteration_worth(16, 64, 0.0) == 1.0


def test_with_endless_noise_every_sample_counts() -> None:
    assert iteration_worth(256, 64, 1e15) == pytest.approx(4.0)


def test_at_a_noise_of_the_batch_twice_the_samples_are_worth_a_third_more() -> None:
    assert iteration_worth(128, 64, 64.0) == pytest.approx(4 / 3)


def test_equal_seeds_give_equal_numbers_on_every_machine() -> None:
    stream = NumberStream(7)
    numbers = [stream.below(1000) for _ in range(8)]
    again = NumberStream(7)
    assert [again.below(1000) for _ in range(8)] == numbers
    other = NumberStream(8)
    assert [other.below(1000) for _ in range(8)] != numbers


def test_the_stream_is_the_published_one() -> None:
    """SplitMix64 from seed 0 begins with e220a8397b1dcdaf (its reference implementation)."""
    assert NumberStream(0).below(1 << 64) == 0xE220A8397B1DCDAF


def test_every_number_comes_up() -> None:
    stream = NumberStream(1)
    counts = [0] * 5
    for _ in range(5_000):
        counts[stream.below(5)] += 1
    assert all(900 < count < 1_100 for count in counts)
