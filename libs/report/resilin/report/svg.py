"""Drawing: steps over time and bars, as inline SVG coloured by the page's style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from resilin.report.document import escaped
from resilin.report.readable import readable_count, readable_duration
from resilin.report.series import Step
from resilin.report.ticks import time_ticks

__all__ = ["TimeFrame", "block", "dash", "legend", "number", "spread", "svg"]


def number(value: float) -> str:
    """Write a coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def svg(identity: str, size: tuple[int, int], title: str, text: str, parts: Iterable[str]) -> str:
    """Wrap a drawing, with its name and what it shows in words for those who do not see it.

    Args:
        identity: Its id on the page.
        size: Width and height in pixels; the page scales it.
        title: Its name.
        text: What it shows.
        parts: SVG elements.
    """
    width, height = size
    return (
        f'<div class="wide"><svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{identity}-title {identity}-text">'
        f'<title id="{identity}-title">{escaped(title)}</title>'
        f'<desc id="{identity}-text">{escaped(text)}</desc>{"".join(parts)}</svg></div>'
    )


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """List what a drawing's colours mean.

    Args:
        entries: A sample, from :func:`block` or :func:`dash`, and its plain text.
    """
    items = "".join(f"<li>{sample}{escaped(text)}</li>" for sample, text in entries)
    return f'<ul class="legend">{items}</ul>'


def block(style: str) -> str:
    """Draw a legend's sample of an area."""
    return _sample(f'<rect class="f-{style}" width="16" height="11" rx="2"/>')


def dash(style: str) -> str:
    """Draw a legend's sample of a line."""
    return _sample(f'<path class="stroke s-{style}" d="M0 5.5H16"/>')


def _sample(shape: str) -> str:
    return f'<svg viewBox="0 0 16 11" aria-hidden="true">{shape}</svg>'


def spread(places: Sequence[float], gap: float, top: float, bottom: float) -> list[float]:
    """Move labels apart until they do not touch.

    Args:
        places: Where the labels should be, downwards, in any order.
        gap: The distance they need; ``bottom - top`` has room for all.
        top: Where the highest label may be.
        bottom: Where the lowest label may be.

    Returns:
        Where they are, in the order of ``places``.
    """
    order = sorted(range(len(places)), key=lambda label: places[label])
    moved = list(places)
    limit = bottom
    for label in reversed(order):
        moved[label] = min(moved[label], limit)
        limit = moved[label] - gap
    limit = top
    for label in order:
        moved[label] = max(moved[label], limit)
        limit = moved[label] + gap
    return moved


@dataclass(frozen=True, slots=True)
class TimeFrame:
    """A drawing's coordinates: time to the right, counts upwards.

    Attributes:
        seconds: The time shown.
        counts: The ticks of the counts, ascending from 0; the last is the top.
        width: Of the drawing, in pixels.
        height: Of the drawing, in pixels.
        left: Space for the counts.
        right: Space for labels at the lines' ends.
    """

    seconds: float
    counts: Sequence[float]
    width: int = 1100
    height: int = 300
    left: int = 48
    right: int = 20

    @property
    def bottom(self) -> float:
        """Where the count is 0."""
        return self.height - 42.0

    @property
    def end(self) -> float:
        """Where the time ends."""
        return float(self.width - self.right)

    def x(self, seconds: float) -> float:
        """Place a time; a run of no length is drawn at its start."""
        share = seconds / self.seconds if self.seconds > 0 else 0.0
        return self.left + share * (self.end - self.left)

    def y(self, value: float) -> float:
        """Place a count."""
        return self.bottom - value / self.counts[-1] * (self.bottom - 12.0)

    def axes(self, what: str) -> list[str]:
        """Draw the grid, the ticks and what they count."""
        parts = []
        for tick in self.counts:
            y = number(self.y(tick))
            parts.append(f'<path class="grid" d="M{self.left} {y}H{number(self.end)}"/>')
            parts.append(
                f'<text x="{self.left - 8}" y="{y}" dy=".32em" text-anchor="end">'
                f"{readable_count(tick)}</text>"
            )
        base = number(self.bottom)
        for tick in time_ticks(self.seconds):
            x = number(self.x(tick))
            label = readable_duration(tick) if tick else "0"
            parts.append(f'<path class="axis" d="M{x} {base}v5"/>')
            parts.append(
                f'<text x="{x}" y="{number(self.bottom + 19)}" text-anchor="middle">{label}</text>'
            )
        parts.append(f'<path class="axis" d="M{self.left} {base}H{number(self.end)}"/>')
        parts.append(
            f'<text x="{number((self.left + self.end) / 2)}" y="{self.height - 5}" '
            f'text-anchor="middle">{escaped(what)}</text>'
        )
        return parts

    def stroke(self, steps: Sequence[Step], style: str) -> str:
        """Draw steps as a line."""
        return f'<path class="stroke s-{style}" d="{self._outline(steps)}"/>' if steps else ""

    def area(self, steps: Sequence[Step], style: str) -> str:
        """Draw steps as an area above 0."""
        if not steps:
            return ""
        base, start = number(self.bottom), number(self.x(steps[0][0]))
        outline = self._outline(steps).replace("M", f"M{start} {base}L", 1)
        return f'<path class="area f-{style}" d="{outline}V{base}Z"/>'

    def _outline(self, steps: Sequence[Step]) -> str:
        x, y = number(self.x(steps[0][0])), number(self.y(steps[0][1]))
        parts = [f"M{x} {y}"]
        for at, value in steps[1:]:
            next_x, next_y = number(self.x(at)), number(self.y(value))
            if next_y == y:
                continue
            # Vertical moves at one pixel column need no horizontal move between them.
            parts.append(f"V{next_y}" if next_x == x else f"H{next_x}V{next_y}")
            x, y = next_x, next_y
        parts.append(f"H{number(self.end)}")
        return "".join(parts)

    def hover(self, edges: Sequence[float], texts: Sequence[str]) -> list[str]:
        """Lay invisible strips over the drawing that say what is below them.

        Args:
            edges: Ascending times between the strips.
            texts: What each strip says; one fewer than the edges.
        """
        parts = []
        for begin, end, text in zip(edges[:-1], edges[1:], texts, strict=True):
            x = self.x(begin)
            parts.append(
                f'<rect class="hover" x="{number(x)}" y="12" width="{number(self.x(end) - x)}" '
                f'height="{number(self.bottom - 12)}"><title>{escaped(text)}</title></rect>'
            )
        return parts
