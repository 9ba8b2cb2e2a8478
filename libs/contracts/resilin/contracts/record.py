"""The record: what one append to the log holds, and its bytes.

One decision is one record, so it is atomic without broker transactions, and its identity
(service, cell, epoch, basis) makes a duplicate harmless. A record holds facts or a
decision, never both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import Field, TypeAdapter, ValidationError, create_model
from pydantic_core import to_json

from resilin.contracts.base import EventModel, Identifier, Timestamp
from resilin.contracts.events import EVENT_TYPES, Event, UnknownEvent
from resilin.contracts.upcasters import upcast

__all__ = [
    "EVENT_TYPE_BY_NAME",
    "CorruptRecordError",
    "LogEntry",
    "Nature",
    "Record",
    "RecordEnvelope",
    "decode_record",
    "encode_record",
]

Nature = Literal["facts", "decision", "claim"]

EVENT_TYPE_BY_NAME: dict[str, type[Event]] = {
    event_type.model_fields["type"].default: event_type for event_type in EVENT_TYPES
}


class CorruptRecordError(ValueError):
    """Bytes in the log that no version of this code can have written: stop, never skip."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a service appended at once.

    Attributes:
        service: The writer. An instance per node writes as ``executor/<node>``.
        cell: The cell whose log this is.
        epoch: The writer's epoch; a record of an epoch that is over counts for nothing.
        basis: The offset up to which the writer had folded the log; -1 is an empty log.
            Within an epoch it increases strictly, so a repeat is recognised.
        nature: ``facts``, a ``decision``, or the ``claim`` that opens an epoch.
        timestamp: Seconds since the epoch of the cell's clock; never less than the
            timestamp of any record that counts at or before ``basis``.
        events: At least one event, in order.
    """

    service: str
    cell: str
    epoch: int
    basis: int
    nature: Nature
    timestamp: float
    events: tuple[Event | UnknownEvent, ...]


class LogEntry(NamedTuple):
    """A record and where the log holds it."""

    offset: int
    record: Record


class _Header(EventModel):
    """What a record says before its events."""

    service: Identifier
    cell: Identifier
    epoch: Annotated[int, Field(ge=0)]
    basis: Annotated[int, Field(ge=-1)]
    nature: Nature
    timestamp: Timestamp


class RecordEnvelope(_Header):
    """A record as JSON, its events still plain."""

    events: Annotated[list[dict[str, Any]], Field(min_length=1)]


_envelope = TypeAdapter(RecordEnvelope)

_KnownEvent: Any = Annotated[Union[EVENT_TYPES], Field(discriminator="type")]  # noqa: UP007 (made at run time)
_known: TypeAdapter[Any] = TypeAdapter(
    create_model("_KnownRecord", __base__=_Header, events=tuple[_KnownEvent, ...])
)


def encode_record(record: Record) -> bytes:
    """Write a record as JSON, field order fixed, so equal records have equal bytes.

    Raises:
        ValueError: If the record could not be read back; nothing may append it.
    """
    if not record.events:
        raise ValueError(f"a record of {record.service} has no event")
    header = _Header(
        service=record.service,
        cell=record.cell,
        epoch=record.epoch,
        basis=record.basis,
        nature=record.nature,
        timestamp=record.timestamp,
    ).model_dump_json()
    events = ",".join(_encode_event(event) for event in record.events)
    return f'{header[:-1]},"events":[{events}]}}'.encode()


def _encode_event(event: Event | UnknownEvent) -> str:
    if isinstance(event, UnknownEvent):
        # The serializer of every known event, so what a later version wrote stays as it was.
        return to_json(event.content).decode()
    # Absent is the same as null for every reader, and half of a submission is absent.
    return event.model_dump_json(exclude_none=True)


def decode_record(payload: bytes) -> Record:
    """Read a record from the log.

    Raises:
        CorruptRecordError: If it is no record, or a known event breaks its own schema.
    """
    try:
        # Nearly all records hold known events only: from bytes to models in one step.
        record = _known.validate_json(payload, extra="ignore")
    except ValidationError:
        return _decode_one_by_one(payload)
    if not record.events or not all(map(_is_newest, record.events)):
        return _decode_one_by_one(payload)
    return Record(
        record.service,
        record.cell,
        record.epoch,
        record.basis,
        record.nature,
        record.timestamp,
        record.events,
    )


def _is_newest(event: Any) -> bool:  # noqa: ANN401 (one of the known types)
    """Say whether an event is of the type and version that this code reads it as."""
    event_type = type(event)
    newest = event_type.__pydantic_fields__["version"].default
    return EVENT_TYPE_BY_NAME[event.type] is event_type and event.version == newest


def _decode_one_by_one(payload: bytes) -> Record:
    """Read a record with events of other types or versions, or say what is wrong with it."""
    try:
        envelope = _envelope.validate_json(payload)
        events = tuple(_decode_event(content) for content in envelope.events)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "record"
        raise CorruptRecordError(f"field {field!r}: {first['msg']}") from None
    return Record(
        envelope.service,
        envelope.cell,
        envelope.epoch,
        envelope.basis,
        envelope.nature,
        envelope.timestamp,
        events,
    )


def _decode_event(content: dict[str, Any]) -> Event | UnknownEvent:
    name = content.get("type")
    if not isinstance(name, str):
        raise CorruptRecordError("field 'events': an event has no type")
    event_type = EVENT_TYPE_BY_NAME.get(name)
    version = content.get("version", 1)
    if type(version) is not int or version < 1:
        raise CorruptRecordError(f"field 'events': {name} has no version of 1 or more")
    if event_type is None or version > _newest_version(event_type):
        return UnknownEvent(type=name, version=version, content=content)
    try:
        content = upcast(content, _newest_version(event_type))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRecordError(
            f"field 'events': {name} of version {version} cannot be brought up to date"
            f" ({type(error).__name__}: {error})"
        ) from None
    try:
        # What a person writes may hold no unknown field; what was logged by a later version may.
        return event_type.model_validate(content, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or name
        raise CorruptRecordError(f"field '{name}.{field}': {first['msg']}") from None


def _newest_version(event_type: type[Event]) -> int:
    version = event_type.model_fields["version"].default
    return int(version)
