"""Every policy on one small cell: the figures it comes to, pinned, and a log that is sound.

A change of these figures is a change of what a policy decides. If it is meant, pin the new
ones, and say why in the changelog.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import pytest
from tests.support.runs import run, scenario

from resilin.audit.verify import verify
from resilin.cell.invariants import InvariantChecker
from resilin.contracts import events as ev
from resilin.contracts.commands import ConfigureCell, SubmitJob
from resilin.contracts.record import LogEntry
from resilin.contracts.values import StopCost
from resilin.planning.policies.registry import POLICIES
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import TimedCommand, deciders

JOBS, SEED = 24, 3
NOISE = {
    model: tuple((part / 8, 30.0 * 4.0 ** (part / 2)) for part in range(8))
    for model in ("bert", "resnet50", "vgg16", "inception3", "deepspeech2", "gpt2")
}


@dataclass(frozen=True)
class Figures:
    """What a run came to."""

    met: int
    refused: int
    mean_completion_seconds: float


PINNED: dict[str, Figures] = {}


def commands_of(policy: str) -> list[TimedCommand]:
    if policy == "chronus":
        pytest.importorskip("scipy")
    commands = scenario(SEED, jobs=JOBS, policy=policy, stop_cost=StopCost.modelled())
    assert any(isinstance(timed.command, ConfigureCell) for timed in commands)
    return commands


@cache
def log_of(policy: str) -> tuple[LogEntry, ...]:
    physics = Physics(stop_cost=StopCost.modelled(), gradient_noise=NOISE)
    return run(commands_of(policy), physics)


def figures_of(policy: str) -> Figures:
    submitted: dict[str, ev.JobSubmitted] = {}
    met = refused = 0
    seconds: list[float] = []
    for entry in log_of(policy):
        for event in entry.record.events:
            match event:
                case ev.JobSubmitted():
                    submitted[event.job_id] = event
                case ev.JobRejected():
                    refused += 1
                case ev.JobCompleted():
                    asked = submitted[event.job_id]
                    done = entry.record.timestamp
                    seconds.append(done - asked.submitted_at_seconds)
                    met += done <= (asked.deadline_seconds or -math.inf)
    return Figures(met, refused, round(sum(seconds) / len(seconds), 3))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_figures_are_as_pinned(policy: str) -> None:
    assert figures_of(policy) == PINNED[policy]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_job_has_an_outcome(policy: str) -> None:
    submissions = sum(isinstance(t.command, SubmitJob) for t in commands_of(policy))
    outcomes = sum(
        isinstance(event, ev.JobCompleted | ev.JobRejected)
        for entry in log_of(policy)
        for event in entry.record.events
    )
    assert outcomes == submissions == JOBS


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_invariant_is_broken(policy: str) -> None:
    checker = InvariantChecker()
    assert [found for entry in log_of(policy) for found in checker.fold(entry)] == []


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_decision_can_be_recomputed(policy: str) -> None:
    findings = verify(log_of(policy), deciders())
    assert findings.sound, findings
