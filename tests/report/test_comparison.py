from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from resilin.report.comparison import comparison_page, comparison_table
from resilin.report.history import History
from resilin.report.summary import Summary, summarize

BASE: dict[str, Any] = Summary(
    policy="elasticflow",
    jobs=195,
    admitted=178,
    declined=17,
    met=178,
    late=0,
    promised=178,
    broken_promises=0,
    completed=178,
    resizes=948,
    migrations=0,
    mean_completion_seconds=16_280.0,
    p99_completion_seconds=172_155.0,
    makespan_seconds=613_760.0,
    cluster_efficiency=0.128,
    gpu_utilization=0.462,
    records=3_141,
).as_dict()
FIFO = BASE | {
    "policy": "fifo",
    "admitted": 195,
    "declined": 0,
    "met": 95,
    "late": 100,
    "promised": 0,
    "completed": 195,
    "resizes": 0,
    "mean_completion_seconds": 27_640.0,
}


def test_rows_for_the_terminal() -> None:
    rows = comparison_table([BASE, FIFO])
    assert rows[0] == ["", "elasticflow", "fifo"]
    assert {len(row) for row in rows} == {3}
    table = {row[0]: row[1:] for row in rows[1:]}
    assert table["Deadlines met"] == ["178", "95"]
    assert table["Mean completion"] == ["4 h 31 min", "7 h 41 min"]
    assert table["GPU utilisation"] == ["46.2 %", "46.2 %"]


def test_every_figure_of_a_summary_is_compared(parse: Callable[..., Any]) -> None:
    # A figure that joins the summary later must not be forgotten here.
    assert set(parse(comparison_page([BASE, FIFO])).figures) == set(BASE) - {"policy"}


def test_the_best_stand_out_and_ties_do_not() -> None:
    text = comparison_page([BASE, FIFO])

    def row(name: str) -> list[bool]:
        found = re.search(rf'<tr data-figure="{name}">(.*?)</tr>', text)
        assert found is not None
        return ["best" in cell for cell in re.findall(r"<td.*?</td>", found[1])]

    assert row("met") == [True, False]
    assert row("completed") == [False, True]
    assert row("mean_completion_seconds") == [True, False]
    assert row("makespan_seconds") == [False, False]
    # More resizes are neither better nor worse.
    assert row("resizes") == [False, False]


def test_the_page_stands_alone_and_is_labelled(parse: Callable[..., Any]) -> None:
    text = comparison_page([BASE, FIFO, BASE])
    page = parse(text)
    assert not {"script", "link", "img"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|url\(|@import", text)
    for drawing in page.named("svg"):
        assert drawing.get("aria-label") or drawing.get("aria-hidden") == "true"
    headings = [data for path, data in page.texts if path[-3:] == ("thead", "tr", "th")]
    assert headings == ["Figure", "elasticflow (1)", "fifo", "elasticflow (2)"]
    assert text == comparison_page([BASE, FIFO, BASE])


def test_bars_show_the_counts_of_each_run(parse: Callable[..., Any]) -> None:
    page = parse(comparison_page([BASE, FIFO | {"met": 90}]))
    titles = {data for path, data in page.texts if path[-2:] == ("rect", "title")}
    assert titles == {
        "elasticflow: 178 done by the deadline",
        "elasticflow: 17 declined",
        "fifo: 90 done by the deadline",
        "fifo: 100 late or not done in time",
        "fifo: 5 had no deadline, or were cancelled or not answered",
    }


def test_unfair_comparisons_are_called_so(parse: Callable[..., Any]) -> None:
    fair = parse(comparison_page([BASE, BASE | {"policy": "other"}]))
    assert "looks faster" not in fair.text("p")
    assert "looks faster" in parse(comparison_page([BASE, FIFO])).text("p")
    other = parse(comparison_page([BASE, FIFO | {"jobs": 196}]))
    assert "cannot be compared" in other.text("p")


def test_hostile_policies_stay_text(parse: Callable[..., Any]) -> None:
    hostile = "<script>alert(1)</script>\"'&"
    text = comparison_page([BASE | {"policy": hostile}, FIFO])
    assert "<script" not in text
    assert hostile in parse(text).text("thead")


def test_no_runs_one_run_and_runs_of_nothing(parse: Callable[..., Any]) -> None:
    assert "No runs." in parse(comparison_page([])).text("p")
    assert comparison_table([])[0] == [""]
    parse(comparison_page([BASE]))
    nothing = summarize(History()).as_dict()
    page = parse(comparison_page([nothing, nothing]))
    assert "no policy (1)" in page.text("thead")


def test_a_missing_figure_is_named() -> None:
    broken = {name: value for name, value in FIFO.items() if name != "resizes"}
    for compare in (comparison_page, comparison_table):
        with pytest.raises(ValueError, match="'fifo': resizes is missing"):
            compare([BASE, broken])
