"""The job specification: *what* to train and *by when*, in the shape of a Kubernetes object.

The same model reads YAML files, JSON commands and the log. A minimal file::

    apiVersion: resilin.dev/v1alpha1
    kind: TrainingJob
    metadata: {name: nightly-resnet}
    spec:
      model: resnet50
      globalBatch: 256
      workload: {totalIterations: 50000}
      deadline: 2h
"""

from __future__ import annotations

import itertools
import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from resilin.contracts.base import Identifier, Seconds, UserModel

__all__ = [
    "API_VERSION",
    "DeadlinePolicy",
    "Elastic",
    "HyperParameter",
    "JobSpecification",
    "Metadata",
    "TrainingSpecification",
    "WorkerSpecification",
    "Workload",
    "parse_deadline",
]

API_VERSION: Literal["resilin.dev/v1alpha1"] = "resilin.dev/v1alpha1"

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


def parse_deadline(text: str) -> timedelta | datetime:
    """Read a deadline: a duration from submission (``1d2h30m``) or an RFC 3339 time.

    Raises:
        ValueError: If it is neither, is zero, or is a time without a zone.
    """
    match = _DURATION.fullmatch(text)
    if match is not None and any(match.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        try:
            duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise ValueError(f"deadline {text!r} is too long") from None
        if duration <= timedelta(0):
            raise ValueError("a deadline must be later than the submission")
        return duration
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"deadline {text!r} is neither a duration such as 90m or 1d12h"
            " nor an RFC 3339 time such as 2026-01-31T18:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"deadline {text!r} has no time zone: add Z or an offset such as +01:00")
    return moment


class DeadlinePolicy(StrEnum):
    """How binding the deadline is (ElasticFlow §4.4)."""

    GUARANTEED = "Guaranteed"
    """Admitted only with a promise to finish in time."""
    SOFT = "Soft"
    """Never refused for time; runs after the guaranteed shares, earliest deadline first."""
    BEST_EFFORT = "BestEffort"
    """No deadline."""


class Metadata(UserModel):
    """Who the job is."""

    name: Identifier
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    submission_id: Identifier | None = Field(
        default=None,
        description="The submitter's idempotency id: a repeat with the same id changes nothing.",
    )


class Workload(UserModel):
    """How much there is to train: exactly one of the two."""

    total_iterations: Annotated[int, Field(ge=1, le=10**15)] | None = None
    total_samples: Annotated[int, Field(ge=1, le=10**18)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.total_iterations is None) == (self.total_samples is None):
            raise ValueError("give exactly one of totalIterations and totalSamples")
        return self


class Elastic(UserModel):
    """Which worker counts the job may have; powers of two unless it lists its own."""

    min_replicas: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    max_replicas: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    allowed_replicas: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] | None = Field(
        default=None, min_length=1, max_length=64
    )
    requested_replicas: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="The fixed size that a policy without elasticity gives."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            raise ValueError("maxReplicas must be at least minReplicas")
        if self.allowed_replicas is not None:
            listed = self.allowed_replicas
            if any(later <= earlier for earlier, later in itertools.pairwise(listed)):
                raise ValueError("allowedReplicas must increase")
            if not any(self.allows(count) for count in listed):
                raise ValueError("no count in allowedReplicas lies within the bounds")
        elif self.max_replicas is not None:
            smallest = 1 << (self.min_replicas - 1).bit_length()
            if smallest > self.max_replicas:
                raise ValueError(
                    f"no power of two lies between minReplicas {self.min_replicas} and"
                    f" maxReplicas {self.max_replicas}: widen them or list allowedReplicas"
                )
        return self

    def allows(self, workers: int) -> bool:
        """Say whether a job may have this many workers."""
        if workers < self.min_replicas:
            return False
        if self.max_replicas is not None and workers > self.max_replicas:
            return False
        if self.allowed_replicas is not None:
            return workers in self.allowed_replicas
        return workers.bit_count() == 1


HyperParameter = (
    bool
    | Annotated[int, Field(ge=-(2**53), le=2**53)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=4096)]
)
"""A value that the job's own code is handed: plain, so that every language reads it alike."""

EnvironmentName = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# No line breaks or NUL: what a process's environment takes on every system.
EnvironmentValue = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00-\x1f]*$")]


