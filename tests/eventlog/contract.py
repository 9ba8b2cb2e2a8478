"""What every log must do, as test classes; a log's own test file derives from them.

A derived class provides the fixture ``harness``. What is asked of all logs is in
:class:`LogContract` and :class:`SnapshotContract`; of those that keep bytes outside the
process, also in :class:`DurableContract`.
"""

from __future__ import annotations

from typing import Protocol

import pytest

from resilin.contracts.events import (
    ClockTicked,
    Event,
    LeadershipClaimed,
    ProgressReported,
    UnknownEvent,
    WorkerLost,
)
from resilin.contracts.record import CorruptRecordError, LogEntry, Record
from resilin.eventlog.port import EventLog, Snapshot, SnapshotStore


class Harness(Protocol):
    """How the suite gets at the log under test."""

    def writer(self) -> EventLog:
        """The log, open for appends; each call opens it anew, where opening means anything."""
        ...

    def reader(self) -> EventLog:
        """Another view of the same log, as another process would have it."""
        ...

    def snapshots(self) -> SnapshotStore:
        """The snapshots beside the log."""
        ...


class DurableHarness(Harness, Protocol):
    """How the suite gets at a log that keeps bytes."""

    def close(self) -> None:
        """Close everything that was opened."""
        ...

    def damage(self, offset: int) -> None:
        """Put bytes that are no record in the place of one."""
        ...

    def remove(self, offset: int) -> None:
        """Leave a gap where a record was."""
        ...


def record_of(number: int, *events: Event | UnknownEvent) -> Record:
    return Record(
        service="executor",
        cell="main",
        epoch=1,
        basis=number,
        nature="facts",
        timestamp=1_000.0 + number,
        events=events or (ClockTicked(due_seconds=float(number)),),
    )


def filled(log: EventLog, count: int) -> list[LogEntry]:
    return [LogEntry(log.append(record_of(number)), record_of(number)) for number in range(count)]


class LogContract:
    """What every log must do."""

    def test_an_empty_log_holds_nothing(self, harness: Harness) -> None:
        log = harness.writer()
        assert log.end_offset() == -1
        assert list(log.read()) == []
        assert list(harness.reader().read()) == []

    def test_offsets_increase_and_the_end_is_the_last(self, harness: Harness) -> None:
        log = harness.writer()
        last = -1
        for number in range(5):
            offset = log.append(record_of(number))
            assert offset > last
            assert log.end_offset() == offset
            last = offset

    def test_records_are_read_as_they_were_appended_and_in_order(self, harness: Harness) -> None:
        log = harness.writer()
        entries = filled(log, 20)
        assert list(log.read()) == entries
        assert list(log.read()) == entries, "reading takes nothing away"

    def test_reading_starts_after_an_offset(self, harness: Harness) -> None:
        log = harness.writer()
        entries = filled(log, 6)
        for place, entry in enumerate(entries):
            assert list(log.read(entry.offset)) == entries[place + 1 :]
        assert list(log.read(log.end_offset() + 100)) == []

    def test_a_record_may_hold_anything(self, harness: Harness) -> None:
        log = harness.writer()
        content = {"type": "Future", "version": 2, "text": "é\u2028\x00🦎", "deep": [[{}], 1e-7]}
        records = [
            record_of(0, LeadershipClaimed(instance="a")),
            record_of(1, UnknownEvent(type="Future", version=2, content=content)),
            record_of(2, *[ClockTicked(due_seconds=float(number)) for number in range(500)]),
            record_of(
                3,
                WorkerLost(job_id="j", generation=1, iterations_done=0.1 + 0.2, message="é'\"\n"),
                ProgressReported(job_id="j", generation=1, iterations_done=1e15),
            ),
            record_of(
                4, WorkerLost(job_id="j", generation=1, iterations_done=0.0, message="x" * 10**6)
            ),
        ]
        for record in records:
            log.append(record)
        assert [entry.record for entry in log.read()] == records

    def test_equal_records_are_both_kept(self, harness: Harness) -> None:
        # Which of them counts is for the reader's fence to say.
        log = harness.writer()
        first, second = log.append(record_of(1)), log.append(record_of(1))
        assert [entry.offset for entry in log.read()] == [first, second]

    def test_reading_ends_where_the_log_ended_when_it_began(self, harness: Harness) -> None:
        log = harness.writer()
        entries = filled(log, 3)
        reading = log.read()
        later = log.append(record_of(99))
        assert list(reading) == entries
        assert [entry.offset for entry in log.read(entries[-1].offset)] == [later]

    def test_a_reader_may_append_while_it_reads(self, harness: Harness) -> None:
        log = harness.writer()
        entries = filled(log, 3)
        seen = []
        for entry in log.read():
            log.append(record_of(100 + entry.offset))
            seen.append(entry)
        assert seen == entries
        assert len(list(log.read())) == 6

    def test_two_readings_do_not_disturb_each_other(self, harness: Harness) -> None:
        log = harness.writer()
        entries = filled(log, 4)
        first, second = log.read(), log.read(entries[0].offset)
        assert next(first) == entries[0]
        assert next(second) == entries[1]
        assert next(second) == entries[2]
        assert list(first) == entries[1:]
        assert list(second) == entries[3:]

    def test_a_reading_that_is_given_up_holds_nothing_up(self, harness: Harness) -> None:
        log = harness.writer()
        entries = filled(log, 4)
        reading = log.read()
        next(reading)
        del reading
        log.append(record_of(9))
        assert list(log.read())[:4] == entries

    def test_a_reader_follows_a_writer(self, harness: Harness) -> None:
        log, readers = harness.writer(), [harness.reader(), harness.reader()]
        position = -1
        for number in range(4):
            log.append(record_of(number))
            log.append(record_of(number + 100))
            expected = list(log.read(position))
            assert len(expected) == 2
            for reader in readers:
                assert list(reader.read(position)) == expected
                assert reader.end_offset() == log.end_offset()
            position = expected[-1].offset


