"""Fault simulation: sound services survive everything, broken ones are found out."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tests.support.doubles import (
    AcceptsEverythingTwice,
    AdmitsTheCancelled,
    CountsInSecret,
    IgnoresWhoHolds,
    PlacesAnySize,
    PromisesEverything,
    TakesFromThePromised,
    WritesForOthers,
    with_double,
)
from tests.support.events import progressed
from tests.support.runs import written

from resilin.contracts import events as ev
from resilin.contracts.commands import CancelJob, ChangeDeadline, CordonServer, RemoveServer
from resilin.contracts.record import LogEntry
from resilin.kernel.decider import Decider
from resilin.loan_manager.decider import LoanManagerDecider, LoanState
from resilin.simulation import faults
from resilin.simulation.cluster import SimulatedCluster
from resilin.simulation.faults import FaultRun, run_seed

SEEDS = range(30)


@cache
def run_of(seed: int) -> FaultRun:
    return run_seed(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_sound_services_survive(seed: int) -> None:
    run = run_of(seed)
    assert run.findings == []
    assert run.records > 30


# Each was found by a longer hunt, and mended; what went wrong stands beside it.
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(381, id="a job was done while a later generation was on its way"),
        pytest.param(571, id="an executor came back to a generation that was over already"),
        pytest.param(760, id="a late job's workers left and nobody looked what was left to do"),
        pytest.param(1251, id="a server was lost while another was cordoned"),
    ],
)
def test_what_once_went_wrong(seed: int) -> None:
    assert run_of(seed).findings == []


def test_some_seeds_have_jobs_that_are_tried_out_first() -> None:
    assert sum(run_of(seed).profiles for seed in SEEDS) > 10


def test_every_kind_of_fault_occurs() -> None:
    counts: dict[str, int] = {}
    for seed in SEEDS:
        for kind, count in run_of(seed).faults.items():
            counts[kind] = counts.get(kind, 0) + count
    assert counts.keys() == {
        "record overtaken",
        "record repeated",
        "report delayed",
        "report repeated",
        "service killed",
        "service paused",
        "snapshot kept",
        "start from a snapshot",
    }
    assert min(counts.values()) >= 5
    assert sum(run_of(seed).ignored for seed in SEEDS) > 20


def test_every_kind_of_trouble_is_drawn() -> None:
    kinds: set[type] = set()
    policies, failing, noisy, costly = set(), set(), set(), set()
    for seed in SEEDS:
        commands, physics = faults._scenario(random.Random(f"faults/{seed}"))
        kinds |= {type(timed.command) for timed in commands}
        policies |= {
            cluster.policy
            for timed in commands
            if timed.command.type == "ConfigureCell"
            for cluster in timed.command.configuration.virtual_clusters
        }
        failing.add(physics.failures is not None)
        noisy.add(physics.throughput_noise > 0)
        costly.add(physics.stop_cost.fixed_seconds > 0)
    assert kinds >= {CancelJob, ChangeDeadline, CordonServer, RemoveServer}
    assert policies == {"elasticflow", "edf", "fifo"}
    assert failing == noisy == costly == {True, False}


def test_a_report_comes_late_or_twice_but_never_not_at_all_and_the_first_ones_in_order() -> None:
    broken = faults.Faults(random.Random(1), share=0.5)
    arrivals: list[list[float]] = []
    for number in range(200):
        report = progressed("a", 1, float(number))
        copies = list(broken.disturb(report, float(number)))
        assert {copy for _, copy in copies} == {report}
        assert all(moment >= number for moment, _ in copies)
        arrivals.append([moment for moment, _ in copies])
    firsts = [moments[0] for moments in arrivals]
    assert firsts == sorted(firsts)
    assert {len(moments) for moments in arrivals} == {1, 2}
    assert sum(len(moments) == 2 for moments in arrivals) == broken.counts["report repeated"]


class Witness(LoanManagerDecider):
    """Notes every entry that any instance of it folds."""

    noted: list[LogEntry]

    def evolve(
        self, state: LoanState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
    ) -> LoanState:
        self.noted.append(entry)
        return super().evolve(state, event, entry)


def witnessed(seed: int) -> tuple[FaultRun, list[bytes]]:
    noted: list[LogEntry] = []

    def witness() -> Witness:
        double = Witness()
        double.noted = noted
        return double

    return run_seed(seed, with_double(witness)), written(noted)


@pytest.mark.parametrize("seed", [1, 5, 9])
def test_the_same_seed_gives_the_same_run_to_the_byte(seed: int) -> None:
    first, again = witnessed(seed), witnessed(seed)
    assert first == again
    assert len(first[1]) > 100
    # What an instance folds depends on nothing but the run.
    assert first[0].records == run_of(seed).records


def test_another_seed_gives_another_run() -> None:
    assert witnessed(1)[1] != witnessed(2)[1]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_no_gpu_has_workers_of_two_jobs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what the log says of it: what the simulated nodes really run."""
    carry_out = SimulatedCluster.carry_out

    def watched(self: SimulatedCluster, *arguments: Any) -> None:
        carry_out(self, *arguments)
        busy = [
            (server, index)
            for workers in self._jobs.values()
            for server, indexes in workers.gpus.items()
            for index in indexes
        ]
        assert len(busy) == len(set(busy))

    monkeypatch.setattr(SimulatedCluster, "carry_out", watched)
    assert run_seed(seed).findings == []


# --- broken services -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("double", "caught_as"),
    [
        (IgnoresWhoHolds, "invariant 1:"),
        (AcceptsEverythingTwice, "invariant 2:"),
        (AdmitsTheCancelled, "invariant 2:"),
        (PromisesEverything, "invariant 4:"),
        (TakesFromThePromised, "invariant 4:"),
        (TakesFromThePromised, "never ended"),
        (CountsInSecret, "invariant 8:"),
        (WritesForOthers, "invariant 9:"),
        (PlacesAnySize, "invariant 10:"),
    ],
)
def test_a_broken_service_is_found_out_within_few_seeds(
    double: Callable[[], Decider[Any]], caught_as: str
) -> None:
    for seed in range(8):
        if any(caught_as in finding for finding in run_seed(seed, with_double(double)).findings):
            return
    pytest.fail(f"{double.__name__} got away with it")


def test_a_broken_run_ends_at_once() -> None:
    run = run_seed(1, with_double(IgnoresWhoHolds))
    assert 0 < len(run.findings) < 20
    assert run.records < run_of(1).records


# --- the command line ----------------------------------------------------------------------


def test_one_seed_is_run_and_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.main(["--seed", "5"]) == 0
    said = capsys.readouterr().out
    assert f"1 seeds, {run_of(5).records} records" in said
    assert "service killed" in said
    assert "1 passed, 0 failed" in said


def test_a_failed_seed_is_named_with_how_to_reproduce_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        faults, "run_seed", lambda seed: FaultRun(seed, findings=["it broke"] * (seed == 1))
    )
    assert faults.main(["--seeds", "3"]) == 1
    said = capsys.readouterr().out
    assert "seed 1: it broke" in said
    assert "make sim SEED=1" in said
    assert "2 passed, 1 failed" in said


def test_a_seed_that_stops_with_an_error_is_named_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(seed: int) -> FaultRun:
        raise KeyError("oops")

    monkeypatch.setattr(faults, "run_seed", stops)
    with pytest.raises(KeyError):
        faults.main(["--seed", "7"])
    assert "make sim SEED=7" in capsys.readouterr().out
