"""The benchmark of the worker runtime: what it reads from step records, and that it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.elastic import once, transient
from benchmarks.elastic.__main__ import PARTS
from benchmarks.elastic.rows import Options, Row, table_of
from benchmarks.elastic.runs import Line, stops_between
from benchmarks.elastic.steady import _interval
from benchmarks.harness import BenchmarkError

SECONDS_MAX = 600.0


def line(step: int, worker: str = "a", *, plan: int = 1, samples: tuple[int, ...] = ()) -> Line:
    """Step n of a worker: from second n to n + 0.9."""
    return Line(worker, step, plan, float(step), step + 0.9, 0.5, 1.0, len(samples), samples)


# --- reading records -----------------------------------------------------------------------


def test_a_stop_lies_between_the_last_step_before_a_change_and_the_first_after() -> None:
    steps = {"a": [line(1), line(2), line(4, plan=2)], "b": [line(2), line(3, plan=2)]}
    run: Any = SimpleNamespace(broadcast_seconds=lambda *_: 0.25)
    stops = {stop.worker: stop for stop in stops_between(run, steps, ["a", "b"], 0.0, 9.0)}
    assert stops["a"].seconds == pytest.approx(1.1)
    assert stops["b"].seconds == pytest.approx(0.1)
    assert stops["a"].broadcast_seconds == 0.25
    with pytest.raises(BenchmarkError, match="no worker has recorded"):
        stops_between(run, steps, ["a", "b"], 5.0, 9.0)


def epochs(monkeypatch: pytest.MonkeyPatch, *lines: Line) -> Any:
    monkeypatch.setattr(once, "REGRESSION_SAMPLES", 4)
    monkeypatch.setattr(once, "BATCH", 2)
    run: Any = SimpleNamespace(lines=lambda: lines)
    return once._epochs(run)


def test_epochs_are_put_together_from_the_steps_that_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = epochs(
        monkeypatch,
        *(line(1, "a", samples=(0,)), line(1, "b", samples=(1,))),
        line(2, "b", samples=(2,)),  # not kept: done again, without a, in the next plan
        line(2, "b", plan=2, samples=(3, 2)),
        *(line(3, "b", plan=2, samples=(0, 3)), line(4, "b", plan=2, samples=(2,))),
        line(5, "b", plan=2, samples=(1,)),
    )
    assert (found.whole, found.wrong, found.unrecorded) == (2, 0, 0)
    assert (found.quiet, found.changed) == (1, (0, 2))


def test_a_sample_that_is_used_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [line(1, samples=(0, 1)), line(2, samples=(1, 2)), line(3, samples=(0, 3))]
    assert epochs(monkeypatch, *twice).wrong == 1


def test_an_epoch_whose_record_died_with_a_worker_is_neither_right_nor_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = epochs(
        monkeypatch,
        *(line(1, "a", samples=(0,)), line(1, "b", samples=(1,))),
        line(2, "a", samples=(2,)),  # b died before it wrote down sample 3
        *(line(3, "a", plan=2, samples=(0, 1)), line(4, "a", plan=2, samples=(2, 3))),
    )
    assert (found.whole, found.wrong, found.unrecorded) == (1, 0, 1)


def test_ideal_takes_the_sizes_held_at_the_speed_of_quiet_times() -> None:
    alone = [line(step) for step in range(1, 9)]
    both = [line(step, name, plan=2) for step in range(9, 17) for name in ("a", "b")]
    after = [line(step, plan=3) for step in range(17, 21)]
    steps = transient._first_of_each([*alone, *both, *after])
    cycle = transient._Cycle(began=0.0, offered=4.0, revoked=17.0, ended=21.0)
    cycle.held = transient._held(steps, transient._sizes([*alone, *both, *after]), cycle)
    assert [size for size, _, _ in cycle.held] == [1, 2, 1]
    assert cycle.held[0][2] == cycle.held[1][1] == pytest.approx(8.9)
    steady = transient._steady(steps, [cycle])
    assert steady[2] == pytest.approx(transient.BATCH, rel=0.1)


def test_the_interval_of_a_median_is_within_what_was_measured() -> None:
    assert _interval([0.01 * each for each in range(-10, 11)]) == "+0.0% (-5.0% to +5.0%)"


def test_a_table_says_of_every_row_whether_it_is_met_and_how_it_was_measured() -> None:
    rows = [Row(number, f"what {number}", "<= 1", "2", number == 2, "so") for number in (9, 2)]
    text = table_of(rows, ["17 is left out"]).as_text()
    assert text.index("what 2") < text.index("what 9")
    assert "NO" in text
    assert "(9: so)" in text
    assert "(17 is left out)" in text


# --- running -------------------------------------------------------------------------------


def test_every_row_but_the_last_is_measured_by_some_part() -> None:
    assert {number for part in PARTS for number in part.numbers} == set(range(1, 17))


@pytest.mark.xdist_group("elastic")
@pytest.mark.parametrize("name", ["standby", "equality", "disorder", "transient"])
def test_a_part_runs(name: str, tmp_path: Path) -> None:
    """Of the parts those that start few processes and use what all share."""
    (part,) = (part for part in PARTS if part.name == name)
    measured = part.measure(Options(repetitions=1, tiny=True), tmp_path)
    result = asyncio.run(asyncio.wait_for(measured, SECONDS_MAX))
    assert {row.number for row in result.rows} == set(part.numbers)
    assert result.rows or result.tables
    assert all(row.met for row in result.rows if row.number in (9, 16))
