"""Events as lines: what an event says beside its type, and which jobs it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from resilin.cli.live import CellFold
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry

__all__ = ["ChosenEvents", "LoggedEvent"]

# What every event has, or what is said elsewhere on the line; and where it came from.
_LEFT_OUT = frozenset({"type", "version"})
_LEFT_OUT_OF_SHORT = _LEFT_OUT | {"source", "virtual_cluster"}

LONGEST_LINE = 140


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event and where the log holds it.

    Attributes:
        entry: Its record.
        event: The event.
        counts: Whether the record counts.
    """

    entry: LogEntry
    event: ev.Event | ev.UnknownEvent
    counts: bool

    @property
    def type(self) -> str:
        """The name of its type."""
        if isinstance(self.event, ev.UnknownEvent):
            return self.event.type
        return type(self.event).__name__

    def described(self) -> dict[str, Any]:
        """Describe it for programs."""
        record = self.entry.record
        return {
            "offset": self.entry.offset,
            "at_seconds": record.timestamp,
            "service": record.service,
            "nature": record.nature,
            "counts": self.counts,
            "type": self.type,
            "event": self._fields(),
        }

    def says(self, *, whole: bool = False) -> str:
        """Write what it says in one line, cut off unless ``whole``."""
        left_out = _LEFT_OUT if whole else _LEFT_OUT_OF_SHORT
        line = " ".join(
            f"{name}={_shown(value)}"
            for name, value in self._fields().items()
            if name not in left_out and (whole or value not in ([], {}))
        )
        if not whole and len(line) > LONGEST_LINE:
            line = f"{line[:LONGEST_LINE]}..."
        return line if self.counts else f"DOES NOT COUNT {line}"

    def _fields(self) -> dict[str, Any]:
        if isinstance(self.event, ev.UnknownEvent):
            return dict(self.event.content)
        return self.event.model_dump(mode="json", exclude_none=True)


@dataclass(frozen=True, slots=True)
class ChosenEvents:
    """Picks events out of entries.

    Attributes:
        job_id: Only what is about this job; None for all.
        types: Only these types; empty for all.
    """

    job_id: str | None = None
    types: tuple[str, ...] = ()

    def of(self, entry: LogEntry, fold: CellFold) -> Iterator[LoggedEvent]:
        """Fold the next entry, and yield those of its events."""
        counts = fold.fold(entry)
        for event in entry.record.events:
            logged = LoggedEvent(entry, event, counts)
            if self.types and logged.type not in self.types:
                continue
            if self.job_id is None or self.job_id in _about(event):
                yield logged


def _about(event: ev.Event | ev.UnknownEvent) -> frozenset[str]:
    """Return the jobs that an event is about: its own, and those whose share or plan it moves."""
    if isinstance(event, ev.UnknownEvent):
        job_id = event.content.get("job_id")
        return frozenset({job_id} if isinstance(job_id, str) else ())
    jobs = {getattr(event, "job_id", None)} - {None}
    match event:
        case ev.AllocationPlanned():
            jobs |= {change.job_id for change in event.changes} | set(event.plans)
        case ev.JobAdmitted() | ev.DeadlineChanged():
            jobs |= set(event.plans_moved)
        case _:
            pass
    return frozenset(str(job) for job in jobs)


def _shown(value: object) -> str:
    if isinstance(value, str) and value and not any(c in ' "=' for c in value):
        return value
    if isinstance(value, str | Mapping | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return json.dumps(value)
