"""Placement: GPUs for every job that wants others than it has, once they are free in fact."""

from __future__ import annotations

import pytest
from tests.support.events import (
    admitted,
    completed,
    cordoned,
    joined,
    lost,
    migrated,
    placed,
    planned,
    released,
    server_added,
    server_removed,
    submitted,
    suspended,
    switched,
    worker_lost,
)
from tests.support.log import HandMadeLog, a_cell, decided, folded

from resilin.cell import gpu_sets
from resilin.contracts import events as ev
from resilin.contracts.values import GpuSet, StopCost, VirtualCluster
from resilin.placement.decider import PlacementDecider

PLACEMENT = PlacementDecider()


def places(log: HandMadeLog) -> list[ev.Event]:
    """What placement decides at the end of a log, and adds it."""
    decision = decided(log, PLACEMENT)
    if decision:
        log.add(*decision)
    return decision


def on(event: ev.Event) -> GpuSet:
    assert isinstance(event, ev.JobPlaced | ev.JobMigrated)
    return event.gpus


def live(log: HandMadeLog, *job_ids: str, **of_job: bool) -> HandMadeLog:
    for job_id in job_ids:
        log.given(submitted(job_id, **of_job), admitted(job_id))
    return log


def runs(
    log: HandMadeLog, job_id: str, gpus: GpuSet, generation: int = 1, **of_job: bool
) -> HandMadeLog:
    """A job that runs on these GPUs, as wanted."""
    live(log, job_id, **of_job).given(planned({job_id: gpu_sets.count(gpus)}))
    count = gpu_sets.count(gpus)
    return log.given(placed(job_id, generation, gpus), switched(job_id, generation, count))


# --- where jobs go -------------------------------------------------------------------------


def test_nothing_wanted_nothing_decided() -> None:
    assert decided(live(a_cell(), "a"), PLACEMENT) == []


def test_a_job_is_placed_on_as_many_gpus_as_it_is_to_have() -> None:
    log = live(a_cell(servers=2), "a").given(planned({"a": 2}))
    (event,) = places(log)
    assert isinstance(event, ev.JobPlaced)
    assert (event.job_id, event.generation) == ("a", 1)
    assert gpu_sets.count(event.gpus) == 2
    assert len(event.gpus) == 1  # on one server
    assert decided(log, PLACEMENT) == []


def test_gpu_sets_are_written_in_order_and_without_empties() -> None:
    log = live(a_cell(servers=3), "a").given(planned({"a": 8}))
    (event,) = places(log)
    assert len(on(event)) == 2
    assert all(list(indexes) == sorted(indexes) and indexes for indexes in on(event).values())


def test_two_jobs_never_get_the_same_gpu() -> None:
    log = live(a_cell(), "a", "b", "c").given(planned({"a": 1, "b": 2, "c": 1}))
    decision = places(log)
    gpus = [gpu for event in decision for gpu in gpu_sets.each(on(event))]
    assert len(decision) == 3
    assert len(gpus) == len(set(gpus)) == 4


def test_a_job_that_grows_keeps_its_gpus_and_gets_a_new_generation() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1)}).given(planned({"a": 4}))
    assert places(log) == [placed("a", 2, {"s1": (0, 1, 2, 3)})]


def test_a_job_that_shrinks_keeps_some_of_its_gpus() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1, 2, 3)}).given(planned({"a": 2}))
    (event,) = places(log)
    assert isinstance(event, ev.JobPlaced)
    assert event.generation == 2
    assert gpu_sets.count(event.gpus) == 2
    assert set(event.gpus["s1"]) < {0, 1, 2, 3}


def test_a_job_that_is_to_have_none_is_suspended() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1)}).given(planned({"a": 0}))
    assert places(log) == [suspended("a", 2)]
    assert decided(log, PLACEMENT) == []


def test_a_job_that_lost_its_workers_is_placed_again() -> None:
    log = runs(a_cell(servers=2), "a", {"s1": (0, 1)})
    log.given(lost("s1"), worker_lost("a", 1))
    (event,) = places(log)
    assert isinstance(event, ev.JobPlaced)
    assert event.generation == 2
    assert list(event.gpus) == ["s2"]


def test_a_job_that_ended_is_left_alone() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1)}).given(completed("a", 1))
    assert decided(log, PLACEMENT) == []


