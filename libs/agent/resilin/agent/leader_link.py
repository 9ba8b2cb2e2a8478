"""The connection to a job's leader, opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from resilin.elastic.control import (
    ControlMessage,
    FrameError,
    read_message,
    write_message,
)
from resilin.elastic.program import LeaderAddress

__all__ = ["LeaderLink"]

RETRY_SECONDS = 0.1

_HELLO = b'{"role":"agent"}'


class LeaderLink:
    """Listens to one leader process, as long as that lives.

    Args:
        directory: The job's directory, in which the leader says where it listens.
        pid: The leader's process: an address that another left there is not followed, for
            its port may be another job's by now.
        on_open: Called when the connection is open.
        on_message: Called with everything that the leader says.
    """

    def __init__(
        self,
        directory: Path,
        pid: int,
        on_open: Callable[[], None],
        on_message: Callable[[ControlMessage], None],
    ) -> None:
        self._directory = directory
        self._pid = pid
        self._on_open = on_open
        self._on_message = on_message
        self._writer: asyncio.StreamWriter | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def say(self, message: ControlMessage) -> None:
        """Say something, if somebody listens."""
        if self._writer is not None:
            write_message(self._writer, message)

    def close(self) -> None:
        """Stop listening."""
        self._task.cancel()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _run(self) -> None:
        while True:
            address = LeaderAddress.load(self._directory)
            if address is not None and address.pid == self._pid:
                # Whatever breaks, the leader's own end is seen elsewhere: try again.
                with contextlib.suppress(OSError, FrameError):
                    await self._listen(address)
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self, address: LeaderAddress) -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(len(_HELLO).to_bytes(4, "big") + _HELLO)
            self._writer = writer
            self._on_open()
            while (message := await read_message(reader)) is not None:
                self._on_message(message)
        finally:
            self._writer = None
            writer.close()
