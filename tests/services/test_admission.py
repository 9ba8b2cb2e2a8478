"""Admission: facts from commands, each once; answers in order, each a promise kept or an offer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.events import (
    add_server,
    admitted,
    cancellation_asked,
    completed,
    cordoned,
    deadline_asked,
    job,
    joined,
    lost,
    placed,
    planned,
    rejected,
    released,
    server_added,
    server_removed,
    submit,
    submitted,
    switched,
)
from tests.support.log import HandMadeLog, a_cell, decided, folded

from resilin.admission.decider import AdmissionDecider
from resilin.admission.intake import ReceivedCommand
from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.events import RejectionReason
from resilin.contracts.job_specification import DeadlinePolicy
from resilin.contracts.values import (
    CellConfiguration,
    Curve,
    Quota,
    SourcePosition,
    StopCost,
    VirtualCluster,
)

ADMISSION = AdmissionDecider()


def taken(
    log: HandMadeLog,
    command: cmd.Command,
    *,
    offset: int = 100,
    at: float = 0.0,
    topic: str = "jobs.commands",
) -> list[ev.Event]:
    """What admission adds to a log for a command, and adds it."""
    received = ReceivedCommand(command, SourcePosition(topic=topic, offset=offset), at)
    facts = list(ADMISSION.accept(folded(log, ADMISSION), received))
    if facts:
        log.at(at).add(*facts)
    return facts


def answered(log: HandMadeLog) -> list[ev.Event]:
    """What admission answers at the end of a log, and adds it."""
    answers = decided(log, ADMISSION)
    if answers:
        log.add(*answers)
    return answers


def verdict(log: HandMadeLog) -> ev.Event:
    (answer,) = answered(log)
    return answer


# --- taking commands in --------------------------------------------------------------------


def test_every_kind_of_command_becomes_its_fact() -> None:
    log = a_cell(servers=1).given(submitted("live", offset=0), admitted("live"))
    settings_ = CellConfiguration(promise_margin_seconds=7.0)
    curve = Curve(model="other", global_batch=8, iterations_per_second={1: 0.5})
    commands: list[tuple[cmd.Command, type[ev.Event]]] = [
        (submit("a"), ev.JobSubmitted),
        (cmd.CancelJob(command_id="c", job_id="live"), ev.CancellationRequested),
        (
            cmd.ChangeDeadline(command_id="d", job_id="live", deadline_seconds=9.0),
            ev.DeadlineChangeRequested,
        ),
        (add_server("s2"), ev.ServerAdded),
        (cmd.CordonServer(command_id="k", server_id="s1"), ev.ServerCordoned),
        (cmd.RemoveServer(command_id="r", server_id="s1"), ev.ServerRemoved),
        (cmd.ConfigureCell(command_id="s", configuration=settings_), ev.CellConfigured),
        (cmd.ImportCurves(command_id="i", curves=(curve,)), ev.CurvesImported),
    ]
    assert {type(command) for command, _ in commands} == set(cmd.COMMAND_TYPES)
    for offset, (command, expected) in enumerate(commands, start=100):
        (fact,) = taken(log, command, offset=offset)
        assert type(fact) is expected
        assert isinstance(fact, ev.FactFromCommand)
        assert (fact.source.offset, fact.command_id) == (offset, command.command_id)


def test_a_deadline_counts_from_when_the_command_was_received() -> None:
    (fact,) = taken(a_cell(), submit("a", within_seconds=60.0), at=1000.0)
    assert isinstance(fact, ev.JobSubmitted)
    assert (fact.submitted_at_seconds, fact.deadline_seconds) == (1000.0, 1060.0)


def test_the_same_source_offset_is_taken_once() -> None:
    log = a_cell()
    assert taken(log, submit("a"), offset=5)
    assert taken(log, submit("a"), offset=5) == []
    assert taken(log, submit("b"), offset=4) == []
    assert len(taken(log, submit("b"), offset=6)) == 1


def test_another_topic_has_offsets_of_its_own() -> None:
    log = a_cell()
    taken(log, submit("a"), offset=5)
    (fact,) = taken(log, submit("b"), offset=0, topic="jobs.commands.other")
    assert isinstance(fact, ev.JobSubmitted)


REPEATS = [
    pytest.param(submit("b", command_id="submit-a"), "submit-a", id="command id"),
    pytest.param(submit("a", command_id="new"), "job a", id="job id"),
    pytest.param(
        submit("b", command_id="new", submission_id="once"), "submission once", id="submission id"
    ),
]


@pytest.mark.parametrize(("repeat", "names"), REPEATS)
@pytest.mark.parametrize("ended", [False, True])
def test_a_repeat_is_recorded_as_rejected(repeat: cmd.SubmitJob, names: str, ended: bool) -> None:
    log = a_cell()
    taken(log, submit("a", submission_id="once"))
    answered(log)
    if ended:
        log.given(completed("a", 1))
    (fact,) = taken(log, repeat, offset=101)
    assert isinstance(fact, ev.CommandRejected)
    assert names in fact.message
    assert decided(log, ADMISSION) == []


def test_a_repeat_of_a_rejected_command_is_one_too() -> None:
    log = a_cell()
    cancel = cmd.CancelJob(command_id="c", job_id="nobody")
    assert isinstance(taken(log, cancel, offset=100)[0], ev.CommandRejected)
    assert isinstance(taken(log, cancel, offset=101)[0], ev.CommandRejected)


CANNOT_APPLY: list[cmd.Command] = [
    cmd.CancelJob(command_id="x", job_id="nobody"),
    cmd.ChangeDeadline(command_id="x", job_id="nobody", deadline_seconds=1.0),
    cmd.CancelJob(command_id="x", job_id="over"),
    cmd.ChangeDeadline(command_id="x", job_id="over", deadline_seconds=1.0),
    add_server("s1"),
    cmd.RemoveServer(command_id="x", server_id="s9"),
    cmd.CordonServer(command_id="x", server_id="s9"),
    cmd.RemoveServer(command_id="x", server_id="gone"),
    cmd.CordonServer(command_id="x", server_id="gone"),
    add_server("gone", gpus=99),
    cmd.ConfigureCell(
        command_id="x",
        configuration=CellConfiguration(virtual_clusters=(VirtualCluster(policy="unheard-of"),)),
    ),
]


@pytest.mark.parametrize("command", CANNOT_APPLY, ids=lambda c: f"{c.type}")
def test_a_command_that_cannot_apply_leaves_a_trace_and_says_why(command: cmd.Command) -> None:
    log = a_cell().given(submitted("over"), rejected("over"))
    log.given(server_added("gone"), server_removed("gone"))
    (fact,) = taken(log, command.model_copy(update={"command_id": "anew"}))
    assert isinstance(fact, ev.CommandRejected)
    assert len(fact.message) > 20


def test_a_job_that_ended_but_still_holds_gpus_cannot_be_cancelled() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), planned({"a": 1}))
    log.given(placed("a", 1, {"s1": (0,)}), completed("a", 1))
    (fact,) = taken(log, cmd.CancelJob(command_id="c", job_id="a"))
    assert isinstance(fact, ev.CommandRejected)


def test_a_removed_server_may_return_as_it_was() -> None:
    log = a_cell().given(server_removed("s1"))
    (fact,) = taken(log, cmd.AddServer(command_id="back", server=add_server("s1").server))
    assert isinstance(fact, ev.ServerAdded)
    assert folded(log, ADMISSION).cell.servers["s1"].usable


# --- answering submissions -----------------------------------------------------------------


def test_nothing_asked_nothing_answered() -> None:
    assert decided(a_cell(), ADMISSION) == []


def test_a_job_that_fits_is_promised_with_the_plan_that_keeps_the_promise() -> None:
    log = a_cell(gpus=4).at(10.0).given(submitted("a", at=10.0, deadline=70.0))
    # 100 iterations in 60 s: one worker makes 60, two make 100 in 50 s.
    assert verdict(log) == ev.JobAdmitted(
        job_id="a",
        promised=True,
        minimum_satisfactory_share=2,
        finish_seconds=60.0,
        plan=((10.0, 60.0, 2),),
    )


def test_best_effort_and_soft_jobs_are_admitted_without_a_promise() -> None:
    log = a_cell(servers=0).given(
        submitted("best-effort"),
        submitted("soft", deadline=1.0, policy=DeadlinePolicy.SOFT),
    )
    assert answered(log) == [
        ev.JobAdmitted(job_id="best-effort", promised=False),
        ev.JobAdmitted(job_id="soft", promised=False),
    ]


@pytest.mark.parametrize("policy", ["fifo", "edf"])
def test_policies_without_admission_control_promise_nothing(policy: str) -> None:
    log = a_cell(1, 4, VirtualCluster(policy=policy)).given(submitted("a", deadline=0.5))
    assert verdict(log) == ev.JobAdmitted(job_id="a", promised=False)


def test_an_unreachable_deadline_is_refused_with_the_earliest_one() -> None:
    log = a_cell(gpus=4).given(submitted("a", deadline=20.0))
    answer = verdict(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is RejectionReason.DEADLINE_UNREACHABLE
    assert answer.minimum_workers is None
    # Four workers need 25 s; the search ends within a second.
    assert answer.earliest_deadline_seconds is not None
    assert 25.0 <= answer.earliest_deadline_seconds <= 26.0


def test_promised_capacity_is_refused_and_names_who_holds_it() -> None:
    log = a_cell(gpus=4).given(submitted("first", deadline=25.0), submitted("second", deadline=26))
    promise, answer = answered(log)
    assert isinstance(promise, ev.JobAdmitted)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is RejectionReason.CAPACITY_PROMISED
    assert "first" in answer.message
    assert answer.minimum_workers == 4
    assert answer.earliest_deadline_seconds is not None
    assert 50.0 <= answer.earliest_deadline_seconds <= 51.0


def test_answers_come_in_order_and_one_refusal_does_not_refuse_its_neighbours() -> None:
    log = a_cell(gpus=4)
    for number, deadline in enumerate((25.0, 25.0, 50.0, None, 60.0, 1.0)):
        log.given(submitted(f"j{number}", deadline=deadline))
    answers = answered(log)
    assert [answer.job_id for answer in answers] == ["j0", "j1", "j2", "j3", "j4", "j5"]  # type: ignore[attr-defined]  # all have one
    assert [type(answer) for answer in answers] == [
        ev.JobAdmitted,
        ev.JobRejected,
        ev.JobAdmitted,
        ev.JobAdmitted,
        ev.JobRejected,
        ev.JobRejected,
    ]
    assert decided(log, ADMISSION) == []


def test_a_later_job_may_move_plans_that_keep_their_promises() -> None:
    # The first could wait, the second could not: its plan begins at once.
    log = a_cell(gpus=4).given(submitted("patient", deadline=50.0))
    first = verdict(log)
    assert isinstance(first, ev.JobAdmitted)
    assert first.plan == ((0.0, 50.0, 2),)
    log.given(submitted("urgent", deadline=25.0))
    second = verdict(log)
    assert isinstance(second, ev.JobAdmitted)
    assert second.plan == ((0.0, 25.0, 4),)
    assert second.plans_moved == {"patient": ((25.0, 50.0, 4),)}
    assert folded(log, ADMISSION).cell.jobs["patient"].plan == ((25.0, 50.0, 4),)


def test_plans_moved_in_a_burst_bind_the_answers_after_them() -> None:
    log = a_cell(gpus=4).given(
        submitted("patient", deadline=50.0),
        submitted("urgent", deadline=25.0),
        submitted("third", deadline=50.0),
    )
    *_, answer = answered(log)
    assert isinstance(answer, ev.JobRejected)
    assert "patient" in answer.message or "urgent" in answer.message


def test_the_margin_is_kept_before_every_deadline() -> None:
    log = a_cell(gpus=4, margin=10.0).given(submitted("a", deadline=34.9))
    answer = verdict(log)
    assert isinstance(answer, ev.JobRejected)
    log.given(submitted("b", deadline=35.0))
    assert isinstance(verdict(log), ev.JobAdmitted)


def test_stops_are_part_of_a_promise() -> None:
    free = a_cell(gpus=4).given(submitted("a", deadline=26.0))
    assert isinstance(verdict(free), ev.JobAdmitted)
    costly = a_cell(gpus=4, stop_cost=StopCost(fixed_seconds=2.0))
    costly.given(submitted("a", deadline=26.0))
    assert isinstance(verdict(costly), ev.JobRejected)


def test_the_reserve_is_not_promised() -> None:
    reserve = VirtualCluster(reserve_servers=1)
    log = a_cell(2, 4, reserve).given(submitted("a", deadline=13.0))
    assert isinstance(verdict(log), ev.JobRejected)
    log.given(submitted("b", deadline=25.0))
    assert isinstance(verdict(log), ev.JobAdmitted)


def test_an_unknown_virtual_cluster_is_refused() -> None:
    log = a_cell().given(submitted("a", virtual_cluster="elsewhere"))
    answer = verdict(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is RejectionReason.NO_SUCH_VIRTUAL_CLUSTER
    assert "elsewhere" in answer.message
    assert answer.earliest_deadline_seconds is None


def test_an_inference_cluster_takes_no_training() -> None:
    serving = VirtualCluster(name="serving", kind="inference")
    log = a_cell(1, 4, VirtualCluster(), serving).given(submitted("a", virtual_cluster="serving"))
    answer = verdict(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is RejectionReason.NO_SUCH_VIRTUAL_CLUSTER


@pytest.mark.parametrize(
    "unknown", [{"model": "unheard-of"}, {"sizes": (3, 5)}], ids=["model", "sizes"]
)
def test_an_unknown_curve_is_refused(unknown: dict[str, Any]) -> None:
    log = a_cell().given(submitted("a", deadline=1000.0, **unknown))
    answer = verdict(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is RejectionReason.CURVE_UNKNOWN


def test_virtual_clusters_do_not_promise_each_others_gpus() -> None:
    other = VirtualCluster(name="other")
    log = a_cell(1, 4, VirtualCluster(), other)
    log.given(server_added("t1", 2, "other"), joined("t1"))
    log.given(
        submitted("a", deadline=25.0),
        submitted("b", deadline=25.0, virtual_cluster="other"),
        submitted("c", deadline=50.0, virtual_cluster="other"),
    )
    assert [type(answer) for answer in answered(log)] == [
        ev.JobAdmitted,
        ev.JobRejected,
        ev.JobAdmitted,
    ]


def test_an_answered_job_is_not_answered_again_after_a_restart() -> None:
    log = a_cell().given(submitted("a", deadline=1000.0))
    answered(log)
    assert decided(log, AdmissionDecider()) == []


# --- counter-offers ------------------------------------------------------------------------


@given(
    deadlines=st.lists(st.floats(5.0, 400.0), min_size=1, max_size=6),
    asked=st.floats(1.0, 60.0),
    now=st.floats(0.0, 5.0),
    stop=st.sampled_from([0.0, 3.0]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_counter_offer_holds_if_it_is_asked_for_at_once(
    deadlines: list[float], asked: float, now: float, stop: float
) -> None:
    log = a_cell(gpus=4, margin=1.0, stop_cost=StopCost(fixed_seconds=stop)).at(now)
    for number, deadline in enumerate(deadlines):
        log.given(submitted(f"j{number}", at=now, deadline=now + deadline))
    answered(log)
    log.given(submitted("asks", at=now, deadline=now + asked, iterations=300))
    answer = verdict(log)
    if isinstance(answer, ev.JobAdmitted):
        return
    assert isinstance(answer, ev.JobRejected)
    offer = answer.earliest_deadline_seconds
    assert offer is not None
    assert offer > now + asked
    log.given(submitted("accepts", at=now, deadline=offer, iterations=300))
    promise = verdict(log)
    assert isinstance(promise, ev.JobAdmitted)
    assert promise.finish_seconds is not None
    assert promise.finish_seconds <= offer


def test_no_offer_where_the_smallest_size_never_fits() -> None:
    log = a_cell(gpus=4).given(submitted("a", deadline=1000.0, sizes=(8,)))
    answer = verdict(log)
    assert isinstance(answer, ev.JobRejected)
    assert answer.reason is RejectionReason.DEADLINE_UNREACHABLE
    assert answer.earliest_deadline_seconds is None


# --- quotas --------------------------------------------------------------------------------


def limited(**quota: Any) -> VirtualCluster:
    return VirtualCluster(quotas={"team": Quota(**quota)})


def reasons(answers: list[ev.Event]) -> list[str | None]:
    return [getattr(answer, "reason", None) for answer in answers]


def test_a_quota_of_live_jobs_holds_within_one_burst() -> None:
    log = a_cell(1, 4, limited(live_jobs=2))
    log.given(*(submitted(f"j{number}", tenant="team") for number in range(3)))
    log.given(submitted("guest", tenant="another"))
    assert reasons(answered(log)) == [None, None, RejectionReason.QUOTA_EXCEEDED, None]


def test_a_quota_of_live_jobs_counts_those_admitted_before() -> None:
    log = a_cell(1, 4, limited(live_jobs=1)).given(submitted("a", tenant="team"))
    assert reasons(answered(log)) == [None]
    log.given(submitted("b", tenant="team"))
    assert reasons(answered(log)) == [RejectionReason.QUOTA_EXCEEDED]
    log.given(completed("a", 1), submitted("c", tenant="team"))
    assert reasons(answered(log)) == [None]


def test_a_quota_of_gpu_time_holds_within_one_burst() -> None:
    log = a_cell(1, 4, limited(gpu_seconds=250.0))
    log.given(*(submitted(f"j{n}", deadline=1000.0, tenant="team") for n in range(3)))
    assert reasons(answered(log)) == [None, None, RejectionReason.QUOTA_EXCEEDED]


def test_gpu_time_that_is_over_does_not_count() -> None:
    log = a_cell(1, 4, limited(gpu_seconds=150.0)).given(
        submitted("a", deadline=1000.0, tenant="team")
    )
    assert reasons(answered(log)) == [None]
    log.at(60.0).given(submitted("b", at=60.0, deadline=1000.0, tenant="team"))
    assert reasons(answered(log)) == [None]


def test_a_job_cancelled_in_the_same_burst_gives_its_quota_back() -> None:
    log = a_cell(1, 4, limited(live_jobs=1)).given(submitted("a", tenant="team"))
    answered(log)
    log.given(submitted("b", tenant="team"), cancellation_asked("a"))
    assert answered(log) == [
        ev.JobCancelled(job_id="a"),
        ev.JobAdmitted(job_id="b", promised=False),
    ]


# --- cancellations -------------------------------------------------------------------------


def test_a_cancellation_gives_room_to_those_who_ask_in_the_same_burst() -> None:
    log = a_cell(gpus=4).given(submitted("a", deadline=25.0))
    answered(log)
    log.given(submitted("b", deadline=25.0), cancellation_asked("a"))
    cancelled, promise = answered(log)
    assert cancelled == ev.JobCancelled(job_id="a")
    assert isinstance(promise, ev.JobAdmitted)
    assert promise.promised


def test_a_job_cancelled_before_its_answer_is_only_cancelled() -> None:
    log = a_cell().given(submitted("a", deadline=1000.0), cancellation_asked("a"))
    assert answered(log) == [ev.JobCancelled(job_id="a")]
    assert decided(log, ADMISSION) == []


def test_a_cancellation_asked_twice_is_answered_once() -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    log.given(cancellation_asked("a"), cancellation_asked("a"))
    assert answered(log) == [ev.JobCancelled(job_id="a")]
    assert decided(log, ADMISSION) == []


def test_a_cancellation_that_the_jobs_end_overtook_is_not_answered() -> None:
    running = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0,)}))
    before = running.given(cancellation_asked("a"), completed("a", 1))
    assert decided(before, ADMISSION) == []
    # The end lies between the basis of the fact and the fact itself.
    late = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0,)}))
    late.given(completed("a", 1), cancellation_asked("a"))
    assert decided(late, ADMISSION) == []
    late.given(released("a", 1, {"s1": (0,)}), cancellation_asked("a"))
    assert decided(late, ADMISSION) == []


# --- deadlines that change -----------------------------------------------------------------


def promised_job(deadline: float, *, gpus: int = 4) -> HandMadeLog:
    log = a_cell(gpus=gpus).given(submitted("a", deadline=deadline))
    assert isinstance(verdict(log), ev.JobAdmitted)
    return log


def test_an_earlier_deadline_is_granted_with_a_new_plan_if_it_can_be_kept() -> None:
    log = promised_job(100.0).given(deadline_asked("a", 30.0))
    assert answered(log) == [
        ev.DeadlineChanged(job_id="a", deadline_seconds=30.0, plan=((0.0, 25.0, 4),))
    ]
    state = folded(log, ADMISSION)
    assert state.cell.jobs["a"].deadline_seconds == 30.0
    assert state.to_move == {}


def test_what_is_left_of_the_job_counts_for_its_new_deadline() -> None:
    log = promised_job(100.0).given(planned({"a": 1}), placed("a", 1, {"s1": (0,)}))
    log.given(switched("a", 1, 1)).at(50.0).given(deadline_asked("a", 63.0))
    (answer,) = answered(log)
    assert isinstance(answer, ev.DeadlineChanged)  # 50 iterations left: 12.5 s with four


def test_a_deadline_too_early_is_refused_and_the_old_one_stands() -> None:
    log = promised_job(100.0).given(deadline_asked("a", 20.0))
    (answer,) = answered(log)
    assert isinstance(answer, ev.DeadlineChangeRejected)
    assert "not even an empty cell" in answer.message
    assert answer.earliest_deadline_seconds is not None
    assert 25.0 <= answer.earliest_deadline_seconds <= 26.0
    job_state = folded(log, ADMISSION).cell.jobs["a"]
    assert (job_state.deadline_seconds, job_state.plan) == (100.0, ((0.0, 100.0, 1),))
    assert decided(log, ADMISSION) == []


def test_the_earliest_new_deadline_holds_if_it_is_asked_for() -> None:
    log = promised_job(100.0).given(deadline_asked("a", 20.0))
    (answer,) = answered(log)
    assert isinstance(answer, ev.DeadlineChangeRejected)
    assert answer.earliest_deadline_seconds is not None
    log.given(deadline_asked("a", answer.earliest_deadline_seconds))
    assert isinstance(verdict(log), ev.DeadlineChanged)


def test_a_change_that_would_break_anothers_promise_is_refused() -> None:
    log = promised_job(100.0).given(submitted("b", deadline=34.0))
    answered(log)
    log.given(deadline_asked("a", 40.0))
    answer = verdict(log)
    assert isinstance(answer, ev.DeadlineChangeRejected)
    assert "is promised" in answer.message


def test_a_refused_change_gives_no_room_to_submissions_in_the_same_burst() -> None:
    log = promised_job(25.0).given(deadline_asked("a", 10.0), submitted("b", deadline=25.0))
    refused, answer = answered(log)
    assert isinstance(refused, ev.DeadlineChangeRejected)
    assert isinstance(answer, ev.JobRejected)


def test_a_granted_change_binds_submissions_in_the_same_burst() -> None:
    log = promised_job(200.0).given(deadline_asked("a", 25.0), submitted("b", deadline=25.0))
    granted, answer = answered(log)
    assert isinstance(granted, ev.DeadlineChanged)
    assert isinstance(answer, ev.JobRejected)


def test_a_soft_deadline_always_moves() -> None:
    log = a_cell(gpus=1).given(submitted("a", deadline=90.0, policy=DeadlinePolicy.SOFT))
    answered(log)
    log.given(deadline_asked("a", 1.0))
    assert answered(log) == [ev.DeadlineChanged(job_id="a", deadline_seconds=1.0)]


def test_a_best_effort_job_has_no_deadline_to_change() -> None:
    log = a_cell().given(submitted("a"))
    answered(log)
    log.given(deadline_asked("a", 1000.0))
    answer = verdict(log)
    assert isinstance(answer, ev.DeadlineChangeRejected)
    assert "no deadline" in answer.message


def test_a_change_asked_with_the_submission_is_answered_after_it() -> None:
    log = a_cell(gpus=4).given(submitted("a", deadline=100.0), deadline_asked("a", 30.0))
    assert isinstance(verdict(log), ev.JobAdmitted)
    assert isinstance(verdict(log), ev.DeadlineChanged)
    assert decided(log, ADMISSION) == []


def test_a_change_asked_for_a_job_that_is_refused_is_forgotten() -> None:
    log = a_cell(gpus=4).given(submitted("a", deadline=1.0), deadline_asked("a", 1000.0))
    assert isinstance(verdict(log), ev.JobRejected)
    assert decided(log, ADMISSION) == []


def test_a_change_asked_with_a_cancellation_is_forgotten() -> None:
    log = promised_job(100.0).given(deadline_asked("a", 30.0), cancellation_asked("a"))
    assert answered(log) == [ev.JobCancelled(job_id="a")]
    assert decided(log, ADMISSION) == []


def test_a_change_that_the_jobs_end_overtook_is_not_answered() -> None:
    log = promised_job(100.0).given(placed("a", 1, {"s1": (0,)}), completed("a", 1))
    log.given(deadline_asked("a", 90.0))
    assert decided(log, ADMISSION) == []
    log.given(released("a", 1, {"s1": (0,)}), deadline_asked("a", 80.0))
    assert decided(log, ADMISSION) == []


def test_the_newest_of_two_changes_is_answered() -> None:
    log = promised_job(100.0).given(deadline_asked("a", 30.0), deadline_asked("a", 60.0))
    (answer,) = answered(log)
    assert isinstance(answer, ev.DeadlineChanged)
    assert answer.deadline_seconds == 60.0


# --- capacity ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [server_removed("s1"), cordoned("s1"), lost("s1")],
    ids=["removed", "cordoned", "lost"],
)
def test_gpus_that_cannot_be_used_are_not_promised(trouble: ev.Event) -> None:
    log = a_cell(1, 4).given(trouble, submitted("a", deadline=25.0))
    assert isinstance(verdict(log), ev.JobRejected)


@pytest.mark.parametrize(
    ("trouble", "repair"),
    [
        (server_removed("s1"), server_added("s1")),
        (cordoned("s1"), cordoned("s1", cordon=False)),
        (lost("s1"), joined("s1", 2)),
    ],
    ids=["removed", "cordoned", "lost"],
)
def test_gpus_that_are_back_are_promised_again(trouble: ev.Event, repair: ev.Event) -> None:
    log = a_cell(1, 4).given(trouble, repair, submitted("a", deadline=25.0))
    assert isinstance(verdict(log), ev.JobAdmitted)


def test_a_server_whose_node_has_not_joined_is_not_promised() -> None:
    log = a_cell(0).given(server_added("s1"), submitted("a", deadline=25.0))
    assert isinstance(verdict(log), ev.JobRejected)


def test_admission_has_no_timer() -> None:
    log = a_cell().given(submitted("a", deadline=1000.0))
    assert ADMISSION.next_timer(folded(log, ADMISSION)) is None


def test_ids_are_remembered_in_a_window_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resilin.admission.state.REMEMBERED", 2)
    log = a_cell().given(*(submitted(f"j{number}") for number in range(4)))
    state = folded(log, ADMISSION)
    assert list(state.recent_jobs) == ["j2", "j3"]
    assert list(state.recent_commands) == ["submit-j2", "submit-j3"]


def test_the_specification_is_kept_as_it_was_submitted() -> None:
    log = a_cell()
    taken(log, submit("a", tenant="team", within_seconds=60.0))
    assert folded(log, ADMISSION).cell.jobs["a"].job == job("a", tenant="team", within_seconds=60)


# --- overload ------------------------------------------------------------------------------

SIX_HOURS = 6 * 3600.0


def overloaded(admission: str = "most-jobs") -> HandMadeLog:
    """Four GPUs, a window's history, and a job of 200,000 GPU seconds that was promised early.

    In six hours these GPUs have 86,400 GPU seconds; one and a half times that may be asked for.
    """
    log = a_cell(1, 4, VirtualCluster(admission=admission))
    log.given(submitted("early", deadline=1e6, iterations=200_000))
    assert isinstance(verdict(log), ev.JobAdmitted)
    return log.at(SIX_HOURS)


def ask(log: HandMadeLog, **iterations: int) -> list[tuple[str, RejectionReason | None]]:
    for job_id, work in iterations.items():
        log.given(submitted(job_id, at=SIX_HOURS, deadline=2e6, iterations=work))
    return [(one.job_id, getattr(one, "reason", None)) for one in answered(log)]  # type: ignore[attr-defined]  # answers


def test_while_more_is_asked_than_there_is_the_largest_get_no_promise() -> None:
    asked = ask(overloaded(), small=100, large=200_000, middle=10_000)
    assert asked == [
        ("small", None),
        ("large", RejectionReason.CELL_OVERLOADED),
        ("middle", None),
    ]


def test_an_overloaded_cell_has_no_offer_to_make() -> None:
    log = overloaded().given(
        submitted("small", at=SIX_HOURS, deadline=2e6),
        submitted("middle", at=SIX_HOURS, deadline=2e6),
        submitted("large", at=SIX_HOURS, deadline=2e6, iterations=200_000),
    )
    *_, refusal = answered(log)
    assert isinstance(refusal, ev.JobRejected)
    assert refusal.earliest_deadline_seconds is None
    assert "Soft" in refusal.message


def test_no_job_up_to_the_median_is_refused_for_its_size() -> None:
    assert ask(overloaded(), small=100, large=200_000) == [("small", None), ("large", None)]


def test_as_long_as_there_is_enough_size_does_not_matter() -> None:
    assert ask(overloaded(), small=100, large=100_000) == [("small", None), ("large", None)]


def test_a_cluster_may_promise_to_every_feasible_job() -> None:
    asked = ask(overloaded("every-feasible-job"), small=100, large=200_000, middle=10_000)
    assert {reason for _, reason in asked} == {None}


def test_jobs_that_want_no_promise_are_let_in_however_large() -> None:
    log = overloaded()
    asked = ask(log, small=100, large=200_000, middle=10_000)
    assert ("large", RejectionReason.CELL_OVERLOADED) in asked
    soft = DeadlinePolicy.SOFT
    log.given(submitted("soft", deadline=2e6, iterations=200_000, policy=soft))
    log.given(submitted("best-effort", iterations=10**9))
    assert [type(answer) for answer in answered(log)] == [ev.JobAdmitted] * 2


def test_what_was_asked_long_ago_is_forgotten() -> None:
    log = overloaded()
    ask(log, small=100, large=200_000)
    asked = folded(log, ADMISSION).asked["default"]
    assert [needed for _, needed in asked] == [100.0, 200_000.0]
    later = 3 * SIX_HOURS
    log.at(later).given(submitted("later", at=later, deadline=3e6))
    assert folded(log, ADMISSION).asked["default"] == [(later, 100.0)]


@pytest.mark.parametrize("deadline", [9e5, 1.5e6], ids=["earlier", "later"])
def test_a_job_that_is_promised_may_move_its_deadline_in_an_overloaded_cell(
    deadline: float,
) -> None:
    log = overloaded()
    asked = ask(log, small=100, large=200_000, middle=10_000)
    assert ("large", RejectionReason.CELL_OVERLOADED) in asked
    log.given(deadline_asked("early", deadline))
    assert isinstance(verdict(log), ev.DeadlineChanged)
