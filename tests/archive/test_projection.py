"""The archive's rows are what other folds of the same log come to, however it is cut."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.events import (
    admitted,
    completed,
    curves_imported,
    joined,
    lost,
    measured,
    migrated,
    placed,
    rejected,
    submitted,
    suspended,
    switched,
    worker_lost,
)
from tests.support.log import HandMadeLog, a_cell
from tests.support.runs import KINDS, recorded
from tests.support.strategies import any_entries, gpu_sets_of

from resilin.archive.projection import (
    AllocationRow,
    Changes,
    JobRow,
    OpenRows,
    fold,
    moment_of,
)
from resilin.cell.state import CellState, Phase, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import Server
from resilin.kernel.fencing import Fence
from resilin.report.history import History

every_kind = pytest.mark.parametrize("kind", KINDS)


def rows_of(entries: Sequence[LogEntry], *cuts: int) -> tuple[OpenRows, Changes]:
    """All rows of a log, folded in pieces."""
    rows, written = OpenRows(), Changes()
    for start, end in zip((0, *cuts), (*cuts, len(entries)), strict=True):
        changes = copy.deepcopy(fold(rows, entries[start:end]))
        written.jobs |= changes.jobs
        written.allocations |= changes.allocations
        written.throughput |= changes.throughput
        written.servers |= changes.servers
    return rows, written


def switched_after(stop_seconds: float, generation: int, workers: int) -> ev.GenerationSwitched:
    """Job ``a`` trains again after standing still."""
    return switched("a", generation, workers).model_copy(update={"stopped_seconds": stop_seconds})


def jobs_of(log: HandMadeLog) -> dict[str, JobRow]:
    _, written = rows_of(log.entries)
    return {row.job_id: row for row in written.jobs.values()}


def allocations_of(log: HandMadeLog) -> list[AllocationRow]:
    return list(rows_of(log.entries)[1].allocations.values())


# --- against other folds -------------------------------------------------------------------


@every_kind
def test_jobs_are_as_the_report_tells_them(kind: str) -> None:
    entries = recorded(kind)
    history = History.of(entries)
    rows = {row.job_id: row for row in rows_of(entries)[1].jobs.values()}
    assert list(rows) == list(history.jobs)
    for job_id, told in history.jobs.items():
        row = rows[job_id]
        assert (row.outcome, row.reason or "") == (told.outcome, told.reason)
        assert (row.model, row.promised) == (told.model, told.promised)
        assert (row.resizes, row.migrations) == (told.resizes, told.migrations)
        for at, seconds in (
            (row.submitted_at, told.submitted_at_seconds),
            (row.deadline_at, told.deadline_seconds),
            (row.admitted_at or row.rejected_at, told.answered_at_seconds),
            (row.started_at, told.started_at_seconds),
        ):
            assert at == (None if seconds is None else moment_of(seconds))
        if told.ended_at_seconds is not None:
            assert row.finished_at == moment_of(told.ended_at_seconds)
        held = sum(
            workers * (until - since)
            for (since, workers), (until, _) in zip(
                told.allocation, told.allocation[1:], strict=False
            )
        )
        assert row.gpu_seconds == pytest.approx(held, abs=1e-3)


@every_kind
def test_gpu_time_and_stops_are_sums_over_allocations(kind: str) -> None:
    _, written = rows_of(recorded(kind))
    for key, row in written.jobs.items():
        own = [it for it in written.allocations.values() if (it.job_id, it.submitted_offset) == key]
        gpu_seconds = sum(
            it.workers * (it.to_at - it.from_at).total_seconds() for it in own if it.to_at
        )
        assert row.gpu_seconds == pytest.approx(gpu_seconds)
        assert row.stop_seconds == pytest.approx(sum(it.stop_seconds or 0.0 for it in own))


@every_kind
def test_allocations_are_what_the_cell_says_at_every_offset(kind: str) -> None:
    hold_against_cell(recorded(kind))


@given(entries=any_entries(most=60))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_events_in_any_order_leave_the_rows_as_the_cell_says(entries: list[LogEntry]) -> None:
    hold_against_cell(without_used_ids(all_counting(entries)))


_jobs, _generations = st.sampled_from(["a", "b"]), st.integers(1, 4)
_nodes, _incarnations = st.sampled_from(["s1", "s2"]), st.integers(1, 3)


@given(
    events=st.lists(
        st.one_of(
            st.builds(placed, _jobs, _generations, gpu_sets_of),
            st.builds(migrated, _jobs, _generations, gpu_sets_of),
            st.builds(suspended, _jobs, _generations),
            st.builds(switched, _jobs, _generations, st.just(1)),
            st.builds(worker_lost, _jobs, _generations),
            st.builds(joined, _nodes, _incarnations),
            st.builds(lost, _nodes, _incarnations),
        ),
        max_size=40,
    )
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_gpus_come_and_go_as_the_cell_says(events: list[ev.Event]) -> None:
    log = a_cell(servers=3)
    for job_id in ("a", "b"):
        log.given(submitted(job_id), admitted(job_id))
    hold_against_cell(log.given(*events).entries)


def hold_against_cell(entries: Sequence[LogEntry]) -> None:
    """Fold entry by entry, and compare the open rows with the cell's live jobs and servers."""
    rows, cell, fence = OpenRows(), CellState(), Fence()
    for entry in entries:
        fold(rows, [entry])
        if fence.admit(entry):
            for event in entry.record.events:
                evolve_cell(cell, event, entry)
        assert rows.fence == fence
        live = {name: it for name, it in cell.jobs.items() if not it.phase.terminal}
        assert list(rows.jobs) == list(live)
        for job_id, state in live.items():
            row, allocation = rows.jobs[job_id], rows.allocations.get(job_id)
            assert row.outcome == state.phase
            assert row.generation == state.generation
            assert row.switched_generation == state.switched_generation
            assert row.failures == state.failures
            assert (0 if allocation is None else allocation.workers) == state.placed_workers
            if allocation is not None:
                assert allocation.gpus == state.placed
        assert {
            name: (it.incarnation, it.joined, it.removed, it.virtual_cluster)
            for name, it in rows.servers.items()
        } == {
            name: (it.incarnation, it.joined, it.removed, it.virtual_cluster)
            for name, it in cell.servers.items()
        }


