"""Groups of workers that reduce and broadcast tensors; made in the background, used in one.

A group is built beside the one that trains, by a thread of its own: the rendezvous goes over
the worker's line to the leader, then one barrier sets every connection up. Changing over to it
then costs nothing.

Two things are done with care because they cost a second, or minutes, when done carelessly:

- Waiting is done in short slices, and given up when the leader says that the group is over: a
  worker whose neighbour waits for a dead third would else wait for the time limit.
- A group that is over is not freed at once. Freeing it takes 10 to 40 ms with the interpreter
  locked, and for as long as one of its collectives hangs. It goes to a :class:`Graveyard`.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import (
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    Store,
)

from resilin.elastic import messages as msg
from resilin.elastic.link import Link

__all__ = ["Graveyard", "Group", "GroupBroken", "GroupBuild", "Work"]

POLL_SECONDS = 0.0002
SLICE = dt.timedelta(milliseconds=20)
GRAVES_MAX = 4


class GroupBroken(Exception):  # noqa: N818 (what happened, not whose error it is)
    """A collective failed, or the leader says that the group is over."""


class Work(Protocol):
    """A collective under way."""

    def wait(self, timeout: dt.timedelta = ...) -> bool:
        """Wait until it is done."""
        ...

    def is_completed(self) -> bool:
        """Whether it is done or has failed."""
        ...


class _Superseded(Exception):  # noqa: N818 (what happened, not whose error it is)
    """The plan of a rendezvous is over, or there is no leader."""


class LeaderStore(Store):
    """The rendezvous keys of one plan, kept by the leader.

    The group keeps only a weak hold on a store written in Python: whoever builds a group must
    keep the store for as long.
    """

    def __init__(self, link: Link, number: int) -> None:
        super().__init__()
        self._link = link
        self._number = number
        self._asked: int | None = None
        self._closed = False

    def set(self, key: str, value: bytes | str) -> None:
        """Put a key."""
        raw = value.encode() if isinstance(value, str) else bytes(value)
        self._link.say(msg.StoreSet(number=self._number, key=key, value=raw.hex()))

    def get(self, key: str) -> bytes:
        """Wait for a key and return its value."""

        def wanted(request: int) -> msg.StoreGet:
            self._asked = request
            return msg.StoreGet(request=request, number=self._number, key=key)

        reply = None if self._closed else self._link.ask(wanted)
        if not isinstance(reply, msg.StoreReply) or reply.value is None:
            raise _Superseded(f"no rendezvous for plan {self._number}")
        return bytes.fromhex(reply.value)

    def wait(
        self,
        keys: Sequence[str],
        timeout: dt.timedelta | None = None,  # noqa: ARG002 (the contract)
    ) -> None:
        """Wait for keys."""
        for key in keys:
            self.get(key)

    def close(self) -> None:
        """Let go who waits for a key."""
        self._closed = True
        if self._asked is not None:
            self._link.give_up(self._asked)


class Group:
    """The workers of one plan, as this one sees them."""

    def __init__(
        self,
        plan: msg.Plan,
        rank: int,
        backend: Any,  # noqa: ANN401 (the stubs lack its collectives)
        stores: Sequence[Store],
    ) -> None:
        self.plan = plan
        self.rank = rank
        self.size = len(plan.members)
        self._backend = backend
        self._stores = stores
        self._waits_by_slice = isinstance(backend, ProcessGroupGloo)

    def all_reduce(self, tensor: torch.Tensor) -> Work:
        """Begin to sum a tensor over the workers, in place."""
        try:
            work: Work = self._backend.allreduce([tensor])
        except RuntimeError as error:
            raise GroupBroken(str(error)) from None
        return work

    def broadcast(self, tensor: torch.Tensor, root: int) -> Work:
        """Begin to copy a tensor from one worker to the others, in place."""
        options = BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        try:
            work: Work = self._backend.broadcast([tensor], options)
        except RuntimeError as error:
            raise GroupBroken(str(error)) from None
        return work

    def wait(self, work: Work, given_up: Callable[[], bool]) -> None:
        """Wait for a collective.

        Raises:
            GroupBroken: If it failed, or was given up.
        """
        while not self._ended(work):
            if given_up():
                raise GroupBroken("given up: the plan is over")

    def _ended(self, work: Work) -> bool:
        """Wait for a collective, for one slice of time; whether it is done.

        Raises:
            GroupBroken: If it failed.
        """
        if not self._waits_by_slice and not work.is_completed():
            time.sleep(POLL_SECONDS)  # NCCL would take a time limit as a reason to abort
            return False
        try:
            work.wait(SLICE)
        except RuntimeError:
            if not work.is_completed():
                return False  # only the slice is over
        else:
            return True
        try:
            work.wait(SLICE)  # it may have ended, and well, just after the slice was over
        except RuntimeError as error:
            raise GroupBroken(str(error).partition("\n")[0]) from None
        return True

    def arrived(self, work: Work) -> bool:
        """Wait for a collective, for a moment only; whether it is done.

        Raises:
            GroupBroken: If it failed.
        """
        return self._ended(work) or self._ended(work)

    def abort(self) -> None:
        """End what is under way, where that exists: not with gloo."""
        if not self._waits_by_slice:
            self._backend.abort()


class GroupBuild:
    """A group in the making, in a thread of its own.

    Attributes:
        plan: What it is built for.
        group: The group, once every member has built it.
        failure: Why it could not be built.
    """

    def __init__(
        self,
        link: Link,
        worker_id: str,
        plan: msg.Plan,
        device: torch.device,
        *,
        host: str,
        timeout_seconds: float,
    ) -> None:
        self.plan = plan
        self.group: Group | None = None
        self.failure: str | None = None
        self._link = link
        self._rank = plan.members.index(worker_id)
        self._device = device
        self._host = host
        self._timeout = dt.timedelta(seconds=timeout_seconds)
        self._store = LeaderStore(link, plan.number)
        self._met = False
        name = f"group-{plan.number}"
        threading.Thread(target=self._build, name=name, daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether it is built or has failed."""
        return self.group is not None or self.failure is not None

    def abandon(self) -> None:
        """Stop waiting for others, unless all have met: then they may go on with this group."""
        if not self._met:
            self._store.close()

    def _build(self) -> None:
        try:
            prefixed = PrefixStore(f"m{self.plan.number}", self._store)
            backend = self._connect(prefixed)
            self._met = True
            group = Group(self.plan, self._rank, backend, (prefixed, self._store))
            if self._device.type == "cpu":  # NCCL has connected all already
                group.wait(group.all_reduce(torch.zeros(1)), lambda: False)
            self.group = group
        except (RuntimeError, GroupBroken, _Superseded, OSError) as error:
            self.failure = str(error).partition("\n")[0] or type(error).__name__
        with self._link.orders.changed:
            self._link.orders.changed.notify_all()

    def _connect(self, store: Store) -> Any:  # noqa: ANN401 (the stubs lack the methods)
        rank, size = self._rank, len(self.plan.members)
        if self._device.type == "cuda":
            from torch._C._distributed_c10d import ProcessGroupNCCL

            torch.cuda.set_device(self._device)
            options = ProcessGroupNCCL.Options()
            options._timeout = self._timeout  # noqa: SLF001 (the binding's name for it)
            nccl = ProcessGroupNCCL(store, rank, size, options)
            nccl.eager_connect_single_device(self._device)
            return nccl
        binding: Any = ProcessGroupGloo  # its stubs lack the options
        gloo = binding._Options()  # noqa: SLF001 (the binding's name for it)
        gloo._devices = [_device(self._host)]  # noqa: SLF001 (as above)
        gloo._timeout = self._timeout  # noqa: SLF001 (as above)
        return binding(store, rank, size, gloo)


@cache
def _device(host: str) -> Any:  # noqa: ANN401 (the stubs lack it)
    """Return what connects this process: one for all its groups, with one thread."""
    return ProcessGroupGloo.create_device(hostname=host)


class Graveyard:
    """Groups that are over and not yet freed, with what may still be under way in them."""

    def __init__(self) -> None:
        self._graves: list[tuple[Group, list[Work]]] = []

    def bury(self, group: Group | None, works: Sequence[Work] = ()) -> None:
        """Keep a group for now."""
        if group is None:
            return
        self._graves.append((group, list(works)))

    def tidy(self, *, idle: bool) -> None:
        """Free the oldest groups if there are many, or all that can be while nobody trains."""
        keep = 0 if idle else GRAVES_MAX
        excess = len(self._graves) - keep
        for grave in self._graves[: max(0, excess)]:
            if all(work.is_completed() for work in grave[1]):
                self._graves.remove(grave)

    def __len__(self) -> int:
        return len(self._graves)
