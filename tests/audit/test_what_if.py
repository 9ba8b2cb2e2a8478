"""What if: the commands of a log, run again as they were or under other circumstances."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.events import add_server, submit
from tests.support.log import a_cell
from tests.support.runs import KINDS, physics_of, recorded, run, scenario, written

from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import CellConfiguration, Curve, StopCost, VirtualCluster
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import TimedCommand
from resilin.simulation.what_if import Circumstances, recorded_commands, under

SAME = Circumstances()


def all_kinds_of_commands() -> list[TimedCommand]:
    """A run's commands, and one of every other kind somewhere between them."""
    commands = scenario(2)
    first = next(timed for timed in commands if isinstance(timed.command, cmd.SubmitJob))
    assert isinstance(first.command, cmd.SubmitJob)
    job_id, at = first.command.job_id, first.at_seconds
    curve = Curve(model="other", global_batch=8, iterations_per_second={1: 0.5})
    settings = CellConfiguration(virtual_clusters=(VirtualCluster(reserve_servers=1),))
    others: list[tuple[float, cmd.Command]] = [
        (at + 10, cmd.ChangeDeadline(command_id="move", job_id=job_id, deadline_seconds=at + 9e4)),
        (at + 20, add_server("late", 4)),
        (at + 30, cmd.CordonServer(command_id="cordon", server_id="late")),
        (at + 40, cmd.CordonServer(command_id="again", server_id="late", cordoned=False)),
        (at + 50, cmd.ImportCurves(command_id="more", curves=(curve,), curve_source="profiled")),
        (at + 60, cmd.RemoveServer(command_id="remove", server_id="late")),
        (at + 70, cmd.ConfigureCell(command_id="reserve", configuration=settings)),
        (at + 80, cmd.CancelJob(command_id="cancel", job_id=job_id)),
    ]
    added = [TimedCommand(moment, command) for moment, command in others]
    return sorted([*commands, *added], key=lambda timed: timed.at_seconds)


# --- the commands of a log -----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_run_again_as_they_were_the_commands_give_the_same_log(kind: str) -> None:
    entries = recorded(kind, 2)
    commands = list(recorded_commands(entries))
    assert written(run(commands, physics_of(kind, 2))) == written(entries)


def test_commands_of_every_kind_come_back_as_they_were_sent() -> None:
    commands = all_kinds_of_commands()
    assert {type(timed.command) for timed in commands} == set(cmd.COMMAND_TYPES)
    entries = run(commands, Physics())
    again = list(recorded_commands(entries))
    assert again == commands
    assert written(run(again, Physics())) == written(entries)


def test_a_command_that_was_rejected_is_not_sent_again() -> None:
    commands = scenario(2)
    at = commands[-1].at_seconds
    refused = TimedCommand(at, cmd.CancelJob(command_id="nobody", job_id="nobody"))
    entries = run([*commands, refused], Physics())
    assert list(recorded_commands(entries)) == commands


def test_what_does_not_count_is_not_sent_again() -> None:
    entries = list(recorded())
    doubled = [*entries, LogEntry(len(entries), entries[-1].record)]
    submission = next(e for e in entries if isinstance(e.record.events[0], ev.JobSubmitted))
    doubled.append(LogEntry(len(doubled), submission.record))
    assert list(recorded_commands(doubled)) == list(recorded_commands(entries))


def test_a_hand_made_log_gives_the_times_at_which_commands_were_taken() -> None:
    log = a_cell()
    commands = list(recorded_commands(log.entries))
    assert [type(timed.command) for timed in commands] == [
        cmd.ConfigureCell,
        cmd.ImportCurves,
        cmd.AddServer,
    ]


# --- other circumstances -------------------------------------------------------------------


def changed(circumstances: Circumstances) -> list[TimedCommand]:
    return list(under(circumstances, scenario(1)))


def settings_of(commands: Sequence[TimedCommand]) -> CellConfiguration:
    (found,) = [
        timed.command.configuration
        for timed in commands
        if isinstance(timed.command, cmd.ConfigureCell)
    ]
    return found


def test_under_the_same_circumstances_nothing_changes() -> None:
    commands = all_kinds_of_commands()
    assert list(under(SAME, commands)) == commands


def test_another_policy() -> None:
    commands = changed(Circumstances(policy="fifo"))
    (cluster,) = settings_of(commands).virtual_clusters
    assert cluster.policy == "fifo"
    entries = run(commands, Physics())
    assert not [
        event
        for entry in entries
        for event in entry.record.events
        if isinstance(event, ev.JobAdmitted) and event.promised
    ]


def test_only_training_clusters_change_their_policy_and_reserve() -> None:
    serving = VirtualCluster(name="serving", kind="inference", reserve_servers=3)
    settings = CellConfiguration(virtual_clusters=(VirtualCluster(), serving))
    sent = [TimedCommand(0.0, cmd.ConfigureCell(command_id="c", configuration=settings))]
    (timed,) = under(Circumstances(policy="edf", reserve_servers=2), sent)
    training, inference = settings_of([timed]).virtual_clusters
    assert (training.policy, training.reserve_servers) == ("edf", 2)
    assert inference == serving


def test_another_stop_cost() -> None:
    commands = changed(Circumstances(stop_cost=StopCost.modelled()))
    assert settings_of(commands).stop_cost == StopCost.modelled()
    assert settings_of(commands).virtual_clusters == settings_of(scenario(1)).virtual_clusters


@pytest.mark.parametrize(
    ("circumstances", "servers", "gpus"),
    [
        (Circumstances(servers=2), 2, 4),
        (Circumstances(servers=9), 9, 4),
        (Circumstances(gpus_per_server=8), 4, 8),
        (Circumstances(servers=1, gpus_per_server=16), 1, 16),
    ],
)
def test_another_cluster(circumstances: Circumstances, servers: int, gpus: int) -> None:
    commands = changed(circumstances)
    added = [timed.command.server for timed in commands if isinstance(timed.command, cmd.AddServer)]
    assert [server.gpus for server in added] == [gpus] * servers
    assert len({timed.command.command_id for timed in commands}) == len(commands)
    assert run(commands, Physics())


def test_other_servers_come_first_and_stay() -> None:
    commands = list(under(Circumstances(servers=3), all_kinds_of_commands()))
    about = [
        timed
        for timed in commands
        if isinstance(timed.command, cmd.AddServer | cmd.RemoveServer | cmd.CordonServer)
    ]
    assert [type(timed.command) for timed in about] == [cmd.AddServer] * 3
    assert {timed.at_seconds for timed in about} == {commands[0].at_seconds}


def test_servers_of_different_sizes_need_a_size() -> None:
    sent = [TimedCommand(0.0, add_server("s1", 4)), TimedCommand(0.0, add_server("s2", 8))]
    with pytest.raises(ValueError, match="GPUs per server"):
        list(under(Circumstances(servers=3), sent))
    commands = list(under(Circumstances(servers=3, gpus_per_server=8), sent))
    assert len(commands) == 3


def test_servers_of_several_virtual_clusters_cannot_be_replaced() -> None:
    sent = [TimedCommand(0.0, add_server("s1", 4, "other"))]
    with pytest.raises(ValueError, match="several virtual clusters"):
        list(under(Circumstances(servers=3), sent))


def test_jobs_stay_as_they_were_submitted() -> None:
    sent = [TimedCommand(5.0, submit("a", within_seconds=60.0))]
    assert list(under(Circumstances(policy="edf"), sent)) == sent
