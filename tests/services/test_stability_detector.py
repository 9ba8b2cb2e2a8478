"""The stability-detector: five samples within five percent make a stable job, once."""

from __future__ import annotations

import pytest
from tests.support.events import admitted, completed, placed, submitted, switched
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample
from resilin.stability_detector.decider import SAMPLES, SPREAD, StabilityDetectorDecider


def training() -> HandMadeLog:
    log = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0, 1)}))
    return log.given(switched("a", 1, 2))


def sampled(
    detector: StabilityDetectorDecider,
    log: HandMadeLog,
    *rates: float,
    job_id: str = "a",
    generation: int = 1,
) -> list[ev.Event]:
    """What the detector adds to a log for these samples, and adds it."""
    found: list[ev.Event] = []
    for rate in rates:
        sample = StepSample(
            job_id=job_id, generation=generation, workers=2, iterations_per_second=rate
        )
        facts = list(detector.accept(folded(log, detector), sample))
        if facts:
            log.add(*facts)
        found += facts
    return found


def stable(rate: float, generation: int = 1) -> ev.JobStabilized:
    return ev.JobStabilized(job_id="a", generation=generation, iterations_per_second=rate)


def test_five_equal_samples_are_stable_and_four_are_not() -> None:
    assert (SAMPLES, SPREAD) == (5, 0.05)
    detector, log = StabilityDetectorDecider(), training()
    assert sampled(detector, log, 2.0, 2.0, 2.0, 2.0) == []
    assert sampled(detector, log, 2.0) == [stable(2.0)]


def test_a_stable_job_is_reported_once() -> None:
    detector, log = StabilityDetectorDecider(), training()
    assert len(sampled(detector, log, *[2.0] * 20)) == 1


@pytest.mark.parametrize(
    ("rates", "settles"),
    [
        # Coefficients of variation of 4.9 % and 5.1 %: the population's, around a mean of 1.
        ([1 - 0.0775, 1, 1, 1, 1 + 0.0775], True),
        ([1 - 0.0807, 1, 1, 1, 1 + 0.0807], False),
        ([1.0, 2.0, 1.0, 2.0, 1.0], False),
    ],
)
def test_the_spread_decides(rates: list[float], settles: bool) -> None:
    assert bool(sampled(StabilityDetectorDecider(), training(), *rates)) is settles


def test_only_the_last_five_samples_count() -> None:
    detector, log = StabilityDetectorDecider(), training()
    assert sampled(detector, log, 9.0, 0.1, 2.0, 2.0, 2.0, 2.0) == []
    assert sampled(detector, log, 2.0) == [stable(2.0)]


def test_a_new_generation_must_settle_anew() -> None:
    detector, log = StabilityDetectorDecider(), training()
    assert len(sampled(detector, log, *[2.0] * 5)) == 1
    log.given(placed("a", 2, {"s1": (0,)}), switched("a", 2, 1))
    assert sampled(detector, log, *[1.0] * 4, generation=2) == []
    assert sampled(detector, log, 1.0, generation=2) == [stable(1.0, generation=2)]


def test_samples_of_another_generation_do_not_mix_in() -> None:
    detector, log = StabilityDetectorDecider(), training()
    sampled(detector, log, *[2.0] * 4)
    assert sampled(detector, log, *[2.0] * 5, generation=2) == []
    assert sampled(detector, log, *[2.0] * 5, job_id="nobody") == []
    assert sampled(detector, log, 2.0) == [stable(2.0)]


def test_a_restart_forgets_the_window_but_not_what_was_found() -> None:
    log = training()
    sampled(StabilityDetectorDecider(), log, *[2.0] * 4)
    assert sampled(StabilityDetectorDecider(), log, *[2.0] * 4) == []
    assert len(sampled(StabilityDetectorDecider(), log, *[2.0] * 5)) == 1
    assert sampled(StabilityDetectorDecider(), log, *[2.0] * 10) == []


def test_a_job_that_ended_is_forgotten() -> None:
    detector, log = StabilityDetectorDecider(), training()
    sampled(detector, log, *[2.0] * 5)
    log.given(completed("a", 1))
    assert sampled(detector, log, *[2.0] * 5) == []
    state = folded(log, detector)
    assert (state.generation, state.stable) == ({}, {})


def test_it_decides_nothing_and_has_no_timer() -> None:
    detector = StabilityDetectorDecider()
    state = folded(training(), detector)
    assert (detector.decide(state), detector.next_timer(state)) == ((), None)
