"""The metric-collector: a sample becomes a measurement only if it tells something new."""

from __future__ import annotations

import random

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
from resilin.metric_collector.decider import (
    DEVIATION_WORTH_A_RECORD,
    SAMPLES_LEAST,
    SAMPLES_MOST,
    SAMPLES_WARMING_UP,
    MetricCollectorDecider,
)

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


# --- measured samples scatter --------------------------------------------------------------


ENOUGH = SAMPLES_WARMING_UP + SAMPLES_LEAST


class Measuring:
    """Job ``a`` reports once a second, and the collector adds to the log what is news."""

    def __init__(self) -> None:
        self.log = training()
        self.collector = MetricCollectorDecider()
        self.state = folded(self.log, self.collector)
        self.sequence = 0

    def sample(self, rate: float, **fields: object) -> StepSample:
        self.sequence += 1
        known = {"job_id": "a", "generation": 1, "workers": 2, "seconds": 1.0}
        values = {**known, "sequence": self.sequence, "iterations_per_second": rate, **fields}
        return StepSample.model_validate(values)

    def reports(self, *rates: float, **fields: object) -> list[float]:
        """What is recorded of samples at these rates."""
        return [found for rate in rates for found in self.takes(self.sample(rate, **fields))]

    def takes(self, sample: StepSample) -> list[float]:
        facts = self.collector.accept(self.state, sample)
        for fact in facts:
            offset = self.log.add(fact)
            self.state = self.collector.evolve(self.state, fact, self.log.entries[offset])
        return [fact.iterations_per_second for fact in facts]

    def goes_on(self, *events: ev.Event) -> None:
        self.log.given(*events)
        self.state = folded(self.log, self.collector)

    def around(self, rate: float, count: int, *, noise: float, seed: int = 1) -> list[float]:
        """What is recorded of samples that scatter around a rate."""
        chance = random.Random(seed)
        return self.reports(*(rate * (1 + chance.gauss(0.0, noise)) for _ in range(count)))


def test_measured_samples_count_once_a_window_is_full() -> None:
    job = Measuring()
    assert job.reports(*[3.0] * (ENOUGH - 1)) == []
    assert job.reports(3.0) == [3.0]
    assert job.reports(*[3.0] * 100) == []


def test_the_median_stands_for_the_window() -> None:
    job = Measuring()
    assert job.reports(*[2.0] * SAMPLES_WARMING_UP, 3.0, 0.1, 3.1, 2.9, 90.0) == [3.0]


def test_what_a_generation_reports_before_it_is_warm_says_nothing() -> None:
    job = Measuring()
    assert job.reports(*[0.5] * SAMPLES_WARMING_UP, *[2.0] * SAMPLES_MOST) == []
    assert job.reports(*[0.5] * SAMPLES_WARMING_UP, *[1.2] * SAMPLES_LEAST, workers=1) == [1.2]


def test_a_difference_that_scatter_explains_waits_for_more_samples() -> None:
    job = Measuring()
    assert job.around(2.1, ENOUGH, noise=0.05) == []
    recorded = job.around(2.1, SAMPLES_MOST, noise=0.05, seed=2)
    assert len(recorded) == 1
    assert recorded[0] == pytest.approx(2.1, rel=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_jitter_alone_is_hardly_ever_recorded(seed: int) -> None:
    """Three hours of samples that scatter by 5 % around what is believed."""
    assert len(Measuring().around(2.0, 10_000, noise=0.05, seed=seed)) <= 15


def test_a_job_that_becomes_slower_is_measured_again() -> None:
    job = Measuring()
    assert len(job.around(2.0, 200, noise=0.02)) <= 2
    recorded = job.around(1.6, 2 * SAMPLES_MOST, noise=0.02, seed=2)
    assert 1 <= len(recorded) <= 5
    assert recorded[-1] == pytest.approx(1.6, rel=0.03)


def test_a_repeat_does_not_fill_the_window() -> None:
    job = Measuring()
    again = job.sample(3.0)
    for _ in range(3 * ENOUGH):
        assert job.takes(again) == []
    assert job.reports(*[3.0] * (ENOUGH - 2)) == []
    assert job.takes(again) == []
    assert job.reports(3.0) == [3.0]


def test_a_repeated_stretch_of_samples_changes_nothing() -> None:
    """What a consumer sees after it started again before its last committed offset."""
    job, other = Measuring(), Measuring()
    samples = [job.sample(rate) for rate in (2.0, 2.0, 2.0, 3.0, 3.1, 2.9, 3.2, 3.05, 2.95)]
    once = [found for sample in samples for found in job.takes(sample)]
    twice = [found for sample in [*samples[:4], *samples] for found in other.takes(sample)]
    assert once == twice == [3.05]


def test_a_new_generation_starts_a_new_window() -> None:
    job = Measuring()
    job.reports(*[2.0] * (ENOUGH - 1))
    job.goes_on(placed("a", 2, {"s1": (0, 1, 2, 3)}), switched("a", 2, 4))
    assert job.reports(*[3.0] * (ENOUGH - 1), generation=2, workers=4) == []
    assert job.reports(9.0) == []  # late, of the generation before
    assert job.reports(3.0, generation=2, workers=4) == [3.0]


def test_a_generation_that_lost_a_worker_is_measured_at_its_new_count() -> None:
    job = Measuring()
    job.reports(*[2.0] * SAMPLES_MOST)
    assert job.reports(*[1.2] * ENOUGH, workers=1) == [1.2]
    assert folded(job.log, COLLECTOR).cell.jobs["a"].measured == {1: 1.2}


def test_a_restart_only_delays_a_measurement() -> None:
    job = Measuring()
    job.reports(*[3.0] * (ENOUGH - 1))
    job.collector = MetricCollectorDecider()
    assert job.reports(*[3.0] * (ENOUGH - 1)) == []
    assert job.reports(3.0) == [3.0]


def test_it_decides_nothing_and_has_no_timer() -> None:
    state = folded(training(), COLLECTOR)
    assert (COLLECTOR.decide(state), COLLECTOR.next_timer(state)) == ((), None)
