"""A partition of the shared broker's topics for every test that wants a cell of its own."""

from __future__ import annotations

import asyncio
import itertools

from resilin.eventlog.kafka import KafkaConnection
from resilin.runtime.create_topics import create_topics

__all__ = ["own_partition"]

CELLS = 64
_numbers = itertools.count(1)
_created: dict[str, bool] = {}


def own_partition(bootstrap: str) -> tuple[str, int]:
    """Return the name and the partition of a cell that nobody else uses."""
    if bootstrap not in _created:
        asyncio.run(create_topics(KafkaConnection(bootstrap), cells=CELLS))
        _created[bootstrap] = True
    number = next(_numbers)
    assert number < CELLS, "more cells than partitions: raise CELLS"
    return f"cell-{number}", number
