"""Books of on-demand data: what was given, used, taken back; each sample once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.elastic.messages import Position
from resilin.elastic.partitions import Book, Books, coalesced, share_of, size_of, without


def indexes(ranges) -> list[int]:
    return [index for start, stop in ranges for index in range(start, stop)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12))
@settings(deadline=None, derandomize=True)
def test_coalesced_ranges_hold_the_same_samples_in_order(pieces: list[tuple[int, int]]) -> None:
    ranges = [(start, start + length) for start, length in pieces]
    merged = coalesced(ranges)
    assert indexes(merged) == sorted(set(indexes(ranges)))
    assert all(left[1] < right[0] for left, right in itertools.pairwise(merged))


@given(
    st.tuples(st.integers(0, 40), st.integers(0, 20)),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=6),
)
@settings(deadline=None, derandomize=True)
def test_without_leaves_what_was_not_taken(
    whole: tuple[int, int], pieces: list[tuple[int, int]]
) -> None:
    start, length = whole
    taken = coalesced((begin, begin + size) for begin, size in pieces)
    left = without((start, start + length), taken)
    assert indexes(left) == [i for i in range(start, start + length) if i not in indexes(taken)]


@given(st.integers(0, 500), st.integers(1, 17))
@settings(deadline=None, derandomize=True)
def test_shares_are_whole_and_differ_by_one_at_most(count: int, workers: int) -> None:
    shares = [share_of(count, rank, workers) for rank in range(workers)]
    assert indexes(shares) == list(range(count))
    sizes = [stop - start for start, stop in shares]
    assert max(sizes) - min(sizes) <= 1


def test_a_repeated_request_gets_the_same_answer() -> None:
    book = Book.open(epoch=0, samples=40, partition=10, seed=3, inherited=())
    first = book.give("a", have=0, size_max=10)
    assert book.give("a", have=0, size_max=10) == first
    second = book.give("a", have=1, size_max=10)
    assert second != first
    assert book.give("a", have=0, size_max=10) == first + second


@given(st.data())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_an_epoch_is_used_once_while_workers_come_and_go(data: st.DataObject) -> None:
    samples = data.draw(st.integers(1, 80))
    inherited = ((0, data.draw(st.integers(0, samples))),)
    book = Book.open(0, samples, data.draw(st.integers(1, 20)), 5, inherited)
    members, names = ["w0"], 1
    have: dict[str, int] = {}
    taken: dict[str, int] = {}
    used = set(indexes(inherited))
    while len(used) < samples:
        action = data.draw(st.sampled_from(["use", "use", "use", "leave", "join"]))
        worker = data.draw(st.sampled_from(members))
        if action == "join":
            members.append(f"w{names}")
            names += 1
        elif action == "leave" and len(members) > 1:
            members.remove(worker)
            book.settle(taken)
            have = {name: len(ranges) for name, ranges in book.given.items()}
        else:
            got = book.give(worker, have.get(worker, 0), data.draw(st.integers(1, 20)))
            have[worker] = have.get(worker, 0) + len(got)
            mine = indexes(book.given[worker])
            count = data.draw(st.integers(1, 9))
            fresh = mine[taken.get(worker, 0) :][:count]
            assert not used & set(fresh)
            used |= set(fresh)
            taken[worker] = taken.get(worker, 0) + len(fresh)
            position = Position(taken=taken, consumed=len(used))
            assert indexes(book.used(position)) == sorted(used)
    book.settle(taken)
    assert book.all_given


def test_an_epoch_begins_only_after_the_one_before_it() -> None:
    books = Books()
    book = books.open(0, 10, 5, 0, ())
    with pytest.raises(ValueError, match="epoch 0 is not over"):
        books.open(1, 10, 5, 0, ())
    book.give("a", 0, 10)
    book.give("a", 1, 10)
    assert book.all_given
    assert size_of(books.open(1, 10, 5, 0, ()).free) == 10
    with pytest.raises(ValueError, match="cannot begin"):
        books.open(5, 10, 5, 0, ())


def test_partitions_come_in_another_order_every_epoch() -> None:
    orders = {tuple(Book.open(epoch, 100, 10, 1, ()).free) for epoch in range(5)}
    assert len(orders) == 5
    assert Book.open(2, 100, 10, 1, ()).free == Book.open(2, 100, 10, 1, ()).free
