"""What a process is told by its environment; what makes no sense is refused by name."""

from __future__ import annotations

import socket

import pytest
from pydantic import ValidationError

from resilin.runtime.kafka import connection_of
from resilin.runtime.settings import ServiceSettings


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ServiceSettings.model_fields:
        monkeypatch.delenv(f"RESILIN_{name.upper()}", raising=False)


def test_a_process_without_settings_serves_a_cell_on_this_machine() -> None:
    settings = ServiceSettings()
    assert (settings.bootstrap, settings.cell, settings.partition) == ("127.0.0.1:9092", "main", 0)
    assert settings.http_host == "127.0.0.1"
    assert settings.instance == socket.gethostname().replace("_", "-")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESILIN_CELL", "west")
    monkeypatch.setenv("RESILIN_PARTITION", "3")
    monkeypatch.setenv("RESILIN_TIME_SCALE", "30")
    monkeypatch.setenv("RESILIN_OF_ANOTHER_VERSION", "kept out")
    settings = ServiceSettings()
    assert (settings.cell, settings.partition, settings.time_scale) == ("west", 3, 30.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cell", "../west"),
        ("instance", ""),
        ("partition", "-1"),
        ("http_port", "70000"),
        ("session_timeout_seconds", "0.1"),
        ("session_timeout_seconds", "nan"),
        ("snapshot_every_records", "0"),
        ("time_scale", "0"),
        ("time_scale", "nan"),
        ("time_origin_seconds", "nan"),
        ("time_origin_seconds", "inf"),
        ("log_level", "loud"),
        ("executor_backend", "imaginary"),
    ],
)
def test_what_makes_no_sense_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"RESILIN_{name.upper()}", value)
    with pytest.raises(ValidationError) as refused:
        ServiceSettings()
    (problem,) = refused.value.errors()
    assert problem["loc"] == (name,)


def test_a_host_whose_name_is_no_identifier_has_to_be_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "-odd host-")
    with pytest.raises(ValidationError):
        ServiceSettings()


def test_secrets_are_not_shown_and_reach_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESILIN_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("RESILIN_SASL_USERNAME", "admission")
    monkeypatch.setenv("RESILIN_SASL_PASSWORD", "hush")
    monkeypatch.setenv("RESILIN_ARCHIVE_URL", "postgresql://u:hush@host/db")
    settings = ServiceSettings()
    assert "hush" not in repr(settings)
    connection = connection_of(settings)
    assert "hush" not in repr(connection)
    assert connection.client_options()["sasl_plain_password"] == "hush"  # noqa: S105 (a test's)
