"""The log port: what a log must do, whatever it is made of.

A log is the one partition of one cell: a total order of records. It is written by many
and read by all. Snapshots are a cache beside it: deleting them loses nothing but time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from resilin.contracts.record import LogEntry, Record

__all__ = [
    "EventLog",
    "Message",
    "MessageTooLargeError",
    "MessageTopic",
    "Snapshot",
    "SnapshotStore",
]


class EventLog(Protocol):
    """An append-only sequence of records."""

    def append(self, record: Record) -> int:
        """Append one record atomically and durably; return its offset.

        Offsets increase strictly. They need not be consecutive.
        """
        ...

    def read(self, after: int = -1) -> Iterator[LogEntry]:
        """Yield the entries with an offset above ``after``, in order, up to the end as of now.

        Raises:
            CorruptRecordError: At the first entry that is no record, naming its offset.
        """
        ...

    def end_offset(self) -> int:
        """Return the offset of the last record, -1 for an empty log."""
        ...


class Snapshot(NamedTuple):
    """A service's folded state up to and including ``offset``, as bytes."""

    offset: int
    payload: bytes


class SnapshotStore(Protocol):
    """The newest snapshot of each service."""

    def save(self, service: str, snapshot: Snapshot) -> None:
        """Keep this snapshot in place of the service's last one."""
        ...

    def load(self, service: str) -> Snapshot | None:
        """Return the service's newest snapshot."""
        ...


class Message(NamedTuple):
    """One message of a topic beside the log: commands, dead letters.

    Attributes:
        offset: Its place in the topic.
        key: What it is keyed by; None for nothing.
        value: Its bytes as they were sent, readable or not.
    """

    offset: int
    key: bytes | None
    value: bytes


class MessageTopic(Protocol):
    """One cell's partition of a topic beside the log: any bytes, in order, never changed."""

    def produce(self, value: bytes, key: bytes | None = None) -> int:
        """Append one message durably; return its offset.

        Raises:
            MessageTooLargeError: If the topic does not take messages of this size.
        """
        ...

    def read(self, after: int = -1) -> Iterator[Message]:
        """Yield the messages with an offset above ``after``, in order, up to the end as of now.

        Starts at the oldest message that is still kept.
        """
        ...

    def end_offset(self) -> int:
        """Return the offset of the last message, -1 for an empty topic."""
        ...


class MessageTooLargeError(ValueError):
    """A message is larger than its topic takes; the text says both sizes."""
