"""The log in a SQLite file keeps the contract of durable logs, and survives what files meet."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resilin.contracts.record import CorruptRecordError
from resilin.eventlog.port import Snapshot
from resilin.eventlog.sqlite import LogFileError, SqliteLog

from .contract import DurableContract, LogContract, SnapshotContract, filled, record_of


class SqliteHarness:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[SqliteLog] = []

    def _opened(self, *, read_only: bool) -> SqliteLog:
        log = SqliteLog(self.path, read_only=read_only)
        self._open.append(log)
        return log

    def writer(self) -> SqliteLog:
        return self._opened(read_only=False)

    def reader(self) -> SqliteLog:
        return self._opened(read_only=True)

    def snapshots(self) -> SqliteLog:
        return self.writer()

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def damage(self, offset: int) -> None:
        self.execute("UPDATE records SET payload = ? WHERE offset = ?", b'{"service":1}', offset)

    def remove(self, offset: int) -> None:
        self.execute("DELETE FROM records WHERE offset = ?", offset)

    def execute(self, statement: str, *values: object) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            connection.execute(statement, values)
        connection.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "cell main?#%.log")
    yield harness
    harness.close()


class TestSqliteLog(LogContract):
    pass


class TestSqliteSnapshots(SnapshotContract):
    pass


class TestSqliteDurability(DurableContract):
    pass


# --- files that are no log -----------------------------------------------------------------


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("content", [b"not a database", b"\x00" * 5_000, b"SQLite format 3\x00"])
def test_a_file_that_is_no_database_is_refused_and_kept(
    tmp_path: Path, content: bytes, read_only: bool
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(LogFileError, match=r"notes\.txt: not a Resilin log"):
        SqliteLog(path, read_only=read_only)
    assert path.read_bytes() == content


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE songs (title TEXT)",
        "CREATE TABLE songs (title TEXT); PRAGMA user_version = 1",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 2",
        "CREATE TABLE records (number INTEGER); PRAGMA user_version = 1",
    ],
)
def test_another_programs_database_is_refused(
    tmp_path: Path, statements: str, read_only: bool
) -> None:
    path = tmp_path / "songs.db"
    connection = sqlite3.connect(path)
    connection.executescript(statements)
    connection.close()
    with pytest.raises(LogFileError, match=r"songs\.db: not a Resilin log"):
        SqliteLog(path, read_only=read_only)


def test_a_log_of_a_later_layout_is_refused(harness: SqliteHarness) -> None:
    harness.writer()
    harness.close()
    harness.execute("PRAGMA user_version = 2")
    for read_only in (True, False):
        with pytest.raises(LogFileError, match="not a Resilin log of layout 1"):
            SqliteLog(harness.path, read_only=read_only)


def test_a_missing_file_is_not_made_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "missing.log"
    with pytest.raises(LogFileError, match=r"missing\.log: no such log file"):
        SqliteLog(path, read_only=True)
    assert not path.exists()


def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogFileError, match="not a Resilin log"):
        SqliteLog(tmp_path)
    with pytest.raises(LogFileError, match="not a Resilin log"):
        SqliteLog(tmp_path / "no such folder" / "cell.log")
    with pytest.raises(LogFileError, match="no such log file"):
        SqliteLog(tmp_path, read_only=True)


def test_a_file_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    untouched = tmp_path / "untouched.log"
    untouched.touch()
    prepared = tmp_path / "prepared.log"
    connection = sqlite3.connect(prepared)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    for path in (untouched, prepared):
        with SqliteLog(path) as log:
            assert len(list(log.read())) == 0
            filled(log, 1)
        with SqliteLog(path, read_only=True) as log:
            assert len(list(log.read())) == 1


# --- files that were damaged ---------------------------------------------------------------


def closed_log(path: Path, count: int) -> bytes:
    with SqliteLog(path) as log:
        filled(log, count)
        log.save("admission", Snapshot(count - 1, b"state" * 500))
    return path.read_bytes()


def read_whatever_is_left(path: Path) -> list[int] | None:
    """Return the offsets in a damaged file, None if it was refused in a proper way."""
    try:
        with SqliteLog(path, read_only=True) as log:
            log.load("admission")
            return [entry.offset for entry in log.read()]
    except (LogFileError, CorruptRecordError) as error:
        assert path.name in str(error)  # noqa: PT017 (either outcome is fine, if it says where)
        return None


def test_a_truncated_file_is_refused_or_a_prefix(tmp_path: Path) -> None:
    content = closed_log(tmp_path / "whole.log", 200)
    path = tmp_path / "cut.log"
    refused = 0
    for length in range(1, len(content), len(content) // 40):
        path.write_bytes(content[:length])
        offsets = read_whatever_is_left(path)
        refused += offsets is None
        assert offsets is None or offsets == list(range(len(offsets)))
    assert refused > 30


def test_a_damaged_file_raises_no_other_error(tmp_path: Path) -> None:
    content = closed_log(tmp_path / "whole.log", 100)
    path = tmp_path / "damaged.log"
    dice = random.Random(7)
    refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(dice.randint(1, 40)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path.write_bytes(damaged)
        refused += read_whatever_is_left(path) is None
    assert refused > 30


@pytest.mark.parametrize("payload", ["text", 7, 2.5, b"", b"\xff", 10**12])
def test_a_row_of_another_kind_is_a_corrupt_record(harness: SqliteHarness, payload: object) -> None:
    filled(harness.writer(), 2)
    harness.close()
    harness.execute("UPDATE records SET payload = ? WHERE offset = 1", payload)
    with pytest.raises(CorruptRecordError, match="offset 1: "):
        list(harness.reader().read())


# --- writers -------------------------------------------------------------------------------


def test_a_reader_cannot_append(harness: SqliteHarness) -> None:
    harness.writer()
    reader = harness.reader()
    with pytest.raises(LogFileError, match="readonly"):
        reader.append(record_of(0))
    with pytest.raises(LogFileError, match="readonly"):
        reader.save("admission", Snapshot(0, b""))


def test_a_second_writer_is_stopped(harness: SqliteHarness) -> None:
    first, second = harness.writer(), harness.writer()
    first.append(record_of(0))
    with pytest.raises(LogFileError, match="is another process writing"):
        second.append(record_of(1))
    assert [entry.record for entry in first.read()] == [record_of(0)]


def test_a_log_that_is_not_durable_is_whole_once_closed(tmp_path: Path) -> None:
    path = tmp_path / "simulation.log"
    with SqliteLog(path, durable=False) as log:
        entries = filled(log, 4_500)
        log.save("admission", Snapshot(1, b"state"))
        assert list(log.read()) == entries
        assert log.end_offset() == entries[-1].offset
    with SqliteLog(path, read_only=True) as reader:
        assert list(reader.read()) == entries
        assert reader.load("admission") == Snapshot(1, b"state")


WRITER = """
import sys
from pathlib import Path
from resilin.contracts.events import ClockTicked
from resilin.contracts.record import Record
from resilin.eventlog.sqlite import SqliteLog

