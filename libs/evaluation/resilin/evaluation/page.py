"""All scenarios of an evaluation on one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resilin.evaluation.charts import Panel, panels
from resilin.evaluation.comparison import Beside, Row, beside, column_label, columns, rows
from resilin.evaluation.grid import Cell
from resilin.evaluation.measures import MEASURES, Run
from resilin.evaluation.scenario import Evaluation
from resilin.evaluation.tables import readable
from resilin.report.document import document, escaped
from resilin.report.svg import number

__all__ = ["Part", "evaluation_page"]

# Of a lightness that can be told from a light and from a dark page.
_COLOURS = ("#3f86c4", "#c9772a", "#2f9a63", "#d8524f", "#9a6fc2", "#7f8b96", "#1f9fae", "#a98f1a")
_DASHES = ("none", "6 4", "2 3")


@dataclass(frozen=True, slots=True)
class Part:
    """One scenario of the page.

    Attributes:
        scenario: The scenario.
        runs: Its results, in the order of the grid.
        failures: The cells that failed, and why.
    """

    scenario: Evaluation
    runs: Mapping[Cell, Run]
    failures: Sequence[tuple[str, str]] = ()


def evaluation_page(parts: Sequence[Part]) -> str:
    """Write the page; the same results give the same bytes."""
    runs = sum(len(part.runs) for part in parts)
    lead = f"{len(parts)} scenario{'' if len(parts) == 1 else 's'}, {runs:,} runs"
    return document("Evaluation", lead, [_section(part) for part in parts])


def _section(part: Part) -> str:
    spec = part.scenario.spec
    answers = spec.answers
    html = [
        f'<h2 id="{escaped(part.scenario.name)}">{escaped(part.scenario.name)}: '
        f"{escaped(spec.title)}</h2>",
        f'<p class="note">{escaped(answers.paper)}, {escaped(answers.item)}. '
        f"{escaped(answers.question)}</p>",
        _listed("The paper says:", spec.claims),
        _listed("What differs here:", spec.differs),
    ]
    if part.failures:
        said = [f"{what}: {why}" for what, why in part.failures]
        html.append(f'<p class="bad">{len(said)} runs failed.</p>{_listed("", said)}')
    compared = beside(part.scenario, part.runs)
    if compared:
        html.append(_beside_table(compared))
    drawn = panels(part.scenario, part.runs)
    if drawn:
        html.append(f'<div class="multiples">{"".join(_figure(panel) for panel in drawn)}</div>')
    wanted = columns(part.scenario)
    html.append(_figures(wanted, rows(part.scenario, part.runs, wanted, by_seed=False)))
    return f"<section>{''.join(html)}</section>"


def _listed(lead: str, said: Sequence[str]) -> str:
    if not said:
        return ""
    items = "".join(f"<li>{escaped(each)}</li>" for each in said)
    return f'<p class="note">{escaped(lead)}</p><ul class="note">{items}</ul>'


# --- tables --------------------------------------------------------------------------------


def _beside_table(compared: Sequence[Beside]) -> str:
    body = []
    for each in compared:
        style = {True: ' class="best"', False: ' class="bad"', None: ""}[each.within]
        workload, cluster, cost = each.where
        body.append(
            f'<tr><th scope="row" class="left name">{escaped(each.what)}</th>'
            f'<td class="left">{escaped(f"{workload}, {cluster}, {cost}")}</td>'
            f"<td>{escaped(each.published)}</td><td{style}>{escaped(each.ours_text)}</td>"
            f'<td class="left why">{escaped(each.source)}</td></tr>'
        )
    heading = "".join(
        f'<th scope="col"{style}>{text}</th>'
        for text, style in (
            ("Figure", ' class="left"'),
            ("On", ' class="left"'),
            ("Published", ""),
            ("Ours", ""),
            ("Source", ' class="left"'),
        )
    )
    return _table("Beside what was published", heading, body)


def _figures(wanted: Sequence[str], table: Sequence[Row]) -> str:
    heading = "".join(
        f'<th scope="col" class="left">{text}</th>'
        for text in ("Workload", "GPUs", "Resize cost", "Policy")
    ) + "".join(f'<th scope="col">{escaped(column_label(column))}</th>' for column in wanted)
    best = {
        (place, column): _best(column, [row for row in table if row.place == place])
        for place in dict.fromkeys(row.place for row in table)
        for column in wanted
    }
    body = []
    for row in table:
        cells = "".join(f'<td class="left">{escaped(text)}</td>' for text in row.place)
        cells += f'<th scope="row" class="left">{escaped(row.policy)}</th>'
        for column in wanted:
            value = row.values[column]
            is_best = value is not None and value == best[row.place, column]
            mark = "\N{BLACK STAR} " if is_best else ""
            style = ' class="best"' if is_best else ""
            cells += f"<td{style}>{mark}{escaped(readable(column, value))}</td>"
        body.append(f"<tr>{cells}</tr>")
    return _table("All figures", heading, body)


def _best(column: str, table: Sequence[Row]) -> float | None:
    better = MEASURES[column.partition(".")[0]].better
    values = [value for row in table if (value := row.values[column]) is not None]
    if not better or len(set(values)) < 2:
        return None
    return max(values) if better > 0 else min(values)


def _table(caption: str, heading: str, body: Sequence[str]) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table>'
        f"<caption>{caption}</caption><thead><tr>{heading}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


# --- drawings ------------------------------------------------------------------------------


def _figure(panel: Panel) -> str:
    drawing = _bars(panel) if panel.bars else _lines(panel)
    return f"<figure><figcaption>{escaped(panel.title)}</figcaption>{drawing}</figure>"


def _bars(panel: Panel) -> str:
    (values,) = panel.series.values()
    longest = max((value for value in values if value is not None), default=0.0)
    left, room, line = 116, 126, 26
    parts = []
    for place, (name, value) in enumerate(zip(panel.labels, values, strict=True)):
        middle = line * place + 12
        width = room * (value or 0.0) / longest if longest > 0 else 0.0
        parts.append(
            f'<text x="{left - 10}" y="{middle}" dy=".34em" text-anchor="end">{escaped(name)}'
            f'</text><rect class="f-held" x="{left}" y="{middle - 8}" width="{number(width)}" '
            f'height="16" rx="2"/><text class="strong" x="{number(left + width + 7)}" '
            f'y="{middle}" dy=".34em">{escaped(readable(panel.measure, value))}</text>'
        )
    return _drawing((340, line * len(values)), panel.title, parts)


def _lines(panel: Panel) -> str:
    left, right, top, bottom = 70.0, 400.0, 10.0, 190.0
    there = [v for values in panel.series.values() for v in values if v is not None]
    highest = max(there) or 1.0
    steps = max(1, len(panel.labels) - 1)
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = number(bottom - share * (bottom - top))
        text = escaped(readable(panel.measure, share * highest))
        parts.append(f'<path class="grid" d="M{left} {y}H{right}"/>')
        parts.append(f'<text x="{left - 6}" y="{y}" dy=".32em" text-anchor="end">{text}</text>')
    for place in range(0, len(panel.labels), max(1, len(panel.labels) // 3)):
        x = number(left + place / steps * (right - left))
        label = escaped(panel.labels[place])
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for order, (name, values) in enumerate(panel.series.items()):
        style = f"stroke:{_COLOURS[order % len(_COLOURS)]};"
        style += f"stroke-dasharray:{_DASHES[order // len(_COLOURS) % len(_DASHES)]}"
        path, pen = "", "M"
        for place, value in enumerate(values):
            if value is None:
                pen = "M"
                continue
            at = left + place / steps * (right - left)
            path += f"{pen}{number(at)} {number(bottom - value / highest * (bottom - top))}"
            pen = "L"
        if path:
            title = f"<title>{escaped(name)}</title>"
            parts.append(f'<path class="stroke" style="{style}" d="{path}">{title}</path>')
        down, along = bottom + 40 + 16 * (order // 3), 12 + 140 * (order % 3)
        parts.append(f'<path class="stroke" style="{style}" d="M{along} {number(down)}h16"/>')
        parts.append(f'<text x="{along + 21}" y="{number(down)}" dy=".34em">{escaped(name)}</text>')
    height = bottom + 40 + 16 * ((len(panel.series) + 2) // 3)
    return _drawing((430, round(height)), panel.title, parts)


def _drawing(size: tuple[int, int], label: str, parts: Sequence[str]) -> str:
    width, height = size
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escaped(label)}">{"".join(parts)}</svg>'
    )
