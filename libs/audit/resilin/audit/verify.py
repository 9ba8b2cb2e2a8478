"""Verify a log: every decision is recomputed from its basis, every invariant checked.

Needs nothing but the log: facts and decisions never share a record, so what a service
decided is a function of the entries up to its basis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from resilin.cell.invariants import InvariantChecker, Violation
from resilin.contracts.record import LogEntry
from resilin.kernel.decider import Decider
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded
from resilin.kernel.software import may_differ

__all__ = ["Mismatch", "Verification", "verify"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A decision that its basis does not give.

    Attributes:
        offset: The record that holds it.
        service: Who decided.
        basis: What it was decided from.
        message: The first difference.
    """

    offset: int
    service: str
    basis: int
    message: str

    def __str__(self) -> str:
        return (
            f"offset {self.offset}: invariant 8: {self.service} decided otherwise"
            f" at basis {self.basis}: {self.message}"
        )


@dataclass(slots=True)
class Verification:
    """What a verification found.

    Attributes:
        records: Records read.
        ignored: Records that do not count: a stale epoch, or a repeat.
        decisions: Decisions recomputed.
        of_other_versions: Decisions of other versions of the code: this one may rightly decide
            otherwise, so they are not recomputed.
        mismatches: Decisions that came out otherwise.
        violations: Invariants that were broken.
    """

    records: int = 0
    ignored: int = 0
    decisions: int = 0
    of_other_versions: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.mismatches and not self.violations


class _Recomputed:
    """One service, folded just as far as its next decision's basis."""

    def __init__(self, decider: Decider[Any]) -> None:
        self.decider = decider
        self._folded: Folded[Any] = Folded(decider.initial_state(), Fence())
        self._ahead: list[LogEntry] = []

    def see(self, entry: LogEntry) -> None:
        self._ahead.append(entry)

    def differs(self, entry: LogEntry) -> str | None:
        """Recompute the decision in ``entry``; say how it differs, None if it does not."""
        basis = entry.record.basis
        reached = 0
        for ahead in self._ahead:
            if ahead.offset > basis:
                break
            self._fold(ahead)
            reached += 1
        del self._ahead[:reached]
        try:
            expected = tuple(self.decider.decide(self._folded.state))
        except Exception as error:
            # A core never raises on a log that its services wrote: this one was altered.
            return f"nothing can be decided there ({type(error).__name__}: {error})"
        if expected == entry.record.events:
            return None
        for ours, theirs in zip_longest(expected, entry.record.events):
            if ours != theirs:
                return f"expected {_shown(ours)}, the log has {_shown(theirs)}"
        return "the events differ in number"

    def _fold(self, entry: LogEntry) -> None:
        if self._folded.fence.admit(entry):
            for event in entry.record.events:
                self._folded.state = self.decider.evolve(self._folded.state, event, entry)


def _shown(event: object) -> str:
    text = repr(event) if event is not None else "nothing"
    return text if len(text) <= 300 else f"{text[:300]}..."


def verify(
    entries: Iterable[LogEntry],
    deciders: Sequence[Decider[Any]],
    *,
    most_findings: int = 100,
) -> Verification:
    """Verify a log from its first entry on.

    Args:
        entries: The log.
        deciders: The cores of all services.
        most_findings: Stop after so many; one broken record breaks many after it.
    """
    found = Verification()
    checker = InvariantChecker()
    services = {decider.service: _Recomputed(decider) for decider in deciders}
    fence = Fence()
    for entry in entries:
        found.records += 1
        found.violations.extend(checker.fold(entry))
        record = entry.record
        if not fence.admit(entry):
            found.ignored += 1
        elif record.nature == "decision" and may_differ(fence.software(record.service)):
            found.of_other_versions += 1
        elif record.nature == "decision" and record.service in services:
            found.decisions += 1
            difference = services[record.service].differs(entry)
            if difference is not None:
                found.mismatches.append(
                    Mismatch(entry.offset, record.service, record.basis, difference)
                )
        for service in services.values():
            service.see(entry)
        if len(found.violations) + len(found.mismatches) >= most_findings:
            break
    return found
