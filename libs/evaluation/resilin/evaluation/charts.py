"""What a scenario's charts show: panels of bars or lines, as numbers, before anybody draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resilin.evaluation.comparison import column_label, rows
from resilin.evaluation.grid import Cell
from resilin.evaluation.measures import Run
from resilin.evaluation.scenario import Chart, Evaluation

__all__ = ["Panel", "panels"]

MOST_HOURS = 100


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing.

    Attributes:
        name: A name for its file.
        title: What it shows, and where.
        measure: The measure.
        bars: Whether its values are bars, one a label; otherwise lines, one a series.
        labels: What stands below the values.
        series: The values by series; None where there is none.
    """

    name: str
    title: str
    measure: str
    bars: bool
    labels: tuple[str, ...]
    series: Mapping[str, tuple[float | None, ...]]


def panels(scenario: Evaluation, runs: Mapping[Cell, Run]) -> list[Panel]:
    """Lay out the charts of a scenario; a chart without a value has no panel."""
    found = []
    for number, chart in enumerate(scenario.spec.charts, start=1):
        drawn = _hours(runs) if chart.along == "hours" else _laid_out(scenario, chart, runs)
        for letter, (where, labels, series) in enumerate(drawn):
            if any(value is not None for values in series.values() for value in values):
                title = column_label(chart.measure) + (f": {where}" if where else "")
                found.append(
                    Panel(
                        f"chart-{number}{chr(ord('a') + letter % 26)}",
                        title,
                        chart.measure,
                        chart.along == "policy",
                        labels,
                        series,
                    )
                )
    return found


Drawn = tuple[str, tuple[str, ...], Mapping[str, tuple[float | None, ...]]]


def _laid_out(scenario: Evaluation, chart: Chart, runs: Mapping[Cell, Run]) -> Sequence[Drawn]:
    """Spread one measure over panels: one for each value of what is neither axis nor series."""
    values: dict[str, dict[str, dict[str, float | None]]] = {}
    labels: dict[str, None] = {}
    for row in rows(scenario, runs, [chart.measure], by_seed=False):
        names = {
            "workload": row.workload,
            "cluster": row.cluster,
            "resizeCost": f"resize cost {row.resize_cost}",
            "policy": row.policy,
        }
        x = names.pop(chart.along)
        line = "" if chart.along == "policy" else names.pop(chart.series)
        where = ", ".join(names.values())
        labels.setdefault(x)
        values.setdefault(where, {}).setdefault(line, {})[x] = row.values[chart.measure]
    found = []
    for where, lines in values.items():
        here = tuple(label for label in labels if any(label in line for line in lines.values()))
        series = {name: tuple(line.get(label) for label in here) for name, line in lines.items()}
        found.append((where, here, series))
    return found


def _hours(runs: Mapping[Cell, Run]) -> Sequence[Drawn]:
    """Draw cluster efficiency hour by hour, a line a policy."""
    places: dict[str, dict[str, Sequence[float]]] = {}
    for cell, run in runs.items():
        where = f"{cell.workload}, {cell.cluster.label}, resize cost {cell.resize_cost.name}"
        places.setdefault(where, {}).setdefault(cell.policy, run.efficiency_by_hour)
    found = []
    for where, lines in places.items():
        # The last jobs of a slow policy run on for days: what is compared is the beginning.
        hours = min(MOST_HOURS, max(len(values) for values in lines.values()))
        series = {
            policy: tuple(values[hour] if hour < len(values) else None for hour in range(hours))
            for policy, values in lines.items()
        }
        found.append((where, tuple(str(hour) for hour in range(hours)), series))
    return found
