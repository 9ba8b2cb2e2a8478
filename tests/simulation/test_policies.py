"""Every policy on one small cell: the figures it comes to, pinned, and a log that is sound.

A change of these figures is a change of what a policy decides. If it is meant, pin the new
ones, and say why in the changelog.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import pytest
from tests.support.runs import physics_of, run, scenario

from resilin.audit.verify import verify
from resilin.contracts import events as ev
from resilin.contracts.commands import ConfigureCell, SubmitJob
from resilin.contracts.record import LogEntry
from resilin.contracts.values import StopCost
from resilin.planning.policies.registry import POLICIES
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import TimedCommand, deciders

JOBS, SEED = 24, 1
# Made up: every model's gradient is 60 times as noisy in the end.
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


PINNED = {
    "chronus": Figures(9, 0, 17338.961),
    "edf": Figures(12, 0, 26484.783),
    "edf+admission": Figures(12, 8, 20885.308),
    "edf+elastic": Figures(19, 0, 15337.529),
    "edf-uncapped": Figures(12, 0, 33863.017),
    "elastic-tiresias": Figures(10, 0, 12803.151),
    "elasticflow": Figures(19, 1, 12827.583),
    "fifo": Figures(8, 0, 17309.341),
    "gandiva": Figures(7, 0, 21031.311),
    "optimus": Figures(8, 0, 13444.028),
    "pollux": Figures(15, 0, 10379.282),
    "sjf": Figures(8, 0, 17470.192),
    "themis": Figures(6, 0, 17054.128),
    "tiresias": Figures(8, 0, 17334.6),
    "tiresias-gittins": Figures(6, 0, 17898.489),
}


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
def test_every_decision_can_be_recomputed_and_no_invariant_is_broken(policy: str) -> None:
    findings = verify(log_of(policy), deciders())
    assert findings.sound, findings


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("kind", ["failures", "noise"])
def test_lost_nodes_and_wrong_curves_leave_every_log_sound(policy: str, kind: str) -> None:
    physics = physics_of(kind, 2)
    log = run(scenario(2, jobs=10, policy=policy, stop_cost=physics.stop_cost), physics)
    findings = verify(log, deciders())
    assert findings.sound, findings
