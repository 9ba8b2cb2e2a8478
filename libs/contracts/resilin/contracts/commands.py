"""Commands: what any client may ask for, as JSON on `jobs.commands`.

A command is imperative, may be refused, and is handled by admission alone. Its
``command_id`` is chosen by the client; a repeat of one that was already taken changes
nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from resilin.contracts.base import Identifier, UserModel
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.values import CellConfiguration, Curve, Server

__all__ = [
    "COMMAND_TYPES",
    "AddServer",
    "CancelJob",
    "ChangeDeadline",
    "Command",
    "ConfigureCell",
    "CordonServer",
    "ImportCurves",
    "RemoveServer",
    "SubmitJob",
    "command_adapter",
]


class _Command(UserModel):
    version: Literal[1] = 1
    cell: Identifier = "main"
    command_id: Identifier


class SubmitJob(_Command):
    """Ask for a job to be trained by its deadline."""

    type: Literal["SubmitJob"] = "SubmitJob"
    job_id: Identifier
    job: JobSpecification


class CancelJob(_Command):
    """Stop a job and give its GPUs back."""

    type: Literal["CancelJob"] = "CancelJob"
    job_id: Identifier


class ChangeDeadline(_Command):
    """Ask for another deadline; answered like a submission, the old promise stands if refused."""

    type: Literal["ChangeDeadline"] = "ChangeDeadline"
    job_id: Identifier
    deadline_seconds: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] = Field(
        description="The new deadline, in seconds since the epoch."
    )


class AddServer(_Command):
    """Bring a server into the cell."""

    type: Literal["AddServer"] = "AddServer"
    server: Server


class RemoveServer(_Command):
    """Take a server out of the cell: no new work; it is gone once its workers have left."""

    type: Literal["RemoveServer"] = "RemoveServer"
    server_id: Identifier


class CordonServer(_Command):
    """Give a server no new work, or (``cordoned: false``) take it back into use."""

    type: Literal["CordonServer"] = "CordonServer"
    server_id: Identifier
    cordoned: bool = True


class ConfigureCell(_Command):
    """Set policies, quotas, costs and margins; in force from the event that records it."""

    type: Literal["ConfigureCell"] = "ConfigureCell"
    configuration: CellConfiguration


class ImportCurves(_Command):
    """Make throughput curves known, measured elsewhere or predicted by a model."""

    type: Literal["ImportCurves"] = "ImportCurves"
    curves: tuple[Curve, ...] = Field(min_length=1)
    curve_source: Literal["imported", "profiled", "model"] = "imported"


COMMAND_TYPES = (
    SubmitJob,
    CancelJob,
    ChangeDeadline,
    AddServer,
    RemoveServer,
    CordonServer,
    ConfigureCell,
    ImportCurves,
)

Command = Annotated[
    SubmitJob
    | CancelJob
    | ChangeDeadline
    | AddServer
    | RemoveServer
    | CordonServer
    | ConfigureCell
    | ImportCurves,
    Field(discriminator="type"),
]

command_adapter: TypeAdapter[Command] = TypeAdapter(Command)
"""Validates and dumps any command."""
