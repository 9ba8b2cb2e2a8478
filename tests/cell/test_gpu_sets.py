"""Sets of GPUs as events write them, against Python's own sets."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from tests.support.strategies import gpu_sets_of

from resilin.cell import gpu_sets

few = settings(max_examples=100, deadline=None, derandomize=True)


def as_set(gpus: Mapping[str, tuple[int, ...]]) -> set[tuple[str, int]]:
    return {(server, index) for server, indexes in gpus.items() for index in indexes}


def is_well_written(gpus: Mapping[str, tuple[int, ...]]) -> bool:
    """No server without GPUs, and the indexes of each increase."""
    return all(indexes and list(indexes) == sorted(frozenset(indexes)) for indexes in gpus.values())


def test_the_empty_set() -> None:
    assert gpu_sets.count({}) == 0
    assert list(gpu_sets.each({})) == []
    assert gpu_sets.union({}, {}) == gpu_sets.minus({}, {"s": (0,)}) == {}


def test_each_gpu_in_the_sets_own_order() -> None:
    gpus = {"s2": (1, 3), "s1": (0,)}
    assert list(gpu_sets.each(gpus)) == [("s2", 1), ("s2", 3), ("s1", 0)]
    assert gpu_sets.count(gpus) == 3


@given(gpu_sets_of, gpu_sets_of)
@few
def test_union(one: dict[str, tuple[int, ...]], other: dict[str, tuple[int, ...]]) -> None:
    both = gpu_sets.union(one, other)
    assert as_set(both) == as_set(one) | as_set(other)
    assert is_well_written(both)


@given(gpu_sets_of, gpu_sets_of)
@few
def test_minus(one: dict[str, tuple[int, ...]], other: dict[str, tuple[int, ...]]) -> None:
    left = gpu_sets.minus(one, other)
    assert as_set(left) == as_set(one) - as_set(other)
    assert is_well_written(left)


@given(gpu_sets_of, gpu_sets_of)
@few
def test_the_arguments_stay_as_they_are(
    one: dict[str, tuple[int, ...]], other: dict[str, tuple[int, ...]]
) -> None:
    before = dict(one), dict(other)
    gpu_sets.union(one, other)["another"] = (9,)
    gpu_sets.minus(one, other)["another"] = (9,)
    assert (one, other) == before
