"""The three charts of a run as PNG files, drawn with matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resilin.report.history import History
from resilin.report.readable import readable_count, readable_duration
from resilin.report.series import (
    Step,
    gpus_over_time,
    jobs_over_time,
    slack_classes,
    span,
    thin,
)
from resilin.report.ticks import count_ticks, gpu_ticks, time_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PlotsUnavailableError", "write_plots"]

_BUCKETS = 1_000
_BLUE, _DARK, _GREY, _GREEN, _ORANGE, _RED = (
    "#4b90cd",
    "#0d4a80",
    "#55616d",
    "#17794a",
    "#a85400",
    "#c3242b",
)


class PlotsUnavailableError(RuntimeError):
    """Plots were asked for and matplotlib is not installed."""


def write_plots(history: History, folder: Path) -> list[Path]:
    """Draw a run: GPUs over time, jobs over time, deadline slack.

    Needs no display, and leaves matplotlib's global state (its backend, ``pyplot``) alone.

    Args:
        history: The run.
        folder: Where to write; made if it does not exist.

    Returns:
        The files: ``gpus.png``, ``jobs.png`` and ``slack.png`` in ``folder``.

    Raises:
        PlotsUnavailableError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        msg = (
            f"plots need matplotlib, and the module {error.name!r} is missing: install it with "
            "`pip install 'resilin[plots]'`, or ask for no plots"
        )
        raise PlotsUnavailableError(msg) from error
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in (("gpus", _draw_gpus), ("jobs", _draw_jobs), ("slack", _draw_slack)):
        figure = Figure(figsize=(11, 3.6), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.subplots(), history)
        path = folder / f"{name}.png"
        # Without matplotlib's version in the file, the same run gives the same bytes.
        figure.savefig(path, metadata={"Software": None})
        paths.append(path)
    return paths


def _draw_gpus(axes: Axes, history: History) -> None:
    seconds = span(history).seconds
    series = gpus_over_time(history)
    highest = max(
        (value for steps in (series.working, series.held, series.effective) for _, value in steps),
        default=0.0,
    )
    _frame(axes, "GPUs over time", gpu_ticks(highest))
    _time_axis(axes, seconds)
    if not series.working:
        return _nothing(axes, "no server ever joined")
    for steps, colour, label in (
        (series.held, _BLUE, "held by jobs"),
        (series.effective, _DARK, "of these effective (the same work at linear scaling)"),
    ):
        times, values = _lines(steps, seconds)
        axes.fill_between(times, values, step="post", color=colour, linewidth=0, label=label)
    times, values = _lines(series.working, seconds)
    axes.step(times, values, where="post", color=_GREY, linewidth=1.2, label="working")
    return _legend(axes)


def _draw_jobs(axes: Axes, history: History) -> None:
    seconds = span(history).seconds
    series = jobs_over_time(history)
    _frame(axes, "Jobs over time", count_ticks(float(len(history.jobs))))
    _time_axis(axes, seconds)
    if not series.submitted:
        return _nothing(axes, "no job was submitted")
    for name, steps, colour, line, width in (
        ("submitted", series.submitted, _GREY, "-", 1.5),
        ("admitted", series.admitted, _BLUE, "-", 3.0),
        ("declined", series.declined, _ORANGE, "--", 1.5),
        ("completed", series.completed, _GREEN, "-", 1.5),
    ):
        times, values = _lines([(0.0, 0.0), *steps], seconds)
        label = f"{readable_count(values[-1])} {name}"
        axes.step(
            times, values, where="post", color=colour, linestyle=line, linewidth=width, label=label
        )
    return _legend(axes)


def _draw_slack(axes: Axes, history: History) -> None:
    classes = slack_classes(history)
    _frame(axes, "Deadline slack", count_ticks(max(each.jobs for each in classes), 4))
    axes.set_xticks(range(len(classes)), [each.label for each in classes], fontsize=8)
    late = sum(each.late for each in classes)
    axes.set_xlim(-0.5, len(classes) - 0.5)
    axes.axvline(late - 0.5, color=_GREY, linewidth=1)
    axes.set_xlabel("done this long after the deadline  |  done this long before the deadline")
    # The words meet at the bar, so the label is centred below the line that marks the deadline.
    axes.xaxis.set_label_coords(late / len(classes), -0.13)
    if not any(each.jobs for each in classes):
        return _nothing(axes, "no job was let in with a deadline")
    bars = axes.bar(
        range(len(classes)),
        [each.jobs for each in classes],
        width=0.76,
        color=[_RED if each.late else _GREEN for each in classes],
        zorder=2,
    )
    labels = [readable_count(each.jobs) if each.jobs else "" for each in classes]
    axes.bar_label(bars, labels, fontsize=9)
    return None


def _frame(axes: Axes, title: str, counts: Sequence[float]) -> None:
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_yticks(counts, [readable_count(tick) for tick in counts])
    # A little more than the highest tick: labels and lines at the top stay whole.
    axes.set_ylim(0, counts[-1] * 1.06)
    axes.grid(axis="y", color="#dde3e9", zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _time_axis(axes: Axes, seconds: float) -> None:
    ticks = time_ticks(seconds)
    axes.set_xticks(ticks, [readable_duration(tick) if tick else "0" for tick in ticks])
    axes.set_xlim(0, seconds or 1.0)
    axes.set_xlabel("time since the run's start")


def _lines(steps: Sequence[Step], seconds: float) -> tuple[list[float], list[float]]:
    """Split steps into times and values, thinned, the last drawn on to the end."""
    kept = thin(steps, _BUCKETS)
    return [at for at, _ in kept] + [seconds], [value for _, value in kept] + [kept[-1][1]]


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, frameon=False, fontsize=9)


def _nothing(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", color=_GREY)
