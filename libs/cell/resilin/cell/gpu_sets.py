"""Sets of GPUs as events write them: ``{server: (index, ...)}``, sorted, without empties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resilin.contracts.values import GpuSet

__all__ = ["count", "each", "minus", "union"]


def count(gpus: Mapping[str, tuple[int, ...]]) -> int:
    """Return how many GPUs the set holds."""
    return sum(len(indexes) for indexes in gpus.values())


def each(gpus: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, int]]:
    """Yield (server, index) pairs in the set's own order."""
    for server, indexes in gpus.items():
        for index in indexes:
            yield server, index


def union(one: Mapping[str, tuple[int, ...]], other: Mapping[str, tuple[int, ...]]) -> GpuSet:
    """Return the GPUs in either set."""
    if not one:
        return dict(other)
    result = dict(one)
    for server, indexes in other.items():
        had = result.get(server)
        result[server] = indexes if had is None else tuple(sorted({*had, *indexes}))
    return result


def minus(one: Mapping[str, tuple[int, ...]], other: Mapping[str, tuple[int, ...]]) -> GpuSet:
    """Return the GPUs of the first set that are not in the second."""
    result: GpuSet = {}
    for server, indexes in one.items():
        gone = other.get(server)
        left = indexes if gone is None else tuple(i for i in indexes if i not in gone)
        if left:
            result[server] = left
    return result
