"""Feeds a cell's log into the archive for as long as the process runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from resilin.archive.store import Archive, ArchiveUnavailableError, ArchiveWriter
from resilin.contracts.record import LogEntry
from resilin.runtime.logs import logger

__all__ = ["ArchivedLog", "feed_archive"]

_READ_SECONDS = 1.0
_RETRY_SECONDS = 2.0
_RETRY_SECONDS_MAX = 60.0


class ArchivedLog(Protocol):
    """A cell's log as the archive reads it."""

    async def start(self, after: int) -> None:
        """Open the log, or move, to the first entry above ``after``."""
        ...

    async def read(self, timeout_seconds: float) -> Sequence[LogEntry]:
        """Return the next entries in order; none if none came within the time."""
        ...


async def feed_archive(url: str, log: ArchivedLog, cell: str) -> None:
    """Write the log into the archive until cancelled.

    A database that is away does not end the process: the archive is for people, and catches
    up from its own position once the database is back.
    """
    wait = _RETRY_SECONDS
    while True:
        try:
            async with await Archive.open(url) as archive:
                writer = archive.writer()
                await log.start(await writer.position(cell))
                logger().info("archive", state="connected")
                wait = _RETRY_SECONDS
                await _feed(log, writer)
        except ArchiveUnavailableError as error:
            logger().warning("archive", state="away", reason=str(error), retry_seconds=wait)
        await asyncio.sleep(wait)
        wait = min(wait * 2, _RETRY_SECONDS_MAX)


async def _feed(log: ArchivedLog, writer: ArchiveWriter) -> None:
    while True:
        entries = await log.read(_READ_SECONDS)
        if entries:
            await writer.write(entries)
