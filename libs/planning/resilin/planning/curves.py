"""Throughput curves: how many iterations per second a job makes with how many workers.

A curve belongs to one model, one global batch and one locality (the topology level that
spans the workers). Measured curves are neither concave nor monotone: they peak and then
fall. Every planning algorithm therefore works on a curve *cut at its peak*, restricted to
the worker counts that the job allows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ThroughputCurve", "powers_of_two"]


def powers_of_two(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to and including ``most`` workers."""
    return tuple(1 << exponent for exponent in range(most.bit_length()))


@dataclass(frozen=True, slots=True)
class ThroughputCurve:
    """Iterations per second by worker count.

    Attributes:
        workers: Worker counts with a known throughput, strictly increasing, at least 1.
        iterations_per_second: The throughput at each of them, finite and above 0.

    Raises:
        ValueError: If the two are empty, differ in length or break the rules above.
    """

    workers: tuple[int, ...]
    iterations_per_second: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.workers or len(self.workers) != len(self.iterations_per_second):
            raise ValueError("a throughput curve needs one rate for each of at least one count")
        if self.workers[0] < 1 or any(
            later <= earlier for earlier, later in zip(self.workers, self.workers[1:], strict=False)
        ):
            raise ValueError(f"worker counts must increase from at least 1, got {self.workers}")
        for count, rate in zip(self.workers, self.iterations_per_second, strict=True):
            if not (math.isfinite(rate) and rate > 0):
                raise ValueError(f"iterations per second at {count} workers must be above 0")

    @classmethod
    def from_mapping(cls, rates: Mapping[int, float]) -> ThroughputCurve:
        """Build a curve from ``{workers: iterations per second}`` in any order."""
        counts = tuple(sorted(rates))
        return cls(counts, tuple(float(rates[count]) for count in counts))

    def cut_at_peak(self) -> ThroughputCurve:
        """Drop every count that is not faster than all smaller ones.

        What remains increases strictly, so a larger count is always a gain in speed and
        no algorithm allocates past the peak.
        """
        kept = [0]
        for position, rate in enumerate(self.iterations_per_second):
            if rate > self.iterations_per_second[kept[-1]]:
                kept.append(position)
        return ThroughputCurve(
            tuple(self.workers[position] for position in kept),
            tuple(self.iterations_per_second[position] for position in kept),
        )

    def levelled(self) -> ThroughputCurve:
        """Raise every rate to the highest at any smaller count, keeping all counts."""
        rates: list[float] = []
        for rate in self.iterations_per_second:
            rates.append(max(rate, rates[-1]) if rates else rate)
        return ThroughputCurve(self.workers, tuple(rates))

    def floor(self, workers: int) -> int:
        """Return the largest known count that is at most ``workers``; 0 if there is none."""
        position = bisect_right(self.workers, workers)
        return self.workers[position - 1] if position else 0

    def rate(self, workers: int) -> float:
        """Return iterations per second at exactly ``workers``, a known count, or 0 at 0.

        Raises:
            KeyError: If the curve does not know this count.
        """
        if workers == 0:
            return 0.0
        position = bisect_right(self.workers, workers)
        if position == 0 or self.workers[position - 1] != workers:
            raise KeyError(f"no throughput known at {workers} workers, only at {self.workers}")
        return self.iterations_per_second[position - 1]
