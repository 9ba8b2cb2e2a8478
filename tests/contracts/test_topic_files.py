"""The topic catalogue's files: up to date, and true of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from resilin.contracts import topic_files
from resilin.contracts.topics import (
    CELL_EVENTS,
    SERVICES,
    SNAPSHOTS,
    TELEMETRY_STEPS,
    TOPICS,
    message_bytes_max,
)

ROOT = Path(__file__).parents[2]


def test_the_committed_files_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert topic_files.main([str(ROOT), "--check"]) == 0, capsys.readouterr().err


def test_the_command_writes_once_and_notices_drift(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topic_files.main([str(tmp_path), "--check"]) == 1
    assert [*tmp_path.iterdir()] == []
    assert topic_files.main([str(tmp_path)]) == 0
    assert topic_files.main([str(tmp_path), "--check"]) == 0
    capsys.readouterr()
    for name, text in topic_files.topic_files().items():
        path = tmp_path / name
        assert path.read_text(encoding="utf-8") == text
        path.write_text(text + " ", encoding="utf-8")
        assert topic_files.main([str(tmp_path), "--check"]) == 1
        message = capsys.readouterr().err
        assert str(path) in message
        assert len(message.splitlines()) == 1
        assert topic_files.main([str(tmp_path)]) == 0


def test_the_topics_file_holds_the_catalogue() -> None:
    content = yaml.safe_load(topic_files.topic_files()["deploy/topics.yaml"])
    assert {topic["name"]: topic["settings"] for topic in content["topics"]} == {
        topic.name: topic.settings for topic in TOPICS
    }
    assert all(topic["partitions"] == 1 for topic in content["topics"])


def test_the_rules_file_holds_every_grant() -> None:
    content = yaml.safe_load(topic_files.topic_files()["deploy/acls.yaml"])
    written = {
        (entry["principal"], rule["resource"], rule["name"], rule["pattern"], *rule["operations"])
        for entry in content["acls"]
        for rule in entry["allow"]
    }
    assert written == {
        (
            f"User:resilin-{grant.principal}",
            grant.resource,
            grant.name,
            grant.pattern,
            *grant.operations,
        )
        for grant in topic_files.grants()
    }


@pytest.mark.parametrize("operation", ["Read", "Write"])
def test_a_service_may_do_what_the_catalogue_says_and_nothing_else(operation: str) -> None:
    allowed = {
        (grant.principal, grant.name)
        for grant in topic_files.grants()
        if grant.resource == "topic" and operation in grant.operations
    }
    for topic in TOPICS:
        named = topic.readers if operation == "Read" else topic.writers
        for service in SERVICES:
            assert ((service, topic.name) in allowed) == (service in named)


def test_nobody_but_services_writes_the_log_and_clients_only_ask() -> None:
    writers = {
        grant.principal
        for grant in topic_files.grants()
        if grant.name == CELL_EVENTS.name and "Write" in grant.operations
    }
    assert writers == set(SERVICES)
    clients = [grant for grant in topic_files.grants() if grant.principal == topic_files.CLIENT]
    assert [grant.name for grant in clients] == ["jobs.commands"]
    assert not any("Delete" in grant.operations for grant in topic_files.grants())


# --- the catalogue's settings --------------------------------------------------------------


def test_the_log_is_kept_for_ever_and_never_compacted() -> None:
    assert CELL_EVENTS.settings["cleanup.policy"] == "delete"
    assert CELL_EVENTS.settings["retention.ms"] == CELL_EVENTS.settings["retention.bytes"] == "-1"


def test_what_is_to_go_does_not_wait_for_a_full_file() -> None:
    for topic in (SNAPSHOTS, TELEMETRY_STEPS):
        assert topic.settings["segment.ms"] == "3600000"
    assert int(SNAPSHOTS.settings["segment.bytes"]) >= SNAPSHOTS.message_bytes_max


def test_partitions_follow_the_cells_except_for_telemetry() -> None:
    counts = {topic.name: topic.partitions(3, 8) for topic in TOPICS}
    assert counts.pop("telemetry.steps") == 8
    assert set(counts.values()) == {3}


def test_the_largest_message_of_a_foreign_topic_is_kafkas_own_limit() -> None:
    assert message_bytes_max("cell.events") == CELL_EVENTS.message_bytes_max
    assert message_bytes_max("foreign") == 2**20
