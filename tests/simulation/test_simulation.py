"""The simulation: the production cores under a virtual clock, the same log every time."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.runs import KINDS, physics_of, recorded, run, scenario, written

from resilin.audit.replay import fold_log
from resilin.audit.verify import verify
from resilin.contracts import events as ev
from resilin.contracts.commands import CancelJob, SubmitJob
from resilin.contracts.record import LogEntry
from resilin.contracts.values import StopCost
from resilin.eventlog.memory import MemoryLog
from resilin.eventlog.sqlite import SqliteLog
from resilin.kernel.snapshot import dump, load, state_hash
from resilin.simulation.cluster import Physics, SimulatedCluster
from resilin.simulation.scenario import (
    Cluster,
    configuration,
    opening_commands,
    submissions,
)
from resilin.simulation.simulation import Simulation, TimedCommand, deciders
from resilin.workloads import built_in_curves, generate_trace

SEEDS = range(1, 5)


def events_of(entries: Sequence[LogEntry]) -> list[tuple[float, ev.Event]]:
    return [
        (entry.record.timestamp, event)
        for entry in entries
        for event in entry.record.events
        if isinstance(event, ev.Event)
    ]


# --- the same log every time ---------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_gives_the_same_bytes(kind: str) -> None:
    physics = physics_of(kind)
    commands = scenario(1, stop_cost=physics.stop_cost)
    assert written(run(commands, physics)) == written(run(commands, physics))


def test_another_seed_gives_another_log() -> None:
    noise = [physics_of("noise", seed) for seed in (1, 2)]
    commands = scenario(1)
    assert written(run(commands, noise[0])) != written(run(commands, noise[1]))


_DIGEST = """
import hashlib
from tests.support.runs import recorded, written
for kind in ("noise", "failures"):
    print(hashlib.sha256(b"".join(written(recorded(kind, 4)))).hexdigest())