def test_a_job_that_does_not_fit_does_not_hold_up_the_others() -> None:
    log = live(a_cell(), "large", "small").given(planned({"large": 8, "small": 1}))
    (event,) = places(log)
    assert isinstance(event, ev.JobPlaced)
    assert event.job_id == "small"


def test_virtual_clusters_do_not_share_servers() -> None:
    log = a_cell(1, 4, VirtualCluster(), VirtualCluster(name="other"))
    log.given(server_added("t1", 2, "other"), joined("t1"))
    log.given(submitted("b", virtual_cluster="other"), admitted("b"))
    live(log, "a").given(planned({"a": 4, "b": 2}))
    by_job = {event.job_id: on(event) for event in places(log)}  # type: ignore[attr-defined]  # placed
    assert by_job == {"a": {"s1": (0, 1, 2, 3)}, "b": {"t1": (0, 1)}}


# --- free in fact --------------------------------------------------------------------------


def test_gpus_that_workers_are_leaving_are_not_given_away() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1, 2, 3)})
    live(log, "b").given(planned({"a": 2, "b": 2}))
    (shrink,) = places(log)
    assert isinstance(shrink, ev.JobPlaced)
    assert shrink.job_id == "a"
    leaving = gpu_sets.minus({"s1": (0, 1, 2, 3)}, shrink.gpus)
    assert decided(log, PLACEMENT) == []
    log.given(released("a", 2, leaving))
    assert places(log) == [placed("b", 1, leaving)]


def test_all_of_a_jobs_gpus_must_be_free_before_it_is_placed() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1, 2, 3)})
    live(log, "b").given(planned({"a": 0, "b": 4}))
    assert places(log) == [suspended("a", 2)]
    log.given(released("a", 2, {"s1": (0, 1)}))
    assert decided(log, PLACEMENT) == []
    log.given(released("a", 2, {"s1": (2, 3)}))
    assert places(log) == [placed("b", 1, {"s1": (0, 1, 2, 3)})]


def test_a_job_that_ended_still_holds_its_gpus_until_they_are_released() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1, 2, 3)}).given(completed("a", 1))
    live(log, "b").given(planned({"b": 4}))
    assert decided(log, PLACEMENT) == []
    log.given(released("a", 1, {"s1": (0, 1, 2, 3)}))
    assert places(log) == [placed("b", 1, {"s1": (0, 1, 2, 3)})]


def test_a_suspended_job_may_have_its_own_gpus_back_before_they_are_released() -> None:
    log = runs(a_cell(), "a", {"s1": (0, 1, 2, 3)}).given(planned({"a": 0}))
    places(log)
    log.given(planned({"a": 4}))
    assert places(log) == [placed("a", 3, {"s1": (0, 1, 2, 3)})]
    state = folded(log, PLACEMENT)
    # They are its own again: a late release of the old workers frees nothing.
    log.given(released("a", 2, {"s1": (0, 1, 2, 3)}))
    assert folded(log, PLACEMENT).cell.jobs["a"].held == state.cell.jobs["a"].held


# --- servers come and go -------------------------------------------------------------------


def test_a_cordoned_server_gets_no_new_job_and_keeps_the_old() -> None:
    log = runs(a_cell(servers=2), "a", {"s1": (0, 1)}).given(cordoned("s1"))
    live(log, "b").given(planned({"b": 2}))
    (event,) = places(log)
    assert list(on(event)) == ["s2"]
    log.given(cordoned("s1", cordon=False), planned({"b": 0}))
    places(log)


def test_a_cordoned_server_serves_again_when_it_is_back() -> None:
    log = live(a_cell(), "a").given(cordoned("s1"), planned({"a": 4}))
    assert decided(log, PLACEMENT) == []
    log.given(cordoned("s1", cordon=False))
    assert places(log) == [placed("a", 1, {"s1": (0, 1, 2, 3)})]


@pytest.mark.parametrize("node", [(), (joined("s2"), lost("s2"))], ids=["not joined", "lost"])
def test_a_server_whose_node_is_not_up_gets_nothing(node: tuple[ev.Event, ...]) -> None:
    log = live(a_cell(), "a").given(server_added("s2", 8), *node, planned({"a": 8}))
    assert decided(log, PLACEMENT) == []


def test_a_removed_server_is_drained() -> None:
    log = runs(a_cell(servers=2), "a", {"s1": (0, 1)}).given(server_removed("s1"))
    (event,) = places(log)
    assert on(event).keys() == {"s2"}
    assert gpu_sets.count(on(event)) == 2
    assert decided(log, PLACEMENT) == []
    log.given(released("a", 2, {"s1": (0, 1)}))
    assert folded(log, PLACEMENT).cell.jobs["a"].held == on(event)


