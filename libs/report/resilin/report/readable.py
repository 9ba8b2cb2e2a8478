"""Numbers as people read them: durations, counts and shares."""

from __future__ import annotations

__all__ = ["readable_count", "readable_duration", "readable_share"]

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MINUS = "\N{MINUS SIGN}"


def readable_duration(seconds: float) -> str:
    """Write a duration in its two largest units, such as ``2 h 5 min``.

    Rounded to what is shown; below ten seconds with decimals, so that short stops do not
    vanish.

    Args:
        seconds: The duration; negative ones get a minus sign.
    """
    size = abs(seconds)
    sign = _MINUS if seconds < 0 else ""
    if size < 9.95:
        text = f"{size:.2g}" if size < 1 else f"{size:.1f}".removesuffix(".0")
        # Scientific notation is not for people: what is too small to show is nothing.
        return "0 s" if size < 0.0005 else f"{sign}{text} s"
    largest = next(place for place, (unit, _) in enumerate(_UNITS) if size >= unit or unit == 1)
    finest = _UNITS[min(largest + 1, len(_UNITS) - 1)][0]
    left = round(size / finest) * finest
    parts = []
    for unit, name in _UNITS:
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count:,.0f} {name}")
    return sign + " ".join(parts)


def readable_count(count: float) -> str:
    """Write a whole number with thousands separated, such as ``1,595``."""
    return f"{count:,.0f}".replace("-", _MINUS)


def readable_share(share: float) -> str:
    """Write a share of one as a percentage, such as ``46.2 %``."""
    return f"{100 * share:.1f} %".replace("-", _MINUS)
