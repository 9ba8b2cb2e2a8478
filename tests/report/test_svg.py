from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.report.charts import gpus_chart, jobs_chart, slack_chart
from resilin.report.history import History, JobHistory, Moment
from resilin.report.svg import TimeFrame, spread


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.floats(12, 258), min_size=1, max_size=6))
def test_labels_move_apart_and_stay_inside(places: list[float]) -> None:
    moved = spread(places, 15.0, 12.0, 258.0)
    assert min(moved) >= 12 - 1e-9
    assert max(moved) <= 258 + 1e-9
    in_order = [moved[label] for label in sorted(range(len(places)), key=lambda p: places[p])]
    assert all(lower - upper >= 15 - 1e-9 for upper, lower in pairwise(in_order))


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([200.0, 20.0, 100.0], 15.0, 12.0, 258.0) == [200.0, 20.0, 100.0]


def test_steps_are_drawn_as_steps_until_the_end() -> None:
    # 100 s on 100 px, 10 on 246 px.
    frame = TimeFrame(100.0, [0.0, 10.0], width=168)
    steps = [(0.0, 0.0), (10.0, 10.0), (20.0, 10.0), (30.0, 5.0)]
    assert 'd="M48 258H58V12H78V135H148"' in frame.stroke(steps, "held")
    assert 'd="M48 258L48 258H58V12H78V135H148V258Z"' in frame.area(steps, "held")
    assert frame.stroke([], "held") == frame.area([], "held") == ""


def test_steps_within_one_pixel_are_drawn_in_place() -> None:
    frame = TimeFrame(100.0, [0.0, 10.0], width=168)
    steps = [(0.0, 0.0), (50.0, 10.0), (50.01, 0.0), (50.02, 5.0)]
    assert 'd="M48 258H98V12V258V135H148"' in frame.stroke(steps, "held")


def test_nothing_to_draw_is_said_and_not_drawn() -> None:
    for chart in (gpus_chart, jobs_chart, slack_chart):
        text = chart(History())
        assert "nothing to draw" in text
        assert "<svg" not in text


def test_the_deadline_stands_between_late_and_in_time(
    make_history: Callable[..., History], make_job: Callable[..., JobHistory]
) -> None:
    jobs = [make_job("late", ended_at_seconds=1_001.0), make_job("met", ended_at_seconds=999.0)]
    text = slack_chart(make_history(jobs))
    bars = {
        style: (float(x), float(x) + float(width))
        for style, x, width in re.findall(
            r'<rect class="f-(late|met)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text
        )
    }
    deadline = float(re.findall(r'class="axis" d="M([\d.]+) 12V', text)[0])
    assert bars["late"][1] < deadline < bars["met"][0]
    assert deadline - bars["late"][1] < 20
    assert "no job was late" not in text
    assert "no job was late" in slack_chart(make_history(jobs[1:]))


def test_one_late_job_among_thousands_can_be_seen(
    make_history: Callable[..., History], make_job: Callable[..., JobHistory]
) -> None:
    jobs = [make_job(f"job-{number}") for number in range(3_000)]
    jobs.append(make_job("late", ended_at_seconds=2_000.0))
    text = slack_chart(make_history(jobs))
    height = re.findall(r'<rect class="f-late".*? height="([\d.]+)"', text)
    assert [float(each) for each in height] == [2.0]


def test_strips_tell_what_is_below_them(make_history: Callable[..., History]) -> None:
    history = make_history([], [Moment(0.0, 8, 4, 0.25), Moment(96.0, 8, 0, 0.0)])
    text = gpus_chart(history)
    assert text.count('class="hover"') == 96
    assert "<title>1 s to 2 s: on average 4.0 of 8.0 GPUs held, 2.0 effective</title>" in text
