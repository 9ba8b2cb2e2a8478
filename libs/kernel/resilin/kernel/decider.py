"""The Decider contract: what a service's core is.

    state at offset n = fold(evolve, entries[0..n])

and nothing else. A core has no I/O, no clock, no randomness and no asyncio; time is the
timestamp of the newest entry folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from resilin.contracts.events import Event, UnknownEvent
from resilin.contracts.record import LogEntry

__all__ = ["Decider", "Intake"]

State = TypeVar("State")
State_contra = TypeVar("State_contra", contravariant=True)
Input_contra = TypeVar("Input_contra", contravariant=True)


class Decider(Protocol[State]):
    """The core of one service.

    The state is owned by whoever folds it: ``evolve`` may change it in place and returns
    it. A pydantic ``TypeAdapter`` of ``state_type`` writes and reads snapshots.
    """

    @property
    def service(self) -> str:
        """The service's name; the only one its events may be written under."""
        ...

    @property
    def state_type(self) -> type[State]:
        """The type of the state, for snapshots."""
        ...

    def initial_state(self) -> State:
        """Return the state before the first entry."""
        ...

    def evolve(self, state: State, event: Event | UnknownEvent, entry: LogEntry) -> State:
        """Fold one event of ``entry``. Total: never raises, ignores what it does not know."""
        ...

    def decide(self, state: State) -> Sequence[Event]:
        """Return what to append now, given everything folded; empty for nothing.

        A function of the state alone, which it does not change. Called at quiescence only:
        when every record that the service appended has been folded back.
        """
        ...

    def next_timer(self, state: State) -> float | None:
        """Return when to look again if nothing happens (seconds since the epoch)."""
        ...


class Intake(Protocol[State_contra, Input_contra]):
    """The part of a core that turns input from outside the log into facts.

    ``accept`` sees the state too, and returns nothing for an input whose facts are in the
    log already: that makes a repeated delivery harmless.
    """

    def accept(self, state: State_contra, item: Input_contra) -> Sequence[Event]:
        """Return the facts to append for one input; empty for a repeat."""
        ...
