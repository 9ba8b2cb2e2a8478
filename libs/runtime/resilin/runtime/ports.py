"""What a live service needs from the world: a log it can wait on, and to be told when to lead.

The log's own rules are those of :mod:`resilin.eventlog.port`; here they are asynchronous, so
that one process can wait for records, input and timers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.port import Message, Snapshot

__all__ = ["Election", "Input", "LiveLog", "MessageReader", "MessageWriter"]


class LiveLog(Protocol):
    """A cell's log as one service instance reads and writes it."""

    async def start(self, after: int) -> None:
        """Open the log for reading from the first entry above ``after``."""
        ...

    async def read(self, timeout_seconds: float) -> Sequence[LogEntry]:
        """Return the next entries in order; none if none came within the time."""
        ...

    async def append(self, record: Record) -> int:
        """Append one record durably and return its offset; any error ends the process."""
        ...

    async def end_offset(self) -> int:
        """Return the offset at which the log ends now, -1 for an empty log."""
        ...

    def position(self) -> int:
        """Return the offset up to which the log was read.

        Compare this with an end, not the last entry's offset: there may be none at the end.
        """
        ...

    async def load_snapshot(self, service: str) -> Snapshot | None:
        """Return the service's newest snapshot."""
        ...

    async def save_snapshot(self, service: str, snapshot: Snapshot) -> None:
        """Keep this snapshot in place of the service's last one."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class MessageReader(Protocol):
    """A topic beside the log, read in order."""

    async def start(self, after: int) -> None:
        """Open the topic at the first message above ``after``; may be called again."""
        ...

    async def read(self, timeout_seconds: float) -> Sequence[Message]:
        """Return the next messages in order; none if none came within the time."""
        ...

    async def stop(self) -> None:
        """Let go of everything."""
        ...


class MessageWriter(Protocol):
    """A topic beside the log, written durably."""

    async def produce(self, value: bytes, key: bytes | None = None) -> int:
        """Append one message and return its offset."""
        ...


class Election(Protocol):
    """Says whether this instance should lead. A hint only: safety rests on epochs in the log."""

    @property
    def elected(self) -> bool:
        """Whether this instance should lead now."""
        ...

    async def run(self, wake: Any) -> None:  # noqa: ANN401 (a callable without arguments)
        """Stand for election until cancelled; call ``wake`` whenever the answer changes.

        Steps back as it ends, so that another may lead without waiting for a timeout. Errors
        are fatal.
        """
        ...


class Input(Protocol):
    """Where one service's facts come from.

    While the instance leads, the service asks for batches of items that do not depend on one
    another, turns each into facts and appends them as one record.
    """

    async def run(self, wake: Any) -> None:  # noqa: ANN401 (a callable without arguments)
        """Collect input until cancelled; call ``wake`` when there is some. Errors are fatal."""
        ...

    async def lead(self, state: Any, now_seconds: float) -> None:  # noqa: ANN401 (the service's)
        """Begin to feed a leader whose state is ``state``."""
        ...

    async def follow(self) -> None:
        """The instance no longer leads: drop what was not taken."""
        ...

    async def next_batch(self, state: Any, now_seconds: float) -> Sequence[Any]:  # noqa: ANN401 (the service's)
        """Return items to accept now, independent of one another; empty for none."""
        ...

    def taken(self) -> None:
        """The facts of the last batch are in the log."""
        ...

    def folded(self, state: Any, entry: LogEntry, now_seconds: float) -> None:  # noqa: ANN401 (the service's)
        """An entry that counts was folded while the instance leads."""
        ...
