from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from resilin.cell.state import Phase
from resilin.contracts.events import RejectionReason
from resilin.report.history import History, JobHistory, Moment
from resilin.report.page import report_page
from resilin.report.readable import readable_count, readable_duration, readable_share
from resilin.report.summary import summarize

MakeJob = Callable[..., JobHistory]
MakeHistory = Callable[..., History]
Parse = Callable[..., object]

HOSTILE = (
    "\"><img src=x onerror=alert(1)><script>alert('x')</script>&lt;b&gt;\u202e]]></style></svg>"
)


def page_of(history: History, **more: object) -> str:
    return report_page(history, summarize(history).as_dict(), title="A run", **more)


def test_headline_figures_agree_with_the_summary(simulated: History, parse: Parse) -> None:
    summary = summarize(simulated)
    # The run has some of everything, or this test would say little.
    assert min(summary.met, summary.declined, summary.resizes) > 0
    assert summary.completed > summary.met
    figures = parse(page_of(simulated)).figures
    assert figures == {
        **{
            name: readable_count(getattr(summary, name))
            for name in (
                "jobs",
                "admitted",
                "declined",
                "completed",
                "met",
                "late",
                "broken_promises",
                "resizes",
                "migrations",
            )
        },
        **{
            name: readable_duration(getattr(summary, name))
            for name in ("mean_completion_seconds", "p99_completion_seconds", "makespan_seconds")
        },
        "gpu_utilization": readable_share(summary.gpu_utilization),
        "cluster_efficiency": readable_share(summary.cluster_efficiency),
    }


def test_the_page_needs_nothing_but_itself(simulated: History, parse: Parse) -> None:
    text = page_of(simulated)
    page = parse(text)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not {"src", "href", "xlink:href", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"https?:|url\(|@import", text)
    assert "prefers-color-scheme:dark" in text


def test_drawings_and_tables_are_labelled(simulated: History, parse: Parse) -> None:
    page = parse(page_of(simulated))
    drawings = page.named("svg")
    assert len([d for d in drawings if d.get("class") == "chart"]) == 3
    for drawing in drawings:
        names = (drawing.get("aria-labelledby") or "").split()
        assert set(names) <= page.ids
        assert names or drawing.get("aria-label") or drawing.get("aria-hidden") == "true"
    assert all(heading.get("scope") in ("col", "row") for heading in page.named("th"))
    assert [d["aria-label"] for d in page.named("div") if d.get("role")] == ["Table of jobs"]
    assert page.named("table")[0]["aria-describedby"] in page.ids
    assert "tabular-nums" in page.text("style")


def test_jobs_with_the_least_slack_come_first(
    make_history: MakeHistory, make_job: MakeJob, parse: Parse
) -> None:
    history = make_history(
        [
            make_job("free", deadline_seconds=None),
            make_job("comfortable", ended_at_seconds=300.0),
            make_job("close", ended_at_seconds=999.0),
            make_job("declined", outcome=Phase.REJECTED, ended_at_seconds=None, promised=False),
            make_job("late", ended_at_seconds=1_100.0),
            make_job("later", ended_at_seconds=9_000.0),
            make_job("failed", outcome=Phase.FAILED, reason="out of memory"),
        ]
    )
    page = parse(page_of(history))
    names = [data for path, data in page.texts if path[-1:] == ("bdi",)]
    assert names == ["failed", "later", "late", "declined", "close", "comfortable", "free"]
    assert "out of memory" in page.text("table")
    assert "\N{MINUS SIGN}2 h 13 min" in page.text("table")
    assert page.figures["late"] == page.figures["broken_promises"] == "3"


def test_reason_and_counter_offer_of_a_declined_job(
    make_history: MakeHistory, make_job: MakeJob, parse: Parse
) -> None:
    declined = {"outcome": Phase.REJECTED, "promised": False, "ended_at_seconds": None}
    history = make_history(
        [
            make_job(
                "a",
                **declined,
                reason=RejectionReason.CAPACITY_PROMISED,
                earliest_deadline_seconds=100.0 + 3_900.0,
                allocation=[],
            ),
            make_job("b", **declined, reason=RejectionReason.CURVE_UNKNOWN, allocation=[]),
        ]
    )
    page = parse(page_of(history))
    table = page.text("table")
    assert "CapacityPromised possible: 1 h 5 min, 50 min more than asked" in table
    assert "CurveUnknown no counter-offer" in table
    reasons = page.text("ul", "li")
    assert "CapacityPromised  (1 job): the capacity it needs is promised" in reasons
    assert page.figures["declined"] == "2"
    assert "No job was let in with a deadline" in page.text("p")


