"""Fencing by the log itself: which records count.

Every reader sees the same order and applies the same rule, so all ignore the same
records. A zombie can append, but nothing it appends counts.

Rule, per service:

1. A claim counts if its epoch is one above the service's current epoch. It opens that
   epoch; a second claim of the same epoch does not count, so of two rivals the one whose
   claim the log holds first has won, and the other learns it by folding.
2. Any other record counts if its epoch is the current one and its basis is above the
   basis of the service's last record that counted. A repeat of an append has the same
   basis, so it does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from resilin.contracts.events import LeadershipClaimed
from resilin.contracts.record import LogEntry, Record

__all__ = ["Fence", "Lease"]


@dataclass(slots=True)
class Lease:
    """One service's current epoch, the basis of its last record that counted, and its code."""

    epoch: int
    basis: int
    claimed_at_offset: int
    software: str = ""


@dataclass(slots=True)
class Fence:
    """The folded fencing state of a cell: one lease a service."""

    leases: dict[str, Lease] = field(default_factory=dict)

    def epoch(self, service: str) -> int:
        """Return the service's current epoch; 0 before its first claim."""
        lease = self.leases.get(service)
        return 0 if lease is None else lease.epoch

    def software(self, service: str) -> str:
        """Return the version of the code that leads a service; empty if it is not known."""
        lease = self.leases.get(service)
        return "" if lease is None else lease.software

    def counts(self, record: Record) -> bool:
        """Say whether a record at the log's next offset would count."""
        lease = self.leases.get(record.service)
        if record.nature == "claim":
            return record.epoch == self.epoch(record.service) + 1
        return lease is not None and record.epoch == lease.epoch and record.basis > lease.basis

    def admit(self, entry: LogEntry) -> bool:
        """Fold an entry: say whether it counts, and remember it if so."""
        record = entry.record
        if not self.counts(record):
            return False
        if record.nature == "claim":
            claimed = (event for event in record.events if isinstance(event, LeadershipClaimed))
            software = next((event.software for event in claimed), "")
            self.leases[record.service] = Lease(record.epoch, record.basis, entry.offset, software)
        else:
            self.leases[record.service].basis = record.basis
        return True
