"""Tables, charts and the page: the same results give the same bytes, and say where ours stand."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest

from resilin.evaluation.charts import panels
from resilin.evaluation.comparison import beside
from resilin.evaluation.grid import cells
from resilin.evaluation.page import Part, evaluation_page
from resilin.evaluation.plots import write_plots
from resilin.evaluation.runner import run_cells
from resilin.evaluation.scenario import load
from resilin.evaluation.tables import costs_csv, markdown, published_csv, results_csv


@pytest.fixture
def runs(tiny, tmp_path: Path):
    return run_cells(list(cells(tiny)), tmp_path / "out").runs


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_same_grid_gives_the_same_csv(tiny, runs, tmp_path: Path) -> None:
    again = run_cells(list(cells(tiny)), tmp_path / "again", jobs=2).runs
    assert results_csv(tiny, runs) == results_csv(tiny, again)
    assert published_csv(tiny, runs) == published_csv(tiny, again)


def test_a_row_a_run_and_a_column_a_figure(tiny, runs) -> None:
    rows = read(results_csv(tiny, runs))
    assert [(row["resize_cost"], row["policy"]) for row in rows] == [
        (cell.resize_cost.name, cell.policy) for cell in cells(tiny)
    ]
    assert set(rows[0]) == {
        *("workload", "cluster", "gpus", "resize_cost", "seed", "policy"),
        *("met", "met.small", "met.large", "met_share", "met_share.small", "met_share.large"),
        *(f"mean_completion_seconds{part}" for part in ("", ".small", ".large")),
        "gpu_hours",
    }
    assert rows[0]["gpus"] == "16"
    # What a machine takes for it differs from run to run, so it stands by itself.
    assert all(float(row["cpu_seconds"]) > 0 for row in read(costs_csv(tiny, runs)))


def test_published_numbers_stand_beside_ours(tiny, runs) -> None:
    rows = read(results_csv(tiny, runs))
    met = {(row["resize_cost"], row["policy"]): float(row["met"]) for row in rows}
    free, dear = beside(tiny, runs)
    assert (free.what, free.published) == ("Deadlines met: elasticflow over edf", "7.65x")
    assert free.where == ("made", "2 x 8", "none")
    assert free.ours == met["none", "elasticflow"] / met["none", "edf"]
    assert dear.ours == met["modelled", "elasticflow"] / met["modelled", "edf"]
    assert free.ours_text == f"{free.ours:.2f}x"


def test_ranges_changes_and_means_over_workloads(write, tmp_path: Path) -> None:
    of, over = {"policy": "elasticflow", "resizeCost": "none"}, {"policy": "edf"}
    base = {"measure": "mean_completion_seconds", "of": of, "source": "somewhere"}
    entries = [
        {**base, "least": 0, "most": 1},
        {**base, "least": 0},
        {**base, "over": over, "asChange": True, "value": -0.298},
        {**base, "over": over, "meanOverWorkloads": True, "value": 2},
    ]
    scenario = load(write(spec__published=entries))
    runs = run_cells(list(cells(scenario)), tmp_path / "out").runs
    inside, above, change, mean = beside(scenario, runs)
    assert (inside.published, inside.within) == ("0 s to 1 s", False)
    assert (above.published, above.within) == ("at least 0 s", True)
    assert change.published == "\N{MINUS SIGN}29.8 %"
    assert change.ours == pytest.approx(mean.ours - 1)
    assert mean.where == ("mean of 1 workloads", "all GPUs", "none")


def test_what_was_not_run_is_left_out(tiny, runs) -> None:
    some = {cell: run for cell, run in runs.items() if cell.policy == "elasticflow"}
    assert beside(tiny, some) == []
    assert "edf" not in markdown(tiny, some)
    assert evaluation_page([Part(tiny, {})])


def test_markdown_has_both_tables_and_the_failures(tiny, runs) -> None:
    text = markdown(tiny, runs, [("edf on a cloud", "it rained")])
    assert "| Deadlines met: elasticflow over edf | made, 2 x 8, none | 7.65x |" in text
    assert "a paper \\| its table |" in text
    assert "- edf on a cloud: it rained" in text
    assert text.count("| elasticflow |") == 2


def test_the_page_stands_alone_and_runs_nothing(tiny, runs) -> None:
    page = evaluation_page([Part(tiny, runs, [("edf on a cloud", "<script>alert(1)</script>")])])
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs) -> None:
            tags.append(tag)
            assert not {"src", "href", "onclick"} & {name for name, _ in attrs}

    Tags().feed(page)
    assert "script" not in tags
    assert tags.count("svg") == len(panels(tiny, runs))
    assert "It is &lt;fast&gt;." in page
    assert page == evaluation_page(
        [Part(tiny, runs, [("edf on a cloud", "<script>alert(1)</script>")])]
    )


def test_charts_are_drawn_in_files_and_alike_each_time(tiny, runs, tmp_path: Path) -> None:
    drawn = panels(tiny, runs)
    # Bars and lines in one panel for each resize cost, hours as well.
    assert [panel.name for panel in drawn] == [
        f"chart-{number}{letter}" for number in (1, 2, 3) for letter in "ab"
    ]
    assert drawn[0].labels == ("elasticflow", "edf")
    assert set(drawn[2].series) == {"elasticflow", "edf"}
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        folder.mkdir()
        assert len(write_plots(drawn, folder)) == 6
    for file in first.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes()
