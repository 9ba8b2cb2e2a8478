"""Measures: by hand, of a run of four jobs."""

from __future__ import annotations

import pytest

from resilin.evaluation.comparison import value_of
from resilin.evaluation.measures import MEASURES, JobClass, JobRow, Run, percentile


def job(name: str, size: float, done: float | None, **more) -> JobRow:
    given = {"has_deadline": True, "met": done is not None, "iterations": 100, **more}
    outcome = given.pop("outcome", "completed" if done is not None else "rejected")
    return JobRow(
        job_id=name,
        submitted_seconds=0.0,
        gpu_seconds=size,
        outcome=outcome,
        completion_seconds=done,
        **given,
    )


RUN = Run(
    jobs=(
        job("a", 50.0, 10.0),
        job("b", 99.0, 30.0, met=False),
        job("c", 100.0, None),
        job("d", 500.0, 80.0, has_deadline=False, met=False),
    ),
    summary={"admitted": 3, "late": 1, "makespan_seconds": 100.0},
    gpu_seconds_held=7200.0,
    efficiency_by_hour=(0.5,),
    cpu_seconds=2.0,
)
CLASSES = (JobClass("small", 0.0, 100.0), JobClass("large", 100.0, float("inf")))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("jobs", 4),
        ("jobs.small", 2),
        ("admitted", 3),
        ("declined", 1),
        ("declined.small", 0),
        ("completed", 3),
        ("met", 1),
        ("met_share", pytest.approx(1 / 3)),
        ("met_share.small", 0.5),
        ("late", 1),
        ("mean_completion_seconds", 40.0),
        ("mean_completion_seconds.small", 20.0),
        ("mean_completion_seconds.large", 80.0),
        ("median_completion_seconds", 30.0),
        ("median_completion_seconds.small", 20.0),
        ("p95_completion_seconds", 80.0),
        ("best_effort_mean_completion_seconds", 80.0),
        ("best_effort_mean_completion_seconds.small", None),
        ("iterations_per_second", 3.0),
        ("gpu_hours", 2.0),
        ("jobs_per_cpu_second", 2.0),
    ],
)
def test_each_figure_is_what_it_says(column: str, value: float | None) -> None:
    assert value_of(RUN, column, CLASSES) == value


def test_every_measure_writes_itself_for_people() -> None:
    for measure in MEASURES.values():
        assert measure.readable(0.5)
        assert measure.label


def test_percentiles_are_values_that_occur() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([], 0.95) is None
