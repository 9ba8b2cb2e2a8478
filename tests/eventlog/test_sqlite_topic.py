"""Topics in a SQLite file keep the contract of topics, with many processes at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resilin.eventlog.sqlite_topic import SqliteTopic, TopicFileError

from .topic_contract import TopicContract


class SqliteTopicHarness:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.open: list[SqliteTopic] = []

    def _opened(self, name: str) -> SqliteTopic:
        self.open.append(SqliteTopic(self.path, name))
        return self.open[-1]

    def topic(self) -> SqliteTopic:
        return self._opened("jobs.commands")

    def other_topic(self) -> SqliteTopic:
        return self._opened("foreign")


@pytest.fixture
def topic_harness(tmp_path: Path) -> Iterator[SqliteTopicHarness]:
    harness = SqliteTopicHarness(tmp_path / "a new folder" / "topics?#%.sqlite")
    yield harness
    for topic in harness.open:
        topic.close()


class TestSqliteTopic(TopicContract):
    pass


_PRODUCE = """
import sys
from pathlib import Path
from resilin.eventlog.sqlite_topic import SqliteTopic
with SqliteTopic(Path(sys.argv[1]), "jobs.commands") as topic:
    for number in range(50):
        topic.produce(f"{sys.argv[2]} {number}".encode())
"""


def test_processes_that_open_and_write_at_once_lose_nothing(
    topic_harness: SqliteTopicHarness,
) -> None:
    producers = [
        subprocess.Popen(  # noqa: S603 (our own program)
            [sys.executable, "-c", _PRODUCE, str(topic_harness.path), str(producer)]
        )
        for producer in range(4)
    ]
    assert [producer.wait(120) for producer in producers] == [0, 0, 0, 0]
    messages = list(topic_harness.topic().read())
    assert [message.offset for message in messages] == list(range(200))
    for producer in range(4):
        own = [message.value for message in messages if message.value.startswith(b"%d " % producer)]
        assert own == [b"%d %d" % (producer, number) for number in range(50)]


def test_what_was_produced_is_there_after_closing(tmp_path: Path) -> None:
    path = tmp_path / "topics.sqlite"
    with SqliteTopic(path, "jobs.commands") as topic:
        topic.produce(b"kept", b"main")
    with SqliteTopic(path, "jobs.commands") as topic:
        assert [message.value for message in topic.read()] == [b"kept"]
        assert topic.produce(b"next") == 1


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\x00" + b"\x00" * 600])
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(TopicFileError, match=r"notes\.txt"):
        SqliteTopic(path, "jobs.commands")
    assert path.read_bytes() == content


def test_a_cells_log_is_not_taken_for_topics(tmp_path: Path) -> None:
    from resilin.eventlog.sqlite import SqliteLog

    path = tmp_path / "log.resilin"
    SqliteLog(path).close()
    with pytest.raises(TopicFileError, match=r"log\.resilin: not a file of Resilin's topics"):
        SqliteTopic(path, "jobs.commands")


def test_a_folder_cannot_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(TopicFileError, match="cannot be opened"):
        SqliteTopic(tmp_path, "jobs.commands")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TopicFileError, match="cannot be opened"):
        SqliteTopic(tmp_path / "file" / "topics.sqlite", "jobs.commands")