"""


def test_hash_seeds_make_no_difference() -> None:
    root = Path(__file__).parents[2]
    digests = {
        subprocess.run(  # noqa: S603 (this interpreter, a script of this file)
            [sys.executable, "-c", _DIGEST],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop().split()) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_on_disk_holds_the_same_records_as_one_in_memory(kind: str, tmp_path: Path) -> None:
    physics = physics_of(kind, 2)
    commands = scenario(2, stop_cost=physics.stop_cost)
    in_memory = run(commands, physics)
    with SqliteLog(tmp_path / "log.resilin", durable=False) as log:
        on_disk = run(commands, physics, log)
    assert on_disk == in_memory
    with SqliteLog(tmp_path / "log.resilin", read_only=True) as log:
        assert written(tuple(log.read())) == written(in_memory)


# --- what every run keeps ------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_log_is_sound(kind: str, seed: int) -> None:
    found = verify(recorded(kind, seed), deciders())
    assert (found.violations, found.mismatches) == ([], [])
    assert found.decisions > 20


@pytest.mark.parametrize("policy", ["edf", "fifo"])
def test_every_policys_log_is_sound_and_ends(policy: str) -> None:
    for stop_cost in (StopCost(), StopCost.modelled()):
        entries = run(scenario(3, policy=policy, stop_cost=stop_cost), Physics(stop_cost=stop_cost))
        assert verify(entries, deciders()).sound
        completed = [event for _, event in events_of(entries) if isinstance(event, ev.JobCompleted)]
        assert len(completed) == 14


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_job_ends_once(kind: str, seed: int) -> None:
    asked: list[str] = []
    ended: list[str] = []
    for _, event in events_of(recorded(kind, seed)):
        match event:
            case ev.JobSubmitted():
                asked.append(event.job_id)
            case ev.JobRejected() | ev.JobCancelled() | ev.JobCompleted() | ev.JobFailed():
                ended.append(event.job_id)
    assert len(asked) == 14
    assert sorted(ended) == sorted(asked)


def late_promises(entries: Sequence[LogEntry]) -> dict[str, float]:
    """When each promised job that was late completed."""
    deadlines: dict[str, float] = {}
    promised: set[str] = set()
    late = {}
    for moment, event in events_of(entries):
        match event:
            case ev.JobSubmitted(deadline_seconds=float(deadline)):
                deadlines[event.job_id] = deadline
            case ev.JobAdmitted(promised=True):
                promised.add(event.job_id)
            case ev.JobCompleted() if event.job_id in promised:
                if moment > deadlines[event.job_id] + 1e-3:
                    late[event.job_id] = moment
    assert promised
    return late


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("kind", ["free stops", "costly stops", "failures"])
def test_promises_are_kept(kind: str, seed: int) -> None:
    """Also with failures within the reserve: a margin covers what a lost worker had not saved."""
    assert late_promises(recorded(kind, seed)) == {}


@pytest.mark.parametrize("seed", [6, 7, 10])
def test_promises_are_kept_in_a_full_cell_with_long_stops(seed: int) -> None:
    """Jobs run ahead of their plans on spare GPUs, others are planned into what they leave."""
    cluster, cost = Cluster(4, 8), StopCost(fixed_seconds=30, per_doubling_seconds=5)
    curves = built_in_curves(most_workers=cluster.gpus, gpus_per_server=8)
    trace = generate_trace(
        jobs=60, seed=seed, curves=curves, mean_interarrival_seconds=300.0, cluster_gpus=32
    )
    opening = opening_commands(
        trace.jobs[0].submitted_at_seconds, cluster, configuration("elasticflow", cost), curves
    )
    entries = run([*opening, *submissions(trace.jobs)], Physics(stop_cost=cost))
    assert late_promises(entries) == {}


@pytest.mark.parametrize("seed", range(1, 9))
def test_with_noise_a_promise_is_late_only_after_something_was_slower_than_believed(
    seed: int,
) -> None:
    entries = recorded("noise", seed)
    first_slower = math.inf
    for moment, event in events_of(entries):
        if isinstance(event, ev.ThroughputMeasured):
            first_slower = min(first_slower, moment)
    assert all(moment > first_slower for moment in late_promises(entries).values())


def test_failures_did_happen() -> None:
    losses = [
        event
        for seed in range(1, 9)
        for _, event in events_of(recorded("failures", seed))
        if isinstance(event, ev.WorkerLost)
    ]
    assert len(losses) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_simulated_world_no_gpu_ever_has_workers_of_two_jobs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = 0
    carry_out = SimulatedCluster.carry_out

    def watched(self: SimulatedCluster, *arguments: object) -> None:
        nonlocal checked
        carry_out(self, *arguments)  # type: ignore[arg-type]  # passed on
        checked += 1
        busy = [
            (server, index)
            for workers in self._jobs.values()
            for server, indexes in workers.gpus.items()
            for index in indexes
        ]
        assert len(busy) == len(set(busy))

    monkeypatch.setattr(SimulatedCluster, "carry_out", watched)
    physics = physics_of(kind, 4)
    run(scenario(4, stop_cost=physics.stop_cost), physics)
    assert checked > 20


# --- folding -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decider", deciders(), ids=lambda decider: decider.service)
def test_folding_on_from_a_snapshot_gives_the_same_state(kind: str, decider: object) -> None:
    entries = recorded(kind, 2)
    core = next(one for one in deciders() if one.service == decider.service)  # type: ignore[attr-defined]  # a decider
    whole = state_hash(fold_log(entries, core).state, core.state_type)
    chance = random.Random(f"snapshots/{kind}/{core.service}")
    for offset in [0, *chance.sample(range(len(entries)), 4), len(entries) - 1]:
        payload = dump(fold_log(entries, core, through_offset=offset), core.state_type)
        folded = load(payload, core.state_type)
        assert folded.offset == offset
        assert dump(folded, core.state_type) == payload
        on = fold_log(entries[offset + 1 :], core, folded=folded)
        assert state_hash(on.state, core.state_type) == whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decider", deciders(), ids=lambda decider: decider.service)
def test_at_every_offset_a_core_decides_without_an_error_or_a_change(
    kind: str, decider: object
) -> None:
    core = next(one for one in deciders() if one.service == decider.service)  # type: ignore[attr-defined]  # a decider
    state = core.initial_state()
    for position, entry in enumerate(recorded(kind, 3)):
        for event in entry.record.events:
            state = core.evolve(state, event, entry)
        looked_at = position % 7 == 0
        before = state_hash(state, core.state_type) if looked_at else ""
        first, second = core.decide(state), core.decide(state)
        assert list(first) == list(second)
        core.next_timer(state)
        if looked_at:
            assert state_hash(state, core.state_type) == before


# --- the loop ------------------------------------------------------------------------------


def test_without_commands_nothing_but_the_claims_happens() -> None:
    entries = run([], Physics())
    assert [entry.record.nature for entry in entries] == ["claim"] * 7


def test_it_stops_at_the_time_given_and_goes_on_from_there() -> None:
    commands = scenario(1)
    whole = run(commands, Physics())
    log = MemoryLog()
    simulation = Simulation(log, commands, Physics())
    half = whole[len(whole) // 2].record.timestamp
    simulation.run(until_seconds=half)
    so_far = tuple(log.read())
    assert so_far == whole[: len(so_far)]
    assert len(so_far) < len(whole)
    assert so_far[-1].record.timestamp <= half
    simulation.run()
    assert tuple(log.read()) == whole


def test_everybody_sees_every_entry_in_order() -> None:
    seen: list[LogEntry] = []
    log = MemoryLog()
    Simulation(log, scenario(1), Physics(), observe=seen.append).run()
    # The claims are appended while the simulation is built.
    assert seen == list(log.read())


def test_commands_of_one_moment_cost_one_decision() -> None:
    commands = [
        TimedCommand(0.0, timed.command) if isinstance(timed.command, SubmitJob) else timed
        for timed in scenario(1)
    ]
    start = commands[0].at_seconds
    burst = [TimedCommand(start, timed.command) for timed in commands]
    entries = run(burst, Physics())
    answers = [
        entry.record.events
        for entry in entries
        if entry.record.service == "admission" and entry.record.nature == "decision"
    ]
    assert [len(answer) for answer in answers] == [14]


def test_a_plans_next_step_is_a_timer_that_fires_on_time() -> None:
    ticks = [
        (moment, event)
        for seed in range(1, 9)
        for moment, event in events_of(recorded("costly stops", seed))
        if isinstance(event, ev.ClockTicked)
    ]
    assert ticks
    assert all(moment == event.due_seconds for moment, event in ticks)


def test_time_never_runs_backwards() -> None:
    for kind in KINDS:
        moments = [entry.record.timestamp for entry in recorded(kind)]
        assert moments == sorted(moments)


def test_every_command_is_taken_once_and_in_order() -> None:
    commands = scenario(1)
    facts = [event for _, event in events_of(recorded()) if isinstance(event, ev.FactFromCommand)]
    assert [fact.source.offset for fact in facts] == list(range(len(commands)))
    assert [fact.command_id for fact in facts] == [timed.command.command_id for timed in commands]


def test_a_cancelled_job_stops_and_gives_its_gpus_back() -> None:
    commands = scenario(1)
    first = next(timed for timed in commands if isinstance(timed.command, SubmitJob))
    assert isinstance(first.command, SubmitJob)
    job_id, when = first.command.job_id, first.at_seconds + 30.0
    cancel = TimedCommand(when, CancelJob(command_id="cancel", job_id=job_id))
    commands = sorted([*commands, cancel], key=lambda timed: timed.at_seconds)
    mine = [
        (moment, event)
        for moment, event in events_of(run(commands, Physics()))
        if getattr(event, "job_id", None) == job_id
    ]
    (cancelled,) = [moment for moment, event in mine if isinstance(event, ev.JobCancelled)]
    assert cancelled == when
    moment, last = mine[-1]
    assert (moment, type(last)) == (when, ev.WorkersReleased)


def test_a_restarted_service_changes_nothing_but_its_claim() -> None:
    commands = scenario(1)
    log = MemoryLog()
    simulation = Simulation(log, commands, Physics())
    half = commands[-1].at_seconds
    simulation.run(until_seconds=half)
    for service in list(simulation.instances):
        leader = simulation.leader(service)
        assert leader is not None
        simulation.kill(leader)
        simulation.start(service)
    simulation.run()
    happened = [event for _, event in events_of(tuple(log.read()))]
    undisturbed = [event for _, event in events_of(recorded())]
    assert [event for event in happened if event.nature != "kernel"] == [
        event for event in undisturbed if event.nature != "kernel"
    ]
    assert verify(log.read(), deciders()).sound