class WorkerSpecification(UserModel):
    """The code that the job's workers run, on real nodes.

    Everything here is written into the log and kept: secrets belong into files that the code
    reads by itself, never into ``env`` or ``hyperparameters``.
    """

    entrypoint: Annotated[
        str, Field(max_length=1000, pattern=r"^[A-Za-z0-9_./ -]+:[A-Za-z_][A-Za-z0-9_]*$")
    ] = Field(description="A file and its class (train.py:MyJob), or a module and its class.")
    directory: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="Where the code lies and runs; a path on the nodes."
    )
    env: dict[EnvironmentName, EnvironmentValue] = Field(
        default_factory=dict, max_length=256, description="Environment variables; no secrets."
    )
    hyperparameters: dict[Identifier, HyperParameter] = Field(default_factory=dict, max_length=256)
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="None leaves it to the code itself."
    )
    checkpoint_interval_seconds: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 60.0
    data_mode: Literal["global-order", "on-demand"] = Field(
        default="global-order",
        description="Minibatches of one order of the data, or partitions as workers ask for them.",
    )
    seed: Annotated[int, Field(ge=0, le=2**53)] = 0
    memory_bytes_max: Annotated[int, Field(ge=1 << 20, le=1 << 60)] | None = Field(
        default=None, description="What one worker and its children may use; None is no limit."
    )
    graceful_stop_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = Field(
        default=30.0, description="What a worker that is to leave is given before it is killed."
    )


class TrainingSpecification(UserModel):
    """What to train and by when."""

    model: Identifier
    global_batch: Annotated[int, Field(ge=1, le=10**9)]
    workload: Workload
    deadline: str | None = Field(
        default=None,
        max_length=64,
        description="A duration from submission (2h30m) or an RFC 3339 time.",
    )
    deadline_policy: DeadlinePolicy | None = Field(
        default=None, description="Guaranteed where a deadline is given, else BestEffort."
    )
    elastic: Elastic = Elastic()
    virtual_cluster: Identifier = "default"
    tenant: Identifier = "default"
    migratable: bool = True
    worker: WorkerSpecification | None = Field(
        default=None, description="The code to run; a simulated job has none."
    )
    max_failures: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=3,
        description="How many of its workers may fail; planned changes of its size never count.",
    )

    @field_validator("deadline")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None:
            parse_deadline(value)
        return value

    @model_validator(mode="after")
    def _deadline_fits_its_policy(self) -> Self:
        policy = self.deadline_policy
        if self.deadline is None and policy not in (None, DeadlinePolicy.BEST_EFFORT):
            raise ValueError(f"deadlinePolicy {policy} needs a deadline")
        if self.deadline is not None and policy is DeadlinePolicy.BEST_EFFORT:
            raise ValueError("deadlinePolicy BestEffort takes no deadline: drop it or use Soft")
        return self

    @property
    def binding(self) -> DeadlinePolicy:
        """The deadline policy with its default filled in."""
        if self.deadline_policy is not None:
            return self.deadline_policy
        return DeadlinePolicy.BEST_EFFORT if self.deadline is None else DeadlinePolicy.GUARANTEED

    @property
    def total_iterations(self) -> float:
        """The work in iterations of the global batch."""
        if self.workload.total_iterations is not None:
            return float(self.workload.total_iterations)
        samples = self.workload.total_samples
        assert samples is not None, "a workload holds exactly one of the two"  # noqa: S101 (invariant)
        return float(-(-samples // self.global_batch))

    def deadline_seconds(self, submitted_at_seconds: Seconds) -> float | None:
        """Return the deadline in seconds since the epoch, None for a job without one."""
        if self.deadline is None:
            return None
        deadline = parse_deadline(self.deadline)
        if isinstance(deadline, timedelta):
            return submitted_at_seconds + deadline.total_seconds()
        return deadline.timestamp()


class JobSpecification(UserModel):
    """One job as its submitter writes it.

    ``kind`` discriminates: inference services join as a second kind with their own ``spec``.
    """

    api_version: Literal["resilin.dev/v1alpha1"] = API_VERSION
    kind: Literal["TrainingJob"] = "TrainingJob"
    metadata: Metadata
    spec: TrainingSpecification
