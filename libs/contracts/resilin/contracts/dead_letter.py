"""Dead letters: input that could not be read, kept with its place and the reason."""

from __future__ import annotations

from pydantic import Base64Bytes

from resilin.contracts.base import EventModel
from resilin.contracts.values import SourcePosition

__all__ = ["DeadLetter"]


class DeadLetter(EventModel):
    """Bytes that a service refused, where they came from and why.

    Only input from outside the log is put aside like this. A record of `cell.events` that
    cannot be read stops its readers instead.
    """

    service: str
    source: SourcePosition
    reason: str
    payload: Base64Bytes
