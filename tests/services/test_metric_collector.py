"""The metric-collector: a sample becomes a measurement only if it tells something new."""

from __future__ import annotations

import pytest
from tests.support.events import (
    admitted,
    completed,
    curves_imported,
    measured,
    placed,
    planned,
    submitted,
    suspended,
    switched,
)
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.metric_collector.decider import DEVIATION_WORTH_A_RECORD, MetricCollectorDecider

COLLECTOR = MetricCollectorDecider()


def training() -> HandMadeLog:
    """Job ``a`` trains with two workers, believed to make 2 iterations per second."""
    log = a_cell().given(submitted("a"), admitted("a"), planned({"a": 2}))
    return log.given(placed("a", 1, {"s1": (0, 1)}), switched("a", 1, 2))


def sampled(
    log: HandMadeLog, rate: float, *, job_id: str = "a", generation: int = 1, workers: int = 2
) -> list[ev.Event]:
    """What the metric-collector adds to a log for a sample, and adds it."""
    sample = StepSample(
        job_id=job_id, generation=generation, workers=workers, iterations_per_second=rate
    )
    facts = list(COLLECTOR.accept(folded(log, COLLECTOR), sample))
    if facts:
        log.add(*facts)
    return facts


@pytest.mark.parametrize("rate", [2.0, 2.0 * 0.981, 2.0 * 1.019])
def test_what_only_confirms_the_belief_is_not_recorded(rate: float) -> None:
    assert sampled(training(), rate) == []


@pytest.mark.parametrize("rate", [2.0 * 0.979, 2.0 * 1.021, 0.01, 100.0])
def test_more_than_two_percent_is_worth_a_record(rate: float) -> None:
    assert DEVIATION_WORTH_A_RECORD == 0.02
    log = training()
    assert sampled(log, rate) == [measured("a", 1, 2, rate)]
    assert folded(log, COLLECTOR).cell.jobs["a"].measured == {2: rate}


def test_a_repeated_sample_is_recorded_once() -> None:
    log = training()
    assert len(sampled(log, 1.5)) == 1
    assert sampled(log, 1.5) == []
    assert sampled(log, 1.51) == []
    assert len(sampled(log, 1.6)) == 1


def test_a_measurement_at_one_size_scales_the_belief_at_others() -> None:
    log = training()
    sampled(log, 1.0)  # half of what was believed
    log.given(placed("a", 2, {"s1": (0, 1, 2, 3)}), switched("a", 2, 4))
    assert sampled(log, 2.0, generation=2, workers=4) == []
    assert len(sampled(log, 4.0, generation=2, workers=4)) == 1


def test_where_nothing_is_believed_everything_is_news() -> None:
    log = training().given(curves_imported(linear={1: 1.0}))
    assert len(sampled(log, 2.0)) == 1


def test_samples_of_a_stale_generation_are_dropped() -> None:
    log = training().given(placed("a", 2, {"s1": (0,)}), switched("a", 2, 1))
    assert sampled(log, 9.0, generation=1) == []
    assert sampled(log, 9.0, generation=3) == []


@pytest.mark.parametrize("end", [suspended("a", 2), completed("a", 1)], ids=["suspended", "done"])
def test_samples_of_a_job_that_does_not_train_are_dropped(end: ev.Event) -> None:
    assert sampled(training().given(end), 9.0) == []


def test_samples_of_an_unknown_job_are_dropped() -> None:
    assert sampled(training(), 9.0, job_id="nobody") == []


def test_it_decides_nothing_and_has_no_timer() -> None:
    state = folded(training(), COLLECTOR)
    assert (COLLECTOR.decide(state), COLLECTOR.next_timer(state)) == ((), None)
