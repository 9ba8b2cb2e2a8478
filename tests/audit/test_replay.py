"""Replay: the state of a service at any offset or time of a log."""

from __future__ import annotations

import pytest
from tests.support.events import admitted, placed, planned, submitted
from tests.support.log import HandMadeLog, a_cell
from tests.support.runs import recorded

from resilin.admission.decider import AdmissionDecider
from resilin.audit.replay import fold_log
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.kernel.host import ServiceHost
from resilin.kernel.snapshot import dump, load, state_hash
from resilin.simulation.simulation import deciders

ADMISSION = AdmissionDecider()


def two_jobs() -> HandMadeLog:
    """Claims and a cell up to offset 10; ``a`` at 5 s, ``b`` at 9 s."""
    log = a_cell()
    log.at(5.0).given(submitted("a"), admitted("a")).at(9.0).given(submitted("b"))
    return log


def jobs_after(log: HandMadeLog, **until: float) -> list[str]:
    return list(fold_log(log.entries, ADMISSION, **until).state.cell.jobs)  # type: ignore[arg-type]  # one of two


def test_a_whole_log_is_folded_by_default() -> None:
    log = two_jobs()
    folded = fold_log(log.entries, ADMISSION)
    assert list(folded.state.cell.jobs) == ["a", "b"]
    assert (folded.offset, folded.timestamp) == (len(log.entries) - 1, 9.0)
    assert folded.fence.epoch("placement") == 1


def test_an_empty_log_is_the_initial_state() -> None:
    folded = fold_log([], ADMISSION)
    assert (folded.offset, folded.timestamp) == (-1, float("-inf"))
    assert state_hash(folded.state, ADMISSION.state_type) == state_hash(
        ADMISSION.initial_state(), ADMISSION.state_type
    )


def test_up_to_and_including_an_offset() -> None:
    log = two_jobs()
    at = next(e.offset for e in log.entries if isinstance(e.record.events[0], ev.JobSubmitted))
    assert jobs_after(log, through_offset=at - 1) == []
    assert jobs_after(log, through_offset=at) == ["a"]
    assert jobs_after(log, through_offset=10_000) == ["a", "b"]
    assert jobs_after(log, through_offset=-1) == []


def test_up_to_and_including_a_time() -> None:
    log = two_jobs()
    assert jobs_after(log, through_seconds=4.9) == []
    assert jobs_after(log, through_seconds=5.0) == ["a"]
    assert jobs_after(log, through_seconds=8.9) == ["a"]
    assert jobs_after(log, through_seconds=9.0) == ["a", "b"]


def test_records_that_do_not_count_are_not_folded() -> None:
    log = two_jobs()
    log.add(ev.LeadershipClaimed(instance="admission-2"), service="admission", epoch=2)
    log.add(submitted("zombie"), epoch=1)
    repeated = log.entries[-3].record
    log.entries.append(LogEntry(len(log.entries), repeated))
    folded = fold_log(log.entries, ADMISSION)
    assert list(folded.state.cell.jobs) == ["a", "b"]
    assert folded.offset == len(log.entries) - 1


def test_every_entry_folded_is_observed_in_order() -> None:
    log = two_jobs()
    seen: list[LogEntry] = []
    fold_log(log.entries, ADMISSION, through_offset=9, observe=seen.append)
    assert seen == log.entries[:10]


def test_folding_goes_on_from_a_snapshot() -> None:
    log = two_jobs()
    begun = fold_log(log.entries, ADMISSION, through_offset=12)
    snapshot = load(dump(begun, ADMISSION.state_type), ADMISSION.state_type)
    whole = fold_log(log.entries, ADMISSION)
    on = fold_log(log.entries[13:], ADMISSION, folded=snapshot)
    assert dump(on, ADMISSION.state_type) == dump(whole, ADMISSION.state_type)


def test_replay_of_a_log_of_later_versions_ignores_what_it_does_not_know() -> None:
    log = two_jobs()
    log.add(ev.UnknownEvent(type="FutureEvent", version=2, content={"job_id": "a"}))
    folded = fold_log(log.entries, ADMISSION)
    assert list(folded.state.cell.jobs) == ["a", "b"]


@pytest.mark.parametrize("core", deciders(), ids=lambda core: core.service)
def test_replay_gives_the_state_of_a_host_that_folded_along(core: object) -> None:
    decider = next(one for one in deciders() if one.service == core.service)  # type: ignore[attr-defined]  # a decider
    entries = recorded("noise", 4)
    host = ServiceHost(decider, cell="main", instance="standby")
    for entry in entries:
        host.fold(entry)
    ours = fold_log(entries, decider)
    assert dump(ours, decider.state_type) == dump(host.folded, decider.state_type)


def test_a_replay_does_not_change_what_was_decided_at_that_offset() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), planned({"a": 1}))
    before = fold_log(log.entries, ADMISSION, through_offset=len(log.entries) - 1)
    log.given(placed("a", 1, {"s1": (0,)}))
    again = fold_log(log.entries, ADMISSION, through_offset=len(log.entries) - 2)
    assert dump(before, ADMISSION.state_type) == dump(again, ADMISSION.state_type)
