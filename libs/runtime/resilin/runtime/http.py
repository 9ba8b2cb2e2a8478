"""Health and metrics of one process, over HTTP.

``/healthz``: 200 while the process turns over. ``/readyz``: 200 once it has folded the log to
its end, with its role, epoch and offset. ``/metrics``: for Prometheus.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

__all__ = ["http_running"]

_SHUTDOWN_SECONDS = 1.0
"""How long a client that does not read its answer may hold up the end of the process."""


@asynccontextmanager
async def http_running(
    host: str,
    port: int,
    *,
    standing: Callable[[], dict[str, Any]],
    registry: CollectorRegistry,
) -> AsyncIterator[int]:
    """Serve health and metrics meanwhile; yields the port.

    Args:
        host: Where to listen.
        port: 0 takes any free one.
        standing: Returns what ``/readyz`` shows; its ``ready`` decides the status.
        registry: What ``/metrics`` shows.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def readyz(_: web.Request) -> web.Response:
        content = standing()
        return web.json_response(content, status=200 if content["ready"] else 503)

    async def metrics(_: web.Request) -> web.Response:
        body = generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", metrics),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
