"""Several runs of the same jobs side by side: a page, and rows for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resilin.report.document import document, escaped, figure_of
from resilin.report.readable import readable_count, readable_duration, readable_share
from resilin.report.svg import block, legend, number

__all__ = ["comparison_page", "comparison_table"]


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure that runs are compared by.

    Attributes:
        name: The summary's name for it.
        label: What people call it.
        readable: How to write it.
        better: 1 if more is better, -1 if less is, 0 if it is neither.
        chart: Whether it has a bar chart of its own.
    """

    name: str
    label: str
    readable: Callable[[float], str]
    better: int = 0
    chart: bool = False


_FIGURES = (
    _Figure("jobs", "Jobs submitted", readable_count),
    _Figure("admitted", "Admitted", readable_count),
    _Figure("declined", "Declined", readable_count),
    _Figure("completed", "Completed", readable_count, 1),
    _Figure("met", "Deadlines met", readable_count, 1, chart=True),
    _Figure("late", "Late", readable_count, -1),
    _Figure("promised", "Promised", readable_count),
    _Figure("broken_promises", "Broken promises", readable_count, -1),
    _Figure("mean_completion_seconds", "Mean completion", readable_duration, -1, chart=True),
    _Figure(
        "p99_completion_seconds", "99th percentile completion", readable_duration, -1, chart=True
    ),
    _Figure("makespan_seconds", "Makespan", readable_duration, -1, chart=True),
    _Figure("gpu_utilization", "GPU utilisation", readable_share, 0, chart=True),
    _Figure("cluster_efficiency", "Cluster efficiency", readable_share, 1, chart=True),
    _Figure("resizes", "Resizes", readable_count, 0, chart=True),
    _Figure("migrations", "Migrations", readable_count),
    _Figure("records", "Log records", readable_count),
)