def test_a_removed_server_is_drained_in_part_where_a_job_spans_two() -> None:
    log = runs(a_cell(servers=3), "a", {"s1": (0, 1, 2, 3), "s2": (0, 1, 2, 3)})
    log.given(server_removed("s1"))
    (event,) = places(log)
    assert on(event) == {"s2": (0, 1, 2, 3), "s3": (0, 1, 2, 3)}


def test_without_room_elsewhere_a_job_stays_until_there_is() -> None:
    log = runs(a_cell(servers=2), "a", {"s1": (0, 1, 2, 3)})
    runs(log, "b", {"s2": (0, 1, 2, 3)}).given(server_removed("s1"))
    assert decided(log, PLACEMENT) == []
    log.given(completed("b", 1), released("b", 1, {"s2": (0, 1, 2, 3)}))
    assert places(log) == [placed("a", 2, {"s2": (0, 1, 2, 3)})]


def test_a_server_that_returns_is_drained_no_longer() -> None:
    log = runs(a_cell(servers=2), "a", {"s1": (0, 1)})
    log.given(server_removed("s1"), server_added("s1"))
    assert decided(log, PLACEMENT) == []


# --- making room ---------------------------------------------------------------------------


def fragmented(**of_job: bool) -> HandMadeLog:
    """Two servers of four GPUs with one job each, and a third job that wants a whole one."""
    log = runs(a_cell(servers=2), "a", {"s1": (0,)}, **of_job)
    runs(log, "b", {"s2": (0,)}, **of_job)
    return live(log, "large").given(planned({"large": 4}))


def test_a_job_that_moves_names_the_job_it_makes_room_for() -> None:
    log = fragmented()
    (move,) = places(log)
    assert isinstance(move, ev.JobMigrated)
    assert move.for_job == "large"
    assert move.generation == 2
    (before,) = {"a": ["s1"], "b": ["s2"]}[move.job_id]
    assert before not in move.gpus
    # The room is there only when the workers have left.
    assert decided(log, PLACEMENT) == []
    log.given(released(move.job_id, 2, {before: (0,)}))
    assert places(log) == [placed("large", 1, {before: (0, 1, 2, 3)})]


def test_a_job_that_must_not_move_stays_and_the_other_spreads() -> None:
    log = fragmented(migratable=False)
    (event,) = places(log)
    assert isinstance(event, ev.JobPlaced)
    assert event.job_id == "large"
    assert on(event).keys() == {"s1", "s2"}


def test_of_two_jobs_the_one_that_may_move_moves() -> None:
    log = runs(a_cell(servers=2), "fixed", {"s1": (0,)}, migratable=False)
    runs(log, "free", {"s2": (0,)})
    live(log, "large").given(planned({"large": 4}))
    (move,) = places(log)
    assert isinstance(move, ev.JobMigrated)
    assert move.job_id == "free"


def test_a_move_that_breaks_a_promise_is_the_last_resort() -> None:
    log = a_cell(2, 4, stop_cost=StopCost(fixed_seconds=10.0))
    log.given(submitted("tight", deadline=115.0), admitted("tight", (0.0, 110.0, 1)))
    log.given(planned({"tight": 1}), placed("tight", 1, {"s1": (0,)}))
    runs(log, "easy", {"s2": (0, 1)})  # larger, so dearer but for the promise
    log.at(10.0).given(switched("tight", 1, 1))
    live(log, "large").given(planned({"large": 4}))
    (move,) = places(log)
    assert isinstance(move, ev.JobMigrated)
    assert move.job_id == "easy"


def test_a_job_that_must_not_move_is_not_moved_to_drain_its_server() -> None:
    log = runs(a_cell(servers=2), "a", {"s1": (0, 1)}, migratable=False)
    log.given(server_removed("s1"))
    assert decided(log, PLACEMENT) == []


def test_migrations_count_as_placements() -> None:
    log = runs(a_cell(servers=2), "a", {"s1": (0,)}).given(migrated("a", 2, {"s2": (3,)}))
    assert decided(log, PLACEMENT) == []


def test_placement_has_no_timer() -> None:
    log = fragmented()
    assert PLACEMENT.next_timer(folded(log, PLACEMENT)) is None
