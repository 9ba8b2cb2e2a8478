"""Overload: whom to promise while more is asked than there is (ElasticFlow §4.4, the hook).

Greedy admission says yes to whatever still fits. In an overloaded cell a few jobs of
hundreds of GPU hours then hold all capacity for days, and dozens of small ones are refused
for each of them. The rule here promises to the small ones first, as far as they reach::

    sort the jobs asked for in the last hours by the GPU time they need
    walk from the smallest until their sum exceeds CAPACITY_FACTOR x the capacity of these hours
    the job at which that happens, and all larger ones, get no promise for now

Nothing is refused while the sum stays below, nor before there is a window's history, nor
any job up to the median. Measured on the 195-job trace: docs/adr/0006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from resilin.planning.view import JobView

__all__ = ["WINDOW_SECONDS", "gpu_seconds_needed", "shortest_window", "smallest_refused"]

WINDOW_SECONDS = 6 * 3600.0
"""The hours that are looked back on."""

CAPACITY_FACTOR = 1.5
"""Asked for over capacity: above 1, since deadlines let work be done later."""


def gpu_seconds_needed(job: JobView, now_seconds: float) -> float | None:
    """Return the GPU time of a job alone at its minimum satisfactory share; None if hopeless."""
    window = job.deadline_seconds - now_seconds
    for size in job.table.sizes:
        seconds = job.remaining_iterations / job.table.rate_at[size]
        if seconds <= window:
            return seconds * size
    return None


def shortest_window(job: JobView, smallest_refused_gpu_seconds: float) -> float | None:
    """Return the time that a job must be given to stay below a limit of GPU time.

    Returns:
        Seconds from now to its deadline at least; None if it needs more at any size.
    """
    windows = [
        seconds
        for size in job.table.sizes
        if (seconds := job.remaining_iterations / job.table.rate_at[size]) * size
        < smallest_refused_gpu_seconds
    ]
    return min(windows, default=None)


def smallest_refused(gpus: int, asked_gpu_seconds: Sequence[float]) -> float:
    """Return the GPU time from which on a job gets no promise; infinite for no limit.

    Args:
        gpus: GPUs that promises may count on.
        asked_gpu_seconds: The GPU time of each job asked for in the window.
    """
    budget = CAPACITY_FACTOR * gpus * WINDOW_SECONDS
    asked = sorted(asked_gpu_seconds)
    total = 0.0
    for gpu_seconds in asked:
        total += gpu_seconds
        if total > budget:
            median = asked[len(asked) // 2]
            return max(gpu_seconds, math.nextafter(median, math.inf))
    return math.inf
