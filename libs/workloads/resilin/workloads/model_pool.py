"""Models and deadlines drawn as in ElasticFlow's evaluation (§6.1)."""

from __future__ import annotations

import math

from resilin.workloads.curve_book import CurveBook

__all__ = ["ModelPool", "check_tightness", "deadline_after"]


class ModelPool:
    """The pairs of model and global batch of a curve book, to be drawn from uniformly."""

    def __init__(self, curves: CurveBook) -> None:
        self._curves = curves
        self._runnable: dict[int, tuple[tuple[str, int], ...]] = {}

    def draw(self, fraction: float, requested_workers: int) -> tuple[str, int, int] | None:
        """Return a model, its global batch, and the requested count as its curve knows it.

        Args:
            fraction: A number drawn uniformly from 0 to below 1.
            requested_workers: Only pairs that run on so many workers, or fewer, are drawn.
                The count is rounded down to one that the pair's curve knows.

        Returns:
            None if no pair runs on so few.
        """
        runnable = self._runnable.get(requested_workers)
        if runnable is None:
            runnable = tuple(
                key for key, curve in self._curves.items() if curve.floor(requested_workers)
            )
            self._runnable[requested_workers] = runnable
        if not runnable:
            return None
        model, global_batch = runnable[int(fraction * len(runnable))]
        return model, global_batch, self._curves[model, global_batch].floor(requested_workers)


def deadline_after(tightness: tuple[float, float], fraction: float, duration: float) -> float:
    """Return the seconds from submission to the deadline: U(least, most) x duration."""
    least, most = tightness
    return (least + (most - least) * fraction) * duration


def check_tightness(tightness: tuple[float, float]) -> None:
    """Check the least and largest deadline, in durations.

    Raises:
        ValueError: Unless 0 < least <= most, both finite.
    """
    least, most = tightness
    if not 0 < least <= most < math.inf:
        raise ValueError(
            f"deadline tightness must be finite with 0 < least <= most, got {tightness}"
        )
