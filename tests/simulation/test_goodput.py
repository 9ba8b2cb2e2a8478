"""Simulated workers with another batch: their progress, their noise and their end."""

from __future__ import annotations

import pytest

from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.contracts.values import GpuSet
from resilin.executor.decider import Instruction
from resilin.planning.goodput import iteration_worth
from resilin.simulation.cluster import Physics, Report, SimulatedCluster

TWO: GpuSet = {"s1": (0, 1)}
NOISE = {"net": ((0.0, 64.0), (0.5, 1e12))}


class Batches:
    """An iteration of batch 64 a second and worker, half as many with batch 128; 100 of 64."""

    def rate(self, job_id: str, workers: int, global_batch: int | None = None) -> float:
        return workers * (1.0 if global_batch in (None, 64) else 0.5)

    def submitted(self, job_id: str) -> tuple[str, int]:
        return "net", 64

    def total_iterations(self, job_id: str) -> float:
        return 100.0

    def curve(self, job_id: str) -> None:
        return None


def world(physics: Physics | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster(physics or Physics(), Batches())
    cluster.add_node("s1", 0.0)
    [*cluster.reports(0.0)]
    return cluster


def instruct(cluster: SimulatedCluster, at: float, batch: int | None, generation: int = 1) -> None:
    cluster.carry_out(Instruction("a", generation, TWO, {}, False, batch), at)


def ends(reports: list[Report]) -> list[ev.Event]:
    return [report for report in reports if isinstance(report, ev.JobCompleted)]


def samples(reports: list[Report]) -> list[tuple[float, float | None]]:
    return [
        (report.iterations_per_second, report.gradient_noise_scale)
        for report in reports
        if isinstance(report, StepSample)
    ]


def test_without_noise_a_larger_batch_only_costs() -> None:
    cluster = world()
    instruct(cluster, 0.0, 128)
    assert ends([*cluster.reports(99.9)]) == []
    assert len(ends([*cluster.reports(100.0)])) == 1


def test_a_batch_changes_without_a_stop_and_the_old_end_does_not_come() -> None:
    cluster = world()
    instruct(cluster, 0.0, None)
    [*cluster.reports(25.0)]
    instruct(cluster, 25.0, 128)  # half done; the rest takes 50 s instead of 25
    assert [*cluster.reports(74.9)] == []
    assert len(ends([*cluster.reports(75.0)])) == 1


def test_the_same_instruction_again_changes_nothing() -> None:
    cluster = world()
    instruct(cluster, 0.0, 128)
    [*cluster.reports(10.0)]
    instruct(cluster, 10.0, 128)
    assert cluster.next_seconds() == 100.0


def test_noise_is_reported_at_the_start_and_when_it_changes() -> None:
    cluster = world(Physics(gradient_noise=NOISE))
    instruct(cluster, 0.0, None)
    assert samples([*cluster.reports(0.0)]) == [(2.0, 64.0)]
    assert samples([*cluster.reports(24.9)]) == []
    assert samples([*cluster.reports(25.0)]) == [(2.0, 1e12)]
    assert len(ends([*cluster.reports(50.0)])) == 1


def test_progress_with_a_large_batch_follows_the_noise() -> None:
    cluster = world(Physics(gradient_noise=NOISE))
    instruct(cluster, 0.0, 128)
    # Half of the work at a worth of 4/3, then at 2: iterations of batch 128 are one a second.
    half = 50.0 / iteration_worth(128, 64, 64.0)
    assert samples([*cluster.reports(half - 0.1)]) == [(1.0, 64.0)]
    assert samples([*cluster.reports(half + 0.1)]) == [(1.0, 1e12)]
    assert cluster.next_seconds() == pytest.approx(half + 25.0)
    assert len(ends([*cluster.reports(half + 25.1)])) == 1


def test_a_model_without_noise_reports_none() -> None:
    cluster = world(Physics(gradient_noise={"other": ((0.0, 1.0),)}))
    instruct(cluster, 0.0, None)
    assert samples([*cluster.reports(50.0)]) == []