log = SqliteLog(Path(sys.argv[1]), durable=sys.argv[2] == "durable")
number = 0
while True:
    events = (ClockTicked(due_seconds=float(number)),)
    record = Record("executor", "main", 1, number, "facts", 1000.0 + number, events)
    print(log.append(record), flush=True)
    number += 1
"""


@pytest.mark.parametrize(("durable", "appends"), [("durable", 40), ("batches", 4_100)])
def test_a_writer_killed_in_the_middle_leaves_a_readable_prefix(
    tmp_path: Path, durable: str, appends: int
) -> None:
    path = tmp_path / "cell.log"
    with subprocess.Popen(  # noqa: S603 (our own program)
        [sys.executable, "-c", WRITER, str(path), durable], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(appends)]
        writer.send_signal(signal.SIGKILL)
        # What it still managed to tell before the signal reached it counts as promised too.
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
    assert writer.returncode == -signal.SIGKILL

    with SqliteLog(path, read_only=True) as reader:
        entries = list(reader.read())
    assert [entry.offset for entry in entries] == list(range(len(entries)))
    assert [entry.record for entry in entries] == [record_of(n) for n in range(len(entries))]
    if durable == "durable":
        assert len(entries) >= len(told)
    else:
        assert 0 < len(entries) <= len(told) + 1

    with SqliteLog(path) as log:
        assert log.append(record_of(len(entries))) == len(entries)
