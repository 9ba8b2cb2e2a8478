"""What the node agent and a job's leader say to each other.

One TCP connection, frames of four bytes of length (big endian) and JSON. The agent commands,
the leader reports; a command repeated, or of a generation that is over, changes nothing. When
the connection closes the agent connects again (to the leader, or to its successor) and says
its newest :class:`Resize` or :class:`Stop` once more; the leader answers with where it stands.

    agent                                   leader
      | -- Resize(g, workers) ------------->  |  new workers join in the background
      | <------------- GenerationReady(g) --  |  all of g could switch
      | <---------- GenerationSwitched(g) --  |  g trains
      | <----------- WorkerLeft(w) ... -----  |  a leaver has left: its process ends by itself
      | <------- Progress, once a second ---  |
      | <----- Completed | Failed ----------  |  the job is over; every worker leaves
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from resilin.contracts.base import EventModel, Identifier, Iterations, Seconds

__all__ = [
    "FRAME_BYTES_MAX",
    "Completed",
    "ControlMessage",
    "Failed",
    "FrameError",
    "GenerationReady",
    "GenerationSwitched",
    "Member",
    "Progress",
    "Resize",
    "Stop",
    "TakeCheckpoint",
    "WorkerFailed",
    "WorkerLeft",
    "WorkerSample",
    "parse_message",
    "read_message",
    "write_message",
]

FRAME_BYTES_MAX = 1 << 20


class FrameError(ValueError):
    """The other side sent something that is no frame of this protocol."""


class Member(EventModel):
    """One worker of a generation and the slot it runs in."""

    worker_id: Identifier
    server_id: Identifier
    gpu_index: Annotated[int, Field(ge=0)]


# --- agent to leader -----------------------------------------------------------------------


class Resize(EventModel):
    """These are the job's workers now: who is new joins, who is missing leaves.

    A replacement for a worker that died is a resize of the same generation with a new
    ``worker_id`` in the same slot. ``attempt`` counts the resizes of one generation, so that
    the newest wins.
    """

    type: Literal["Resize"] = "Resize"
    generation: Annotated[int, Field(ge=1)]
    attempt: Annotated[int, Field(ge=0)] = 0
    workers: Annotated[tuple[Member, ...], Field(min_length=1)]
    global_batch: Annotated[int, Field(ge=1)]
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Stop(EventModel):
    """Every worker leaves; what was trained is kept in a checkpoint unless the job is over."""

    type: Literal["Stop"] = "Stop"
    generation: Annotated[int, Field(ge=1)]
    keep_progress: bool


class TakeCheckpoint(EventModel):
    """Write a checkpoint at the next step boundary."""

    type: Literal["TakeCheckpoint"] = "TakeCheckpoint"


# --- leader to agent -----------------------------------------------------------------------


class GenerationReady(EventModel):
    """Every new worker is warmed up: the generation can be switched to."""

    type: Literal["GenerationReady"] = "GenerationReady"
    generation: int


class GenerationSwitched(EventModel):
    """The generation trains.

    ``stopped_seconds`` is the longest that any worker that stayed stood still: from the end
    of its last step before the switch to the start of its first step after.
    """

    type: Literal["GenerationSwitched"] = "GenerationSwitched"
    generation: int
    workers: int
    stopped_seconds: Seconds
    iterations_done: Iterations


class WorkerLeft(EventModel):
    """A worker left in good order; its process ends by itself."""

    type: Literal["WorkerLeft"] = "WorkerLeft"
    worker_id: Identifier
    iterations_done: Iterations


class WorkerFailed(EventModel):
    """A worker is gone without leave: it died, or its lease ran out.

    With ``survivors`` left the job trains on without it; with none it stands at its newest
    checkpoint, ``iterations_done``.
    """

    type: Literal["WorkerFailed"] = "WorkerFailed"
    worker_id: Identifier
    message: str
    survivors: int
    iterations_done: Iterations


class WorkerSample(EventModel):
    """How one worker did since the last report, in means over its steps."""

    worker_id: Identifier
    step_seconds: Seconds
    compute_seconds: Seconds = Field(description="Before the all-reduce: tells a straggler.")


class Progress(EventModel):
    """Where the job stands; once a second while it trains."""

    type: Literal["Progress"] = "Progress"
    generation: int
    workers: int
    iterations_done: Iterations
    iterations_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    checkpoint_iterations: Iterations
    loss: float | None = None
    samples: tuple[WorkerSample, ...] = ()


class Completed(EventModel):
    """The job has done all its work, or its own condition to end was met."""

    type: Literal["Completed"] = "Completed"
    generation: int
    iterations_done: Iterations
    loss: float | None = None


class Failed(EventModel):
    """The job's own code failed: starting it again would fail again."""

    type: Literal["Failed"] = "Failed"
    generation: int
    reason: Identifier
    message: str


ControlMessage = Annotated[
    Resize
    | Stop
    | TakeCheckpoint
    | GenerationReady
    | GenerationSwitched
    | WorkerLeft
    | WorkerFailed
    | Progress
    | Completed
    | Failed,
    Field(discriminator="type"),
]

_messages: TypeAdapter[ControlMessage] = TypeAdapter(ControlMessage)


async def read_message(reader: asyncio.StreamReader) -> ControlMessage | None:
    """Read the next message; None once the other side has closed the connection.

    Raises:
        FrameError: If it is no message.
    """
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length > FRAME_BYTES_MAX:
            raise FrameError(f"a frame of {length} bytes is larger than {FRAME_BYTES_MAX}")
        payload = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return parse_message(payload)


def parse_message(payload: bytes) -> ControlMessage:
    """Read a message from the payload of a frame.

    Raises:
        FrameError: If it is no message.
    """
    try:
        return _messages.validate_json(payload)
    except ValueError as error:
        raise FrameError(f"not a control message: {error}") from None


def write_message(writer: asyncio.StreamWriter, message: ControlMessage) -> None:
    """Queue a message for sending; drain the writer to wait for it."""
    payload = message.model_dump_json().encode()
    writer.write(len(payload).to_bytes(4, "big") + payload)