def all_counting(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """The same events in records that count: behind claims of all writers."""
    log = HandMadeLog()
    writers = {entry.record.service for entry in log.entries}
    for entry in entries:
        for event in entry.record.events:
            known = isinstance(event, ev.Event) and event.writer in writers
            log.at(entry.record.timestamp).add(event, service=None if known else "executor")
    return log.entries


def without_used_ids(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """The cell keeps a job that has ended while it holds GPUs; the archive is done with it."""
    used: dict[str, None] = {}
    kept = []
    for entry in entries:
        first = entry.record.events[0]
        if isinstance(first, ev.JobSubmitted):
            if first.job_id in used:
                continue
            used[first.job_id] = None
        kept.append(entry)
    return kept


@given(entries=any_entries(most=60), data=st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_rows_do_not_depend_on_the_batches(
    entries: list[LogEntry], data: st.DataObject
) -> None:
    counting = all_counting(entries)
    cuts = data.draw(st.lists(st.integers(0, len(counting)), max_size=8).map(sorted))
    assert rows_of(counting, *cuts) == rows_of(counting)


# --- what is in a row ----------------------------------------------------------------------


def test_a_jobs_life_is_one_row() -> None:
    log = a_cell().at(10.0).given(submitted("a", at=9.5, deadline=500.0))
    log.at(11.0).given(admitted("a", (11.0, 61.0, 2)))
    log.at(12.0).given(placed("a", 1, {"s1": (0, 1)})).at(13.0).given(switched_after(1.0, 1, 2))
    log.at(22.0).given(placed("a", 2, {"s1": (0, 1, 2, 3)}))
    log.at(24.0).given(switched_after(2.0, 2, 4)).at(32.0).given(completed("a", 2))
    row = jobs_of(log)["a"]
    assert (row.submitted_at, row.admitted_at) == (moment_of(9.5), moment_of(11.0))
    assert (row.started_at, row.finished_at) == (moment_of(13.0), moment_of(32.0))
    assert (row.outcome, row.reason, row.promised) == ("completed", None, True)
    assert (row.resizes, row.migrations) == (1, 0)
    assert row.gpu_seconds == 2 * 10.0 + 4 * 10.0
    assert row.stop_seconds == 3.0
    assert row.submitted_offset < (row.admitted_offset or 0) < (row.finished_offset or 0)
    first, second = allocations_of(log)
    assert (first.workers, first.from_at, first.to_at) == (2, moment_of(12.0), moment_of(22.0))
    assert (second.gpus, second.switched_at) == ({"s1": (0, 1, 2, 3)}, moment_of(24.0))


def test_a_refused_job_says_why() -> None:
    row = jobs_of(a_cell().at(5.0).given(submitted("a"), rejected("a")))["a"]
    assert (row.outcome, row.rejected_at, row.finished_at) == (
        Phase.REJECTED,
        moment_of(5.0),
        moment_of(5.0),
    )
    assert row.reason


def test_a_move_is_no_resize_and_a_suspension_is_one() -> None:
    log = a_cell(servers=2).given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0,)}))
    log.given(migrated("a", 2, {"s2": (0,)}), suspended("a", 3), placed("a", 4, {"s1": (1,)}))
    row = jobs_of(log)["a"]
    assert (row.migrations, row.resizes) == (1, 2)
    assert [it.generation for it in allocations_of(log)] == [1, 2, 4]


