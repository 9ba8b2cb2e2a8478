"""What a job's leader and workers are told of it, and where they keep things: no PyTorch here.

A job has one directory. Whoever starts its processes writes ``program.json`` into it; the
leader and the workers put the rest there::

    program.json       what to train: :class:`JobProgram`
    lease.json         which leader leads, and until when
    leader.json        where the leader listens
    leader-state.json  what a successor needs to know
    checkpoints/       the last two checkpoints
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from resilin.contracts.base import Identifier
from resilin.elastic.files import read_bytes, write_atomically

__all__ = [
    "EXIT_FENCED",
    "EXIT_NO_LEADER",
    "EXIT_USER_CODE",
    "JobProgram",
    "LeaderAddress",
    "checkpoints_path",
    "leader_path",
    "program_path",
]

EXIT_USER_CODE = 3
"""A worker ended because the user's code raised; the traceback is on its standard error."""
EXIT_FENCED = 4
"""A worker ended because the leader had given it up for dead."""
EXIT_NO_LEADER = 5
"""A worker ended because it stood still and found no leader for too long."""

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class JobProgram(BaseModel):
    """One job: what to train, from which code, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_id: Identifier
    entrypoint: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description=(
            "`path/to/file.py:Name` or `package.module:Name`; the name is a subclass of "
            "`ElasticJob`, a function that makes one, or a function that uses `context()`."
        )
    )
    directory: str = Field(".", description="Where the user's code is: its working directory.")
    hyperparameters: dict[str, JsonValue] = Field(default_factory=dict)
    global_batch: Annotated[int, Field(ge=1)]
    total_iterations: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Without it the job's own condition to end is the only one."
    )
    endless: bool = Field(
        default=False, description="Train on past every end, as a job does that is only tried out."
    )
    learning_rate: _Positive | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    data_mode: Literal["global-order", "on-demand"] = "global-order"
    partition_size: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Samples in a partition (on-demand); by default 4 local batches."
    )
    micro_batch_max: Annotated[int, Field(ge=1)] | None = Field(
        None, description="The most samples that fit at once; more are accumulated."
    )
    checkpoint_interval_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    checkpoints_kept: Annotated[int, Field(ge=1)] = 2
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    threads: Annotated[int, Field(ge=1)] = 1
    host: str = Field("127.0.0.1", description="The address to listen on and connect from.")
    lease_seconds: _Positive = Field(
        10.0, description="A worker that says nothing for this long is given up for dead."
    )
    leader_lease_seconds: _Positive = Field(
        2.0, description="A leader that has not renewed its lease for this long is succeeded."
    )
    collective_timeout_seconds: _Positive = Field(
        300.0, description="The last resort for a collective that nobody ends."
    )
    bucket_bytes: Annotated[int, Field(ge=1)] = Field(
        8 << 20, description="Gradients are reduced in buckets of about this size."
    )
    record_steps: str | None = Field(
        None,
        description="A folder that every worker writes a JSON line a step to (measurements).",
    )
    record_samples: bool = Field(
        default=False, description="Whether those lines name the samples that were trained on."
    )

    def save(self, directory: Path) -> None:
        """Write the program into the job's directory, which is made if need be."""
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(program_path(directory), self.model_dump_json(indent=2).encode())

    @classmethod
    def load(cls, directory: Path) -> JobProgram:
        """Read the program of a job's directory.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If it is no program.
        """
        return cls.model_validate_json(program_path(directory).read_bytes())


class LeaderAddress(BaseModel):
    """Where a job's leader listens; replaced by its successor's."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    host: str
    port: Annotated[int, Field(ge=1, le=65535)]
    pid: int
    term: Annotated[int, Field(ge=1)]

    def save(self, directory: Path) -> None:
        """Publish the address in the job's directory."""
        write_atomically(leader_path(directory), self.model_dump_json().encode())

    @classmethod
    def load(cls, directory: Path) -> LeaderAddress | None:
        """Read the address that was published last; None if there is none that makes sense."""
        payload = read_bytes(leader_path(directory))
        try:
            return None if payload is None else cls.model_validate_json(payload)
        except ValueError:
            return None


def program_path(directory: Path) -> Path:
    """Return where a job's program is."""
    return directory / "program.json"


def leader_path(directory: Path) -> Path:
    """Return where a job's leader says where it listens."""
    return directory / "leader.json"


def checkpoints_path(directory: Path) -> Path:
    """Return the folder of a job's checkpoints."""
    return directory / "checkpoints"
