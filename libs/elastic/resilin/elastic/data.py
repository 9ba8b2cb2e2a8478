"""Which samples a worker trains on next, and how they become a batch.

Global order: minibatch t of an epoch is ``perm[tB : (t+1)B]`` of the epoch's permutation, and
the workers share it out by rank. Exactly once by construction, independent of how many workers
there are, and no leader is needed.

On demand: the leader deals out partitions (:mod:`.partitions`); a thread keeps one more at
hand than is being read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import default_collate

from resilin.elastic import messages as msg
from resilin.elastic.link import Link
from resilin.elastic.partitions import first_of, share_of, size_of

__all__ = ["BatchReader", "Feed", "GlobalOrderFeed", "MapDataset", "OnDemandFeed"]

BUFFERED_RANGES = 2
DRY_SECONDS = 0.02
"""How long to wait before the leader is asked again that had nothing to give."""


@runtime_checkable
class MapDataset(Protocol):
    """A dataset of known length whose samples can be had by index."""

    def __len__(self) -> int:
        """Return how many samples there are."""
        ...

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 (a sample is the user's business)
        """Return a sample."""
        ...


class BatchReader:
    """Makes batches of a dataset: tensors (or tuples of them), or any map-style dataset."""

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 (tensors, tuples of tensors, or map-style)
        collate: Callable[[list[Any]], Any] | None,
        device: torch.device,
    ) -> None:
        tensors = getattr(dataset, "tensors", dataset)
        if isinstance(tensors, Tensor):
            tensors = (tensors,)
        self._single = isinstance(dataset, Tensor)
        whole = isinstance(tensors, tuple) and all(isinstance(t, Tensor) for t in tensors)
        self._tensors: tuple[Tensor, ...] | None = tensors if whole else None
        self._dataset = dataset
        self._collate = collate or default_collate
        self._device = device
        if self._tensors is None and not isinstance(dataset, MapDataset):
            raise TypeError(
                "a dataset has a length and samples by index, or is made of tensors; "
                f"{type(dataset).__name__} is not"
            )
        self.samples = len(self._tensors[0]) if self._tensors is not None else len(dataset)
        if not self.samples:
            raise ValueError("the dataset is empty")

    @property
    def reads_ahead(self) -> bool:
        """Whether samples have to be fetched one by one, so that it pays to do it early."""
        return self._tensors is None

    def fetch(self, indexes: Sequence[int]) -> list[Any]:
        """Return samples one by one."""
        return [self._dataset[index] for index in indexes]

    def batch(self, indexes: Sequence[int], fetched: list[Any] | None = None) -> Any:  # noqa: ANN401 (what the user's collate makes)
        """Return the batch of these samples."""
        if self._tensors is not None and fetched is None:
            picked = torch.as_tensor(indexes, dtype=torch.int64)
            parts = tuple(tensor[picked].to(self._device) for tensor in self._tensors)
            return parts[0] if self._single else parts
        return _moved(self._collate(fetched or self.fetch(indexes)), self._device)


def _moved(value: Any, device: torch.device) -> Any:  # noqa: ANN401 (a batch is anything)
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(each, device) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(each, device) for each in value)
    return value


class Feed(Protocol):
    """Says which samples come next; nothing is used up until the step is done."""

    def next(self, position: msg.Position, plan: msg.Plan, rank: int) -> list[int]:
        """Return this worker's samples of the next minibatch."""
        ...

    def batch(self, indexes: Sequence[int]) -> Any:  # noqa: ANN401 (as the reader's)
        """Return some of these samples as a batch."""
        ...

    def resume(self, position: msg.Position, plan: msg.Plan) -> None:
        """Go on from a position, under a plan; what was taken beyond it is given back."""
        ...


class GlobalOrderFeed:
    """Minibatches of one permutation an epoch, shared out by rank."""

    def __init__(self, reader: BatchReader, seed: int) -> None:
        self._reader = reader
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def next(self, position: msg.Position, plan: msg.Plan, rank: int) -> list[int]:
        """Return this worker's share of the next minibatch."""
        if position.epoch != self._epoch:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + position.epoch)
            self._order = torch.randperm(self._reader.samples, generator=generator)
            self._epoch = position.epoch
        start = position.consumed
        stop = min(start + plan.global_batch, self._reader.samples)
        first, last = share_of(stop - start, rank, len(plan.members))
        indexes: list[int] = self._order[start + first : start + last].tolist()
        return indexes

    def batch(self, indexes: Sequence[int]) -> Any:  # noqa: ANN401 (as the reader's)
        """Return these samples as a batch."""
        return self._reader.batch(indexes)

    def resume(self, position: msg.Position, plan: msg.Plan) -> None:
        """Do nothing: the position says it all."""


