"""Verify: a sound log is found sound, and whatever is tampered with is found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import pytest
from tests.support.events import (
    admitted,
    cancellation_asked,
    joined,
    placed,
    planned,
    submitted,
)
from tests.support.log import a_cell
from tests.support.runs import KINDS, edited, recorded

from resilin.audit.verify import Mismatch, Verification, verify
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import training_allocation
from resilin.kernel.software import SOFTWARE
from resilin.simulation.simulation import deciders

Log = tuple[LogEntry, ...]
Kind = TypeVar("Kind", bound=ev.Event)


@cache
def sound_log() -> Log:
    return recorded("costly stops", 4)


def checked(log: Sequence[LogEntry], most_findings: int = 100) -> Verification:
    return verify(log, deciders(), most_findings=most_findings)


def entries_with(
    kind: type[Kind], where: Callable[[Kind], bool] = lambda _: True
) -> list[LogEntry]:
    """The entries of the sound log whose first event is of a kind."""
    return [
        entry
        for entry in sound_log()
        if isinstance(event := entry.record.events[0], kind) and where(event)
    ]


def tampered(entry: LogEntry, **fields: object) -> Log:
    """The sound log with other fields in the first event of one entry."""
    first, *others = entry.record.events
    changed = first.model_copy(update=fields)
    return replaced(edited(entry, events=(changed, *others)))


def replaced(entry: LogEntry) -> Log:
    """The sound log with one entry in place of another."""
    return tuple(entry if entry.offset == other.offset else other for other in sound_log())


# --- sound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_log_is_counted_through(kind: str) -> None:
    log = recorded(kind, 4)
    found = checked(log)
    assert found.sound
    assert (found.records, found.ignored) == (len(log), 0)
    assert found.decisions == sum(entry.record.nature == "decision" for entry in log)


def test_every_beginning_of_a_sound_log_is_sound() -> None:
    log = sound_log()
    for length in range(0, len(log), 9):
        assert checked(log[:length]).sound


def test_an_empty_log_is_sound() -> None:
    assert checked(()) == Verification()


def test_what_does_not_count_is_ignored() -> None:
    log = a_cell().given(submitted("a"))
    log.add(ev.JobAdmitted(job_id="a", promised=False))
    repeated = log.entries[-1].record
    log.entries.append(LogEntry(len(log.entries), repeated))
    log.add(ev.LeadershipClaimed(instance="placement-2"), service="placement", epoch=2)
    log.add(placed("a", 1, {"s1": (0,)}), epoch=1)
    found = checked(log.entries)
    assert (found.sound, found.ignored, found.decisions) == (True, 2, 1)


def test_facts_between_basis_and_record_do_not_matter() -> None:
    log = a_cell().given(submitted("a"))
    basis = len(log.entries) - 1
    log.given(submitted("b"), joined("s1", 2))
    log.add(ev.JobAdmitted(job_id="a", promised=False), basis=basis)
    assert checked(log.entries).sound


def test_a_service_this_code_does_not_know_is_not_recomputed() -> None:
    log = a_cell()
    log.add(ev.LeadershipClaimed(instance="new"), service="power-saver")
    log.add(
        ev.UnknownEvent(type="ServerSlept", version=1, content={}),
        service="power-saver",
        nature="decision",
    )
    assert checked(log.entries) == Verification(records=len(log.entries))


@pytest.mark.parametrize(("software", "recomputes"), [("", True), (SOFTWARE, True), ("0.0", False)])
def test_decisions_of_another_version_may_rightly_differ(software: str, recomputes: bool) -> None:
    (entry, *_) = entries_with(ev.JobRejected)
    log = tampered(entry, earliest_deadline_seconds=1.0)
    claims = {
        each.offset: each
        for each in log
        if each.record.nature == "claim" and each.record.service == "admission"
    }
    claimed = [
        edited(each, events=(ev.LeadershipClaimed(instance="a", software=software),))
        if each.offset in claims
        else each
        for each in log
    ]
    found = checked(claimed)
    assert bool(found.mismatches) == recomputes
    assert (found.of_other_versions == 0) == recomputes


# --- tampered with -------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(4))
def test_an_edited_allocation_is_found_where_it_is(number: int) -> None:
    plans = entries_with(ev.AllocationPlanned, lambda event: bool(event.changes))
    entry = plans[number * (len(plans) - 1) // 3]
    plan = entry.record.events[0]
    assert isinstance(plan, ev.AllocationPlanned)
    change, *others = plan.changes
    workers = change.allocation.workers + 1
    more = training_allocation(workers, change.allocation.global_batch)
    edit = change.model_copy(update={"allocation": more})
    found = checked(tampered(entry, changes=(edit, *others)))
    assert (found.mismatches[0].offset, found.mismatches[0].service) == (entry.offset, "allocator")


def test_an_edited_promise_is_found_where_it_is() -> None:
    for entry in entries_with(ev.JobAdmitted, lambda event: event.promised):
        promise = entry.record.events[0]
        assert isinstance(promise, ev.JobAdmitted)
        *others, (start, end, workers) = promise.plan
        found = checked(tampered(entry, plan=(*others, (start, end - 1.0, workers))))
        first = found.mismatches[0]
        assert (first.offset, first.service) == (entry.offset, "admission")
        assert first.basis == entry.record.basis


def test_an_edited_answer_is_found() -> None:
    (entry, *_) = entries_with(ev.JobRejected)
    found = checked(tampered(entry, earliest_deadline_seconds=1.0))
    assert found.mismatches[0].offset == entry.offset


def test_an_edited_reason_is_found() -> None:
    (entry, *_) = entries_with(ev.AllocationPlanned, lambda event: bool(event.changes))
    plan = entry.record.events[0]
    assert isinstance(plan, ev.AllocationPlanned)
    edit = plan.changes[0].model_copy(update={"because": ("somebody-else",)})
    found = checked(tampered(entry, changes=(edit, *plan.changes[1:])))
    assert found.mismatches[0].offset == entry.offset


def test_an_edited_fact_is_found_by_the_first_decision_it_changes() -> None:
    promised = {
        event.job_id: entry.offset
        for entry in sound_log()
        for event in entry.record.events
        if isinstance(event, ev.JobAdmitted) and event.promised
    }
    assert len(promised) > 5
    for submission in entries_with(ev.JobSubmitted):
        event = submission.record.events[0]
        assert isinstance(event, ev.JobSubmitted)
        if event.job_id in promised:
            hopeless = tampered(submission, deadline_seconds=event.submitted_at_seconds + 1.0)
            assert checked(hopeless).mismatches[0].offset == promised[event.job_id]


def test_an_edited_server_is_found() -> None:
    addition, *_ = entries_with(ev.ServerAdded)
    event = addition.record.events[0]
    assert isinstance(event, ev.ServerAdded)
    larger = event.server.model_copy(update={"gpus": 64})
    assert checked(tampered(addition, server=larger)).mismatches


def test_edited_progress_is_found() -> None:
    facts = entries_with(ev.WorkersReleased, lambda event: event.iterations_done > 10)
    found = [checked(tampered(entry, iterations_done=0.0), 1).sound for entry in facts]
    assert not all(found)


@pytest.mark.parametrize("nature", ["decision", "facts"])
def test_any_record_that_is_dropped_is_missed(nature: str) -> None:
    log = sound_log()
    for entry in log[:-1]:
        if entry.record.nature == nature:
            left = [other for other in log if other is not entry]
            assert not checked(left, most_findings=1).sound, entry


def test_a_claim_that_is_dropped_takes_its_service_out() -> None:
    log = sound_log()
    admission = next(entry for entry in log if entry.record.service == "admission")
    found = checked([entry for entry in log if entry is not admission])
    assert found.ignored > 10


@pytest.mark.parametrize("kind", [ev.JobAdmitted, ev.AllocationPlanned, ev.JobPlaced])
def test_a_decision_moved_to_another_writer_is_found(kind: type[ev.Event]) -> None:
    entry = entries_with(kind)[3]
    found = checked(replaced(edited(entry, service="metric-collector")))
    assert (entry.offset, 9) in {(one.offset, one.invariant) for one in found.violations}
    assert entry.offset in {one.offset for one in found.mismatches}


def test_a_fact_moved_to_another_writer_is_found() -> None:
    entry = entries_with(ev.GenerationSwitched)[3]
    found = checked(replaced(edited(entry, service="placement")))
    assert (entry.offset, 9) in {(one.offset, one.invariant) for one in found.violations}


def test_a_decision_passed_off_as_a_fact_is_found() -> None:
    entry = entries_with(ev.JobPlaced)[3]
    found = checked(replaced(edited(entry, nature="facts")))
    assert (entry.offset, 9) in {(one.offset, one.invariant) for one in found.violations}


def test_a_gpu_handed_out_twice_is_found() -> None:
    for entry in entries_with(ev.JobPlaced)[2:]:
        event = entry.record.events[0]
        assert isinstance(event, ev.JobPlaced)
        held = busy_before(entry.offset, event.job_id)
        if not held:
            continue
        found = checked(tampered(entry, gpus=held))
        assert (entry.offset, 1) in {(one.offset, one.invariant) for one in found.violations}
        assert entry.offset in {one.offset for one in found.mismatches}
        return
    pytest.fail("no placement beside a running job")


def busy_before(offset: int, job_id: str) -> dict[str, tuple[int, ...]]:
    """The GPUs on which another job was placed last before an offset, and still trains."""
    running: dict[str, dict[str, tuple[int, ...]]] = {}
    for entry in sound_log()[:offset]:
        for event in entry.record.events:
            if isinstance(event, ev.JobPlaced):
                running[event.job_id] = event.gpus
            elif isinstance(event, ev.JobCompleted | ev.JobSuspended | ev.JobMigrated):
                running.pop(event.job_id, None)
    return next((gpus for other, gpus in running.items() if other != job_id), {})


def test_a_decision_on_another_basis_is_found() -> None:
    plan = entries_with(ev.AllocationPlanned)[3]
    found = checked(replaced(edited(plan, basis=plan.record.basis - 1)))
    assert found.mismatches[0].offset == plan.offset


def test_a_decision_on_a_basis_that_is_answered_already_does_not_count() -> None:
    promise = entries_with(ev.JobAdmitted)[3]
    submission = sound_log()[promise.record.basis]
    assert submission.record.service == "admission"
    found = checked(replaced(edited(promise, basis=submission.record.basis)))
    assert found.ignored >= 1
    assert not found.sound


def test_a_decision_that_nobody_made_is_found() -> None:
    log = a_cell().given(submitted("a"), ev.JobAdmitted(job_id="a", promised=False))
    assert checked(log.entries).sound
    offset = log.add(planned({"a": 4}))
    assert [one.offset for one in checked(log.entries).mismatches] == [offset]


@pytest.mark.parametrize("change", ["order", "fewer", "more"])
def test_a_decision_with_other_events_is_found(change: str) -> None:
    entry = next(entry for entry in sound_log() if len(entry.record.events) > 1)
    first, *others = entry.record.events
    events = {
        "order": (*others, first),
        "fewer": tuple(others),
        "more": (first, *others, first),
    }[change]
    found = checked(replaced(edited(entry, events=events)))
    assert found.mismatches[0].offset == entry.offset
    assert "expected" in found.mismatches[0].message


def test_a_log_on_which_nothing_can_be_decided_is_a_finding_not_a_crash() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), planned({"a": 1}))
    log.given(placed("a", 1, {"s9": (0,)}))  # the cell has no such server
    log.add(placed("a", 2, {"s1": (0, 1)}))
    found = checked(log.entries)
    assert any("nothing can be decided" in one.message for one in found.mismatches)


def test_it_stops_after_so_many_findings() -> None:
    log = a_cell().given(submitted("a"))
    for _ in range(10):
        log.given(planned({"a": 1}))
    assert len(checked(log.entries, most_findings=3).mismatches) == 3


def test_violations_and_mismatches_are_both_unsound() -> None:
    log = a_cell()
    assert Verification().sound
    violation = log.add(cancellation_asked("a"), service="executor")
    found = checked(log.entries)
    assert [(one.offset, one.invariant) for one in found.violations] == [(violation, 9)]
    assert not found.sound
    mismatch = Mismatch(3, "placement", 2, "expected nothing")
    assert not Verification(mismatches=[mismatch]).sound
    assert str(mismatch) == (
        "offset 3: invariant 8: placement decided otherwise at basis 2: expected nothing"
    )
