"""Hand-made logs: events in the order given, each in a record of the service that writes it."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from tests.support.events import configured, curves_imported, joined, server_added

from resilin.audit.replay import fold_log
from resilin.cell.invariants import InvariantChecker, Violation
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry, Nature, Record
from resilin.contracts.topics import SERVICES
from resilin.contracts.values import StopCost, VirtualCluster
from resilin.kernel.decider import Decider

__all__ = ["HandMadeLog", "a_cell", "decided", "folded", "violations"]

State = TypeVar("State")

_RECORD_NATURES: dict[str, Nature] = {"fact": "facts", "decision": "decision", "kernel": "claim"}


class HandMadeLog:
    """A log that a test writes by hand; every service leads from its start on.

    Attributes:
        entries: What it holds.
    """

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._now_seconds = 0.0
        for service in SERVICES:
            self.add(ev.LeadershipClaimed(instance=f"{service}-1"), service=service)

    def at(self, seconds: float) -> Self:
        """Write what follows at this time."""
        self._now_seconds = seconds
        return self

    def add(
        self,
        *events: ev.Event | ev.UnknownEvent,
        basis: int | None = None,
        service: str | None = None,
        nature: Nature | None = None,
        epoch: int = 1,
    ) -> int:
        """Append one record and return its offset.

        Args:
            events: Its events.
            basis: Its basis; the entry before it by default.
            service: Its writer; by default the one that may write the first event.
            nature: Its nature; by default that of the first event.
            epoch: Its epoch.
        """
        first = events[0]
        offset = len(self.entries)
        if isinstance(first, ev.Event):
            service = service or first.writer
            nature = nature or _RECORD_NATURES[first.nature]
        record = Record(
            service=service or "executor",
            cell="main",
            epoch=epoch,
            basis=offset - 1 if basis is None else basis,
            nature=nature or "facts",
            timestamp=self._now_seconds,
            events=events,
        )
        self.entries.append(LogEntry(offset, record))
        return offset

    def given(self, *events: ev.Event | ev.UnknownEvent) -> Self:
        """Append one record an event."""
        for event in events:
            self.add(event)
        return self


def a_cell(
    servers: int = 1,
    gpus: int = 4,
    *clusters: VirtualCluster,
    stop_cost: StopCost | None = None,
    margin: float = 0.0,
) -> HandMadeLog:
    """A log of a cell that is set up: servers s1, s2, ... have joined, ``linear`` is known."""
    log = HandMadeLog().given(
        configured(*clusters, stop_cost=stop_cost, margin=margin), curves_imported()
    )
    for number in range(1, servers + 1):
        log.given(server_added(f"s{number}", gpus), joined(f"s{number}"))
    return log


def folded(log: HandMadeLog, decider: Decider[State]) -> State:
    """Fold a log with a service's core."""
    state: State = fold_log(log.entries, decider).state
    return state


def decided(log: HandMadeLog, decider: Decider[Any]) -> list[ev.Event]:
    """Return what a service decides at the end of a log."""
    return list(decider.decide(folded(log, decider)))


def violations(log: HandMadeLog) -> list[Violation]:
    """Return everything that breaks an invariant in a log."""
    checker = InvariantChecker()
    return [found for entry in log.entries for found in checker.fold(entry)]
