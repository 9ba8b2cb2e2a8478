"""Profiles in the simulated world: it knows what a job would do, and the cell has to ask."""

from __future__ import annotations

from tests.support.events import BATCH, LINEAR, add_server, submit

from resilin.audit.verify import verify
from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.job_specification import WorkerSpecification
from resilin.contracts.values import Curve
from resilin.eventlog.memory import MemoryLog
from resilin.simulation.cluster import PROFILE_SECONDS, Physics
from resilin.simulation.simulation import Simulation, TimedCommand, deciders
from resilin.simulation.what_if import profiled_curves, recorded_commands

CODE = WorkerSpecification(entrypoint="train.py:Job")
UNKNOWN = Curve(model="new", global_batch=BATCH, iterations_per_second=dict(LINEAR))


def commands(*more: TimedCommand) -> list[TimedCommand]:
    jobs = [
        submit("a", model="new", worker=CODE, within_seconds=200.0),
        submit("b", model="new", worker=CODE),
    ]
    return [TimedCommand(0.0, command) for command in (add_server("s1", 4), *jobs)] + list(more)


def simulated(timed: list[TimedCommand], *curves: Curve) -> MemoryLog:
    log = MemoryLog()
    Simulation(log, timed, Physics(), unknown_curves=curves).run()
    return log


def events(log: MemoryLog, *kinds: type[ev.Event]) -> list[tuple[float, ev.Event]]:
    return [
        (entry.record.timestamp, event)
        for entry in log.read()
        for event in entry.record.events
        if isinstance(event, kinds)
    ]


def test_jobs_are_tried_out_once_answered_and_done_and_the_log_verifies() -> None:
    log = simulated(commands(), UNKNOWN)
    ((asked_at, asked),) = events(log, ev.ProfileRequested)
    ((told_at, told),) = events(log, ev.CurveProfiled)
    assert (asked_at, told_at) == (0.0, PROFILE_SECONDS)
    assert isinstance(asked, ev.ProfileRequested)
    assert isinstance(told, ev.CurveProfiled)
    assert (asked.job_id, told.job_id, told.curve) == ("a", "a", UNKNOWN)
    assert [moment for moment, _ in events(log, ev.JobAdmitted)] == [PROFILE_SECONDS] * 2
    assert len(events(log, ev.JobCompleted)) == 2
    assert verify(log.read(), deciders()).sound


def test_a_world_that_does_not_know_either_has_the_jobs_refused() -> None:
    log = simulated(commands())
    answers = [answer for _, answer in events(log, ev.JobRejected)]
    assert [getattr(answer, "reason", None) for answer in answers] == ["ProfileFailed"] * 2
    assert [moment for moment, _ in events(log, ev.ProfileRequested)] == [0.0, PROFILE_SECONDS]
    assert verify(log.read(), deciders()).sound


def test_a_cancelled_profile_comes_too_late() -> None:
    cancel = TimedCommand(10.0, cmd.CancelJob(command_id="cancel", job_id="a"))
    log = simulated(commands(cancel), UNKNOWN)
    requests = [
        (moment, getattr(e, "job_id", "")) for moment, e in events(log, ev.ProfileRequested)
    ]
    assert requests == [(0.0, "a"), (10.0, "b")]
    ((moment, told),) = events(log, ev.CurveProfiled)
    assert (moment, getattr(told, "job_id", "")) == (10.0 + PROFILE_SECONDS, "b")
    assert verify(log.read(), deciders()).sound


def test_what_was_profiled_is_true_in_other_circumstances_too() -> None:
    log = simulated(commands(), UNKNOWN)
    assert profiled_curves(log.read()) == [UNKNOWN]
    again = simulated(list(recorded_commands(log.read())), *profiled_curves(log.read()))
    assert [entry.record for entry in again.read()] == [entry.record for entry in log.read()]