class SnapshotContract:
    """What every store of snapshots must do."""

    def test_there_is_no_snapshot_at_first(self, harness: Harness) -> None:
        assert harness.snapshots().load("admission") is None

    def test_a_snapshot_is_loaded_as_it_was_saved(self, harness: Harness) -> None:
        store = harness.snapshots()
        for payload in (b"", b"state", bytes(range(256)) * 1_000):
            store.save("admission", Snapshot(7, payload))
            assert store.load("admission") == Snapshot(7, payload)

    def test_a_snapshot_replaces_the_services_last_one_only(self, harness: Harness) -> None:
        store = harness.snapshots()
        store.save("admission", Snapshot(1, b"a"))
        store.save("executor/node-1", Snapshot(2, b"b"))
        store.save("admission", Snapshot(3, b"c"))
        assert store.load("admission") == Snapshot(3, b"c")
        assert store.load("executor/node-1") == Snapshot(2, b"b")
        assert store.load("executor") is None

    def test_snapshots_leave_the_log_alone(self, harness: Harness) -> None:
        log = harness.writer()
        entries = filled(log, 2)
        harness.snapshots().save("admission", Snapshot(entries[-1].offset, b"a"))
        assert list(log.read()) == entries
        assert log.end_offset() == entries[-1].offset


class DurableContract:
    """What a log that keeps bytes must also do."""

    def test_everything_is_there_again_after_closing(self, harness: DurableHarness) -> None:
        entries = filled(harness.writer(), 5)
        harness.snapshots().save("admission", Snapshot(3, b"state"))
        harness.close()
        log = harness.writer()
        assert list(log.read()) == entries
        assert log.end_offset() == entries[-1].offset
        assert harness.snapshots().load("admission") == Snapshot(3, b"state")
        assert log.append(record_of(5)) > entries[-1].offset
        harness.close()
        assert len(list(harness.reader().read())) == 6

    def test_a_corrupt_record_stops_the_reader_at_its_offset(self, harness: DurableHarness) -> None:
        entries = filled(harness.writer(), 5)
        harness.close()
        harness.damage(entries[2].offset)
        reading = harness.reader().read()
        assert [next(reading), next(reading)] == entries[:2]
        with pytest.raises(CorruptRecordError, match=f"offset {entries[2].offset}: "):
            next(reading)
        assert list(harness.reader().read(entries[2].offset)) == entries[3:]

    def test_a_gap_in_the_offsets_is_no_damage(self, harness: DurableHarness) -> None:
        entries = filled(harness.writer(), 5)
        harness.close()
        harness.remove(entries[1].offset)
        harness.remove(entries[4].offset)
        log = harness.writer()
        assert list(log.read()) == [entries[0], entries[2], entries[3]]
        assert list(log.read(entries[0].offset)) == [entries[2], entries[3]]
        assert list(log.read(entries[1].offset)) == [entries[2], entries[3]]
        assert log.append(record_of(9)) > entries[3].offset

    def test_what_could_not_be_read_back_is_not_appended(self, harness: DurableHarness) -> None:
        log = harness.writer()
        entries = filled(log, 1)
        for wrong in ({"timestamp": float("nan")}, {"service": "a b"}, {"events": ()}):
            content = {name: getattr(record_of(1), name) for name in Record.__slots__}
            with pytest.raises(ValueError, match=r"event|timestamp|service"):
                log.append(Record(**(content | wrong)))
        assert list(log.read()) == entries
        log.append(record_of(2))
        assert len(list(log.read())) == 2
