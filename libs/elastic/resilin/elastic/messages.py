"""What a job's workers and its leader say to each other.

One TCP connection a worker, opened by the worker, with the frames of :mod:`.control`. A plan
has a *number* that increases with every change of who trains (or with what batch); whatever
is said of an older number than the newest changes nothing.

    worker                                   leader
      | -- Register ------------------------>  |
      | <------------------- Welcome | Leave  |
      | -- Warm ---------------------------->  |  could train
      | <----------------------------- Plan --  |  build this group, beside the one that trains
      | -- StoreSet, StoreGet -------------->  |  the group's rendezvous
      | -- Switched ------------------------>  |  trains under that plan
      | -- Steps (10 a second at most) ----->  |
      | -- PartitionsWanted ---------------->  |  on-demand data
      | -- Parked -------------------------->  |  nothing more to train; waits
      | <------------------- TakeCheckpoint --  |
      | <------------------------------ Leave  |
      | -- Left ---------------------------->  |
"""

from __future__ import annotations

import asyncio
import socket
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from resilin.contracts.base import EventModel, Identifier
from resilin.elastic.control import FRAME_BYTES_MAX, FrameError

__all__ = [
    "Broken",
    "CheckpointNow",
    "Checkpointed",
    "FromWorker",
    "Heartbeat",
    "Leave",
    "Left",
    "Parked",
    "Partitions",
    "PartitionsWanted",
    "Plan",
    "Position",
    "Range",
    "Ranges",
    "RangesWanted",
    "Register",
    "Steps",
    "StoreGet",
    "StoreReply",
    "StoreSet",
    "Switched",
    "ToWorker",
    "UserFailed",
    "Warm",
    "Welcome",
    "decode_from_worker",
    "decode_to_worker",
    "encode",
    "read_frame",
    "receive_frame",
]

Range = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
"""Samples from the first index up to, but not including, the second."""


class Position(EventModel):
    """Where training stands after a step, data included: of one lineage of steps.

    ``taken`` counts the samples of the epoch that each worker has trained on, in the order in
    which it was given them: with the leader's books it tells which (on-demand data).
    """

    step: Annotated[int, Field(ge=0)] = 0
    epoch: Annotated[int, Field(ge=0)] = 0
    consumed: Annotated[int, Field(ge=0)] = 0
    taken: dict[str, int] = Field(default_factory=dict)
    inherited: tuple[Range, ...] = Field(
        (), description="Trained on in this epoch before the job was resumed from a checkpoint."
    )


class Plan(EventModel):
    """Who trains next, in order of rank, and with what.

    ``switch``: when every worker that trains is ready for it, they change over at the same
    step boundary. ``restart``: drop what is there, agree on the newest state, go on from it;
    for the first start and after a death. ``stop``: as a switch, to nobody.
    """

    type: Literal["Plan"] = "Plan"
    number: Annotated[int, Field(ge=1)]
    kind: Literal["switch", "restart", "stop"]
    generation: int
    attempt: int = 0
    members: tuple[Identifier, ...]
    global_batch: Annotated[int, Field(ge=1)]
    learning_rate: float | None = None


# --- worker to leader ----------------------------------------------------------------------


class Register(EventModel):
    """A worker is here; said again after every loss of the connection."""

    type: Literal["Register"] = "Register"
    worker_id: Identifier
    pid: int
    warm: bool = False
    plan: Plan | None = Field(None, description="What it trains under, if it trains.")
    broken: bool = False
    parked: bool = False
    done: bool = False
    stopped_seconds: float | None = None
    position: Position = Field(default_factory=Position)


class Warm(EventModel):
    """The worker could train: code, data, model and optimizer are there and have run once."""

    type: Literal["Warm"] = "Warm"


class Switched(EventModel):
    """The worker trains under this plan.

    ``stopped_seconds`` is None for one that did not train before.
    """

    type: Literal["Switched"] = "Switched"
    number: int
    stopped_seconds: float | None = None
    position: Position


class Broken(EventModel):
    """A collective of this plan failed here, or its group could not be built."""

    type: Literal["Broken"] = "Broken"
    number: int
    message: str


class Steps(EventModel):
    """The steps since the last such report; times are means over them."""

    type: Literal["Steps"] = "Steps"
    number: int
    position: Position
    count: Annotated[int, Field(ge=1)]
    step_seconds: float
    compute_seconds: float
    loss: float | None = None


class Parked(EventModel):
    """The worker has stopped at a step boundary, like all of its plan; ``done`` if for good."""

    type: Literal["Parked"] = "Parked"
    number: int
    done: bool
    position: Position
    loss: float | None = None


class Left(EventModel):
    """The worker's last words: it leaves in good order."""

    type: Literal["Left"] = "Left"
    number: int = Field(0, description="Of the plan by which it left; 0 if told to.")
    position: Position = Field(default_factory=Position)


class UserFailed(EventModel):
    """The user's code raised."""

    type: Literal["UserFailed"] = "UserFailed"
    reason: Identifier
    message: str


