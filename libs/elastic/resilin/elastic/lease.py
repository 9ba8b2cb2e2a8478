"""Which leader leads a job: a lease that is taken by compare-and-swap and expires.

Amoeba §5.1, Algorithm 1: who finds the key empty or expired puts itself in, in one step that
no other can come between, and then keeps refreshing it; who finds a holder waits::

    acquire(me):
        atomically: if the key is empty or expired: key <- (term + 1, me, now + ttl)
    renew:
        atomically: if the key still holds my term: expires <- now + ttl, else: I am fenced

The key is a file in the job's directory, and the step is guarded by a lock on another file,
which the system releases whatever becomes of its holder. The time is the wall clock's: a
successor on another machine must be able to read it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from resilin.elastic.files import read_bytes, write_atomically

__all__ = ["Lease", "LeaseRecord"]


class LeaseRecord(BaseModel):
    """Who leads, in which term, and until when."""

    model_config = ConfigDict(frozen=True)

    term: int
    holder: str
    expires_seconds: float


class Lease:
    """One candidate's hold on the lease of one job."""

    def __init__(self, directory: Path, holder: str, ttl_seconds: float) -> None:
        self._path = directory / "lease.json"
        self._guard_path = directory / "lease.lock"
        self._holder = holder
        self._ttl_seconds = ttl_seconds
        self.term = 0

    def acquire(self, now_seconds: float) -> bool:
        """Take the lease if nobody holds it; whether it was taken."""
        with self._guard():
            record = self._read()
            if record is not None and now_seconds < record.expires_seconds:
                return False
            self.term = (0 if record is None else record.term) + 1
            self._write(now_seconds + self._ttl_seconds)
            return True

    def renew(self, now_seconds: float) -> bool:
        """Hold the lease for longer; False if another has taken it: this holder is fenced."""
        with self._guard():
            if not self._mine():
                return False
            self._write(now_seconds + self._ttl_seconds)
            return True

    def release(self) -> None:
        """Let a successor in at once."""
        with self._guard():
            if self._mine():
                self._write(0.0)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with self._guard_path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _mine(self) -> bool:
        record = self._read()
        return record is not None and (record.term, record.holder) == (self.term, self._holder)

    def _read(self) -> LeaseRecord | None:
        payload = read_bytes(self._path)
        return None if payload is None else LeaseRecord.model_validate_json(payload)

    def _write(self, expires_seconds: float) -> None:
        record = LeaseRecord(term=self.term, holder=self._holder, expires_seconds=expires_seconds)
        write_atomically(self._path, record.model_dump_json().encode(), durable=False)
