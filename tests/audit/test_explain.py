"""Explain: what happened to a job and why, naming the other party."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.events import (
    admitted,
    completed,
    deadline_asked,
    measured,
    placed,
    planned,
    submitted,
    suspended,
    switched,
)
from tests.support.log import HandMadeLog, a_cell
from tests.support.runs import KINDS, recorded

from resilin.audit.explain import Statement, explain_job
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import GpuSet, training_allocation

FOUR: GpuSet = {"s1": (0, 1, 2, 3)}


def said(log: HandMadeLog, job_id: str = "a") -> list[tuple[str, str]]:
    return [(one.what, one.because) for one in explain_job(log.entries, job_id)]


def last(log: HandMadeLog, job_id: str = "a") -> tuple[str, str]:
    return said(log, job_id)[-1]


def change(
    job_id: str, workers: int, *because: str, reason: str = "policy"
) -> ev.AllocationPlanned:
    return ev.AllocationPlanned(
        virtual_cluster="default",
        changes=(
            ev.AllocationChange(
                job_id=job_id,
                allocation=training_allocation(workers, 64),
                reason=reason,
                because=because,
            ),
        ),
    )


def test_a_statement_says_where_when_and_who() -> None:
    log = a_cell().at(7.0)
    offset = log.add(submitted("a", deadline=100.0))
    what = "was submitted with a deadline 1m40s after its submission"
    assert list(explain_job(log.entries, "a")) == [
        Statement(offset, 7.0, "admission", what, "command submit-a")
    ]


def test_an_unknown_job_has_no_story() -> None:
    assert said(a_cell().given(submitted("a")), "nobody") == []


def test_a_job_without_a_deadline() -> None:
    assert last(a_cell().given(submitted("a")))[0] == "was submitted with no deadline"


def test_a_promise_names_its_end_and_its_share() -> None:
    log = a_cell().given(submitted("a", deadline=100.0), admitted("a", (0.0, 50.0, 2)))
    what, because = last(log)
    assert what == "was promised: its plan ends 50s after its submission"
    assert "2 workers" in because


def test_an_admission_without_a_promise_says_so() -> None:
    assert "without a promise" in last(a_cell().given(submitted("a"), admitted("a")))[0]


def test_a_refusal_gives_its_reason_and_the_offer() -> None:
    refusal = ev.JobRejected(
        job_id="a",
        reason=ev.RejectionReason.CAPACITY_PROMISED,
        message="the capacity is promised to b",
        earliest_deadline_seconds=1233.01,
    )
    what, because = last(a_cell().given(submitted("a", deadline=9.0), refusal))
    assert "CapacityPromised" in what
    assert "promised to b" in because
    # Rounded up: what is offered would be accepted.
    assert because.endswith("; the earliest deadline would be 20m34s after its submission")


def test_times_are_told_from_the_submission_whenever_that_was() -> None:
    asked = submitted("a", deadline=1_800_007_200.0).model_copy(
        update={"submitted_at_seconds": 1_800_000_000.0}
    )
    log = a_cell().at(1_800_000_030.0).given(asked, admitted("a", (0.0, 1_800_005_400.4, 2)))
    log.given(
        ev.DeadlineChanged(job_id="a", deadline_seconds=1_800_090_000.0),
        ev.DeadlineChanged(job_id="a", deadline_seconds=1_799_999_940.0),
        ev.DeadlineChangeRejected(
            job_id="a", message="no", earliest_deadline_seconds=1_800_003_600.5
        ),
    )
    assert said(log) == [
        ("was submitted with a deadline 2h after its submission", "command submit-a"),
        (
            "was promised: its plan ends 1h30m after its submission",
            "2 workers are its minimum satisfactory share",
        ),
        ("has a new deadline: 1d1h after its submission", ""),
        ("has a new deadline: 1m before its submission", ""),
        (
            "keeps its old deadline",
            "no; the earliest deadline would be 1h1s after its submission",
        ),
    ]


def test_gaining_workers_names_who_gives_room() -> None:
    log = a_cell().given(submitted("a"), admitted("a"))
    log.given(change("a", 2, "b", "c", reason="guaranteed-share"))
    assert last(log) == (
        "is to have 2 workers instead of 0",
        "its promise needs them; b, c gives room",
    )


def test_losing_workers_names_who_takes_them() -> None:
    log = a_cell().given(change("a", 4), change("a", 1, "b", reason="makes-room"))
    assert last(log) == ("is to have 1 workers instead of 4", "others need GPUs; b takes them")


def test_many_others_are_cut_short() -> None:
    log = a_cell().given(change("a", 4, *(f"j{number}" for number in range(9))))
    assert "j4" in last(log)[1]
    assert "j5" not in last(log)[1]


def test_a_plan_that_moved_names_the_newcomer() -> None:
    log = a_cell().given(submitted("a", deadline=99.0), admitted("a", (0.0, 50.0, 2)))
    newcomer = admitted("b", (0.0, 25.0, 4)).model_copy(
        update={"plans_moved": {"a": ((25.0, 50.0, 4),)}}
    )
    log.add(newcomer)
    what, because = last(log)
    assert "promise stands" in what
    assert "job b" in because
    assert len(said(log, "b")) == 1


def test_a_plan_made_anew_is_told() -> None:
    log = a_cell().given(planned(plans={"a": [(0.0, 50.0, 2)]}))
    assert "made anew" in last(log)[0]


def test_a_migration_names_the_job_it_makes_room_for() -> None:
    move = ev.JobMigrated(job_id="a", generation=2, gpus={"s2": (0, 1)}, for_job="large")
    assert last(a_cell().given(move)) == ("moves to 2 GPUs of s2", "to make room for large")
    log = a_cell().given(move.model_copy(update={"for_job": None}))
    assert last(log)[1] == "to make room"


STORY: list[tuple[ev.Event, str]] = [
    (placed("a", 1, {"s1": (0, 1), "s2": (0, 1)}), "is placed on 4 GPUs of s1, s2"),
    (suspended("a", 2), "is suspended"),
    (switched("a", 1, 4), "trains with 4 workers"),
    (
        ev.WorkerLost(job_id="a", generation=1, iterations_done=7.0, message="s1 was lost"),
        "fell back to iteration 7",
    ),
    (measured("a", 1, 4, 2.5), "makes 2.500 iterations/s with 4"),
    (ev.DeadlineChanged(job_id="a", deadline_seconds=70.0), "has a new deadline: at 70 s"),
    (
        ev.DeadlineChangeRejected(job_id="a", message="the old deadline stands"),
        "keeps its old deadline",
    ),
    (ev.JobCancelled(job_id="a"), "was cancelled"),
    (completed("a", 1), "is done"),
    (
        ev.JobFailed(job_id="a", generation=1, reason="Crashed", message="exit 1"),
        "failed: Crashed",
    ),
]


@pytest.mark.parametrize(("event", "what"), STORY, ids=lambda one: type(one).__name__)
def test_everything_that_happens_to_a_job_is_told(event: ev.Event, what: str) -> None:
    log = a_cell()
    offset = log.add(event)
    (statement,) = explain_job(log.entries, "a")
    assert (statement.offset, statement.what) == (offset, what)
    assert said(log, "b") == []


def test_what_says_nothing_new_is_not_told() -> None:
    log = a_cell().given(
        deadline_asked("a", 5.0),
        ev.UnknownEvent(type="FutureEvent", version=1, content={"job_id": "a"}),
        ev.ProgressReported(job_id="a", generation=1, iterations_done=1.0),
    )
    assert said(log) == []


def test_what_does_not_count_is_not_told() -> None:
    log = a_cell().given(submitted("a"))
    log.add(ev.LeadershipClaimed(instance="placement-2"), service="placement", epoch=2)
    log.add(placed("a", 1, FOUR), epoch=1)
    log.entries.append(LogEntry(len(log.entries), log.entries[-3].record))
    assert len(said(log)) == 1


def told(entries: Sequence[LogEntry]) -> dict[str, list[Statement]]:
    jobs = [
        event.job_id
        for entry in entries
        for event in entry.record.events
        if isinstance(event, ev.JobSubmitted)
    ]
    return {job_id: list(explain_job(entries, job_id)) for job_id in jobs}


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_real_run_every_story_begins_with_the_submission_and_ends(kind: str) -> None:
    for job_id, story in told(recorded(kind, 4)).items():
        assert story[0].what.startswith("was submitted"), job_id
        assert story[-1].what.startswith(("is done", "was refused")), job_id
        offsets = [statement.offset for statement in story]
        assert offsets == sorted(offsets)


def test_in_a_real_run_who_loses_workers_to_another_is_told_to_whom() -> None:
    stories = told(recorded("costly stops", 4))
    losses = [
        (job_id, statement.because)
        for job_id, story in stories.items()
        for statement in story
        if "takes them" in statement.because
    ]
    assert losses
    for job_id, because in losses:
        others = because.removesuffix(" takes them").split("; ")[1].split(", ")
        assert job_id not in others
        assert set(others) <= stories.keys()
