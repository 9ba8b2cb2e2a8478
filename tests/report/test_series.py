from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.cell.state import Phase
from resilin.report.history import History, JobHistory, Moment
from resilin.report.series import (
    Step,
    gpus_over_time,
    jobs_over_time,
    mean_over,
    slack_classes,
    span,
    thin,
)
from resilin.report.summary import summarize

STEPS = st.lists(
    st.tuples(st.floats(0.001, 50), st.integers(0, 20).map(float)), min_size=1, max_size=300
)
MANY_STEPS = st.lists(
    st.tuples(st.sampled_from([0.5, 1.0, 7.25]), st.integers(0, 20).map(float)),
    min_size=40,
    max_size=120,
)


def steps_from(gaps: list[tuple[float, float]]) -> list[Step]:
    at, steps = 0.0, []
    for gap, value in gaps:
        steps.append((at, value))
        at += gap
    return steps


@settings(deadline=None, derandomize=True, max_examples=150)
@given(MANY_STEPS, st.integers(1, 8))
def test_thinning_keeps_the_extremes_and_edges_of_every_bucket(
    gaps: list[tuple[float, float]], buckets: int
) -> None:
    steps = steps_from(gaps)
    kept = thin(steps, buckets)
    assert len(kept) <= 4 * buckets or kept == steps
    assert kept[0] == steps[0]
    assert kept[-1] == steps[-1]
    # In their order, and none made up.
    places = [steps.index(step) for step in kept]
    assert places == sorted(set(places))
    width = steps[-1][0] / buckets or 1.0
    by_bucket: dict[int, list[Step]] = {}
    for step in steps:
        by_bucket.setdefault(min(buckets - 1, int(step[0] / width)), []).append(step)
    for members in by_bucket.values():
        left = [step for step in kept if step in members]
        values, left_values = [v for _, v in members], [v for _, v in left]
        assert (min(values), max(values)) == (min(left_values), max(left_values))
        assert (members[0], members[-1]) == (left[0], left[-1])


def test_one_peak_among_many_steps_survives() -> None:
    steps = [(float(at), 1.0) for at in range(100_000)]
    steps[61_803] = (61_803.0, 99.0)
    steps[31_415] = (31_415.0, 0.0)
    kept = thin(steps, 700)
    assert len(kept) <= 2_800
    assert (61_803.0, 99.0) in kept
    assert (31_415.0, 0.0) in kept


@settings(deadline=None, derandomize=True, max_examples=100)
@given(STEPS, st.integers(1, 9))
def test_means_of_parts_add_up_to_the_whole(gaps: list[tuple[float, float]], parts: int) -> None:
    steps = steps_from(gaps)
    end = steps[-1][0] + gaps[-1][0]
    area = sum(gap * value for gap, value in gaps)
    edges = [end * part / parts for part in range(parts + 1)]
    assert sum(mean_over(steps, edges)) * end / parts == pytest.approx(area, abs=1e-6)


def test_means_before_the_first_step_and_of_no_time() -> None:
    assert mean_over([(10.0, 4.0)], [0.0, 5.0, 15.0, 15.0]) == [0.0, 2.0, 4.0]
    assert mean_over([], [0.0, 1.0]) == [0.0]


def test_jobs_are_counted_at_the_times_they_came_to(
    make_history: Callable[..., History], make_job: Callable[..., JobHistory]
) -> None:
    series = jobs_over_time(
        make_history(
            [
                make_job("a", submitted_at_seconds=100.0),
                make_job("b", submitted_at_seconds=100.0, ended_at_seconds=900.0),
                make_job(
                    "c",
                    submitted_at_seconds=150.0,
                    answered_at_seconds=160.0,
                    outcome=Phase.REJECTED,
                    ended_at_seconds=None,
                ),
                make_job("d", outcome=Phase.FAILED, submitted_at_seconds=200.0),
                make_job(
                    "e",
                    outcome=Phase.CANCELLED,
                    submitted_at_seconds=250.0,
                    answered_at_seconds=None,
                ),
            ]
        )
    )
    assert series.submitted == [(0.0, 2.0), (50.0, 3.0), (100.0, 4.0), (150.0, 5.0)]
    assert series.admitted == [(0.0, 3.0)]
    assert series.declined == [(60.0, 1.0)]
    assert series.completed == [(600.0, 1.0), (800.0, 2.0)]


def test_the_span_reaches_from_the_first_to_the_last_that_happened(
    make_history: Callable[..., History], make_job: Callable[..., JobHistory]
) -> None:
    history = make_history([make_job()], [Moment(90.0, 8, 0, 0.0), Moment(110.0, 8, 4, 0.4)])
    assert (span(history).start_seconds, span(history).end_seconds) == (90.0, 700.0)
    assert gpus_over_time(history).effective == [(0.0, 0.0), (20.0, pytest.approx(3.2))]
    assert span(make_history()).seconds == 0.0


@pytest.mark.parametrize(
    ("ended", "label", "late"),
    [
        (1_000.0, "< 1 min", False),
        (999.0, "< 1 min", False),
        (1_001.0, "< 1 min", True),
        (940.0, "1\N{EN DASH}10 min", False),
        (1_000.0 + 600, "10 min\N{EN DASH}1 h", True),
        (1_000.0 + 21_600, "6 h\N{EN DASH}1 d", True),
        (1_000.0 + 700_000, "> 7 d", True),
    ],
)
def test_slack_falls_into_its_class(
    make_history: Callable[..., History],
    make_job: Callable[..., JobHistory],
    ended: float,
    label: str,
    late: bool,
) -> None:
    classes = slack_classes(make_history([make_job(ended_at_seconds=ended)]))
    assert [(c.label, c.late, c.promised) for c in classes if c.jobs] == [(label, late, 1)]


def test_jobs_never_done_are_late_and_others_do_not_count(
    make_history: Callable[..., History], make_job: Callable[..., JobHistory]
) -> None:
    history = make_history(
        [
            make_job("failed", outcome=Phase.FAILED),
            make_job("running", outcome=Phase.ADMITTED, ended_at_seconds=None, promised=False),
            make_job("declined", outcome=Phase.REJECTED, ended_at_seconds=None),
            make_job("cancelled", outcome=Phase.CANCELLED),
            make_job("free", deadline_seconds=None),
        ]
    )
    classes = [each for each in slack_classes(history) if each.jobs]
    assert [(c.label, c.late, c.jobs, c.promised) for c in classes] == [("not done", True, 2, 1)]


def test_classes_agree_with_the_summary(simulated: History) -> None:
    summary, classes = summarize(simulated), slack_classes(simulated)
    assert sum(each.jobs for each in classes if each.late) == summary.late
    assert sum(each.jobs for each in classes if not each.late) == summary.met
    assert sum(each.promised for each in classes if each.late) == summary.broken_promises
    series = jobs_over_time(simulated)
    assert series.submitted[-1][1] == summary.jobs
    assert series.admitted[-1][1] == summary.admitted
    assert series.declined[-1][1] == summary.declined
    assert series.completed[-1][1] == summary.completed
