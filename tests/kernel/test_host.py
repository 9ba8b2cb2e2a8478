"""The service host: when an instance may append, and what it offers."""

from __future__ import annotations

import pytest

from resilin.contracts.events import ClockTicked, UnknownEvent
from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.memory import MemoryLog
from resilin.kernel.decider import Decider, Intake
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded, LogGapError, Role, ServiceHost

from .counter import (
    LOOK_AGAIN_SECONDS,
    Added,
    Counter,
    CounterState,
    Reported,
    claim_of,
    record_of,
)

Host = ServiceHost[CounterState]


def a_host(folded: Folded[CounterState] | None = None) -> Host:
    return ServiceHost(Counter(), cell="main", instance="counter-1", folded=folded)


def fold_all(host: Host, log: MemoryLog) -> list[bool]:
    return [host.fold(entry) for entry in log.read(host.folded.offset)]


def append(host: Host, log: MemoryLog, record: Record | None) -> int:
    assert record is not None
    offset = log.append(record)
    host.appended(offset)
    return offset


def a_leader(log: MemoryLog) -> Host:
    host = a_host()
    fold_all(host, log)
    append(host, log, host.claim(0.0))
    fold_all(host, log)
    assert host.role is Role.LEADING
    return host


def added(number: int, amount: int = 1) -> Added:
    return Added(number=number, amount=amount)


def test_the_counter_is_a_decider_and_an_intake() -> None:
    decider: Decider[CounterState] = Counter()
    intake: Intake[CounterState, tuple[int, int]] = Counter()
    assert decider.decide(decider.initial_state()) == ()
    assert intake.accept(CounterState(), (1, 5)) == ()


# --- roles ---------------------------------------------------------------------------------


def test_a_standby_folds_along_and_offers_nothing() -> None:
    log, standby = MemoryLog(), a_host()
    leader = a_leader(log)
    append(leader, log, leader.facts([added(0, 5)], 1.0))
    assert fold_all(standby, log) == [True, True]
    assert standby.role is Role.STANDBY
    assert standby.folded.state.total == 5
    assert standby.poll(2.0) is None
    assert standby.tick(100.0) is None
    assert not standby.may_append
    with pytest.raises(RuntimeError, match="not leading"):
        standby.facts([added(1)], 2.0)


def test_a_claim_leads_once_it_is_folded_back() -> None:
    log, host = MemoryLog(), a_host()
    claim = host.claim(3.0)
    assert (claim.service, claim.cell, claim.epoch, claim.basis) == ("counter", "main", 1, -1)
    assert (claim.nature, claim.timestamp) == ("claim", 3.0)
    assert host.role is Role.CLAIMING
    assert not host.may_append
    append(host, log, claim)
    assert host.role is Role.CLAIMING
    fold_all(host, log)
    assert host.role is Role.LEADING
    assert host.may_append


def test_of_two_claims_of_one_epoch_the_second_learns_it_by_folding() -> None:
    log, first, second = MemoryLog(), a_host(), a_host()
    first_claim, second_claim = first.claim(0.0), second.claim(0.0)
    append(second, log, second_claim)
    append(first, log, first_claim)
    fold_all(first, log)
    fold_all(second, log)
    assert (first.role, second.role) == (Role.STANDBY, Role.LEADING)
    assert first.quiescent

    append(first, log, first.claim(0.0))
    fold_all(first, log)
    assert first.role is Role.LEADING
    assert first.folded.fence.epoch("counter") == 2


def test_a_rivals_claim_ends_leadership_and_what_was_in_flight_counts_for_nothing() -> None:
    log = MemoryLog()
    old, new = a_leader(log), a_host()
    fold_all(new, log)
    late = old.facts([added(0, 5)], 1.0)
    append(new, log, new.claim(1.0))
    append(old, log, late)

    assert fold_all(old, log) == [True, False]
    assert old.role is Role.STANDBY
    assert old.quiescent, "it knows that its record came to nothing"
    assert old.folded.state.total == 0
    assert fold_all(new, log) == [True, False]
    assert new.role is Role.LEADING
    assert new.folded.state == old.folded.state


