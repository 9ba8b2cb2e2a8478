"""The stability-detector: five samples within five percent make a stable job, once.

And a worker that is much slower than its peers is told, once a generation.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.events import admitted, completed, placed, submitted, switched
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.contracts import events as ev
from resilin.contracts.telemetry import StepSample, WorkerSample
from resilin.stability_detector.decider import (
    SAMPLES,
    SPREAD,
    STRAGGLER_THRESHOLD,
    StabilityDetectorDecider,
    _median_without,
)


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
    assert (state.generation, state.stable, state.stragglers) == ({}, {}, {})


def test_repeats_do_not_settle_a_job() -> None:
    detector, log = StabilityDetectorDecider(), training()
    state = folded(log, detector)
    samples = [
        StepSample(job_id="a", generation=1, workers=2, iterations_per_second=2.0, sequence=number)
        for number in range(SAMPLES)
    ]
    for sample in [*samples[:1] * 9, *samples[:3], *samples[:4]]:
        assert list(detector.accept(state, sample)) == []
    assert list(detector.accept(state, samples[4])) == [stable(2.0)]


# --- stragglers ----------------------------------------------------------------------------


class Reporting:
    """Job ``a`` reports how long each worker computes; the detector adds to the log what it finds.

    The workers run on GPUs 0, 1, ... of server s1.
    """

    def __init__(self) -> None:
        self.log = training()
        self.detector = StabilityDetectorDecider()
        self.state = folded(self.log, self.detector)
        self.generation = 1
        self.sequence = 0

    def step(self, compute_seconds: Sequence[float]) -> list[ev.StragglerDetected]:
        """The stragglers that one more report shows."""
        self.sequence += 1
        slowest = max(compute_seconds, default=0.0)
        sample = StepSample(
            job_id="a",
            generation=self.generation,
            workers=len(compute_seconds) or 1,
            iterations_per_second=1 / (slowest + 0.01),
            sequence=self.sequence,
            seconds=1.0,
            worker_samples=tuple(
                WorkerSample(
                    server_id="s1",
                    gpu_index=index,
                    step_seconds=slowest + 0.01,
                    compute_seconds=seconds,
                )
                for index, seconds in enumerate(compute_seconds)
            ),
        )
        found = []
        for fact in self.detector.accept(self.state, sample):
            offset = self.log.add(fact)
            self.state = self.detector.evolve(self.state, fact, self.log.entries[offset])
            if isinstance(fact, ev.StragglerDetected):
                found.append(fact)
        return found

    def steps(self, reports: Iterable[Sequence[float]]) -> list[tuple[int, int]]:
        """Every straggler found: after how many reports, and which GPU."""
        return [
            (number, found.gpu_index)
            for number, report in enumerate(reports, start=1)
            for found in self.step(report)
        ]

    def switches(self) -> None:
        """The job starts a generation, of four workers again."""
        self.generation += 1
        self.log.given(placed("a", self.generation, {"s1": (0, 1, 2, 3)}))
        self.log.given(switched("a", self.generation, 4))
        self.state = folded(self.log, self.detector)


@pytest.mark.parametrize(
    ("slower", "reports"), [(4.0, 3), (2.0, 5), (1.5, 9), (1.33, 16), (1.25, None), (1.0, None)]
)
@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_a_slow_worker_is_told_within_a_few_reports(
    slower: float, reports: int | None, workers: int
) -> None:
    """1 - (1 - 1/slower)(1 - 0.9^n) falls below 0.8 at report n; never at a quarter slower."""
    assert STRAGGLER_THRESHOLD == 0.8
    last = workers - 1
    found = Reporting().steps([[0.1] * last + [0.1 * slower]] * 100)
    assert found == ([] if reports is None else [(reports, last)])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_a_slow_worker_is_told_through_noise_too(workers: int, seed: int) -> None:
    chance = random.Random(seed)
    reports = [
        [
            0.1 * (1.5 if worker == 1 else 1.0) * (1 + chance.gauss(0.0, 0.05))
            for worker in range(workers)
        ]
        for _ in range(50)
    ]
    ((after, gpu_index),) = Reporting().steps(reports)
    assert gpu_index == 1
    assert after <= 15


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_noise_alone_raises_no_alarm(workers: int) -> None:
    chance = random.Random(workers)
    reports = ([0.1 * (1 + chance.gauss(0.0, 0.05)) for _ in range(workers)] for _ in range(10_000))
    assert Reporting().steps(reports) == []


def test_a_straggler_is_reported_with_its_speed_and_once_a_generation() -> None:
    job = Reporting()
    found = [fact for _ in range(50) for fact in job.step([0.1, 0.2, 0.1, 0.1])]
    assert [(it.server_id, it.gpu_index, it.generation) for it in found] == [("s1", 1, 1)]
    assert 0.5 < found[0].relative_throughput < STRAGGLER_THRESHOLD
    job.switches()
    assert job.steps([[0.1, 0.2, 0.1, 0.1]] * 50) == [(5, 1)]


def test_two_stragglers_are_both_told() -> None:
    assert Reporting().steps([[0.2, 0.1, 0.1, 0.1, 0.3]] * 50) == [(4, 4), (5, 0)]


def test_a_short_slowness_is_none() -> None:
    job = Reporting()
    for _ in range(100):
        assert job.steps([[0.1, 0.3, 0.1, 0.1], *[[0.1] * 4] * 4]) == []


def test_a_restart_reports_no_straggler_again() -> None:
    job = Reporting()
    assert job.steps([[0.1, 0.2]] * 20) == [(5, 1)]
    job.detector = StabilityDetectorDecider()
    job.state = folded(job.log, job.detector)
    assert job.steps([[0.1, 0.2]] * 20) == []


@pytest.mark.parametrize("report", [[0.5], [0.1, 0.0], [0.0, 0.0], []], ids=str)
def test_without_peers_there_is_no_straggler(report: list[float]) -> None:
    assert Reporting().steps([report] * 50) == []


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=9).map(sorted), st.integers(0, 8))
@settings(deadline=None, derandomize=True)
def test_the_median_of_the_others(numbers: list[float], place: int) -> None:
    place %= len(numbers)
    others = numbers[:place] + numbers[place + 1 :]
    assert _median_without(numbers, place) == pytest.approx(statistics.median(others))


def test_it_decides_nothing_and_has_no_timer() -> None:
    detector = StabilityDetectorDecider()
    state = folded(training(), detector)
    assert (detector.decide(state), detector.next_timer(state)) == ((), None)