class Checkpointed(EventModel):
    """A checkpoint of this step is on disk."""

    type: Literal["Checkpointed"] = "Checkpointed"
    step: int


class Heartbeat(EventModel):
    """The worker's process runs."""

    type: Literal["Heartbeat"] = "Heartbeat"


class PartitionsWanted(EventModel):
    """More samples of an epoch; ``have`` counts the ranges of it that the worker got so far."""

    type: Literal["PartitionsWanted"] = "PartitionsWanted"
    request: int
    number: int
    epoch: int
    have: int
    samples: int = Field(description="In the dataset.")
    inherited: tuple[Range, ...] = ()


class RangesWanted(EventModel):
    """Which samples stand behind a position, for a checkpoint of it."""

    type: Literal["RangesWanted"] = "RangesWanted"
    request: int
    position: Position


class StoreSet(EventModel):
    """Put a rendezvous key of a plan."""

    type: Literal["StoreSet"] = "StoreSet"
    number: int
    key: str
    value: str = Field(description="In hexadecimal digits.")


class StoreGet(EventModel):
    """Wait for a rendezvous key of a plan."""

    type: Literal["StoreGet"] = "StoreGet"
    request: int
    number: int
    key: str


FromWorker = Annotated[
    Register
    | Warm
    | Switched
    | Broken
    | Steps
    | Parked
    | Left
    | UserFailed
    | Checkpointed
    | Heartbeat
    | PartitionsWanted
    | RangesWanted
    | StoreSet
    | StoreGet,
    Field(discriminator="type"),
]

# --- leader to worker ----------------------------------------------------------------------


class Welcome(EventModel):
    """The leader knows the worker; what to warm up for."""

    type: Literal["Welcome"] = "Welcome"
    term: int
    workers: Annotated[int, Field(ge=1)]
    global_batch: Annotated[int, Field(ge=1)]


class Leave(EventModel):
    """Leave now, whatever the others do; ``fenced`` if the leader had given the worker up."""

    type: Literal["Leave"] = "Leave"
    fenced: bool = False


class CheckpointNow(EventModel):
    """Write a checkpoint at the next step boundary."""

    type: Literal["CheckpointNow"] = "CheckpointNow"


class Partitions(EventModel):
    """Further ranges of the epoch, after the ``have`` that the worker has already.

    None: nothing to give now, ask again. At every change of plan all that was not trained on
    goes back: an answer to a request under an earlier plan is void.
    """

    type: Literal["Partitions"] = "Partitions"
    request: int
    number: int
    epoch: int
    have: int
    ranges: tuple[Range, ...]


class Ranges(EventModel):
    """The samples behind a position."""

    type: Literal["Ranges"] = "Ranges"
    request: int
    ranges: tuple[Range, ...]


class StoreReply(EventModel):
    """A rendezvous key's value in hexadecimal digits; None if the plan is over."""

    type: Literal["StoreReply"] = "StoreReply"
    request: int
    value: str | None = None


ToWorker = Annotated[
    Welcome | Plan | Leave | CheckpointNow | Partitions | Ranges | StoreReply,
    Field(discriminator="type"),
]

_from_worker: TypeAdapter[FromWorker] = TypeAdapter(FromWorker)
_to_worker: TypeAdapter[ToWorker] = TypeAdapter(ToWorker)


def decode_from_worker(payload: bytes) -> FromWorker:
    """Read what a worker said.

    Raises:
        FrameError: If it is no message.
    """
    try:
        return _from_worker.validate_json(payload)
    except ValueError as error:
        raise FrameError(f"not a worker's message: {error}") from None


def decode_to_worker(payload: bytes) -> ToWorker:
    """Read what the leader said.

    Raises:
        FrameError: If it is no message.
    """
    try:
        return _to_worker.validate_json(payload)
    except ValueError as error:
        raise FrameError(f"not a leader's message: {error}") from None


def encode(message: FromWorker | ToWorker) -> bytes:
    """Return a message as a whole frame."""
    payload = message.model_dump_json().encode()
    return len(payload).to_bytes(4, "big") + payload


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Read the next frame; None once the other side has closed the connection.

    Raises:
        FrameError: If it is too long.
    """
    try:
        return await reader.readexactly(_length(await reader.readexactly(4)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_frame(connection: socket.socket) -> bytes | None:
    """Read the next frame from a blocking socket; None once the other side has closed it.

    Raises:
        FrameError: If it is too long.
        OSError: If the connection breaks.
    """
    header = _receive_exactly(connection, 4)
    return None if header is None else _receive_exactly(connection, _length(header))


def _length(header: bytes) -> int:
    length = int.from_bytes(header, "big")
    if length > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {length} bytes is larger than {FRAME_BYTES_MAX}")
    return length


def _receive_exactly(connection: socket.socket, length: int) -> bytes | None:
    received = bytearray()
    while len(received) < length:
        some = connection.recv(length - len(received))
        if not some:
            return None
        received += some
    return bytes(received)
