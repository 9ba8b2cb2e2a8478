"""A tiny service: it adds up numbers from a numbered input, and reports every few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from resilin.contracts.events import ClockTicked, Event, LeadershipClaimed, UnknownEvent
from resilin.contracts.record import LogEntry, Nature, Record

REPORT_EVERY = 4
LOOK_AGAIN_SECONDS = 10.0


class Added(Event):
    """The input's item ``number`` was taken."""

    writer: ClassVar[str] = "counter"
    nature: ClassVar = "fact"
    type: Literal["Added"] = "Added"
    number: int
    amount: int


class Reported(Event):
    """The total so far, and a trace of the entries that it was made of."""

    writer: ClassVar[str] = "counter"
    nature: ClassVar = "decision"
    type: Literal["Reported"] = "Reported"
    total: int
    trace: int


@dataclass(slots=True)
class CounterState:
    """The folded state; ``trace`` depends on every entry folded and on their order."""

    total: int = 0
    reported: int = 0
    taken: int = 0
    trace: int = 0
    looked_at_seconds: float = float("-inf")
    entries: dict[str, int] = field(default_factory=dict)


class Counter:
    service = "counter"
    state_type = CounterState

    def initial_state(self) -> CounterState:
        return CounterState()

    def evolve(
        self, state: CounterState, event: Event | UnknownEvent, entry: LogEntry
    ) -> CounterState:
        state.trace = (state.trace * 31 + entry.offset + 1) % 2**61
        state.entries[entry.record.service] = state.entries.get(entry.record.service, 0) + 1
        match event:
            case Added():
                state.total += event.amount
                state.taken = event.number + 1
                state.looked_at_seconds = entry.record.timestamp
            case Reported() | ClockTicked() if entry.record.service == self.service:
                state.reported = state.total
                state.looked_at_seconds = entry.record.timestamp
            case _:
                pass
        return state

    def decide(self, state: CounterState) -> Sequence[Event]:
        if state.total - state.reported < REPORT_EVERY:
            return ()
        return (Reported(total=state.total, trace=state.trace),)

    def next_timer(self, state: CounterState) -> float | None:
        waiting = state.total > state.reported
        return state.looked_at_seconds + LOOK_AGAIN_SECONDS if waiting else None

    def accept(self, state: CounterState, item: tuple[int, int]) -> Sequence[Event]:
        number, amount = item
        return (Added(number=number, amount=amount),) if number == state.taken else ()


def record_of(
    *events: Event | UnknownEvent,
    service: str = "counter",
    epoch: int = 1,
    basis: int = -1,
    nature: Nature = "facts",
    timestamp: float = 0.0,
) -> Record:
    return Record(
        service, "main", epoch, basis, nature, timestamp, events or (ClockTicked(due_seconds=0.0),)
    )


def claim_of(epoch: int, *, basis: int = -1, service: str = "counter") -> Record:
    event = LeadershipClaimed(instance=f"{service}-of-{epoch}")
    return record_of(event, service=service, epoch=epoch, basis=basis, nature="claim")
