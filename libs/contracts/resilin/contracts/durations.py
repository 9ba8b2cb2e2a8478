"""Durations as people write and read them: in a job's deadline, and in all that is said of it."""

from __future__ import annotations

__all__ = ["duration_text"]


def duration_text(seconds: float) -> str:
    """Write a duration as a job file takes it: ``1d2h30m``, ``45s``, ``0.5s``."""
    if seconds < 0:
        return f"-{duration_text(-seconds)}"
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    left = round(seconds)
    text = ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            text += f"{count}{unit}"
    return text
