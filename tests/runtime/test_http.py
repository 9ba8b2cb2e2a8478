"""Health, readiness and metrics as an orchestrator and Prometheus ask for them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from resilin.runtime import http as module
from resilin.runtime.http import http_running


async def get(port: int, path: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, answer.headers["Content-Type"], await answer.text()


def test_what_is_served() -> None:
    standing: dict[str, Any] = {"ready": False, "offset": -1}
    registry = CollectorRegistry()
    Gauge("of_test", "A number.", registry=registry).set(7)

    async def story() -> None:
        async with http_running(
            "127.0.0.1", 0, standing=lambda: standing, registry=registry
        ) as port:
            assert (await get(port, "/healthz"))[0] == 200
            assert (await get(port, "/readyz"))[0] == 503
            standing.update(ready=True, offset=4)
            status, kind, text = await get(port, "/readyz")
            assert (status, kind) == (200, "application/json; charset=utf-8")
            assert '"offset": 4' in text
            status, kind, text = await get(port, "/metrics")
            assert (status, kind.split(";")[0]) == (200, "text/plain")
            assert "of_test 7.0" in text
            assert (await get(port, "/"))[0] == 404
        with pytest.raises(aiohttp.ClientConnectionError):
            await get(port, "/healthz")

    asyncio.run(story())


def test_a_port_that_is_taken_is_an_error() -> None:
    async def story(port: int) -> None:
        with pytest.raises(OSError, match="in use"):
            async with http_running("127.0.0.1", port, standing=dict, registry=CollectorRegistry()):
                pass

    with socket.create_server(("127.0.0.1", 0)) as taken:
        asyncio.run(story(taken.getsockname()[1]))


def test_clients_that_do_not_read_do_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SHUTDOWN_SECONDS", 0.05)
    registry = CollectorRegistry()
    many = Gauge("of_test", "x" * 1_000, ["number"], registry=registry)
    for number in range(5_000):
        many.labels("x" * 2_000 + str(number)).set(1)

    async def story() -> None:
        async with (
            asyncio.timeout(30),
            http_running("127.0.0.1", 0, standing=dict, registry=registry) as port,
        ):
            _, idle = await asyncio.open_connection("127.0.0.1", port)
            half, deaf = socket.create_connection(("127.0.0.1", port)), None
            half.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
            deaf = socket.create_connection(("127.0.0.1", port))
            deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.sleep(0.3)
        idle.close()
        half.close()
        deaf.close()

    asyncio.run(story())
