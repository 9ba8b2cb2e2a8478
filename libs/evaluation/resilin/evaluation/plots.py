"""A scenario's charts as PNG files, drawn with matplotlib (the extra ``plots``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from resilin.evaluation.charts import Panel
from resilin.evaluation.tables import readable
from resilin.report.plots import PlotsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

__all__ = ["write_plots"]

_BAR = "#4b90cd"
# Told apart by colour-blind people too, and by their line style where colours come round.
_COLOURS = ("#0d4a80", "#a85400", "#17794a", "#c3242b", "#7b4ea3", "#55616d", "#1b98a6", "#b58900")
_STYLES = ("-", "--", ":")


def write_plots(drawn: Sequence[Panel], folder: Path) -> list[Path]:
    """Draw panels, a file each.

    Needs no display, and leaves matplotlib's global state alone.

    Raises:
        PlotsUnavailableError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PlotsUnavailableError(
            f"plots need matplotlib, and the module {error.name!r} is missing: install it with "
            "`pip install 'resilin[plots]'`"
        ) from error
    paths = []
    for panel in drawn:
        figure = Figure(figsize=(9, 4.2), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=10)
        if panel.bars:
            _draw_bars(axes, panel)
        else:
            _draw_lines(axes, panel)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        path = folder / f"{panel.name}.png"
        # Without matplotlib's version in the file, the same results give the same bytes.
        figure.savefig(path, metadata={"Software": None})
        paths.append(path)
    return paths


def _draw_bars(axes: Axes, panel: Panel) -> None:
    (values,) = panel.series.values()
    bars = axes.barh(panel.labels, [value or 0.0 for value in values], color=_BAR, zorder=2)
    axes.bar_label(bars, [readable(panel.measure, value) for value in values], padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _draw_lines(axes: Axes, panel: Panel) -> None:
    places = list(range(len(panel.labels)))
    for number, (name, values) in enumerate(panel.series.items()):
        axes.plot(
            places,
            [float("nan") if value is None else value for value in values],
            label=name,
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=_STYLES[number // len(_COLOURS) % len(_STYLES)],
            marker="o" if len(places) < 30 else None,
            markersize=4,
        )
    step = max(1, len(places) // 12)
    shown = places[::step]
    turned = 30 if any(len(panel.labels[place]) > 8 for place in shown) else 0
    axes.set_xticks(
        shown,
        [panel.labels[place] for place in shown],
        rotation=turned,
        ha="right" if turned else "center",
        fontsize=8,
    )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: readable(panel.measure, value))
    axes.grid(axis="y", color="#dde3e9", zorder=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
