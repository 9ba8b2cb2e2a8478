"""The simulated cluster: what executors, workers and nodes would report, and when."""

from __future__ import annotations

import math

import pytest
from tests.support.events import completed, joined, lost, progressed, released, switched

from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.contracts.values import GpuSet, StopCost
from resilin.executor.decider import Instruction
from resilin.simulation.cluster import FailureModel, Physics, Report, SimulatedCluster

FOUR: GpuSet = {"s1": (0, 1, 2, 3)}
ONE: GpuSet = {"s1": (0,)}


class Linear:
    """Every job makes as many iterations per second as it has workers, and needs 100."""

    def rate(self, job_id: str, workers: int, global_batch: int | None = None) -> float:
        return float(workers)

    def total_iterations(self, job_id: str) -> float:
        return 100.0


class World:
    """A cluster of two nodes and the instructions of one job."""

    def __init__(self, physics: Physics | None = None) -> None:
        self.cluster = SimulatedCluster(physics or Physics(), Linear())
        for server in ("s1", "s2"):
            self.cluster.add_node(server, 0.0)
        self.until(0.0)

    def until(self, seconds: float) -> list[Report]:
        return list(self.cluster.reports(seconds))

    def instruct(
        self,
        generation: int,
        gpus: GpuSet,
        at: float,
        *,
        leaving: GpuSet | None = None,
        ended: bool = False,
        job_id: str = "a",
    ) -> None:
        instruction = Instruction(job_id, generation, gpus, leaving or {}, ended)
        self.cluster.carry_out(instruction, at)


def test_a_node_joins_once() -> None:
    cluster = SimulatedCluster(Physics(), Linear())
    cluster.add_node("s1", 5.0)
    cluster.add_node("s1", 6.0)
    assert cluster.next_seconds() == 5.0
    assert list(cluster.reports(4.9)) == []
    assert list(cluster.reports(10.0)) == [joined("s1", 1)]
    assert cluster.next_seconds() == math.inf


def test_a_job_trains_to_its_end() -> None:
    world = World()
    world.instruct(1, FOUR, 10.0)
    assert world.until(10.0) == [switched("a", 1, 4)]
    assert world.cluster.next_seconds() == 35.0
    assert world.until(34.9) == []
    assert world.until(35.0) == [completed("a", 1), released("a", 1, FOUR, 100.0)]
    assert world.cluster.next_seconds() == math.inf


def test_a_change_costs_its_stop() -> None:
    world = World(Physics(stop_cost=StopCost.modelled()))
    world.instruct(1, FOUR, 0.0)
    assert world.until(7.9) == []
    (report,) = world.until(8.0)
    assert isinstance(report, ev.GenerationSwitched)
    assert report.stopped_seconds == 8.0
    assert world.cluster.next_seconds() == 33.0


def test_a_smaller_size_frees_the_rest_at_once_and_keeps_the_progress() -> None:
    world = World()
    world.instruct(1, FOUR, 0.0)
    world.until(10.0)
    world.instruct(2, ONE, 10.0, leaving={"s1": (1, 2, 3)})
    assert world.until(10.0) == [
        released("a", 2, {"s1": (1, 2, 3)}, 40.0),
        switched("a", 2, 1, 40.0),
    ]
    # The old generation's end must not happen any more.
    assert world.until(69.9) == []
    assert world.until(70.0)[0] == completed("a", 2)


def test_a_suspended_job_keeps_its_progress() -> None:
    world = World()
    world.instruct(1, FOUR, 0.0)
    world.until(10.0)
    world.instruct(2, {}, 10.0, leaving=FOUR)
    assert world.until(50.0) == [released("a", 2, FOUR, 40.0)]
    world.instruct(3, FOUR, 50.0)
    assert world.until(50.0) == [switched("a", 3, 4, 40.0)]
    assert world.until(65.0)[0] == completed("a", 3)


@pytest.mark.parametrize("generation", [0, 1])
def test_an_instruction_carried_out_already_changes_nothing(generation: int) -> None:
    world = World()
    world.instruct(1, FOUR, 0.0)
    world.until(10.0)
    world.instruct(generation, ONE, 10.0, leaving=FOUR)
    assert world.until(24.9) == []
    assert world.until(25.0)[0] == completed("a", 1)


def test_a_generation_replaced_during_its_stop_never_trains() -> None:
    world = World(Physics(stop_cost=StopCost(fixed_seconds=5.0)))
    world.instruct(1, FOUR, 0.0)
    world.instruct(2, ONE, 3.0, leaving={"s1": (1, 2, 3)})
    assert [type(report) for report in world.until(5.0)] == [ev.WorkersReleased]
    (report,) = world.until(8.0)
    assert isinstance(report, ev.GenerationSwitched)
    assert report.generation == 2


def test_what_the_log_waits_for_is_released_even_if_nothing_ever_ran_there() -> None:
    """The executor was away for the first generation and hears of the second only."""
    world = World()
    world.instruct(2, {}, 0.0, leaving=FOUR)
    assert world.until(0.0) == [released("a", 2, FOUR)]


def test_a_cancelled_job_stops_and_releases_its_gpus() -> None:
    world = World()
    world.instruct(1, FOUR, 0.0)
    world.until(10.0)
    world.instruct(1, {}, 10.0, leaving=FOUR, ended=True)
    assert world.until(1000.0) == [released("a", 1, FOUR, 40.0)]


def test_a_job_cancelled_before_it_was_heard_of_releases_its_gpus_too() -> None:
    world = World()
    world.instruct(1, {}, 0.0, leaving=FOUR, ended=True)
    assert world.until(1000.0) == [released("a", 1, FOUR)]


