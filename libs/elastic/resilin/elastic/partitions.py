"""On-demand data: who was given which samples of an epoch, each exactly once.

Amoeba §5.3: the dataset is cut into partitions, more than there are workers; the leader deals
them out in a random order, one at a time, to whoever has read the last one; what a worker that
left or died had not trained on is dealt out again. Two things are different here:

- What was trained on is not reported but *known*: every minibatch carries each worker's count
  to all others, and a worker trains on its ranges in the order in which it was given them. So
  a position (the counts up to a step) tells exactly which samples were used up to that step,
  for any step and any survivor, and the epoch is over when the counts add up to the dataset.
- Towards the end of an epoch the partitions are cut finer, so that the workers run dry at
  about the same step and few minibatches are short.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from resilin.elastic.messages import Position, Range

__all__ = ["Book", "Books", "coalesced", "first_of", "share_of", "size_of", "without"]


def share_of(count: int, rank: int, workers: int) -> tuple[int, int]:
    """Return which of ``count`` samples a rank takes: from, up to but not including.

    Shares differ by one at most, and follow one another.
    """
    return rank * count // workers, (rank + 1) * count // workers


def size_of(ranges: Iterable[Range]) -> int:
    """Return how many samples the ranges have."""
    return sum(stop - start for start, stop in ranges)


def coalesced(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same samples in order, in as few ranges as possible."""
    merged: list[Range] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        elif start < stop:
            merged.append((start, stop))
    return tuple(merged)


def without(whole: Range, taken: tuple[Range, ...]) -> list[Range]:
    """Return what of a range is in none of the coalesced ranges."""
    start, stop = whole
    left: list[Range] = []
    for begin, end in taken:
        if end <= start or begin >= stop:
            continue
        if begin > start:
            left.append((start, begin))
        start = max(start, end)
    if start < stop:
        left.append((start, stop))
    return left


def first_of(ranges: Iterable[Range], count: int) -> tuple[list[Range], list[Range]]:
    """Split ranges after their first ``count`` samples."""
    head: list[Range] = []
    tail: list[Range] = []
    for start, stop in ranges:
        cut = min(stop, start + count)
        if start < cut:
            head.append((start, cut))
        if cut < stop:
            tail.append((cut, stop))
        count -= cut - start
    return head, tail


@dataclass(slots=True)
class Book:
    """One epoch: what is not yet given, and what was given to whom, in order.

    Attributes:
        epoch: The epoch.
        samples: In the dataset.
        inherited: Trained on before the job was resumed from a checkpoint.
        free: Not given, in the order in which it will be.
        given: By worker, in the order in which it trains on it.
    """

    epoch: int
    samples: int
    inherited: tuple[Range, ...] = ()
    free: list[Range] = field(default_factory=list)
    given: dict[str, list[Range]] = field(default_factory=dict)

    @classmethod
    def open(
        cls, epoch: int, samples: int, partition: int, seed: int, inherited: tuple[Range, ...]
    ) -> Book:
        """Begin an epoch: cut what is left of the dataset into partitions, in random order."""
        wholes = [
            (start, min(samples, start + partition)) for start in range(0, samples, partition)
        ]
        random.Random(f"{seed}/{epoch}").shuffle(wholes)  # noqa: S311 (an order, no secret)
        used = coalesced(inherited)
        free = [piece for whole in wholes for piece in without(whole, used)]
        return cls(epoch, samples, used, free)

    def give(self, worker_id: str, have: int, size_max: int) -> tuple[Range, ...]:
        """Return what follows the first ``have`` ranges of a worker; give it more if need be.

        A request that was repeated because its answer got lost is answered as before.
        """
        mine = self.given.setdefault(worker_id, [])
        if have == len(mine) and self.free:
            start, stop = self.free[0]
            cut = min(stop, start + max(1, size_max))
            if cut < stop:
                self.free[0] = (cut, stop)
            else:
                del self.free[0]
            mine.append((start, cut))
        return tuple(mine[have:])

    def settle(self, taken: Mapping[str, int]) -> None:
        """Take back whatever was not trained on.

        Those who leave cannot train on it any more, and of those who stay nobody may sit on a
        stock while newcomers get nothing.
        """
        unread: list[Range] = []
        for worker_id, ranges in self.given.items():
            self.given[worker_id], rest = first_of(ranges, taken.get(worker_id, 0))
            unread += rest
        self.free[:0] = unread

    def used(self, position: Position) -> tuple[Range, ...]:
        """Return the samples behind a position in this epoch."""
        ranges = list(self.inherited)
        for worker_id, count in position.taken.items():
            ranges += first_of(self.given.get(worker_id, ()), count)[0]
        return coalesced(ranges)

    @property
    def all_given(self) -> bool:
        """Whether nothing is left to give, and everything was given once."""
        given = sum(size_of(ranges) for ranges in self.given.values())
        return not self.free and given + size_of(self.inherited) == self.samples


@dataclass(slots=True)
class Books:
    """The books of the epoch that runs and of the one before it.

    The earlier one is kept because a worker may be one step behind when others begin an epoch,
    and be the one that survives.
    """

    books: dict[int, Book] = field(default_factory=dict)

    def open(
        self, epoch: int, samples: int, partition: int, seed: int, inherited: tuple[Range, ...]
    ) -> Book:
        """Return the book of an epoch, which is begun if it is new; a closed one if it is over.

        Raises:
            ValueError: If the epoch before it is not over.
        """
        if epoch in self.books:
            return self.books[epoch]
        newest = max(self.books, default=epoch - 1)
        if epoch < newest:
            return Book(epoch, samples)  # a request that was overtaken by two epochs
        if epoch != newest + 1 or (newest in self.books and not self.books[newest].all_given):
            raise ValueError(f"epoch {epoch} cannot begin: epoch {newest} is not over")
        self.books[epoch] = Book.open(epoch, samples, partition, seed, inherited)
        self.books.pop(epoch - 2, None)
        return self.books[epoch]

    def settle(self, position: Position) -> None:
        """Follow a change of members at a position."""
        for epoch in [epoch for epoch in self.books if epoch > position.epoch]:
            del self.books[epoch]
        if (book := self.books.get(position.epoch)) is not None:
            book.settle(position.taken)

    def used(self, position: Position) -> tuple[Range, ...]:
        """Return the samples behind a position."""
        book = self.books.get(position.epoch)
        return coalesced(position.inherited) if book is None else book.used(position)
