"""A live service instance: the thin shell around one :class:`~resilin.kernel.host.ServiceHost`.

    start:    newest snapshot, fold the log to its end, stand for election
    standby:  fold along, and check each decision of the leader against one's own
    elected:  claim the service in the log; it leads once its claim counts
    leading:  take facts in, decide, let timers fire; one append at a time
    any error: the process ends, loudly; whoever supervises it starts it again

The shell is the same on every log. What it appends it folds as soon as the log has
acknowledged it, if nothing stands in between; otherwise when it reads it back.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, cast

from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.port import Snapshot
from resilin.kernel.decider import Decider, Intake
from resilin.kernel.host import Folded, Role, ServiceHost
from resilin.kernel.snapshot import SnapshotError, dump, load
from resilin.kernel.software import may_differ
from resilin.runtime.clock import Clock
from resilin.runtime.logs import bind_service, logger
from resilin.runtime.ports import Election, Input, LiveLog

__all__ = ["Companion", "LiveService", "Observer"]

State = TypeVar("State")

_READ_SECONDS = 0.5
_WAIT_SECONDS = 1.0
"""How often to look again although nothing woke the loop: a timer may be far away."""

_RECLAIM_SECONDS = 2.0
"""How long an elected instance that was fenced waits before it claims again."""


class Observer(Protocol):
    """Is told what an instance does, for metrics."""

    def folded(self, entry: LogEntry, *, counted: bool) -> None:
        """An entry was folded."""
        ...

    def appended(self, record: Record, seconds: float) -> None:
        """A record was acknowledged by the log after ``seconds``."""
        ...

    def decided(self, seconds: float) -> None:
        """The core was asked for its decision."""
        ...

    def replayed(self, records: int, seconds: float) -> None:
        """The log was folded to its end at the start."""
        ...

    def role(self, *, leading: bool, epoch: int) -> None:
        """The role may have changed."""
        ...

    def lag(self, records: int) -> None:
        """So many records were read and not folded yet."""
        ...

    def snapshot(self, size_bytes: int, seconds: float) -> None:
        """A snapshot was saved."""
        ...

    def mismatch(self) -> None:
        """The leader decided otherwise than this standby does from the same basis."""
        ...


class Companion(Protocol):
    """Something else that folds the log beside the service and is kept in snapshots with it."""

    def dump(self) -> bytes:
        """Return what it has come to."""
        ...

    def restore(self, payload: bytes) -> None:
        """Take up from a dump; entries that it holds already are not counted again.

        Raises:
            SnapshotError: If it is of no use to this code.
        """
        ...


class LiveService(Generic[State]):
    """One instance of one service on a live log.

    Args:
        decider: The service's core.
        cell: The cell.
        instance: The instance's name, for people.
        log: The cell's log.
        election: Says when to lead.
        clock: The cell's time.
        inputs: Where its facts come from.
        observers: Who is told what it does.
        companions: What is kept in snapshots with the state, by a name.
        snapshot_every_records: Entries between two snapshots.

    Attributes:
        host: The kernel's host.
        ready: Set once the log was folded to its end.
    """

    def __init__(
        self,
        decider: Decider[State],
        *,
        cell: str,
        instance: str,
        log: LiveLog,
        election: Election,
        clock: Clock,
        inputs: Sequence[Input] = (),
        observers: Sequence[Observer] = (),
        companions: Mapping[str, Companion] = MappingProxyType({}),
        snapshot_every_records: int = 20_000,
    ) -> None:
        self._decider = decider
        self._cell = cell
        self._instance = instance
        self._log = log
        self._election = election
        self._clock = clock
        self._inputs = inputs
        self._observers = observers
        self._companions = companions
        self._snapshot_every = snapshot_every_records
        self._snapshot_offset = -1
        self.host: ServiceHost[State] = ServiceHost(decider, cell=cell, instance=instance)
        self.ready = asyncio.Event()
        self._pending: deque[LogEntry] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self._fed = False
        self._claim_after = 0.0
        self._claim_from: int | None = None
        self._facts_were_last = False
        self._decided_at = -2

    @property
    def service(self) -> str:
        """The service's name."""
        return self._decider.service

    def stop(self) -> None:
        """Ask the instance to end in good order; :meth:`run` returns."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Run until stopped; raises what went wrong."""
        bind_service(self.service, self._instance)
        await self._restore()
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [self._read, self._election.run, *(each.run for each in self._inputs)]
                background = [tasks.create_task(_for_ever(each, self._wake.set)) for each in beside]
                logger().info("ready", offset=self.host.folded.offset)
                self.ready.set()
                await self._work()
                for task in background:
                    task.cancel()
        except* Exception as group:
            raise _first(group) from None
        if self.host.may_append:
            await self._save_snapshot()
        logger().info("stopped", offset=self.host.folded.offset)

    # --- start -----------------------------------------------------------------------------

    async def _restore(self) -> None:
        started = time.perf_counter()
        folded = await self._load_snapshot()
        if folded is not None:
            self.host = ServiceHost(
                self._decider, cell=self._cell, instance=self._instance, folded=folded
            )
            self._snapshot_offset = folded.offset
        first = self.host.folded.offset
        await self._log.start(first)
        end = await self._log.end_offset()
        if first > end:
            raise RuntimeError(
                f"the snapshot of {self.service} stands at offset {first}, beyond the log's end:"
                " the log was truncated or replaced; restore it, or delete its snapshots"
            )
        while self._log.position() < end and not self._stopping:
            for entry in await self._log.read(_READ_SECONDS):
                self._fold(entry)
            # Heartbeats and the health page live on the same loop.
            await asyncio.sleep(0)
        records = self.host.folded.offset - first
        seconds = time.perf_counter() - started
        logger().info("replayed", records=records, seconds=round(seconds, 3), snapshot=first)
        for observer in self._observers:
            observer.replayed(records, seconds)

    async def _load_snapshot(self) -> Folded[State] | None:
        snapshot = await self._log.load_snapshot(self.service)
        if snapshot is None:
            return None
        try:
            folded = load(snapshot.payload, self._decider.state_type)
            for name, companion in self._companions.items():
                beside = await self._log.load_snapshot(f"{self.service}.{name}")
                if beside is None or beside.offset < folded.offset:
                    raise SnapshotError(f"there is no snapshot of its {name} that goes with it")
                companion.restore(beside.payload)
        except SnapshotError as error:
            # A cache of another version, or a damaged one: folding from the start is as good.
            logger().warning("snapshot not used", reason=str(error))
            return None
        return folded

    # --- the loop --------------------------------------------------------------------------

    async def _read(self, wake: Callable[[], None]) -> None:
        while True:
            entries = await self._log.read(_READ_SECONDS)
            if entries:
                self._pending.extend(entries)
                wake()

    async def _work(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self._fold_pending()
            await self._feed()
            if await self._step():
                # A log in a file answers without a pause: let the others have their turn.
                await asyncio.sleep(0)
            else:
                await self._wait()

    async def _wait(self) -> None:
        if self._pending or self._wake.is_set():
            return
        timer = self.host.next_timer() if self.host.may_append else None
        seconds = _WAIT_SECONDS
        if timer is not None:
            seconds = self._clock.wall_seconds(timer - self._clock.now_seconds())
        try:
            async with asyncio.timeout(min(max(seconds, 0.001), _WAIT_SECONDS)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _step(self) -> bool:
        """Append at most one record; say whether one was."""
        host = self.host
        if host.role is Role.STANDBY and host.quiescent and self._election.elected:
            return await self._claim()
        self._claim_from = None
        if not host.may_append:
            return False
        # In turn, so that a stream of input cannot put decisions off.
        if self._facts_were_last:
            return await self._decide() or await self._take_facts() or await self._tick()
        return await self._take_facts() or await self._decide() or await self._tick()

    async def _claim(self) -> bool:
        if time.monotonic() < self._claim_after:
            return False
        if self._claim_from is None:
            # The end as of now: in a busy log there would always be one further on.
            self._claim_from = await self._log.end_offset()
        if self._log.position() < self._claim_from or self._pending:
            return False
        self._claim_from = None
        await self._append(self.host.claim(self._clock.now_seconds()))
        return True

    async def _take_facts(self) -> bool:
        for source in self._inputs:
            now = self._clock.now_seconds()
            items = await source.next_batch(self.host.folded.state, now)
            if not items:
                continue
            intake = cast("Intake[State, Any]", self._decider)
            facts = [fact for item in items for fact in intake.accept(self.host.folded.state, item)]
            record = self.host.facts(facts, self._clock.now_seconds())
            self._facts_were_last = True
            if record is not None:
                await self._append(record)
            source.taken()
            return True
        return False

    async def _decide(self) -> bool:
        self._facts_were_last = False
        if self._decided_at == self.host.folded.offset:
            return False
        self._decided_at = self.host.folded.offset
        started = time.perf_counter()
        record = self.host.poll(self._clock.now_seconds())
        seconds = time.perf_counter() - started
        for observer in self._observers:
            observer.decided(seconds)
        if record is None:
            return False
        await self._append(record)
        return True

    async def _tick(self) -> bool:
        record = self.host.tick(self._clock.now_seconds())
        if record is None:
            return False
        await self._append(record)
        return True

    async def _append(self, record: Record) -> None:
        started = time.perf_counter()
        offset = await self._log.append(record)
        seconds = time.perf_counter() - started
        for observer in self._observers:
            observer.appended(record, seconds)
        self.host.appended(offset)
        self._fold_pending()
        if self.host.folded.offset == offset - 1:
            self._fold(LogEntry(offset, record))

    def _fold_pending(self) -> None:
        for observer in self._observers:
            observer.lag(len(self._pending))
        while self._pending:
            self._fold(self._pending.popleft())

    def _fold(self, entry: LogEntry) -> None:
        if entry.offset <= self.host.folded.offset:
            return  # its own, folded when it was acknowledged
        was, epoch = self.host.role, self.host.folded.fence.epoch(self.service)
        expected = self._expected(entry)
        counted = self.host.fold(entry)
        if counted and expected is not None and expected != entry.record.events:
            logger().error("the leader decides otherwise", offset=entry.offset)
            for observer in self._observers:
                observer.mismatch()
        for observer in self._observers:
            observer.folded(entry, counted=counted)
        # One that was followed has other things to fold first: they are not its to act on.
        if counted and self._fed and self.host.role is Role.LEADING:
            for source in self._inputs:
                source.folded(self.host.folded.state, entry, self._clock.now_seconds())
        now_epoch = self.host.folded.fence.epoch(self.service)
        if self.host.role is not was or now_epoch != epoch:
            leading = self.host.role is Role.LEADING
            if self.host.role is Role.STANDBY and was is not Role.STANDBY:
                self._claim_after = time.monotonic() + _RECLAIM_SECONDS
            logger().info("role", role=self.host.role.value, epoch=now_epoch, offset=entry.offset)
            for observer in self._observers:
                observer.role(leading=leading, epoch=now_epoch)

    def _expected(self, entry: LogEntry) -> tuple[Any, ...] | None:
        """Decide for oneself what the leader decided, where the basis is what is folded."""
        record = entry.record
        if (
            not self.ready.is_set()
            or self.host.role is not Role.STANDBY
            or record.nature != "decision"
            or record.service != self.service
            or record.basis != self.host.folded.offset
            or may_differ(self.host.folded.fence.software(self.service))
        ):
            return None
        return tuple(self._decider.decide(self.host.folded.state))

    async def _feed(self) -> None:
        """Start or stop the inputs as the role has changed; snapshot now and then."""
        leading = self.host.role is Role.LEADING
        if leading and not self._fed:
            self._fed = True
            for source in self._inputs:
                await source.lead(self.host.folded.state, self._clock.now_seconds())
        elif not leading and self._fed:
            self._fed = False
            for source in self._inputs:
                await source.follow()
        if (
            self.host.may_append
            and self.host.folded.offset - self._snapshot_offset >= self._snapshot_every
        ):
            await self._save_snapshot()

    async def _save_snapshot(self) -> None:
        started = time.perf_counter()
        offset = self.host.folded.offset
        payload = dump(self.host.folded, self._decider.state_type)
        # First what goes with it: a companion may be ahead of the state, never behind.
        for name, companion in self._companions.items():
            beside = Snapshot(offset, companion.dump())
            await self._log.save_snapshot(f"{self.service}.{name}", beside)
        await self._log.save_snapshot(self.service, Snapshot(offset, payload))
        self._snapshot_offset = offset
        for observer in self._observers:
            observer.snapshot(len(payload), time.perf_counter() - started)


async def _for_ever(
    work: Callable[[Callable[[], None]], Awaitable[None]], wake: Callable[[], None]
) -> None:
    """Run what only ends with the service: if it ended by itself, nobody would notice."""
    try:
        await work(wake)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Clients let the end of their own tasks out as ours.
    raise RuntimeError(f"a part of the service ended by itself: {work}")


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first plain error: one is enough to end a process, and easier to read."""
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group holds an exception")