def test_a_deposed_leader_is_not_quiescent_until_its_last_append_is_folded() -> None:
    log = MemoryLog()
    old, new = a_leader(log), a_host()
    fold_all(new, log)
    late = old.facts([added(0)], 1.0)
    offset = append(new, log, new.claim(1.0))
    append(old, log, late)
    old.fold(LogEntry(offset, next(log.read(offset - 1)).record))
    assert old.role is Role.STANDBY
    assert not old.quiescent
    with pytest.raises(RuntimeError, match="not quiescent"):
        old.claim(2.0)
    fold_all(old, log)
    append(old, log, old.claim(2.0))
    fold_all(old, log)
    assert old.role is Role.LEADING


def test_a_claim_cannot_be_made_while_another_is_in_flight() -> None:
    host = a_host()
    host.claim(0.0)
    with pytest.raises(RuntimeError, match="not quiescent"):
        host.claim(0.0)


# --- quiescence ----------------------------------------------------------------------------


def test_nothing_is_offered_before_the_last_append_is_folded_back() -> None:
    log = MemoryLog()
    host = a_leader(log)
    facts = host.facts([added(0, 9)], 1.0)
    assert host.poll(1.0) is None
    log.append(claim_of(1, service="other"))
    append(host, log, facts)
    assert host.poll(1.0) is None
    assert host.tick(1_000.0) is None
    with pytest.raises(RuntimeError, match="not quiescent"):
        host.facts([added(1)], 1.0)

    reading = log.read(host.folded.offset)
    host.fold(next(reading))
    assert not host.quiescent, "another service's record is not the one awaited"
    assert host.poll(1.0) is None
    host.fold(next(reading))
    assert host.quiescent
    assert host.poll(1.0) is not None


def test_a_decision_is_made_of_everything_folded_and_names_its_basis() -> None:
    log = MemoryLog()
    host = a_leader(log)
    log.append(claim_of(1, service="other"))
    append(host, log, host.facts([added(0, 9)], 1.0))
    fold_all(host, log)
    decision = host.poll(2.0)
    assert decision is not None
    assert (decision.nature, decision.basis, decision.epoch) == ("decision", 2, 1)
    assert decision.events == tuple(Counter().decide(host.folded.state))
    (event,) = decision.events
    assert isinstance(event, Reported)
    assert event.total == 9


def test_a_burst_is_answered_by_one_decision() -> None:
    log = MemoryLog()
    host = a_leader(log)
    burst = [added(number) for number in range(1_000)]
    append(host, log, host.facts(burst, 1.0))
    fold_all(host, log)
    decision = host.poll(1.0)
    assert decision is not None
    assert len(decision.events) == 1
    append(host, log, decision)
    fold_all(host, log)
    assert host.poll(1.0) is None
    assert log.end_offset() == 2


def test_the_same_prefix_is_looked_at_once() -> None:
    class Asked(Counter):
        times = 0

        def decide(self, state: CounterState) -> tuple[Reported, ...]:
            self.times += 1
            return ()

    asked, log = Asked(), MemoryLog()
    host = ServiceHost(asked, cell="main", instance="a")
    append(host, log, host.claim(0.0))
    fold_all(host, log)
    assert [host.poll(1.0), host.poll(2.0)] == [None, None]
    assert asked.times == 1
    log.append(claim_of(1, service="other"))
    fold_all(host, log)
    assert host.poll(3.0) is None
    assert asked.times == 2


def test_no_facts_make_no_record() -> None:
    log = MemoryLog()
    host = a_leader(log)
    assert host.facts([], 1.0) is None
    assert host.facts(Counter().accept(host.folded.state, (7, 1)), 1.0) is None
    assert host.may_append