def test_a_job_that_is_done_is_not_trained_again_by_a_late_instruction() -> None:
    world = World()
    world.instruct(1, FOUR, 0.0)
    world.until(25.0)
    world.instruct(2, {"s2": (0,)}, 26.0, leaving=FOUR)  # the log does not know yet
    assert world.until(1000.0) == []
    everything: GpuSet = {**FOUR, "s2": (0,)}
    world.instruct(2, {}, 1000.0, leaving=everything, ended=True)
    assert world.until(1000.0) == [released("a", 2, everything, 100.0)]


# --- nodes that fail -----------------------------------------------------------------------


def test_a_lost_node_takes_its_jobs_back_to_their_checkpoints() -> None:
    world = World(Physics(checkpoint_interval_seconds=6.0))
    world.instruct(1, {"s1": (0, 1), "s2": (0, 1)}, 0.0)
    world.instruct(1, {"s2": (2,)}, 0.0, job_id="elsewhere")
    world.until(10.0)
    reports = list(world.cluster.lose_node("s1", 10.0))
    assert reports == [
        lost("s1", 1),
        ev.WorkerLost(job_id="a", generation=1, iterations_done=24.0, message="s1 was lost"),
        released("a", 1, {"s2": (0, 1)}, 24.0),
    ]
    (only,) = world.until(1000.0)[:1]
    assert only == completed("elsewhere", 1)


@pytest.mark.parametrize("lost_at", [11.0, 20.0], ids=["while it stands still", "after"])
def test_a_change_is_a_checkpoint(lost_at: float) -> None:
    stop = StopCost(fixed_seconds=2.0)
    world = World(Physics(stop_cost=stop, checkpoint_interval_seconds=1000.0))
    world.instruct(1, FOUR, -2.0)
    world.until(10.0)
    world.instruct(2, ONE, 10.0, leaving={"s1": (1, 2, 3)})
    world.until(lost_at)
    _, report, *_ = world.cluster.lose_node("s1", lost_at)
    assert isinstance(report, ev.WorkerLost)
    assert report.iterations_done == 40.0


def test_what_is_placed_on_a_node_that_is_down_is_lost_at_once() -> None:
    world = World()
    list(world.cluster.lose_node("s1", 1.0))
    world.instruct(1, {"s1": (0,), "s2": (0,)}, 2.0)
    worker_lost, release = world.until(2.0)
    assert isinstance(worker_lost, ev.WorkerLost)
    assert release == released("a", 1, {"s2": (0,)})
    assert world.until(1000.0) == []


def failing(most_at_once: int = 1, seed: int = 0) -> list[Report]:
    failures = FailureModel(100.0, mean_seconds_to_repair=50.0, most_at_once=most_at_once)
    world = World(Physics(failures=failures, seed=seed))
    return world.until(20_000.0)


def most_down(reports: list[Report]) -> int:
    down, most = set(), 0
    for report in reports:
        if isinstance(report, ev.NodeLost):
            down.add(report.server_id)
        elif isinstance(report, ev.NodeJoined):
            down.discard(report.server_id)
        most = max(most, len(down))
    return most


@pytest.mark.parametrize("most_at_once", [1, 2])
def test_nodes_fail_and_come_back_but_not_too_many_at_once(most_at_once: int) -> None:
    assert most_down(failing(most_at_once)) == most_at_once


def test_every_start_of_a_node_is_an_incarnation() -> None:
    reports = failing()
    for server in ("s1", "s2"):
        joins, losses = (
            [
                report.incarnation
                for report in reports
                if isinstance(report, kind) and report.server_id == server
            ]
            for kind in (ev.NodeJoined, ev.NodeLost)
        )
        assert joins == list(range(2, len(joins) + 2))
        assert losses[: len(joins)] == list(range(1, len(joins) + 1))


def test_failures_depend_on_the_seed_alone() -> None:
    assert failing(seed=1) == failing(seed=1)
    assert failing(seed=1) != failing(seed=2)


# --- noise ---------------------------------------------------------------------------------


def test_without_noise_the_truth_is_the_curve_and_there_are_no_samples() -> None:
    world = World()
    assert world.cluster.true_rate("a", 4) == 4.0
    world.instruct(1, FOUR, 0.0)
    assert not [report for report in world.until(1000.0) if isinstance(report, StepSample)]


def test_noise_is_drawn_once_for_each_job_and_size() -> None:
    noisy = World(Physics(throughput_noise=0.2, seed=3)).cluster
    again = World(Physics(throughput_noise=0.2, seed=3)).cluster
    assert noisy.true_rate("a", 4) == noisy.true_rate("a", 4) == again.true_rate("a", 4)
    rates = {noisy.true_rate(job, size) / size for job in ("a", "b") for size in (1, 2, 4)}
    assert len(rates) == 6
    other = World(Physics(throughput_noise=0.2, seed=4)).cluster
    assert other.true_rate("a", 4) != noisy.true_rate("a", 4)


def test_a_noisy_job_reports_five_samples_and_its_progress() -> None:
    world = World(Physics(throughput_noise=0.2, sample_interval_seconds=1.0))
    rate = world.cluster.true_rate("a", 4)
    world.instruct(1, FOUR, 0.0)
    reports = world.until(10.0)
    samples = [report for report in reports if isinstance(report, StepSample)]
    assert len(samples) == 5
    assert {sample.iterations_per_second for sample in samples} == {rate}
    progress = [report for report in reports if isinstance(report, ev.ProgressReported)]
    assert progress == [progressed("a", 1, rate)]


def test_a_stale_generation_sends_no_samples() -> None:
    world = World(Physics(throughput_noise=0.2, sample_interval_seconds=10.0))
    world.instruct(1, FOUR, 0.0)
    world.until(5.0)
    world.instruct(2, {}, 5.0, leaving=FOUR)
    assert not [report for report in world.until(1000.0) if isinstance(report, StepSample)]
