"""The loan-manager's core: whose every server is, and what inference can spare today.

Nobody reports an inference demand yet, so an inference cluster may need every server it
has at any moment: nothing is spare and nothing is lent. The fold of loans and the contract
are here; lending and reclaiming (FaPES §3.3, §3.4) need that demand as an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry

__all__ = ["LoanManagerDecider", "LoanState"]


@dataclass(slots=True)
class LoanState:
    """The folded state of the loan-manager.

    Attributes:
        owner: The virtual cluster each server belongs to.
        borrower: The virtual cluster each server on loan works for.
    """

    owner: dict[str, str] = field(default_factory=dict)
    borrower: dict[str, str] = field(default_factory=dict)


class LoanManagerDecider:
    """The core of the loan-manager service."""

    service = "loan-manager"
    state_type = LoanState

    def initial_state(self) -> LoanState:
        """Return the state before the first entry."""
        return LoanState()

    def evolve(
        self,
        state: LoanState,
        event: ev.Event | ev.UnknownEvent,
        entry: LogEntry,  # noqa: ARG002 (the contract)
    ) -> LoanState:
        """Fold one event."""
        match event:
            case ev.ServerAdded():
                state.owner[event.server.server_id] = event.server.virtual_cluster
            case ev.ServerRemoved():
                state.owner.pop(event.server_id, None)
                state.borrower.pop(event.server_id, None)
            case ev.ServerLoaned():
                state.borrower[event.server_id] = event.borrower
            case ev.ServerReclaimed():
                state.borrower.pop(event.server_id, None)
            case _:
                pass
        return state

    def decide(self, state: LoanState) -> Sequence[ev.Event]:  # noqa: ARG002 (the contract)
        """Return nothing: without a reported demand no server is known to be spare."""
        return ()

    def next_timer(self, state: LoanState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: no loan has a term yet."""
        return None