class OnDemandFeed:
    """Partitions from the leader, one read ahead by a thread."""

    def __init__(self, reader: BatchReader, link: Link, worker_id: str) -> None:
        self._reader = reader
        self._link = link
        self._worker_id = worker_id
        self._changed = threading.Condition()
        self._epoch = -1
        self._inherited: tuple[msg.Range, ...] = ()
        self._number = 0
        self._ranges: list[msg.Range] = []
        self._used = 0
        self._share = 0
        self._dry = False
        self._fetched: dict[int, Any] = {}
        self._failure: Exception | None = None
        threading.Thread(target=self._pump, name="partitions", daemon=True).start()

    def next(self, position: msg.Position, plan: msg.Plan, rank: int) -> list[int]:
        """Return up to this worker's share of the global batch; fewer when there is no more."""
        first, last = share_of(plan.global_batch, rank, len(plan.members))
        count = last - first
        with self._changed:
            self._share = count
            self._follow(position, plan)
            if self._failure is not None:
                raise self._failure
            while self._left() < count and not self._dry:
                self._changed.wait(0.1)
                if self._link.orders.leave or not self._link.connected:
                    break
            self._forget_used()
            return self._peek(count)

    def batch(self, indexes: Sequence[int]) -> Any:  # noqa: ANN401 (as the reader's)
        """Return these samples as a batch."""
        if not self._reader.reads_ahead:
            return self._reader.batch(indexes)
        samples = [
            self._fetched[i] if i in self._fetched else self._reader.fetch([i])[0] for i in indexes
        ]
        return self._reader.batch(indexes, samples)

    def resume(self, position: msg.Position, plan: msg.Plan) -> None:
        """Go on from a position: only what was trained on by then is used."""
        with self._changed:
            self._follow(position, plan)

    def _follow(self, position: msg.Position, plan: msg.Plan) -> None:
        if position.epoch != self._epoch:
            self._epoch = position.epoch
            self._inherited = position.inherited
            self._ranges = []
            self._fetched = {}
            self._dry = False
        self._used = position.taken.get(self._worker_id, 0)
        if plan.number != self._number:
            self._number = plan.number
            self._ranges = first_of(self._ranges, self._used)[0]
            self._fetched = {}
            self._dry = False
        self._changed.notify_all()

    def _peek(self, count: int) -> list[int]:
        indexes: list[int] = []
        skip = self._used
        for start, stop in self._ranges:
            first = start + min(skip, stop - start)
            skip -= first - start
            indexes += range(first, min(stop, first + count - len(indexes)))
            if len(indexes) == count:
                break
        return indexes

    def _forget_used(self) -> None:
        used = self._used
        for start, stop in self._ranges:
            if used < stop - start:
                return
            used -= stop - start
            if start in self._fetched:
                for index in range(start, stop):
                    self._fetched.pop(index, None)

    def _left(self) -> int:
        return size_of(self._ranges) - self._used

    def _enough(self) -> bool:
        """Whether there is a share at hand, and ranges that are not begun."""
        used, unread = self._used, 0
        for start, stop in self._ranges:
            unread += used <= 0
            used -= stop - start
        return unread >= BUFFERED_RANGES and self._left() >= 2 * self._share

    def _pump(self) -> None:
        while True:
            with self._changed:
                while self._epoch < 0 or self._enough():
                    self._changed.wait()
                epoch, have = self._epoch, len(self._ranges)
                number, inherited = self._number, self._inherited

            def wanted(
                request: int,
                epoch: int = epoch,
                have: int = have,
                number: int = number,
                inherited: tuple[msg.Range, ...] = inherited,
            ) -> msg.PartitionsWanted:
                return msg.PartitionsWanted(
                    request=request,
                    number=number,
                    epoch=epoch,
                    have=have,
                    samples=self._reader.samples,
                    inherited=inherited,
                )

            reply = self._link.ask(wanted)
            ranges = reply.ranges if isinstance(reply, msg.Partitions) else ()
            with self._changed:
                asked = (epoch, number, have)
                current = asked == (self._epoch, self._number, len(self._ranges))
                if current:
                    self._ranges += ranges
                    self._dry = not ranges
                    self._changed.notify_all()
                if not ranges:
                    self._changed.wait(DRY_SECONDS)
            if current and self._reader.reads_ahead:
                self._read_ahead(number, epoch, ranges)

    def _read_ahead(self, number: int, epoch: int, ranges: Sequence[msg.Range]) -> None:
        for start, stop in ranges:
            indexes = range(start, stop)
            try:
                samples = dict(zip(indexes, self._reader.fetch(indexes), strict=True))
            except Exception as error:
                self._failure = error
                return
            with self._changed:
                if (number, epoch) == (self._number, self._epoch):
                    self._fetched.update(samples)