def comparison_table(summaries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Lay summaries side by side, for a terminal.

    Args:
        summaries: One for each run, as ``Summary.as_dict()`` has them.

    Returns:
        Rows of equal length: first the header (an empty cell, then the policies), then one
        row for each figure (its label, then its value for each run). Policies that occur more
        than once are numbered.

    Raises:
        ValueError: A summary lacks a figure.
    """
    return [["", *_names(summaries)]] + [
        [figure.label, *(figure.readable(value) for value in _values(figure, summaries))]
        for figure in _FIGURES
    ]


def comparison_page(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Write a comparison as one HTML page that needs nothing but itself.

    Args:
        summaries: One for each run, as ``Summary.as_dict()`` has them.

    Returns:
        The page; the same summaries give the same bytes.

    Raises:
        ValueError: A summary lacks a figure.
    """
    names = _names(summaries)
    runs = f"{len(names)} run{'' if len(names) == 1 else 's'}"
    if not names:
        return document("Policies compared", runs, ["<section><p>No runs.</p></section>"])
    charts = "".join(_chart(figure, names, summaries) for figure in _FIGURES if figure.chart)
    sections = [
        f"<section><h2>What became of the jobs</h2>{_doubt(summaries)}"
        f"{_fates(names, summaries)}</section>",
        f'<section><h2>Figures</h2><div class="multiples">{charts}</div></section>',
        f"<section><h2>All figures</h2>{_html_table(names, summaries)}</section>",
    ]
    lead = f"{runs}: {escaped(', '.join(names))}"
    return document("Policies compared", lead, sections)


def _names(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each run by its policy, numbered where two have the same."""
    policies = [str(summary.get("policy") or "no policy") for summary in summaries]
    total, seen, names = Counter(policies), Counter[str](), []
    for policy in policies:
        seen[policy] += 1
        names.append(f"{policy} ({seen[policy]})" if total[policy] > 1 else policy)
    return names


def _values(figure: _Figure, summaries: Sequence[Mapping[str, Any]]) -> list[float]:
    return [figure_of(summary, figure.name) for summary in summaries]


def _best(figure: _Figure, values: Sequence[float]) -> float | None:
    """Return the best of several values, None where no run stands out."""
    if not figure.better or len(set(values)) < 2:
        return None
    return max(values) if figure.better > 0 else min(values)


def _doubt(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Warn of what makes the comparison unfair."""
    doubts = []
    if len({figure_of(summary, "jobs") for summary in summaries}) > 1:
        doubts.append(
            '<p class="bad">The runs were not given the same number of jobs: '
            "their figures cannot be compared.</p>"
        )
    if len({figure_of(summary, "declined") for summary in summaries}) > 1:
        doubts.append(
            '<p class="note">Completion times and makespan leave declined jobs out: '
            "a run that declines more of them looks faster for it.</p>"
        )
    return "".join(doubts)


# --- charts --------------------------------------------------------------------------------

_FATES = (
    ("met", "done by the deadline"),
    ("late", "late or not done in time"),
    ("declined", "declined"),
    ("other", "had no deadline, or were cancelled or not answered"),
)


def _fates(names: Sequence[str], summaries: Sequence[Mapping[str, Any]]) -> str:
    """Draw each run's jobs as one bar."""
    most = max(figure_of(summary, "jobs") for summary in summaries) or 1.0
    left, room, line = 180, 910, 34
    parts, styles = [], set()
    for place, (name, summary) in enumerate(zip(names, summaries, strict=True)):
        x, y = float(left), line * place + 4
        parts.append(_name_text(name, left - 12, y + 12, 24))
        for style, label, count in _fate_counts(summary):
            if count <= 0:
                continue
            styles.add(style)
            width = room * count / most
            words = f"{name}: {readable_count(count)} {label}"
            parts.append(
                f'<rect class="f-{style}" x="{number(x)}" y="{y}" width="{number(width)}" '
                f'height="24"><title>{escaped(words)}</title></rect>'
            )
            if width > 40:
                parts.append(
                    f'<text class="inside" x="{number(x + width / 2)}" y="{y + 12}" dy=".34em" '
                    f'text-anchor="middle">{readable_count(count)}</text>'
                )
            x += width
    samples = legend((block(style), label) for style, label in _FATES if style in styles)
    drawing = _drawing((1100, line * len(names)), "What became of the jobs, by policy", parts)
    return f'{samples}<div class="wide">{drawing}</div>'


def _fate_counts(summary: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    counts = {name: figure_of(summary, name) for name in ("met", "late", "declined")}
    counts["other"] = figure_of(summary, "jobs") - sum(counts.values())
    return [(style, label, counts[style]) for style, label in _FATES]


def _chart(figure: _Figure, names: Sequence[str], summaries: Sequence[Mapping[str, Any]]) -> str:
    """Draw one figure as a bar for each run."""
    values = _values(figure, summaries)
    best, longest = _best(figure, values), max(values)
    left, room, line = 116, 126, 26
    parts = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        middle = line * place + 12
        width = room * value / longest if longest > 0 else 0.0
        style = "f-met" if value == best else "f-held"
        parts.append(_name_text(name, left - 10, middle, 15))
        parts.append(
            f'<rect class="{style}" x="{left}" y="{middle - 8}" width="{number(width)}" '
            'height="16" rx="2"/>'
        )
        parts.append(
            f'<text class="strong" x="{number(left + width + 7)}" y="{middle}" dy=".34em">'
            f"{figure.readable(value)}</text>"
        )
    drawing = _drawing((340, line * len(names)), f"{figure.label}, by policy", parts)
    return f"<figure><figcaption>{figure.label} {_hint(figure)}</figcaption>{drawing}</figure>"


def _hint(figure: _Figure) -> str:
    hints = {1: "<span>more is better</span>", -1: "<span>less is better</span>"}
    return hints.get(figure.better, "")


def _name_text(name: str, x: int, y: int, longest: int) -> str:
    """Write a run's name to the left of its bar, cut where it would leave the drawing."""
    short = name if len(name) <= longest else f"{name[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"
    return (
        f'<text x="{x}" y="{y}" dy=".34em" text-anchor="end">{escaped(short)}'
        f"<title>{escaped(name)}</title></text>"
    )


def _drawing(size: tuple[int, int], label: str, parts: Sequence[str]) -> str:
    width, height = size
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escaped(label)}">{"".join(parts)}</svg>'
    )


# --- the table -----------------------------------------------------------------------------


def _html_table(names: Sequence[str], summaries: Sequence[Mapping[str, Any]]) -> str:
    headings = "".join(f'<th scope="col" class="name">{escaped(name)}</th>' for name in names)
    rows = []
    for figure in _FIGURES:
        values = _values(figure, summaries)
        best = _best(figure, values)
        cells = "".join(_value_cell(figure, value, best) for value in values)
        rows.append(
            f'<tr data-figure="{figure.name}"><th scope="row" class="left">{figure.label} '
            f'<span class="quiet">{_hint(figure)}</span></th>{cells}</tr>'
        )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of figures"><table>'
        f'<thead><tr><th scope="col" class="left">Figure</th>{headings}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _value_cell(figure: _Figure, value: float, best: float | None) -> str:
    if value != best:
        return f"<td>{figure.readable(value)}</td>"
    # Not by colour alone.
    return (
        '<td class="best"><span title="best" aria-label="best">\N{BLACK STAR}</span> '
        f"{figure.readable(value)}</td>"
    )
