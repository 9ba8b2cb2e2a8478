"""A service instance without I/O: folds entries in, offers records to append.

A runner owns one host per service instance and does the rest: it reads the log and calls
:meth:`ServiceHost.fold`, takes what :meth:`ServiceHost.claim`, :meth:`ServiceHost.poll`,
:meth:`ServiceHost.tick` or :meth:`ServiceHost.facts` return, appends it, and reports the
offset with :meth:`ServiceHost.appended`.

    standby --claim appended--> claiming --own claim folded, it counts--> leading
       ^                            |                                        |
       +------ it does not count ---+        a newer claim folded -----------+
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from resilin.contracts.events import ClockTicked, Event, LeadershipClaimed
from resilin.contracts.record import LogEntry, Nature, Record
from resilin.kernel.decider import Decider
from resilin.kernel.fencing import Fence
from resilin.kernel.software import SOFTWARE

__all__ = ["Folded", "LogGapError", "Role", "ServiceHost"]

State = TypeVar("State")


class LogGapError(RuntimeError):
    """An offset is missing or out of order: the log itself is broken, so stop."""


class Role(Enum):
    """What an instance may do."""

    STANDBY = "standby"
    CLAIMING = "claiming"
    LEADING = "leading"


@dataclass(slots=True)
class Folded(Generic[State]):
    """Everything that a prefix of the log determines for one service: the snapshot's content."""

    state: State
    fence: Fence
    offset: int = -1
    timestamp: float = float("-inf")


class ServiceHost(Generic[State]):
    """One instance of one service.

    Attributes:
        folded: The state and where in the log it stands.
        role: Whether the instance may append.
    """

    def __init__(
        self,
        decider: Decider[State],
        *,
        cell: str,
        instance: str,
        folded: Folded[State] | None = None,
    ) -> None:
        self._decider = decider
        self._cell = cell
        self._instance = instance
        self.folded = folded or Folded(decider.initial_state(), Fence())
        self.role = Role.STANDBY
        self._epoch = 0
        self._awaited: int | None = None
        self._looked_at = -2
        self._in_flight = False

    @property
    def service(self) -> str:
        """The service's name."""
        return self._decider.service

    @property
    def quiescent(self) -> bool:
        """Whether everything this instance appended has been folded back."""
        return not self._in_flight

    @property
    def may_append(self) -> bool:
        """Whether the instance leads and is quiescent."""
        return self.role is Role.LEADING and not self._in_flight

    def fold(self, entry: LogEntry) -> bool:
        """Fold the next entry of the log; say whether it counted.

        Raises:
            LogGapError: If the entry is not at a later offset than the last.
        """
        folded = self.folded
        if entry.offset <= folded.offset:
            raise LogGapError(f"offset {entry.offset} follows {folded.offset}")
        folded.offset = entry.offset
        counted = folded.fence.admit(entry)
        if counted:
            folded.timestamp = max(folded.timestamp, entry.record.timestamp)
            state, evolve = folded.state, self._decider.evolve
            for event in entry.record.events:
                state = evolve(state, event, entry)
            folded.state = state
            if entry.record.nature == "claim" and entry.record.service == self.service:
                self._follow_claim(entry)
        if self._awaited is not None and entry.offset >= self._awaited:
            self._landed()
        return counted

    def _follow_claim(self, entry: LogEntry) -> None:
        own = self._awaited == entry.offset and self.role is Role.CLAIMING
        self.role = Role.LEADING if own else Role.STANDBY
        self._epoch = entry.record.epoch if own else 0

    def _landed(self) -> None:
        self._awaited = None
        self._in_flight = False
        if self.role is Role.CLAIMING:
            self.role = Role.STANDBY

    def claim(self, now_seconds: float) -> Record:
        """Offer the record that opens this instance's epoch.

        Raises:
            RuntimeError: If something the instance appended is not folded back yet.
        """
        if self._in_flight:
            raise RuntimeError(f"{self.service} is not quiescent: fold its last append first")
        self.role = Role.CLAIMING
        self._epoch = self.folded.fence.epoch(self.service) + 1
        claimed = LeadershipClaimed(instance=self._instance, software=SOFTWARE)
        return self._offer("claim", [claimed], now_seconds)

    def poll(self, now_seconds: float) -> Record | None:
        """Offer the decision to append now, if the instance may and there is one."""
        if not self.may_append or self._looked_at == self.folded.offset:
            return None
        self._looked_at = self.folded.offset
        events = self._decider.decide(self.folded.state)
        return self._offer("decision", events, now_seconds) if events else None

    def next_timer(self) -> float | None:
        """Return when the service wants to look again if nothing happens."""
        return self._decider.next_timer(self.folded.state)

    def tick(self, now_seconds: float) -> Record | None:
        """Offer the fact that a timer fired, if the instance may and one is due."""
        due = self.next_timer()
        if not self.may_append or due is None or due > now_seconds:
            return None
        return self._offer("facts", [ClockTicked(due_seconds=due)], now_seconds)

    def facts(self, events: Iterable[Event], now_seconds: float) -> Record | None:
        """Offer facts from outside; None for no facts.

        Raises:
            RuntimeError: If the instance may not append: the runner asks first.
        """
        listed = tuple(events)
        if not listed:
            return None
        if not self.may_append:
            raise RuntimeError(f"{self.service} is not leading or not quiescent")
        return self._offer("facts", listed, now_seconds)

    def appended(self, offset: int) -> None:
        """Learn where the log holds the record offered last, before that entry is folded.

        Raises:
            LogGapError: If the entry at ``offset`` was folded already.
        """
        if offset <= self.folded.offset:
            raise LogGapError(f"offset {offset} was folded before its append was reported")
        self._awaited = offset

    def _offer(self, nature: Nature, events: Sequence[Event], now_seconds: float) -> Record:
        self._in_flight = True
        return Record(
            service=self.service,
            cell=self._cell,
            epoch=self._epoch,
            basis=self.folded.offset,
            nature=nature,
            timestamp=max(now_seconds, self.folded.timestamp),
            events=tuple(events),
        )
