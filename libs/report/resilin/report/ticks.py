"""Where an axis gets its ticks: round counts, and round durations."""

from __future__ import annotations

import math
from bisect import bisect_left

__all__ = ["count_ticks", "gpu_ticks", "time_ticks"]

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
# Steps that clocks and calendars have, where 1, 2 and 5 times a power of ten are not round.
_CLOCK_STEPS = (
    *(factor * 1.0 for factor in (1, 2, 5, 10, 15, 30)),
    *(factor * _MINUTE for factor in (1, 2, 5, 10, 15, 30)),
    *(factor * _HOUR for factor in (1, 2, 3, 6, 12)),
    *(factor * _DAY for factor in (1, 2, 5, 7, 14, 28)),
)


def count_ticks(highest: float, at_most: int = 5) -> list[float]:
    """Place ticks at whole numbers from 0 until ``highest`` is reached.

    Args:
        highest: The largest value shown, at least 0.
        at_most: Steps between the ticks.

    Returns:
        Ascending ticks; the last is not below ``highest`` and not below 1.
    """
    return _until(highest, max(1.0, _decimal_step(highest / at_most)))


def gpu_ticks(highest: float, at_most: int = 5) -> list[float]:
    """Place ticks like :func:`count_ticks`, at powers of two: servers come with 2, 4 or 8."""
    rough = highest / at_most
    return _until(highest, 2.0 ** math.ceil(math.log2(rough) - 1e-9) if rough > 1 else 1.0)


def _until(highest: float, step: float) -> list[float]:
    steps = max(1, math.ceil(highest / step - 1e-9))
    return [step * number for number in range(steps + 1)]


def time_ticks(seconds: float, at_most: int = 9) -> list[float]:
    """Place ticks at round durations from 0 up to ``seconds``.

    Args:
        seconds: The time shown, at least 0.
        at_most: Steps between the ticks.

    Returns:
        Ascending ticks in seconds, none beyond ``seconds``.
    """
    rough = seconds / at_most
    if rough <= 0:
        return [0.0]
    if rough <= _CLOCK_STEPS[0]:
        step = _decimal_step(rough)
    elif rough <= _CLOCK_STEPS[-1]:
        step = _CLOCK_STEPS[bisect_left(_CLOCK_STEPS, rough)]
    else:
        step = _DAY * _decimal_step(rough / _DAY)
    return [step * number for number in range(int(seconds / step + 1e-9) + 1)]


def _decimal_step(rough: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below ``rough``."""
    if rough <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(
        (factor * power for factor in (1, 2, 5) if factor * power >= rough * (1 - 1e-9)),
        10 * power,
    )
