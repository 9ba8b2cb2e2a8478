"""The upper concave hull of a throughput curve: what time-sharing of sizes can reach.

A job that runs on ``p`` workers for a share of the time and on ``q`` for the rest has, on
average, a point of the chord between the two. Without a cost of resizing, every point under
the upper concave hull is therefore within reach, and no point above it.
"""

from __future__ import annotations

from resilin.planning.curves import ThroughputCurve

__all__ = ["HullPoint", "upper_concave_hull"]

HullPoint = tuple[float, float]
"""(workers, iterations per second)."""


def upper_concave_hull(curve: ThroughputCurve, most_workers: int) -> tuple[HullPoint, ...]:
    """Return the corners of the curve's upper concave hull, from the origin to its peak.

    The curve is cut at its peak and at ``most_workers`` first. So the corners increase
    strictly in both coordinates, and the slopes between them, in iterations per second per
    worker, decrease strictly. The origin (not running) is always the first corner::

        for each point p by workers:
            while the last corner lies on or under the chord from its predecessor to p:
                drop it
            p is a corner

    Source: the monotone chain of Andrew (Information Processing Letters 9(5), 1979), upper
    half only.

    Args:
        curve: The measured curve; it need be neither concave nor monotone.
        most_workers: Size of the cluster: larger counts do not exist.

    Returns:
        The corners (workers, iterations per second); only the origin if every count is too
        large.
    """
    cut = curve.cut_at_peak()
    corners: list[HullPoint] = [(0.0, 0.0)]
    for workers, rate in zip(cut.workers, cut.iterations_per_second, strict=True):
        if workers > most_workers:
            break
        point = (float(workers), rate)
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-1], point):
            corners.pop()
        corners.append(point)
    return tuple(corners)


def _slope(left: HullPoint, right: HullPoint) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
