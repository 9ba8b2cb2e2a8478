"""The loan-manager: whose every server is; without a reported demand it lends nothing."""

from __future__ import annotations

from tests.support.events import cordoned, server_added, server_removed
from tests.support.log import HandMadeLog, a_cell, decided, folded

from resilin.contracts import events as ev
from resilin.contracts.values import VirtualCluster
from resilin.loan_manager.decider import LoanManagerDecider

LOANS = LoanManagerDecider()


def lending() -> HandMadeLog:
    serving = VirtualCluster(name="serving", kind="inference")
    return a_cell(0, 4, VirtualCluster(), serving).given(
        server_added("s1"), server_added("i1", 4, "serving")
    )


def loaned(server_id: str = "i1") -> ev.ServerLoaned:
    return ev.ServerLoaned(server_id=server_id, lender="serving", borrower="default")


def reclaimed(server_id: str = "i1") -> ev.ServerReclaimed:
    return ev.ServerReclaimed(server_id=server_id, lender="serving", borrower="default")


def test_every_server_has_an_owner() -> None:
    state = folded(lending(), LOANS)
    assert (state.owner, state.borrower) == ({"s1": "default", "i1": "serving"}, {})


def test_a_server_on_loan_keeps_its_owner() -> None:
    state = folded(lending().given(loaned()), LOANS)
    assert (state.owner["i1"], state.borrower) == ("serving", {"i1": "default"})


def test_a_loan_ends_when_it_is_reclaimed() -> None:
    state = folded(lending().given(loaned(), reclaimed(), reclaimed()), LOANS)
    assert state.borrower == {}


def test_a_removed_server_is_forgotten_with_its_loan() -> None:
    state = folded(lending().given(loaned(), server_removed("i1"), cordoned("s1")), LOANS)
    assert (state.owner, state.borrower) == ({"s1": "default"}, {})


def test_it_lends_nothing_and_has_no_timer() -> None:
    log = lending().given(loaned())
    assert decided(log, LOANS) == []
    assert LOANS.next_timer(folded(log, LOANS)) is None
