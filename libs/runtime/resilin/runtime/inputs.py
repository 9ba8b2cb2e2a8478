"""Where facts come from: commands of a topic, and telemetry delivered from outside the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from itertools import islice
from typing import Any, Protocol

from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample
from resilin.contracts.values import SourcePosition
from resilin.eventlog.port import Message
from resilin.runtime.logs import logger
from resilin.runtime.ports import MessageReader, MessageWriter

__all__ = ["BatchItem", "DeadLetters", "SampleInput", "TopicInput"]

_READ_SECONDS = 0.5
BATCH_ITEMS = 200
"""The most items of one record: it keeps records small and decisions frequent."""
BATCH_BYTES = 2_097_152
"""Of the messages of one record, unless one alone is larger: as facts they may be several
times as long, and the log has a largest record."""

BUFFERED_MESSAGES = 2_000
BUFFERED_BYTES = 33_554_432


class BatchItem(Protocol):
    """One input that knows what it depends on."""

    @property
    def subjects(self) -> Sequence[Hashable] | None:
        """What its facts may depend on; None for everything, so that it goes alone."""
        ...

    @property
    def unreadable(self) -> str | None:
        """Why it could not be read; None if it could."""
        ...


class DeadLetters:
    """Puts aside what could not be read.

    Args:
        service: Who refused it.
        cell: The cell, which the letters are keyed by.
        writer: The topic.
        count: Called once a letter.
    """

    def __init__(
        self, service: str, cell: str, writer: MessageWriter, count: Callable[[], None]
    ) -> None:
        self._service = service
        self._key = cell.encode()
        self._writer = writer
        self._count = count

    async def put(self, payload: bytes, source: SourcePosition, reason: str) -> None:
        """Write one dead letter durably."""
        letter = DeadLetter(
            service=self._service, source=source, reason=reason, payload=b""
        ).model_copy(update={"payload": payload})
        await self._writer.produce(letter.model_dump_json().encode(), self._key)
        self._count()
        logger().warning(
            "dead letter", cause=f"{source.topic}/{source.partition}/{source.offset}", reason=reason
        )


class TopicInput:
    """Feeds the messages of one topic, from the position that the log says was taken.

    Args:
        reader: The topic.
        topic: Its name.
        partition: The cell's partition.
        read: Turns a message into an item for the service's ``accept``.
        position: Returns the last offset that the state says was taken.
        dead_letters: Where unreadable messages go.
    """

    def __init__(
        self,
        reader: MessageReader,
        *,
        topic: str,
        partition: int,
        read: Callable[[bytes, SourcePosition, float], BatchItem],
        position: Callable[[Any, SourcePosition], int],
        dead_letters: DeadLetters,
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._partition = partition
        self._read_message = read
        self._position = position
        self._dead_letters = dead_letters
        self._buffer: deque[Message] = deque()
        self._leads = asyncio.Event()
        self._room = asyncio.Event()
        self._lock = asyncio.Lock()
        self._taking = 0

    async def run(self, wake: Callable[[], None]) -> None:
        """See :class:`~resilin.runtime.ports.Input`."""
        try:
            while True:
                await self._leads.wait()
                await self._room.wait()
                async with self._lock:
                    if not self._leads.is_set():
                        continue
                    self._buffer.extend(await self._reader.read(_READ_SECONDS))
                if self._buffer:
                    wake()
                if self._full():
                    self._room.clear()
        finally:
            await self._reader.stop()

    async def lead(self, state: Any, now_seconds: float) -> None:  # noqa: ANN401, ARG002 (the port)
        """Read on from what the log says was taken."""
        async with self._lock:
            self._buffer.clear()
            await self._reader.start(self._position(state, self._source(0)))
            self._room.set()
            self._leads.set()

    async def follow(self) -> None:
        """See :class:`~resilin.runtime.ports.Input`."""
        self._leads.clear()
        self._buffer.clear()
        self._taking = 0

    async def next_batch(self, state: Any, now_seconds: float) -> Sequence[Any]:  # noqa: ANN401, ARG002 (the port)
        """Take messages up to the first that depends on one before it."""
        batch: list[BatchItem] = []
        letters: list[Awaitable[None]] = []
        subjects: dict[Hashable, None] = {}
        size_bytes = 0
        for message in islice(self._buffer, BATCH_ITEMS):
            size_bytes += len(message.value)
            if batch and size_bytes > BATCH_BYTES:
                break
            source = self._source(message.offset)
            item = self._read_message(message.value, source, now_seconds)
            if item.unreadable is not None:
                letters.append(self._dead_letters.put(message.value, source, item.unreadable))
            elif item.subjects is None:
                if not batch:
                    batch.append(item)
                break
            elif any(subject in subjects for subject in item.subjects):
                break
            else:
                subjects.update(dict.fromkeys(item.subjects))
            batch.append(item)
        await asyncio.gather(*letters)
        self._taking = len(batch)
        return batch

    def taken(self) -> None:
        """See :class:`~resilin.runtime.ports.Input`."""
        for _ in range(self._taking):
            self._buffer.popleft()
        self._taking = 0
        if not self._full():
            self._room.set()

    def _full(self) -> bool:
        size_bytes = sum(len(message.value) for message in self._buffer)
        return len(self._buffer) >= BUFFERED_MESSAGES or size_bytes >= BUFFERED_BYTES

    def folded(self, state: Any, entry: LogEntry, now_seconds: float) -> None:  # noqa: ANN401 (the port)
        """Nothing to do: commands do not depend on the log."""

    def _source(self, offset: int) -> SourcePosition:
        return SourcePosition(topic=self._topic, partition=self._partition, offset=offset)


class SampleInput:
    """Feeds telemetry that :meth:`deliver` was called with.

    A standby keeps its windows warm with the same samples and records nothing.

    Args:
        observe: The core's ``accept`` on its present state, called for its windows while the
            instance stands by.
    """

    def __init__(self, observe: Callable[[StepSample], object]) -> None:
        self._observe = observe
        self._queue: deque[tuple[StepSample, asyncio.Future[None]]] = deque()
        self._wake: Callable[[], None] = lambda: None
        self._runs = asyncio.Event()
        self._leads = False
        self._taking = 0

    async def deliver(self, sample: StepSample) -> None:
        """Return once the service, which may have to fold the log first, has taken it in."""
        await self._runs.wait()
        if not self._leads:
            self._observe(sample)
            return
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((sample, taken))
        self._wake()
        await taken

    async def run(self, wake: Callable[[], None]) -> None:
        """See :class:`~resilin.runtime.ports.Input`."""
        self._wake = wake
        self._runs.set()
        await asyncio.Event().wait()

    async def lead(self, state: Any, now_seconds: float) -> None:  # noqa: ANN401, ARG002 (the port)
        """See :class:`~resilin.runtime.ports.Input`."""
        self._leads = True

    async def follow(self) -> None:
        """Let go of what waits: the new leader has its own copy of every sample."""
        self._leads = False
        self._taking = len(self._queue)
        self.taken()

    async def next_batch(self, state: Any, now_seconds: float) -> Sequence[Any]:  # noqa: ANN401, ARG002 (the port)
        """Take one sample of each job."""
        batch: list[StepSample] = []
        jobs: dict[str, None] = {}
        for sample, _ in self._queue:
            if sample.job_id in jobs or len(batch) == BATCH_ITEMS:
                break
            jobs[sample.job_id] = None
            batch.append(sample)
        self._taking = len(batch)
        return batch

    def taken(self) -> None:
        """Let the deliveries of the last batch return."""
        for _ in range(self._taking):
            _, taken = self._queue.popleft()
            if not taken.done():
                taken.set_result(None)
        self._taking = 0

    def folded(self, state: Any, entry: LogEntry, now_seconds: float) -> None:  # noqa: ANN401 (the port)
        """Nothing to do: samples do not depend on the log."""
