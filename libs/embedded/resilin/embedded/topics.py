"""Topics in a file, as the services of this process read and write them.

Clients reach an embedded cell through that file: what is submitted while the cell is down is
answered when it is up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from resilin.eventlog.port import Message, MessageTopic

__all__ = ["LocalTopicReader", "LocalTopicWriter"]

_CHUNK = 500
_LOOK_SECONDS = 0.05
"""How often the file is looked at: other processes write to it."""


class LocalTopicReader:
    """A :class:`~resilin.runtime.ports.MessageReader`; see there."""

    def __init__(self, topic: MessageTopic) -> None:
        self._topic = topic
        self._after = -1

    async def start(self, after: int) -> None:
        """See the port."""
        self._after = after

    async def read(self, timeout_seconds: float) -> Sequence[Message]:
        """See the port."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        while True:
            messages = list(islice(self._topic.read(self._after), _CHUNK))
            if messages:
                self._after = messages[-1].offset
                return messages
            if loop.time() >= until:
                return ()
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Nothing to let go of: the file belongs to the caller."""


class LocalTopicWriter:
    """A :class:`~resilin.runtime.ports.MessageWriter`; see there."""

    def __init__(self, topic: MessageTopic) -> None:
        self._topic = topic

    async def produce(self, value: bytes, key: bytes | None = None) -> int:
        """See the port."""
        return self._topic.produce(value, key)
