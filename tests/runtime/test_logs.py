"""What a process says: one JSON object a line, and not the same thing for ever."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from resilin.runtime import logs as module
from resilin.runtime.logs import bind_service, configure_logs, logger


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a process says whose logs are configured."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()  # pytest's own: configuring would close them
    configure_logs("info", service="admission", instance="admission-0", cell="west")
    yield out
    root.handlers[:], root.level = handlers, level
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def said(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_names_its_service_and_cell(out: io.StringIO) -> None:
    logger().debug("not said")
    logger().info("ready", offset=7)
    (line,) = said(out)
    assert line.pop("timestamp")
    assert line == {
        "event": "ready",
        "offset": 7,
        "level": "info",
        "service": "admission",
        "instance": "admission-0",
        "cell": "west",
    }


def test_each_service_of_a_process_speaks_for_itself(out: io.StringIO) -> None:
    async def service(name: str) -> None:
        bind_service(name, f"{name}-embedded")
        await asyncio.sleep(0)
        logger().info("ready")

    async def story() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in ("admission", "allocator"):
                tasks.create_task(service(name))

    asyncio.run(story())
    assert [line["service"] for line in said(out)] == ["admission", "allocator"]


def test_an_error_is_said_in_one_line(out: io.StringIO) -> None:
    try:
        raise OSError("no broker")
    except OSError:
        logger().exception("ended by an error")
    (line,) = said(out)
    assert "OSError: no broker" in line["exception"]


def test_clients_speak_in_the_same_shape(out: io.StringIO) -> None:
    logging.getLogger("client").info("chatter")
    logging.getLogger("client").warning("gone: %s", "node 1")
    (line,) = said(out)
    assert (line["event"], line["logger"], line["level"]) == ("gone: node 1", "client", "warning")
    assert line["service"] == "admission"


def test_a_client_that_repeats_itself_is_heard_now_and_then(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    client, other = logging.getLogger("client"), logging.getLogger("other")
    for attempt in range(500):
        client.error("Unable to connect, attempt %s", attempt)
        now[0] += 0.01
    other.error("Unable to connect, attempt %s", 1)
    client.error("Something else")
    now[0] += 10.0
    client.error("Unable to connect, attempt %s", 500)
    assert [line["event"] for line in said(out)] == [
        "Unable to connect, attempt 0",
        "Unable to connect, attempt 1",
        "Something else",
        "Unable to connect, attempt 500 (and 499 more like it)",
    ]


def test_what_is_remembered_of_clients_is_bounded(out: io.StringIO) -> None:
    client = logging.getLogger("client")
    for number in range(1_500):
        client.error(f"made up for this occasion: {number}")
    (seldom,) = [
        each
        for handler in logging.getLogger().handlers
        for each in handler.filters
        if isinstance(each, module._Seldom)
    ]
    assert len(seldom._until) <= module._KINDS_MAX
    assert len(said(out)) == 1_500
