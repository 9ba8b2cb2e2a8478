"""Snapshots: what a fold has come to, as bytes, and the hash that compares two folds.

A snapshot is a cache of the log. One that cannot be read is no loss: fold from zero.

Both forms rest on one canonical dump of the state: JSON without white space, fields in the
order of their declaration, dicts in their own order (which the log determines, and which
decisions may depend on).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from resilin.kernel.host import Folded

__all__ = ["SnapshotError", "dump", "load", "state_hash"]

State = TypeVar("State")


class SnapshotError(ValueError):
    """A snapshot of no use to this code: fold from the start of the log instead."""


def dump(folded: Folded[State], state_type: type[State]) -> bytes:
    """Write a state, its fence and where they stand in the log.

    Raises:
        TypeError: If the state holds a set, whose order no log determines.
        ValueError: If the state holds a value that its type does not allow.
    """
    codec = _codec_of(state_type)
    plain = codec.folded.dump_python(folded, mode="json", warnings="error")
    return _canonical({"shape": codec.shape, "folded": plain})


def load(payload: bytes, state_type: type[State]) -> Folded[State]:
    """Read a snapshot back; the result equals what was dumped.

    Raises:
        SnapshotError: If it is damaged, or of a state that had another shape.
    """
    codec = _codec_of(state_type)
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"the snapshot is no JSON: {error}") from None
    if not isinstance(content, dict) or content.get("shape") != codec.shape:
        raise SnapshotError(f"the snapshot is not of this version's {state_type.__name__}")
    try:
        folded: Folded[State] = codec.folded.validate_python(content.get("folded"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "folded"
        raise SnapshotError(f"field {field!r} of the snapshot: {first['msg']}") from None
    return folded


def state_hash(state: State, state_type: type[State]) -> str:
    """Return the state's fingerprint: equal for equal states, in every process.

    Raises:
        TypeError: If the state holds a set, whose order no log determines.
        ValueError: If the state holds a value that its type does not allow.
    """
    plain = _codec_of(state_type).state.dump_python(state, mode="json", warnings="error")
    return _digest(plain)


@dataclass(frozen=True, slots=True)
class _Codec:
    """How to write and read one type of state; ``shape`` fingerprints its fields."""

    state: TypeAdapter[Any]
    folded: TypeAdapter[Any]
    shape: str


_CODECS: dict[type[Any], _Codec] = {}


def _codec_of(state_type: type[Any]) -> _Codec:
    codec = _CODECS.get(state_type)
    if codec is None:
        state: TypeAdapter[Any] = TypeAdapter(state_type)
        if _holds_a_set(state.core_schema):
            raise TypeError(f"{state_type.__name__} holds a set, which has no order: use a dict")
        shape = _digest(state.json_schema(mode="serialization"))
        codec = _CODECS[state_type] = _Codec(state, TypeAdapter(Folded[state_type]), shape)  # type: ignore[valid-type]  # a type known at run time only
    return codec


def _holds_a_set(schema: object) -> bool:
    if isinstance(schema, dict):
        if schema.get("type") in ("set", "frozenset"):
            return True
        return any(_holds_a_set(part) for part in schema.values())
    return isinstance(schema, list | tuple) and any(_holds_a_set(part) for part in schema)


def _digest(plain: object) -> str:
    return hashlib.blake2b(_canonical(plain), digest_size=16).hexdigest()


def _canonical(plain: object) -> bytes:
    # Not pydantic's own writer: it turns infinity, an honest "never", into null.
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
