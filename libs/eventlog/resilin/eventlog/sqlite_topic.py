"""Topics beside the log in one SQLite file, for services that share a machine.

Any number of processes may produce and read at once: a client leaves a command there while the
services are down, and finds it answered later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from resilin.contracts.topics import message_bytes_max
from resilin.eventlog.port import Message, MessageTooLargeError

__all__ = ["SqliteTopic", "TopicFileError"]

_LAYOUT = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS messages (
    topic TEXT NOT NULL,
    offset INTEGER NOT NULL,
    key BLOB,
    value BLOB NOT NULL,
    PRIMARY KEY (topic, offset)
) WITHOUT ROWID;
PRAGMA user_version = {_LAYOUT};
COMMIT;
"""
_BUSY_SECONDS = 30.0
_BATCH = 200


class TopicFileError(ValueError):
    """The file cannot be used for topics; the message says which file and why."""


class SqliteTopic:
    """A :class:`MessageTopic` in a file that may hold several.

    Args:
        path: The file; created if missing, with the folders above it.
        name: The topic.

    Raises:
        TopicFileError: If the file holds something else.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._name = name
        self._bytes_max = message_bytes_max(name)
        with self._explained("cannot be opened"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            with self._explained("not a file of Resilin's topics"):
                self._prepare()
        except TopicFileError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        layout = self._connection.execute("PRAGMA user_version").fetchone()[0]
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if layout == 0 and tables == 0:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(_SCHEMA)
        elif layout != _LAYOUT:
            raise TopicFileError(f"{self.path}: not a file of Resilin's topics")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("SELECT topic, offset, key, value FROM messages LIMIT 1")

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn what SQLite raises into an error that names the file."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            raise TopicFileError(f"{self.path}: {what} ({error})") from None

    def produce(self, value: bytes, key: bytes | None = None) -> int:
        """See :meth:`MessageTopic.produce`."""
        if len(value) > self._bytes_max:
            raise MessageTooLargeError(
                f"{self._name}: a message of {len(value)} bytes; it may have at most"
                f" {self._bytes_max}"
            )
        with self._explained("cannot be written"):
            # The lock is taken before the end is read: two producers never take one offset.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                offset = self._end() + 1
                self._connection.execute(
                    "INSERT INTO messages (topic, offset, key, value) VALUES (?, ?, ?, ?)",
                    (self._name, offset, key, value),
                )
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise
        return offset

    def read(self, after: int = -1) -> Iterator[Message]:
        """See :meth:`MessageTopic.read`."""
        return self._between(after, self.end_offset())

    def _between(self, after: int, last: int) -> Iterator[Message]:
        # In batches: a reading that is given up leaves no transaction open behind it.
        while after < last:
            with self._explained("the file is damaged"):
                rows = self._connection.execute(
                    "SELECT offset, key, value FROM messages"
                    " WHERE topic = ? AND offset > ? AND offset <= ? ORDER BY offset LIMIT ?",
                    (self._name, after, last, _BATCH),
                ).fetchall()
            if not rows:
                return
            for row in rows:
                yield Message(*row)
            after = rows[-1][0]

    def end_offset(self) -> int:
        """See :meth:`MessageTopic.end_offset`."""
        with self._explained("the file is damaged"):
            return self._end()

    def _end(self) -> int:
        (end,) = self._connection.execute(
            "SELECT max(offset) FROM messages WHERE topic = ?", (self._name,)
        ).fetchone()
        return -1 if end is None else int(end)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