def test_every_reason_is_explained(
    make_history: MakeHistory, make_job: MakeJob, parse: Parse
) -> None:
    jobs = [
        make_job(f"job-{reason}", outcome=Phase.REJECTED, reason=reason)
        for reason in RejectionReason
    ]
    page = parse(page_of(make_history(jobs)))
    for reason in RejectionReason:
        assert re.search(rf"{reason}\s+\(1 job\): \w+", page.text("ul", "li")), reason


def test_no_string_of_the_log_can_break_out(
    make_history: MakeHistory, make_job: MakeJob, parse: Parse
) -> None:
    jobs = [
        make_job(HOSTILE, model=HOSTILE, outcome=Phase.FAILED, reason=HOSTILE),
        make_job("b" + HOSTILE, model=HOSTILE, outcome=Phase.REJECTED, reason=HOSTILE),
    ]
    tame = make_history([make_job("a"), make_job("b", outcome=Phase.REJECTED)])
    tame.jobs["a"].outcome, tame.jobs["a"].reason = Phase.FAILED, "out of memory"
    tame.jobs["b"].reason = "some reason"
    hostile = make_history(jobs, [Moment(90.0, 8, 4, 0.2)])
    hostile.policy = HOSTILE
    tame.moments = hostile.moments
    summary = summarize(hostile).as_dict()
    text = report_page(hostile, summary, title=HOSTILE)
    page = parse(text)
    assert "<script" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    # Not one element more than the same page about tame jobs has.
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in parse(page_of(tame)).tags]
    shown = HOSTILE.replace("\u202e", "<U+202E>")
    for place in ("title", "h1", "bdi", "strong", "td"):
        assert shown in page.text(place), place


def test_an_empty_history_has_a_page(make_history: MakeHistory, parse: Parse) -> None:
    page = parse(page_of(History()))
    assert page.figures["jobs"] == page.figures["met"] == "0"
    assert page.figures["mean_completion_seconds"] == "0 s"
    assert "No job was submitted" in page.text("p")
    assert "No server ever joined" in page.text("p")
    assert page.named("table") == []
    assert "not configured" in page.text("strong")


def test_a_cluster_without_jobs_and_one_moment_in_time(
    make_history: MakeHistory, make_job: MakeJob, parse: Parse
) -> None:
    page = parse(page_of(make_history([], [Moment(5.0, 16, 0, 0.0)])))
    assert "16 GPUs" in page.text("header")
    assert len(page.named("svg")) > 0
    at_once = make_job(
        submitted_at_seconds=5.0,
        deadline_seconds=5.0,
        answered_at_seconds=5.0,
        started_at_seconds=5.0,
        ended_at_seconds=5.0,
        allocation=[(5.0, 1), (5.0, 0)],
    )
    page = parse(page_of(make_history([at_once], [Moment(5.0, 16, 1, 0.1)])))
    assert page.figures["met"] == "1"


def test_a_single_job(make_history: MakeHistory, make_job: MakeJob, parse: Parse) -> None:
    history = make_history(
        [make_job("only")],
        [Moment(90.0, 8, 0, 0.0), Moment(110.0, 8, 4, 0.4), Moment(700, 8, 0, 0)],
    )
    page = parse(page_of(history))
    assert page.figures["met"] == "1"
    assert "All are shown." in page.text("p")
    assert "On average 3.9 of 8.0 working GPUs were held; at most 4 of 8." in page.text("desc")
    row = page.text("tbody")
    for part in ("only", "resnet50", "met", "promised", "10 min", "waited 10 s", "15 min", "5 min"):
        assert part in row, part


