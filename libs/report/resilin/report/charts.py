"""The three charts of a run, as SVG for the page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from resilin.report.document import escaped
from resilin.report.history import History
from resilin.report.readable import readable_count, readable_duration
from resilin.report.series import (
    SlackClass,
    Step,
    gpus_over_time,
    jobs_over_time,
    mean_over,
    slack_classes,
    span,
    thin,
)
from resilin.report.svg import TimeFrame, block, dash, legend, number, spread, svg
from resilin.report.ticks import count_ticks, gpu_ticks

__all__ = ["gpus_chart", "jobs_chart", "slack_chart"]

_BUCKETS = 700
_STRIPS = 96
_ELAPSED = "time since the run's start"


def gpus_chart(history: History) -> str:
    """Draw the GPUs that work, are held, and what they are worth."""
    series = gpus_over_time(history)
    if not series.working:
        return '<p class="note">No server ever joined: there is nothing to draw.</p>'
    seconds = span(history).seconds
    peaks = [max(value for _, value in steps) for steps in (series.working, series.held)]
    effective_peak = max(value for _, value in series.effective)
    frame = TimeFrame(seconds, gpu_ticks(max(*peaks, effective_peak)))
    edges = _edges(seconds)
    means = [mean_over(steps, edges) for steps in (series.held, series.effective, series.working)]
    texts = [
        f"{_period(begin, end)}: on average {held:.1f} of {working:.1f} GPUs held, "
        f"{effective:.1f} effective"
        for (begin, end), held, effective, working in zip(pairwise(edges), *means, strict=True)
    ]
    held_mean, working_mean = (
        mean_over(steps, [0.0, seconds])[0] for steps in (series.held, series.working)
    )
    text = (
        f"On average {held_mean:.1f} of {working_mean:.1f} working GPUs were held; at most "
        f"{readable_count(peaks[1])} of {readable_count(peaks[0])}."
    )
    parts = [
        *frame.axes(_ELAPSED),
        frame.area(thin(series.held, _BUCKETS), "held"),
        frame.area(thin(series.effective, _BUCKETS), "effective"),
        frame.stroke(thin(series.working, _BUCKETS), "working"),
        *frame.hover(edges, texts),
    ]
    samples = legend(
        [
            (dash("working"), "GPUs working"),
            (block("held"), "GPUs held by jobs"),
            (block("effective"), "of these effective (the same work at linear scaling)"),
        ]
    )
    drawing = svg("gpus", (frame.width, frame.height), "GPUs over time", text, parts)
    return f'<p class="note">{escaped(text)}</p>{samples}{drawing}'


def jobs_chart(history: History) -> str:
    """Draw how many jobs were submitted, admitted, declined and completed so far."""
    series = jobs_over_time(history)
    if not series.submitted:
        return '<p class="note">No job was submitted: there is nothing to draw.</p>'
    lines = {
        "submitted": series.submitted,
        "admitted": series.admitted,
        "declined": series.declined,
        "completed": series.completed,
    }
    totals = {name: steps[-1][1] if steps else 0.0 for name, steps in lines.items()}
    seconds = span(history).seconds
    frame = TimeFrame(seconds, count_ticks(totals["submitted"]), right=140)
    edges = _edges(seconds)
    texts = [
        f"until {readable_duration(end)}: "
        + ", ".join(f"{_value_at(steps, end):.0f} {name}" for name, steps in lines.items())
        for _, end in pairwise(edges)
    ]
    text = ", ".join(f"{readable_count(total)} {name}" for name, total in totals.items())
    text = f"In the end {text}."
    parts = frame.axes(_ELAPSED)
    parts.extend(
        frame.stroke([(0.0, 0.0), *thin(steps, _BUCKETS)], name) for name, steps in lines.items()
    )
    parts.extend(frame.hover(edges, texts))
    places = spread([frame.y(total) for total in totals.values()], 15.0, 12.0, frame.bottom)
    for (name, total), place in zip(totals.items(), places, strict=True):
        parts.append(
            f'<text class="strong t-{name}" x="{number(frame.end + 8)}" y="{number(place)}" '
            f'dy=".32em">{readable_count(total)} {name}</text>'
        )
    drawing = svg("jobs", (frame.width, frame.height), "Jobs over time", text, parts)
    return f'<p class="note">{escaped(text)}</p>{drawing}'


def slack_chart(history: History) -> str:
    """Draw how long before or after their deadlines jobs were done."""
    classes = slack_classes(history)
    if not any(each.jobs for each in classes):
        return '<p class="note">No job was let in with a deadline: there is nothing to draw.</p>'
    text = _slack_text(classes)
    ticks = count_ticks(max(each.jobs for each in classes), 4)
    slot = (_END - _LEFT) / len(classes)
    parts = []
    for tick in ticks:
        y = number(_BASE - tick / ticks[-1] * (_BASE - _TOP))
        parts.append(f'<path class="grid" d="M{_LEFT} {y}H{_END}"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y}" dy=".32em" text-anchor="end">'
            f"{readable_count(tick)}</text>"
        )
    for place, each in enumerate(classes):
        parts.extend(_slack_bar(each, _LEFT + slot * (place + 0.5), slot, ticks[-1]))
    late = sum(each.late for each in classes)
    if not any(each.jobs for each in classes[:late]):
        middle = number(_LEFT + slot * late / 2)
        parts.append(f'<text x="{middle}" y="130" text-anchor="middle">no job was late</text>')
    deadline = _LEFT + slot * late
    parts.append(f'<path class="axis" d="M{_LEFT} {number(_BASE)}H{_END}"/>')
    parts.append(f'<path class="axis" d="M{number(deadline)} 12V{number(_BASE + 42)}"/>')
    for anchor, x, words in (
        ("end", deadline - 10, "\N{LEFTWARDS ARROW} done this long after the deadline"),
        ("start", deadline + 10, "done this long before the deadline \N{RIGHTWARDS ARROW}"),
    ):
        parts.append(
            f'<text x="{number(x)}" y="{number(_BASE + 40)}" text-anchor="{anchor}">{words}</text>'
        )
    drawing = svg("slack", (1100, 274), "Deadline slack", text, parts)
    return f'<p class="note">{escaped(text)}</p>{drawing}'


# The edges of the slack chart, in pixels.
_LEFT, _END, _TOP, _BASE = 48, 1080, 34.0, 226.0


def _slack_text(classes: Sequence[SlackClass]) -> str:
    jobs = sum(each.jobs for each in classes)
    promised = sum(each.promised for each in classes)
    late = sum(each.jobs for each in classes if each.late)
    broken = sum(each.promised for each in classes if each.late)
    text = (
        f"Jobs let in with a deadline: {readable_count(jobs)}, "
        f"of which promised: {readable_count(promised)}. "
        f"Done in time: {readable_count(jobs - late)}, late or never done: {readable_count(late)}"
    )
    return text + (f", of which promised: {readable_count(broken)}." if broken else ".")


def _slack_bar(each: SlackClass, middle: float, slot: float, highest: float) -> list[str]:
    label = (
        f'<text x="{number(middle)}" y="{number(_BASE + 18)}" text-anchor="middle">'
        f"{escaped(each.label)}</text>"
    )
    if not each.jobs:
        return [label]
    # One job among thousands would be thinner than a pixel: it must not vanish.
    tall = max(2.0, each.jobs / highest * (_BASE - _TOP))
    return [
        f'<rect class="f-{"late" if each.late else "met"}" x="{number(middle - slot * 0.38)}" '
        f'y="{number(_BASE - tall)}" width="{number(slot * 0.76)}" height="{number(tall)}">'
        f"<title>{escaped(_class_text(each))}</title></rect>",
        f'<text class="strong" x="{number(middle)}" y="{number(_BASE - tall - 7)}" '
        f'text-anchor="middle">{readable_count(each.jobs)}</text>',
        label,
    ]


def _class_text(each: SlackClass) -> str:
    side = "late" if each.late else "to spare"
    what = each.label if each.label == "not done" else f"{each.label} {side}"
    share = f", promised: {readable_count(each.promised)}" if each.promised else ""
    return f"{what}: {readable_count(each.jobs)} {'job' if each.jobs == 1 else 'jobs'}{share}"


def _edges(seconds: float) -> list[float]:
    return [seconds * strip / _STRIPS for strip in range(_STRIPS + 1)] if seconds > 0 else []


def _period(begin: float, end: float) -> str:
    return f"{readable_duration(begin)} to {readable_duration(end)}"


def _value_at(steps: Sequence[Step], at: float) -> float:
    place = bisect_right(steps, at, key=lambda step: step[0])
    return steps[place - 1][1] if place else 0.0
