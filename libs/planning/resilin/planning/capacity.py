"""The capacity profile: free GPUs as a step function of time.

The papers plan in time slots. In continuous time the slots disappear: between two
breakpoints nothing changes, so what an algorithm does per slot is done per segment,
exactly and with less work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from resilin.planning.view import Segment

__all__ = ["CapacityProfile"]

# Closer moments are one. The end of a plan is computed anew at each event: rounding must
# not tear it apart from the plan that follows on it, nor make the two overlap.
ROUNDING_SECONDS = 1e-6


class CapacityProfile:
    """Free GPUs from a moment on.

    ``free[k]`` GPUs are free from ``times[k]`` to ``times[k + 1]``; the last segment has
    no end. Free may be negative where more is planned than there is.

    Attributes:
        times: Breakpoints in seconds, increasing; the first is the profile's start.
        free: Free GPUs from each breakpoint on.
    """

    __slots__ = ("free", "times")

    def __init__(self, start_seconds: float, gpus: int) -> None:
        self.times = [start_seconds]
        self.free = [gpus]

    @classmethod
    def after(
        cls, start_seconds: float, gpus: int, plans: Iterable[Iterable[Segment]]
    ) -> CapacityProfile:
        """Build what ``plans`` leave of ``gpus`` from ``start_seconds`` on, in one sweep.

        Moments less than a microsecond apart are taken for one, the first of them.
        """
        profile = cls(start_seconds, gpus)
        steps: list[tuple[float, int]] = []
        for plan in plans:
            for start, end, workers in plan:
                if end > start_seconds:
                    steps.append((max(start, start_seconds), -workers))
                    steps.append((end, workers))
        steps.sort()
        times, free = profile.times, profile.free
        level = gpus
        for moment, change in steps:
            level += change
            if moment - times[-1] < ROUNDING_SECONDS:
                free[-1] = level
            else:
                times.append(moment)
                free.append(level)
        return profile

    def copy(self) -> CapacityProfile:
        """Return an independent copy."""
        twin = CapacityProfile(self.times[0], self.free[0])
        twin.times = self.times.copy()
        twin.free = self.free.copy()
        return twin

    def take(self, plan: Iterable[Segment]) -> None:
        """Take a plan's GPUs out of the profile."""
        for start, end, workers in plan:
            if workers and end > start:
                first = self._breakpoint(start)
                last = self._breakpoint(end)
                for position in range(first, last):
                    self.free[position] -= workers

    def _breakpoint(self, moment: float) -> int:
        position = bisect_left(self.times, moment)
        if position == len(self.times) or self.times[position] != moment:
            self.times.insert(position, moment)
            self.free.insert(position, self.free[position - 1])
        return position

    def free_at(self, moment: float) -> int:
        """Return the GPUs free at ``moment``, which is not before the profile's start."""
        return self.free[bisect_right(self.times, moment) - 1]

    def least(self) -> int:
        """Return the fewest GPUs free at any moment; negative if over-committed."""
        return min(self.free)