@pytest.mark.parametrize("end", [worker_lost("a", 1), lost("s2")], ids=["worker", "server"])
def test_lost_gpus_end_the_allocation(end: ev.Event) -> None:
    log = a_cell(servers=2).given(submitted("a"), admitted("a"))
    log.given(placed("a", 1, {"s1": (0,), "s2": (0,)}), switched("a", 1, 2)).at(30.0).given(end)
    (row,) = allocations_of(log)
    assert (row.workers, row.to_at) == (2, moment_of(30.0))
    assert jobs_of(log)["a"].finished_at is None


def test_a_repeated_switch_is_one_stop() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0,)}))
    log.given(switched_after(2.0, 1, 1), switched_after(2.0, 1, 1))
    assert jobs_of(log)["a"].stop_seconds == 2.0


def test_a_loss_that_was_told_before_its_generation_was_placed_is_none_of_it() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0,)}))
    log.given(worker_lost("a", 2), placed("a", 2, {"s1": (0, 1)}), worker_lost("a", 2))
    hold_against_cell(log.entries)
    assert [row.to_at is None for row in allocations_of(log)] == [False, True]


def test_what_a_zombie_writes_is_not_in_the_rows() -> None:
    log = a_cell().given(submitted("a"))
    log.add(ev.LeadershipClaimed(instance="admission-2"), service="admission", epoch=2)
    log.add(rejected("a"))
    assert jobs_of(log)["a"].outcome == Phase.SUBMITTED
    log.add(admitted("a"), epoch=2)
    assert jobs_of(log)["a"].outcome == Phase.ADMITTED


def test_an_id_that_is_used_again_is_another_row() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), completed("a", 1), submitted("a"))
    _, written = rows_of(log.entries)
    assert [row.outcome for row in written.jobs.values()] == ["completed", "submitted"]


def test_throughput_is_kept_with_its_source() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0, 1)}))
    log.given(switched("a", 1, 2), measured("a", 1, 2, 1.5), measured("nobody", 1, 2, 1.5))
    rows = list(rows_of(log.entries)[1].throughput.values())
    assert [(row.source, row.workers, row.iterations_per_second) for row in rows] == [
        ("imported", 1, 1.0),
        ("imported", 2, 2.0),
        ("imported", 4, 4.0),
        ("imported", 8, 8.0),
        ("measured", 2, 1.5),
    ]
    assert (rows[-1].model, rows[-1].job_id, rows[0].job_id) == ("linear", "a", None)


# --- what a database does not take ---------------------------------------------------------


def test_moments_are_kept_within_what_a_database_can_say() -> None:
    assert moment_of(0.0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert moment_of(1.0000004) == moment_of(1.0000001)
    assert moment_of(1e300) == moment_of(1e12) == datetime(9999, 12, 31, tzinfo=UTC)
    assert moment_of(-1e300) == datetime(1, 1, 1, tzinfo=UTC)


def test_a_character_that_no_database_keeps_is_replaced() -> None:
    log = a_cell().given(
        submitted("a"),
        admitted("a"),
        ev.JobFailed(job_id="a", generation=1, reason="Crashed", message="a\0b"),
        ev.ServerAdded(
            source=submitted().source,
            command_id="k",
            server=Server(server_id="s9", gpus=1, rack="\0"),
        ),
    )
    _, written = rows_of(log.entries)
    assert jobs_of(log)["a"].message == "a\N{REPLACEMENT CHARACTER}b"
    assert written.servers["s9"].rack == "\N{REPLACEMENT CHARACTER}"


def test_numbers_that_no_database_keeps_are_left_out() -> None:
    log = a_cell().given(curves_imported(huge={1: 1.0, 2**63: 2.0}))
    rows = rows_of(log.entries)[1].throughput.values()
    assert [row.workers for row in rows if row.model == "huge"] == [1]
