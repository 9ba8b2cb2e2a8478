"""Numbers that look random and are determined by a seed: the same on every machine.

A core may not draw from ``random``: whoever verifies a log must come to the same decision,
under another version of Python too. This is SplitMix64 (Steele, Lea and Flood, Fast
Splittable Pseudorandom Number Generators, OOPSLA 2014), in a few whole-number operations.
"""

from __future__ import annotations

__all__ = ["NumberStream"]

_MASK = (1 << 64) - 1


class NumberStream:
    """A stream of numbers; equal seeds give equal streams."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        """Return a whole number from 0 to ``bound - 1``."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) * bound) >> 64
