"""Fencing: the log alone says which records count."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.contracts.record import LogEntry, Record
from resilin.kernel.fencing import Fence, Lease

from .counter import claim_of, record_of


def admitted(*records: Record) -> list[bool]:
    """Say of each record of a log whether it counts."""
    fence = Fence()
    return [fence.admit(LogEntry(offset, record)) for offset, record in enumerate(records)]


def test_nothing_counts_before_the_first_claim() -> None:
    records = [record_of(epoch=0), record_of(epoch=1), record_of(epoch=1, basis=5)]
    assert admitted(*records) == [False, False, False]


def test_a_claim_opens_the_next_epoch_only() -> None:
    records = [claim_of(0), claim_of(2), claim_of(1), claim_of(3), claim_of(1), claim_of(2)]
    assert admitted(*records) == [False, False, True, False, False, True]


def test_of_two_rivals_the_first_in_the_log_wins() -> None:
    # Both saw an empty log and claim epoch 1. The fence does not know instances: it is by
    # folding its own claim, which does not count, that the second learns not to go on.
    assert admitted(claim_of(1), claim_of(1), record_of(basis=0)) == [True, False, True]


def test_a_lost_claim_leaves_the_winners_lease_alone() -> None:
    fence = Fence()
    assert fence.admit(LogEntry(0, claim_of(1)))
    assert not fence.admit(LogEntry(1, claim_of(1, basis=0)))
    assert fence.leases["counter"] == Lease(epoch=1, basis=-1, claimed_at_offset=0)


def test_a_zombies_records_count_for_nothing_after_its_successors_claim() -> None:
    log = [
        claim_of(1),
        record_of(epoch=1, basis=0),
        claim_of(2, basis=1),
        record_of(epoch=1, basis=1),  # appended by the zombie before it saw the claim
        record_of(epoch=1, basis=100),
        record_of(epoch=2, basis=2),
        record_of(epoch=1, basis=5),
        claim_of(2, basis=6),  # the zombie's own late attempt
        record_of(epoch=2, basis=5),
    ]
    assert admitted(*log) == [True, True, True, False, False, True, False, False, True]


def test_a_repeat_has_the_same_basis_and_does_not_count() -> None:
    log = [
        claim_of(1),
        record_of(basis=0),
        record_of(basis=0),
        record_of(basis=2),
        record_of(basis=0),
        record_of(basis=1),
        record_of(basis=3),
        record_of(basis=3),
    ]
    assert admitted(*log) == [True, True, False, True, False, False, True, False]


def test_a_repeated_claim_does_not_count() -> None:
    assert admitted(claim_of(1), claim_of(1), record_of(basis=1)) == [True, False, True]


def test_a_record_must_know_its_own_claim() -> None:
    # Its basis must be above the claim's: a leader has at least folded its claim.
    assert admitted(claim_of(1, basis=3), record_of(basis=3), record_of(basis=4)) == [
        True,
        False,
        True,
    ]


def test_services_do_not_fence_each_other() -> None:
    log = [
        claim_of(1, service="executor/node-1"),
        claim_of(1, service="executor/node-2"),
        record_of(service="executor/node-1", basis=0),
        record_of(service="executor/node-2", basis=1),
        claim_of(2, service="executor/node-1", basis=3),
        record_of(service="executor/node-2", basis=3),
        record_of(service="executor/node-1", basis=3, epoch=1),
        record_of(service="executor", basis=3),
    ]
    assert admitted(*log) == [True, True, True, True, True, True, False, False]


def test_asking_changes_nothing() -> None:
    fence = Fence()
    fence.admit(LogEntry(0, claim_of(1)))
    before = copy.deepcopy(fence)
    assert fence.counts(record_of(basis=0))
    assert fence.counts(claim_of(2))
    assert not fence.counts(record_of(basis=-1))
    assert fence == before
    assert (fence.epoch("counter"), fence.epoch("nobody")) == (1, 0)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(
        st.builds(
            record_of,
            service=st.sampled_from(["a", "b"]),
            epoch=st.integers(0, 3),
            basis=st.integers(-1, 5),
            nature=st.sampled_from(["facts", "decision", "claim"]),
        ),
        max_size=14,
    )
)
def test_the_rule_in_words_gives_the_same_answer(log: list[Record]) -> None:
    counting: list[Record] = []
    for record, answer in zip(log, admitted(*log), strict=True):
        own = [other for other in counting if other.service == record.service]
        epochs = [other.epoch for other in own if other.nature == "claim"]
        if record.nature == "claim":
            expected = record.epoch == max(epochs, default=0) + 1
        else:
            in_epoch = [other.basis for other in own if other.epoch == record.epoch]
            expected = epochs[-1:] == [record.epoch] and record.basis > max(in_epoch)
        assert answer == expected
        if expected:
            counting.append(record)
