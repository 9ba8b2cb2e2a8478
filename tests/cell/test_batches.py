"""Batches that a policy adapts: what they are worth, when they are in force, what is measured."""

from __future__ import annotations

import pytest
from tests.support.events import BATCH, admitted, placed, planned, submitted, suspended, switched
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.cell.state import CellState
from resilin.cell.view import cluster_view, job_view
from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.contracts.values import Curve, SourcePosition, training_allocation
from resilin.executor.decider import ExecutorDecider, instructions
from resilin.metric_collector.decider import MetricCollectorDecider
from resilin.planning.goodput import iteration_worth

DOUBLE = 2 * BATCH
TWO = {"s1": (0, 1)}


def adapted(workers: int, batch: int) -> ev.AllocationPlanned:
    allocation = training_allocation(workers, batch, learning_rate_factor=1.5)
    change = ev.AllocationChange(job_id="a", allocation=allocation)
    return ev.AllocationPlanned(virtual_cluster="default", changes=(change,))


def double_curve() -> ev.CurvesImported:
    """With the doubled batch an iteration takes less than twice as long."""
    curve = Curve(model="linear", global_batch=DOUBLE, iterations_per_second={1: 0.6, 2: 1.5})
    source = SourcePosition(topic="jobs.commands", offset=0)
    return ev.CurvesImported(source=source, command_id="more-curves", curves=(curve,))


def noise(samples: float) -> ev.GradientNoiseMeasured:
    return ev.GradientNoiseMeasured(job_id="a", generation=1, gradient_noise_scale=samples)


def training() -> HandMadeLog:
    """Job ``a`` trains on two workers from 0 on, at 2 iterations a second."""
    log = a_cell().given(double_curve(), submitted("a"), admitted("a"), planned({"a": 2}))
    return log.given(placed("a", 1, TWO), switched("a", 1, 2))


def cell(log: HandMadeLog) -> CellState:
    return folded(log, ExecutorDecider()).cell


def test_progress_is_counted_in_iterations_of_the_submitted_batch() -> None:
    log = training().at(10.0).given(noise(float(BATCH)), adapted(2, DOUBLE))
    log.at(20.0).given(planned())
    state = cell(log)
    job = state.jobs["a"]
    worth = iteration_worth(DOUBLE, BATCH, float(BATCH))
    assert worth == pytest.approx(4 / 3)
    assert state.step_rate(job, 2) == pytest.approx(1.5)
    assert state.curve_rate(job, 2) == pytest.approx(1.5 * worth)
    assert state.iterations_done(job, 20.0) == pytest.approx(20.0 + 10.0 * 1.5 * worth)


def test_a_batch_is_in_force_at_once_only_where_the_workers_stay() -> None:
    log = training().given(adapted(2, DOUBLE))
    assert (cell(log).jobs["a"].adapted_batch, cell(log).jobs["a"].learning_rate_factor) == (
        DOUBLE,
        1.5,
    )
    log = training().given(adapted(1, DOUBLE))
    assert cell(log).jobs["a"].adapted_batch is None, "its workers are still the old ones"
    log.given(placed("a", 2, {"s1": (0,)}))
    assert cell(log).jobs["a"].adapted_batch == DOUBLE
    (instruction,) = instructions(folded(log, ExecutorDecider()))
    assert (instruction.global_batch, instruction.learning_rate_factor) == (DOUBLE, 1.5)


def test_the_submitted_batch_is_no_adaptation() -> None:
    log = training().given(adapted(2, DOUBLE), adapted(2, BATCH))
    assert cell(log).jobs["a"].adapted_batch is None
    (instruction,) = instructions(folded(log, ExecutorDecider()))
    assert instruction.global_batch is None


def test_a_suspended_job_keeps_its_batch() -> None:
    log = training().given(adapted(2, DOUBLE), adapted(0, DOUBLE), suspended("a", 2))
    assert cell(log).jobs["a"].adapted_batch == DOUBLE


def test_what_was_done_is_settled_before_the_noise_changes() -> None:
    log = training().given(noise(1e9), adapted(2, DOUBLE))
    log.at(10.0).given(noise(0.0)).at(20.0).given(planned())
    state = cell(log)
    done = state.iterations_done(state.jobs["a"], 20.0)
    assert done == pytest.approx(10 * 1.5 * 2 + 10 * 1.5 * 1, rel=1e-4)


def test_a_measurement_with_another_batch_scales_the_curve() -> None:
    log = training().given(noise(1e9), adapted(2, DOUBLE))
    log.given(ev.ThroughputMeasured(job_id="a", generation=1, workers=2, iterations_per_second=3.0))
    state = cell(log)
    job = state.jobs["a"]
    assert state.step_rate(job, 2) == pytest.approx(3.0)
    assert job.measured == {2: pytest.approx(4.0)}, "twice as fast as believed, as with its own"


def test_policies_that_adapt_batches_see_all_tables() -> None:
    state = cell(training().given(noise(70.0), adapted(2, DOUBLE)))
    plain = job_view(state, state.jobs["a"])
    assert plain is not None
    assert plain.batch_tables == ()
    assert (plain.requested_batch, plain.global_batch) == (BATCH, DOUBLE)
    assert plain.gradient_noise_scale == 70.0
    (job,) = cluster_view(state, "default", with_batches=True).jobs
    assert [batch for batch, _ in job.batch_tables] == [BATCH, DOUBLE]
    assert job.batch_tables[1][1].rate_at[2] == 1.5


def test_noise_is_recorded_when_it_is_news() -> None:
    def facts(log: HandMadeLog, samples: float | None) -> list[ev.Event]:
        sample = StepSample(
            job_id="a",
            generation=1,
            workers=2,
            iterations_per_second=2.0,
            gradient_noise_scale=samples,
        )
        collector = MetricCollectorDecider()
        return list(collector.accept(folded(log, collector), sample))

    assert facts(training(), None) == []
    assert facts(training(), 100.0) == [noise(100.0)]
    assert facts(training().given(noise(100.0)), 105.0) == []
    assert facts(training().given(noise(100.0)), 120.0) == [noise(120.0)]
