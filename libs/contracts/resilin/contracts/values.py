"""Values that commands and events share: allocations, plans, placements, curves, settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from resilin.contracts.base import EventModel, Identifier, Seconds, Timestamp, UserModel, Workers

__all__ = [
    "Allocation",
    "CellConfiguration",
    "Component",
    "Curve",
    "GpuSet",
    "Quota",
    "Segment",
    "Server",
    "SourcePosition",
    "StopCost",
    "VirtualCluster",
    "training_allocation",
]

GpuSet = dict[str, tuple[int, ...]]
"""GPUs by server: ``{"server-003": (0, 1)}``; indexes increase, no server is empty."""


class SourcePosition(EventModel):
    """Where a fact came from, so that the fold itself says where to resume reading."""

    topic: str
    partition: int = 0
    offset: int


class Component(EventModel):
    """Members of one role with equal resources.

    A worker-only GPU job has one component. Parameter servers are a second one; a CPU job
    counts in slots and gives each member its share of a CPU.
    """

    role: Literal["worker", "parameter-server"] = "worker"
    count: Workers
    gpus_per_member: Annotated[int, Field(ge=0)] = 1
    cpu_share_per_member: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Allocation(EventModel):
    """What a job is to have from now on; a job with no component is suspended."""

    components: tuple[Component, ...] = ()
    global_batch: Annotated[int, Field(ge=1)]
    learning_rate_factor: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Against the submitter's own rate."
    )

    @property
    def workers(self) -> int:
        """The number of workers."""
        for component in self.components:
            if component.role == "worker":
                return component.count
        return 0

    @property
    def gpus(self) -> int:
        """The number of GPUs over all components."""
        return sum(component.count * component.gpus_per_member for component in self.components)

    def local_batches(self) -> tuple[int, ...]:
        """Split the global batch over the workers, as evenly as whole samples allow."""
        if not self.workers:
            return ()
        even, rest = divmod(self.global_batch, self.workers)
        return tuple(even + (rank < rest) for rank in range(self.workers))


def training_allocation(
    workers: int, global_batch: int, *, learning_rate_factor: float = 1.0
) -> Allocation:
    """Build the common case: ``workers`` workers of one GPU each, or a suspension at 0."""
    components = (Component(count=workers),) if workers else ()
    return Allocation(
        components=components,
        global_batch=global_batch,
        learning_rate_factor=learning_rate_factor,
    )


Segment = tuple[Timestamp, Timestamp, Workers]
"""A stretch of a plan: from and to in seconds since the epoch, and the workers."""


class Curve(UserModel):
    """A throughput curve as it is imported: iterations per second by worker count."""

    model: Identifier
    global_batch: Annotated[int, Field(ge=1)]
    iterations_per_second: dict[
        Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0, allow_inf_nan=False)]
    ] = Field(min_length=1)


class Server(UserModel):
    """A machine with GPUs (slots, when they may be CPUs)."""

    server_id: Identifier
    gpus: Annotated[int, Field(ge=1, le=1024)]
    rack: str = Field(default="", max_length=200)
    virtual_cluster: Identifier = "default"


class StopCost(UserModel):
    """Seconds a job stands still when its GPU set changes.

    ``fixed + per_doubling x (log2(workers) + 1)``; the default is free. A measured value for
    a model and size replaces it once a job has been stopped at that size.
    """

    fixed_seconds: Seconds = 0.0
    per_doubling_seconds: Seconds = 0.0

    @classmethod
    def modelled(cls) -> Self:
        """The default of a live cell: 2 + 2 (log2(workers) + 1) seconds."""
        return cls(fixed_seconds=2.0, per_doubling_seconds=2.0)


class Quota(UserModel):
    """What one tenant may have admitted and unfinished at once; None is no limit."""

    live_jobs: Annotated[int, Field(ge=0)] | None = None
    gpu_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


PolicyName = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/+-]*$")
]
"""An identifier that may say what a policy is put together from: ``edf+admission``."""


class VirtualCluster(UserModel):
    """A labelled part of the cell with one policy. It serves one kind of job."""

    name: Identifier = "default"
    kind: Literal["training", "inference"] = "training"
    policy: PolicyName = "elasticflow"
    reserve_servers: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Servers that may fail at once without breaking a promise."
    )
    quotas: dict[str, Quota] = Field(default_factory=dict)
    admission: Literal["most-jobs", "every-feasible-job"] = Field(
        default="most-jobs",
        description="Whether promises go to the smaller jobs while more is asked than there is.",
    )


class CellConfiguration(UserModel):
    """Everything a decision depends on besides jobs and servers; it is in the log too."""

    virtual_clusters: tuple[VirtualCluster, ...] = (VirtualCluster(),)
    stop_cost: StopCost = StopCost()
    promise_margin_seconds: Seconds = Field(
        default=1.0, description="A promise is planned to be kept this much before its deadline."
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [cluster.name for cluster in self.virtual_clusters]
        if len(names) != len(frozenset(names)):
            raise ValueError("two virtual clusters have the same name")
        return self

    def virtual_cluster(self, name: str) -> VirtualCluster | None:
        """Find a virtual cluster by its name."""
        for cluster in self.virtual_clusters:
            if cluster.name == name:
                return cluster
        return None