def test_speed_and_bound_are_told_where_known(
    make_history: MakeHistory, make_job: MakeJob, parse: Parse
) -> None:
    history = make_history([make_job()])
    history.records = 30
    summary = summarize(history).as_dict()
    costs = {"wall_seconds": 0.5, "jobs_per_cpu_second": 23.7, "peak_memory_bytes": 3 * 2**20}
    page = parse(report_page(history, summary | costs, title="t", bound=1))
    assert page.figures["wall_seconds"] == "0.5 s"
    assert page.figures["records_per_second"] == "60/s"
    assert page.figures["jobs_per_cpu_second"] == "24/s"
    assert page.figures["peak_memory_bytes"] == "3 MiB"
    assert "1,200 times as fast as real time" in page.text("dl")
    assert "100.0 % of 1 with a deadline; at most 1 possible" in page.text("dl")
    plain = parse(report_page(history, summary, title="t"))
    assert not {"records_per_second", *costs} & set(plain.figures)
    assert "possible" not in plain.text("dl")


def test_a_summary_that_lacks_a_figure_is_named(make_history: MakeHistory) -> None:
    summary = summarize(make_history()).as_dict()
    del summary["makespan_seconds"]
    with pytest.raises(ValueError, match=r"'elasticflow': makespan_seconds is missing"):
        report_page(make_history(), summary, title="t")


def large(make_history: MakeHistory, make_job: MakeJob) -> History:
    """2,400 jobs with the longest names there are, each resized a lot; 40,000 moments."""
    jobs = [
        make_job(
            f"{number:04d}-" + "x" * 195,
            model="m" * 200,
            submitted_at_seconds=100.0 * number,
            deadline_seconds=100.0 * number + 5_000,
            ended_at_seconds=100.0 * number + 3_000 + number,
            reason="",
            resizes=200,
            allocation=[(100.0 * number + 10 * step, 1 + step * 7 % 13) for step in range(200)]
            + [(100.0 * number + 3_000 + number, 0)],
        )
        for number in range(2_400)
    ]
    moments = [
        Moment(6.0 * step, 512, step * 7_919 % 512, step * 7_919 % 512 / 600)
        for step in range(40_000)
    ]
    return make_history(jobs, moments)


def test_a_large_run_has_a_small_page(
    make_history: MakeHistory, make_job: MakeJob, parse: Parse
) -> None:
    history = large(make_history, make_job)
    history.moments[12_345] = replace(history.moments[12_345], busy=700)
    text = page_of(history)
    assert len(text.encode()) < 1_500_000
    page = parse(text)
    assert len(page.named("tr")) == 301
    assert page.figures["left_out"] == "2,100"
    late = sum(not job.met for job in history.jobs.values())
    assert f"({late - 300:,} late, {2_400 - late:,} met)" in page.text("p")
    # The one peak above the cluster's size is still the top of the drawing: of 768, 12 px
    # below its edge.
    held = next(p["d"] for p in page.named("path") if p.get("class") == "area f-held")
    heights = [float(height) for height in re.findall(r"V([\d.]+)", held)]
    assert min(heights) == pytest.approx(258 - 700 / 768 * 246, abs=0.06)
    assert "at most 700 of 512" in page.text("desc")


def test_the_same_run_gives_the_same_bytes(simulated: History) -> None:
    assert page_of(simulated) == page_of(simulated)


SCRIPT = """
import hashlib
from resilin.cell.state import Phase
from resilin.report.comparison import comparison_page
from resilin.report.history import History, JobHistory, Moment
from resilin.report.page import report_page
from resilin.report.summary import summarize
history = History()
for number, phase in enumerate([*Phase] * 3):
    history.jobs[f"job-{number}"] = JobHistory(
        f"job-{number}", "bert", 10.0 * number, 500.0, phase, reason=f"reason {number % 4}",
        answered_at_seconds=10.0 * number, ended_at_seconds=90.0 * number, allocation=[(10.0, 2)])
history.moments = [Moment(0.0, 8, 2, 0.1)]
summary = summarize(history).as_dict()
text = report_page(history, summary, title="t") + comparison_page([summary, summary])
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    digests = {
        subprocess.run(  # noqa: S603  our own interpreter and script
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
