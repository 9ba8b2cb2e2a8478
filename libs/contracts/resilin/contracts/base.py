"""The base models of everything that crosses a process boundary, and shared field types."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

__all__ = [
    "EventModel",
    "Identifier",
    "Iterations",
    "Seconds",
    "Timestamp",
    "UserModel",
    "Workers",
]

# Identifiers travel in file names, metric labels and shell commands: keep them plain. The
# class is spelled out because \w means other characters in other languages' validators.
Identifier = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")
]
# Finite by rule: NaN and infinity have no JSON form and would poison every comparison.
Seconds = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e12)]
Iterations = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e15)]
Timestamp = Annotated[float, Field(allow_inf_nan=False)]
"""Seconds since the epoch of the cell's clock (virtual in a simulation)."""
Workers = Annotated[int, Field(ge=0, le=1_000_000)]


class UserModel(BaseModel):
    """What a person or a foreign client writes: camelCase, unknown fields are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
    )


class EventModel(BaseModel):
    """What a service writes into the log: snake_case, fields of a later version are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")