def test_a_timer_fires_once_it_is_due() -> None:
    log = MemoryLog()
    host = a_leader(log)
    assert host.next_timer() is None
    assert host.tick(1e9) is None
    append(host, log, host.facts([added(0)], 5.0))
    fold_all(host, log)
    due = 5.0 + LOOK_AGAIN_SECONDS
    assert host.next_timer() == due
    assert host.tick(due - 0.001) is None
    record = host.tick(due)
    assert record is not None
    assert (record.nature, record.events) == ("facts", (ClockTicked(due_seconds=due),))
    append(host, log, record)
    fold_all(host, log)
    assert host.next_timer() is None


# --- time ----------------------------------------------------------------------------------


def test_time_never_goes_back() -> None:
    log = MemoryLog()
    host = a_leader(log)
    append(host, log, host.facts([added(0, 9)], 50.0))
    fold_all(host, log)
    decision = host.poll(20.0)
    assert decision is not None
    assert decision.timestamp == 50.0


def test_time_does_not_follow_a_clock_that_is_behind() -> None:
    log = MemoryLog()
    host = a_leader(log)
    append(host, log, host.facts([added(0, 9)], 50.0))
    log.append(claim_of(1, service="other"))
    log.append(record_of(service="other", basis=2, timestamp=10.0))
    assert fold_all(host, log) == [True, True, True]
    decision = host.poll(20.0)
    assert decision is not None
    assert decision.timestamp == 50.0


def test_a_record_that_does_not_count_has_no_say_in_what_time_it_is() -> None:
    log = MemoryLog()
    host = a_leader(log)
    log.append(record_of(added(0), epoch=9, timestamp=1e9))
    append(host, log, host.facts([added(0)], 2.0))
    assert fold_all(host, log) == [False, True]
    assert host.folded.timestamp == 2.0


# --- the log -------------------------------------------------------------------------------


def test_offsets_may_leave_gaps_but_never_go_back() -> None:
    host = a_host()
    host.fold(LogEntry(3, claim_of(1)))
    host.fold(LogEntry(7, record_of(added(0), basis=3)))
    for offset in (7, 6, 0, -1):
        with pytest.raises(LogGapError, match=f"offset {offset} follows 7"):
            host.fold(LogEntry(offset, record_of(added(0), basis=5)))
    assert host.folded.state.total == 1


def test_an_append_must_be_reported_before_it_is_folded() -> None:
    log, host = MemoryLog(), a_host()
    offset = log.append(host.claim(0.0))
    fold_all(host, log)
    with pytest.raises(LogGapError, match="folded before its append was reported"):
        host.appended(offset)


def test_an_event_of_the_future_is_folded_without_harm() -> None:
    log = MemoryLog()
    host = a_leader(log)
    future = UnknownEvent(type="Future", version=1, content={"type": "Future"})
    log.append(claim_of(1, service="other"))
    log.append(record_of(future, service="other", basis=1))
    assert fold_all(host, log) == [True, True]
    assert host.may_append


def test_an_instance_goes_on_from_what_was_folded_before() -> None:
    log = MemoryLog()
    first = a_leader(log)
    append(first, log, first.facts([added(0, 2)], 1.0))
    fold_all(first, log)
    append(first, log, first.facts([added(1, 2)], 2.0))

    second = a_host(first.folded)
    assert second.role is Role.STANDBY
    assert fold_all(second, log) == [True]
    claim = second.claim(3.0)
    assert (claim.epoch, claim.basis) == (2, 2)
    append(second, log, claim)
    fold_all(second, log)
    decision = second.poll(3.0)
    assert decision is not None
    assert decision.events == (Reported(total=4, trace=second.folded.state.trace),)


def test_an_instance_starts_before_the_first_entry() -> None:
    assert a_host().folded == Folded(CounterState(), Fence(), -1, float("-inf"))
