"""A log and its snapshots in one SQLite file.

The rows hold the records' JSON, so ``sqlite3 FILE 'select payload from records'`` shows
the log to anyone. One process writes; any number may read beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from resilin.contracts.record import (
    CorruptRecordError,
    LogEntry,
    Record,
    decode_record,
    encode_record,
)
from resilin.eventlog.port import Snapshot

__all__ = ["LogFileError", "SqliteLog"]

_LAYOUT = 1
# One transaction: a process killed in the middle leaves an empty file, not half a log.
_SCHEMA = f"""
BEGIN;
CREATE TABLE records (offset INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE snapshots (service TEXT PRIMARY KEY, offset INTEGER NOT NULL, payload BLOB NOT NULL);
PRAGMA user_version = {_LAYOUT};
COMMIT;
"""


class LogFileError(ValueError):
    """The file cannot be used as a log; the message says which file and why."""


class SqliteLog:
    """An :class:`EventLog` and a :class:`SnapshotStore` in one file.

    Args:
        path: The file; created if missing, unless ``read_only``.
        read_only: Open an existing log without the right to append.
        durable: Sync to disk before an append returns. A simulation's log, which can be
            made again, does without and commits in batches.

    Raises:
        LogFileError: If the file is no log, or is of a layout that this code does not know.
    """

    _BATCH = 2_000

    def __init__(self, path: Path, *, read_only: bool = False, durable: bool = True) -> None:
        self.path = path
        self._read_only = read_only
        self._durable = durable
        self._uncommitted = 0
        if read_only and not path.is_file():
            raise LogFileError(f"{path}: no such log file")
        mode = "ro" if read_only else "rwc"
        with self._explained("not a Resilin log"):
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None
            )
        try:
            with self._explained("not a Resilin log"):
                self._prepare()
                self._end = self._read_end()
        except LogFileError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        layout = self._connection.execute("PRAGMA user_version").fetchone()[0]
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not self._read_only and layout == 0 and tables == 0:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(_SCHEMA)
        elif layout != _LAYOUT:
            raise LogFileError(f"{self.path}: not a Resilin log of layout {_LAYOUT}")
        if not self._read_only:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn what SQLite raises into an error that names the file."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # The latter is what the driver makes of a message that quotes damaged text.
            raise LogFileError(f"{self.path}: {what} ({error})") from None

    def _read_end(self) -> int:
        (end,) = self._connection.execute("SELECT max(offset) FROM records").fetchone()
        if end is None:
            return -1
        if not isinstance(end, int):
            raise LogFileError(f"{self.path}: the file is damaged (an offset is no number)")
        return end

    def append(self, record: Record) -> int:
        """See :meth:`EventLog.append`."""
        payload = encode_record(record)
        offset = self._end + 1
        with self._explained("cannot append; is another process writing?"):
            if not self._durable and self._uncommitted == 0:
                self._connection.execute("BEGIN")
            self._connection.execute(
                "INSERT INTO records (offset, payload) VALUES (?, ?)", (offset, payload)
            )
        self._end = offset
        if not self._durable:
            self._uncommitted += 1
            if self._uncommitted >= self._BATCH:
                self.commit()
        return offset

    def commit(self) -> None:
        """Write out what a log that is not durable still holds back."""
        if self._uncommitted:
            with self._explained("cannot commit"):
                self._connection.execute("COMMIT")
            self._uncommitted = 0

    def read(self, after: int = -1) -> Iterator[LogEntry]:
        """See :meth:`EventLog.read`."""
        return self._read_between(after, self.end_offset())

    def _read_between(self, after: int, last: int) -> Iterator[LogEntry]:
        with self._explained("the file is damaged"):
            rows = self._connection.execute(
                "SELECT offset, payload FROM records WHERE offset > ? AND offset <= ?"
                " ORDER BY offset",
                (after, last),
            )
            for offset, payload in rows:
                if not isinstance(offset, int) or offset <= after:
                    raise LogFileError(f"{self.path}: the file is damaged (offsets out of order)")
                after = offset
                try:
                    yield LogEntry(offset, decode_record(payload))
                except CorruptRecordError as error:
                    raise CorruptRecordError(f"{self.path}: offset {offset}: {error}") from None

    def end_offset(self) -> int:
        """See :meth:`EventLog.end_offset`."""
        if not self._read_only:
            return self._end
        with self._explained("the file is damaged"):
            return self._read_end()

    def save(self, service: str, snapshot: Snapshot) -> None:
        """See :meth:`SnapshotStore.save`."""
        with self._explained("cannot save a snapshot"):
            self._connection.execute(
                "INSERT OR REPLACE INTO snapshots (service, offset, payload) VALUES (?, ?, ?)",
                (service, snapshot.offset, snapshot.payload),
            )

    def load(self, service: str) -> Snapshot | None:
        """See :meth:`SnapshotStore.load`."""
        with self._explained("the file is damaged"):
            row = self._connection.execute(
                "SELECT offset, payload FROM snapshots WHERE service = ?", (service,)
            ).fetchone()
        return None if row is None else Snapshot(int(row[0]), bytes(row[1]))

    def close(self) -> None:
        """Commit and close the file."""
        self.commit()
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
