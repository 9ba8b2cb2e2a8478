"""The clock of a live cell: wall time, or wall time run faster for trials."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Clock", "WallClock"]

_LOOK_SECONDS = 1.0


class Clock(Protocol):
    """The time of a cell, in seconds since the epoch."""

    def now_seconds(self) -> float:
        """Return the cell's time."""
        ...

    def wall_seconds(self, seconds: float) -> float:
        """Return how long a span of the cell's time lasts on the wall."""
        ...

    async def sleep_until(self, moment_seconds: float) -> None:
        """Wait for a moment of the cell's time."""
        ...


@dataclass(frozen=True, slots=True)
class WallClock:
    """Seconds since the epoch, as the cell counts them.

    Every process of a cell has to be given the same two numbers.

    Attributes:
        scale: Seconds of the cell a second of wall time; 1 in production.
        origin_seconds: The wall time at which the two agree.
    """

    scale: float = 1.0
    origin_seconds: float = 0.0

    def now_seconds(self) -> float:
        """Return the cell's time."""
        if self.scale == 1.0:
            return time.time()
        return self.origin_seconds + (time.time() - self.origin_seconds) * self.scale

    def wall_seconds(self, seconds: float) -> float:
        """Return how long a span of the cell's time lasts on the wall."""
        return seconds / self.scale

    async def sleep_until(self, moment_seconds: float) -> None:
        """Wait for a moment of the cell's time."""
        # In pieces: the wall's clock is set, and machines sleep.
        while (left := self.wall_seconds(moment_seconds - self.now_seconds())) > 0:
            await asyncio.sleep(min(left, _LOOK_SECONDS))
