"""Replay: the state of a service at any offset or time of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from resilin.contracts.record import LogEntry
from resilin.kernel.decider import Decider
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded

__all__ = ["fold_log"]


def fold_log(
    entries: Iterable[LogEntry],
    decider: Decider[Any],
    *,
    folded: Folded[Any] | None = None,
    through_offset: int | None = None,
    through_seconds: float | None = None,
    observe: Callable[[LogEntry], None] | None = None,
) -> Folded[Any]:
    """Fold a log, from its start or a snapshot, up to and including an offset or a time.

    Args:
        entries: The log, or what of it follows the snapshot.
        decider: The service's core.
        folded: The snapshot to start from; the empty state if None.
        through_offset: The last offset to fold.
        through_seconds: The last timestamp to fold.
        observe: Called with every entry folded, for progress.
    """
    result = folded or Folded(decider.initial_state(), Fence())
    for entry in entries:
        if through_offset is not None and entry.offset > through_offset:
            break
        if through_seconds is not None and entry.record.timestamp > through_seconds:
            break
        result.offset = entry.offset
        if result.fence.admit(entry):
            result.timestamp = max(result.timestamp, entry.record.timestamp)
            for event in entry.record.events:
                result.state = decider.evolve(result.state, event, entry)
        if observe is not None:
            observe(entry)
    return result
