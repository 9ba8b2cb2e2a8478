"""A scenario's tables as CSV and Markdown; the same results give the same bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from resilin.evaluation.comparison import Beside, Row, beside, column_label, columns, rows
from resilin.evaluation.grid import Cell
from resilin.evaluation.measures import MEASURES, Run
from resilin.evaluation.scenario import Evaluation

__all__ = ["costs_csv", "markdown", "published_csv", "readable", "results_csv"]

_PLACE = ("workload", "cluster", "gpus", "resize_cost", "seed", "policy")


def results_csv(scenario: Evaluation, runs: Mapping[Cell, Run]) -> str:
    """Write every cell's figures, a row a cell, but those that differ between machines."""
    wanted = columns(scenario, repeatable=True)
    return _cells_csv(wanted, rows(scenario, runs, wanted))


def costs_csv(scenario: Evaluation, runs: Mapping[Cell, Run]) -> str:
    """Write what every cell cost to run."""
    wanted = ["cpu_seconds", "jobs_per_cpu_second"]
    return _cells_csv(wanted, rows(scenario, runs, wanted))


def published_csv(scenario: Evaluation, runs: Mapping[Cell, Run]) -> str:
    """Write every published number beside ours."""
    header = ("what", "workload", "cluster", "resize_cost", "published", "ours", "source")
    lines = [
        (each.what, *each.where, each.published, _figure(each.ours), each.source)
        for each in beside(scenario, runs)
    ]
    return _csv([header, *lines])


def _cells_csv(wanted: Sequence[str], table: Iterable[Row]) -> str:
    lines = [
        (
            *(row.workload, row.cluster, row.gpus, row.resize_cost, row.seed, row.policy),
            *(_figure(row.values[column]) for column in wanted),
        )
        for row in table
    ]
    return _csv([(*_PLACE, *wanted), *lines])


def _csv(lines: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _figure(value: float | None) -> str:
    """Write a figure in full but for what floating point adds at its end."""
    return "" if value is None else f"{value:.10g}"


# --- Markdown ------------------------------------------------------------------------------


def markdown(
    scenario: Evaluation, runs: Mapping[Cell, Run], failures: Sequence[tuple[str, str]] = ()
) -> str:
    """Write a scenario's page: the question, the published numbers beside ours, all figures.

    Args:
        scenario: The scenario.
        runs: The results, in the order of the grid.
        failures: The cells that failed, and why.
    """
    spec = scenario.spec
    parts = [
        f"# {scenario.name}: {spec.title}",
        f"{spec.answers.paper}, {spec.answers.item}. {spec.answers.question}",
    ]
    if spec.claims:
        parts.append("The paper says:")
        parts.append("\n".join(f"- {claim}" for claim in spec.claims))
    if spec.differs:
        parts.append("What differs here:")
        parts.append("\n".join(f"- {difference}" for difference in spec.differs))
    compared = beside(scenario, runs)
    if compared:
        parts += ["## Beside what was published", _beside_table(compared)]
    wanted = columns(scenario)
    table = rows(scenario, runs, wanted, by_seed=False)
    parts.append("## Figures")
    if len(spec.seeds) > 1:
        parts.append(f"Means over the seeds {', '.join(map(str, spec.seeds))}.")
    for place in dict.fromkeys(row.place for row in table):
        workload, cluster, cost = place
        parts.append(f"{workload} on {cluster} GPUs, resize cost {cost}:")
        parts.append(_figures_table(wanted, [row for row in table if row.place == place]))
    if failures:
        parts.append("## Failed")
        parts.append("\n".join(f"- {what}: {why}" for what, why in failures))
    return "\n\n".join(parts) + "\n"


def readable(column: str, value: float | None) -> str:
    """Write a figure for people."""
    return "-" if value is None else MEASURES[column.partition(".")[0]].readable(value)


def _beside_table(compared: Sequence[Beside]) -> str:
    header = ("", "on", "published", "ours", "source")
    lines = [
        (
            each.what,
            f"{each.where[0]}, {each.where[1]}, {each.where[2]}",
            each.published,
            each.ours_text + {True: "", None: "", False: " (outside)"}[each.within],
            each.source,
        )
        for each in compared
    ]
    return _table(header, lines, left=(0, 1, 4))


def _figures_table(wanted: Sequence[str], table: Sequence[Row]) -> str:
    header = ("policy", *(column_label(column) for column in wanted))
    lines = [
        (row.policy, *(readable(column, row.values[column]) for column in wanted)) for row in table
    ]
    return _table(header, lines, left=(0,))


def _table(header: Sequence[str], lines: Sequence[Sequence[str]], *, left: Sequence[int]) -> str:
    rule = [("---" if number in left else "---:") for number in range(len(header))]
    cells = [header, rule, *lines]
    return "\n".join(
        "| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in cells
    )
