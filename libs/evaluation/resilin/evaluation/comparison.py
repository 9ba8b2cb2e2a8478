"""A grid's figures: a row a cell, and the published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resilin.evaluation.grid import Cell
from resilin.evaluation.measures import MEASURES, JobClass, Run
from resilin.evaluation.scenario import Evaluation, Pick, Published

__all__ = ["Beside", "Row", "beside", "column_label", "columns", "rows", "value_of"]

_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one place of a grid: one cell, or its seeds together.

    Attributes:
        workload: The workload's name.
        cluster: The cluster's label.
        gpus: Its GPUs, those that come and go left out.
        resize_cost: The name of the resize cost.
        seed: The seed; None for the mean over all.
        policy: The policy.
        values: The figures by column (:func:`columns`); None where there is none.
    """

    workload: str
    cluster: str
    gpus: int
    resize_cost: str
    seed: int | None
    policy: str
    values: Mapping[str, float | None]

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it stands but for its policy."""
        return self.workload, self.cluster, self.resize_cost


@dataclass(frozen=True, slots=True)
class Beside:
    """A published number and ours.

    Attributes:
        what: What is compared.
        where: Workload, cluster and resize cost of ours.
        published: The published number, as people read it.
        ours: Ours, in the same unit.
        ours_text: The same as people read it.
        source: Where it was published.
        within: Whether ours lies in the published range; None where there is no range.
    """

    what: str
    where: tuple[str, str, str]
    published: str
    ours: float | None
    ours_text: str
    source: str
    within: bool | None


def columns(scenario: Evaluation, *, repeatable: bool | None = None) -> list[str]:
    """Return the columns of a scenario's table: each measure, and by class where it can be.

    Args:
        scenario: The scenario.
        repeatable: Only the figures that are the same on every machine, or only the others.
    """
    found = []
    for name in scenario.spec.measures:
        measure = MEASURES[name]
        if repeatable is not None and measure.repeatable is not repeatable:
            continue
        found.append(name)
        if measure.of_jobs:
            found += [f"{name}.{each.name}" for each in scenario.spec.classes]
    return found


def column_label(column: str) -> str:
    """Return what people call a column."""
    name, _, job_class = column.partition(".")
    label = MEASURES[name].label
    return f"{label}, {job_class} jobs" if job_class else label


def value_of(run: Run, column: str, classes: Sequence[JobClass] = ()) -> float | None:
    """Return a run's figure in a column."""
    name, _, wanted = column.partition(".")
    if not wanted:
        return MEASURES[name].of(run, run.jobs)
    job_class = next(each for each in classes if each.name == wanted)
    return MEASURES[name].of(run, [job for job in run.jobs if job_class.holds(job)])


def rows(
    scenario: Evaluation, runs: Mapping[Cell, Run], wanted: Sequence[str], *, by_seed: bool = True
) -> list[Row]:
    """Return a row a cell in the order of the grid, or one for all seeds together.

    Args:
        scenario: The scenario.
        runs: The results, in the order of the grid.
        wanted: The columns.
        by_seed: Whether each seed has its row; otherwise figures are means over the seeds.
    """
    classes = scenario.spec.job_classes
    groups: dict[tuple[str, str, str, str, int | None], list[tuple[Cell, Run]]] = {}
    for cell, run in runs.items():
        seed = cell.seed if by_seed else None
        key = (cell.workload, cell.cluster.label, cell.resize_cost.name, cell.policy, seed)
        groups.setdefault(key, []).append((cell, run))
    found = []
    for (workload, cluster, cost, policy, seed), members in groups.items():
        values = {
            column: _mean([value_of(run, column, classes) for _, run in members])
            for column in wanted
        }
        gpus = members[0][0].cluster.servers * members[0][0].cluster.gpus_per_server
        found.append(Row(workload, cluster, gpus, cost, seed, policy, values))
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return math.fsum(there) / len(there) if there else None


# --- beside the published numbers ----------------------------------------------------------


def beside(scenario: Evaluation, runs: Mapping[Cell, Run]) -> list[Beside]:
    """Set ours beside every published number, once for each place of the grid that fits.

    A number of which no run fits is left out: it was not run.
    """
    found = []
    for entry in scenario.spec.published:
        column = entry.measure + (f".{entry.job_class}" if entry.job_class else "")
        ours = _ours(entry, column, rows(scenario, runs, [column], by_seed=False))
        if entry.mean_over_workloads:
            ours = _means(ours)
        found += [_beside(entry, column, where, value) for where, value in ours]
    return found


_Ours = list[tuple[tuple[str, str, str], float | None]]


def _ours(entry: Published, column: str, table: Sequence[Row]) -> _Ours:
    """Return where and what our figure is, for each place of the grid that fits."""
    found = []
    for row in table:
        if not _fits(entry.of, row):
            continue
        value = row.values[column]
        if entry.over is not None:
            other = next((each for each in table if _is_over(entry, row, each)), None)
            if other is None:
                continue
            value = _quotient(value, other.values[column])
        found.append((row.place, value))
    return found


def _means(ours: _Ours) -> _Ours:
    """Take the mean over all workloads, for each resize cost."""
    by_cost: dict[str, list[float | None]] = {}
    for (_, _, cost), value in ours:
        by_cost.setdefault(cost, []).append(value)
    return [
        ((f"mean of {len(values)} workloads", "all GPUs", cost), _mean(values))
        for cost, values in by_cost.items()
    ]


def _fits(pick: Pick, row: Row) -> bool:
    return all(
        wanted is None or wanted == had
        for wanted, had in (
            (pick.policy, row.policy),
            (pick.workload, row.workload),
            (pick.cluster, row.cluster),
            (pick.resize_cost, row.resize_cost),
        )
    )


def _is_over(entry: Published, row: Row, other: Row) -> bool:
    over = entry.over or Pick()
    return (
        other.policy == (over.policy or row.policy)
        and other.workload == (over.workload or row.workload)
        and other.cluster == (over.cluster or row.cluster)
        and other.resize_cost == (over.resize_cost or row.resize_cost)
    )


def _quotient(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _beside(
    entry: Published, column: str, where: tuple[str, str, str], value: float | None
) -> Beside:
    if entry.as_change and value is not None:
        value -= 1
    within = None
    if value is not None and entry.value is None:
        # An open end of a published range is beyond every figure.
        within = (entry.least is None or entry.least <= value) and (
            entry.most is None or value <= entry.most
        )
    published = _published(entry, column)
    ours = "-" if value is None else _text(entry, column, value)
    return Beside(_what(entry, column), where, published, value, ours, entry.source, within)


def _published(entry: Published, column: str) -> str:
    if entry.value is not None:
        return _text(entry, column, entry.value)
    least, most = (
        None if bound is None else _text(entry, column, bound)
        for bound in (entry.least, entry.most)
    )
    if least is None:
        return f"at most {most}"
    return f"at least {least}" if most is None else f"{least} to {most}"


def _text(entry: Published, column: str, value: float) -> str:
    if entry.as_change:
        return f"{100 * value:+.1f} %".replace("-", _MINUS)
    if entry.over is not None:
        return f"{value:.2f}x"
    return MEASURES[column.partition(".")[0]].readable(value)


def _what(entry: Published, column: str) -> str:
    if entry.what is not None:
        return entry.what
    what = f"{column_label(column)}: {entry.of.policy or 'each policy'}"
    return what if entry.over is None else f"{what} over {entry.over.policy}"
