"""Every event of a cell, each with the one service that writes it.

An event is past tense and never refused. *Facts* entered from outside (a command, a
report, a timer); *decisions* can be recomputed from the record's basis. An event of a type
or version that this code does not know decodes to :class:`UnknownEvent` and is ignored by
every fold, so an old reader survives a newer log.

A type's version grows only when a field's meaning changes; added fields get defaults.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from resilin.contracts.base import (
    EventModel,
    Identifier,
    Iterations,
    Seconds,
    Timestamp,
    Workers,
)
from resilin.contracts.job_specification import JobSpecification
from resilin.contracts.values import (
    Allocation,
    CellConfiguration,
    Curve,
    GpuSet,
    Segment,
    Server,
    SourcePosition,
)

__all__ = [
    "EVENT_TYPES",
    "AllocationChange",
    "AllocationPlanned",
    "BottleneckDetected",
    "CancellationRequested",
    "CellConfigured",
    "ClockTicked",
    "CommandRejected",
    "CurveProfiled",
    "CurvesImported",
    "DeadlineChangeRejected",
    "DeadlineChangeRequested",
    "DeadlineChanged",
    "Event",
    "FactFromCommand",
    "FailureReason",
    "GenerationSwitched",
    "GradientNoiseMeasured",
    "JobAdmitted",
    "JobCancelled",
    "JobCompleted",
    "JobFailed",
    "JobMigrated",
    "JobPlaced",
    "JobRejected",
    "JobStabilized",
    "JobSubmitted",
    "JobSuspended",
    "LeadershipClaimed",
    "NodeJoined",
    "NodeLost",
    "ProfileFailed",
    "ProfileRequested",
    "ProgressReported",
    "RejectionReason",
    "ServerAdded",
    "ServerCordoned",
    "ServerLoaned",
    "ServerReclaimRequested",
    "ServerReclaimed",
    "ServerRemoved",
    "StragglerDetected",
    "ThroughputMeasured",
    "UnknownEvent",
    "UtilizationMeasured",
    "WorkerLost",
    "WorkerReplaced",
    "WorkersReady",
    "WorkersReleased",
]


class Event(EventModel):
    """The base of all events.

    ``writer`` is the only service that may append the type, ``nature`` whether it is a fact
    or a decision; the audit holds every record against both.
    """

    writer: ClassVar[str]
    nature: ClassVar[Literal["fact", "decision", "kernel"]]
    version: Annotated[int, Field(strict=True)] = 1


class UnknownEvent(EventModel):
    """An event this code does not know, kept whole."""

    type: str
    version: int
    content: dict[str, Any]


# --- the kernel: any service ---------------------------------------------------------------


class LeadershipClaimed(Event):
    """An instance took over a service; its older epochs stop counting from here on."""

    writer: ClassVar[str] = "*"
    nature: ClassVar = "kernel"
    type: Literal["LeadershipClaimed"] = "LeadershipClaimed"
    instance: str
    software: str = Field(
        default="",
        description="The version of the code that decides from here on; empty if it is not known.",
    )


class ClockTicked(Event):
    """A timer that a service had asked for fired."""

    writer: ClassVar[str] = "*"
    nature: ClassVar = "fact"
    type: Literal["ClockTicked"] = "ClockTicked"
    due_seconds: Timestamp


# --- admission: what was asked (facts) -----------------------------------------------------


class FactFromCommand(Event):
    """The base of the facts that a command adds; ``source`` is its position."""

    writer: ClassVar[str] = "admission"
    nature: ClassVar = "fact"
    source: SourcePosition
    command_id: Identifier


class JobSubmitted(FactFromCommand):
    """A client asked for a job; admission answers at its next quiescence."""

    type: Literal["JobSubmitted"] = "JobSubmitted"
    job_id: Identifier
    job: JobSpecification
    submitted_at_seconds: Timestamp
    deadline_seconds: Timestamp | None = None


class CancellationRequested(FactFromCommand):
    """A client asked to stop a job."""

    type: Literal["CancellationRequested"] = "CancellationRequested"
    job_id: Identifier


class DeadlineChangeRequested(FactFromCommand):
    """A client asked for another deadline."""

    type: Literal["DeadlineChangeRequested"] = "DeadlineChangeRequested"
    job_id: Identifier
    deadline_seconds: Timestamp


class ServerAdded(FactFromCommand):
    """A server belongs to the cell from now on; usable once its node has joined."""

    type: Literal["ServerAdded"] = "ServerAdded"
    server: Server


class ServerRemoved(FactFromCommand):
    """A server gets no new work and leaves the cell once its workers are released."""

    type: Literal["ServerRemoved"] = "ServerRemoved"
    server_id: Identifier


class ServerCordoned(FactFromCommand):
    """A server gets no new work (or does again)."""

    type: Literal["ServerCordoned"] = "ServerCordoned"
    server_id: Identifier
    cordoned: bool


class CellConfigured(FactFromCommand):
    """The cell's settings from here on."""

    type: Literal["CellConfigured"] = "CellConfigured"
    configuration: CellConfiguration


class CurvesImported(FactFromCommand):
    """Throughput curves became known."""

    type: Literal["CurvesImported"] = "CurvesImported"
    curves: tuple[Curve, ...]
    curve_source: Literal["imported", "profiled", "model"] = "imported"


class CommandRejected(FactFromCommand):
    """A well-formed command that cannot apply, such as one for an unknown job."""

    type: Literal["CommandRejected"] = "CommandRejected"
    message: str


# --- admission: its answers (decisions) ----------------------------------------------------


class RejectionReason(StrEnum):
    """Why a job was refused: a closed list, one documented paragraph each."""

    DEADLINE_UNREACHABLE = "DeadlineUnreachable"
    """Not even an empty cell could finish it in time."""
    CAPACITY_PROMISED = "CapacityPromised"
    """It would fit, but the capacity is promised to jobs admitted before."""
    CELL_OVERLOADED = "CellOverloaded"
    """More is asked for than there is, and it is among the largest: many others fit instead."""
    LARGER_THAN_CELL = "LargerThanCell"
    """It would need more GPUs at once than all servers of its virtual cluster have."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """Its tenant's quota of jobs or GPU time is used up."""
    CURVE_UNKNOWN = "CurveUnknown"
    """No throughput curve is known for its model and global batch at its allowed sizes."""
    PROFILE_FAILED = "ProfileFailed"
    """It was to be tried out because no curve is known for it, and it did not run."""
    NO_SUCH_VIRTUAL_CLUSTER = "NoSuchVirtualCluster"
    """It names a virtual cluster that the cell does not have, or not for training."""


class FailureReason(StrEnum):
    """Why a job with workers of its own failed, or its profile did: one paragraph each."""

    USER_CODE_FAILED = "UserCodeFailed"
    """Its own code raised an error."""
    OUT_OF_MEMORY = "OutOfMemory"
    """A worker needed more memory than it may have, or than there was."""
    HUNG = "Hung"
    """Its workers lived and made no step, once more than its failures allow for."""
    CANNOT_START = "CannotStart"
    """No worker of it ever came to train."""
    TOO_MANY_FAILURES = "TooManyFailures"
    """More of its workers died than its specification allows for."""


class _AdmissionDecision(Event):
    writer: ClassVar[str] = "admission"
    nature: ClassVar = "decision"
    job_id: Identifier


class ProfileRequested(_AdmissionDecision):
    """The job is to be tried out at a few sizes: nothing is known of its throughput.

    It has no answer yet; it gets one when its curve is known or its profile failed.
    """

    type: Literal["ProfileRequested"] = "ProfileRequested"


class JobAdmitted(_AdmissionDecision):
    """The job will be trained; with ``promised`` also by its deadline.

    ``plan`` is the witness of the promise: following it, with the stops it contains,
    finishes the job at ``finish_seconds``. ``plans_moved`` holds the new plans of jobs
    admitted earlier that make room and still keep theirs.
    """

    type: Literal["JobAdmitted"] = "JobAdmitted"
    promised: bool
    minimum_satisfactory_share: Workers = 0
    finish_seconds: Timestamp | None = None
    plan: tuple[Segment, ...] = ()
    plans_moved: dict[str, tuple[Segment, ...]] = Field(default_factory=dict)


class JobRejected(_AdmissionDecision):
    """The job cannot be promised; with what could be."""

    type: Literal["JobRejected"] = "JobRejected"
    reason: RejectionReason
    message: str
    earliest_deadline_seconds: Timestamp | None = Field(
        default=None, description="The earliest deadline that would be accepted at this moment."
    )
    minimum_workers: Workers | None = Field(
        default=None, description="Workers that would meet the asked deadline in an empty cell."
    )


class JobCancelled(_AdmissionDecision):
    """The job ends at its submitter's wish."""

    type: Literal["JobCancelled"] = "JobCancelled"


class DeadlineChanged(_AdmissionDecision):
    """The job's promise now holds for another deadline."""

    type: Literal["DeadlineChanged"] = "DeadlineChanged"
    deadline_seconds: Timestamp
    plan: tuple[Segment, ...] = ()
    plans_moved: dict[str, tuple[Segment, ...]] = Field(default_factory=dict)


class DeadlineChangeRejected(_AdmissionDecision):
    """The old deadline stands."""

    type: Literal["DeadlineChangeRejected"] = "DeadlineChangeRejected"
    message: str
    earliest_deadline_seconds: Timestamp | None = None


# --- allocator -----------------------------------------------------------------------------


class AllocationChange(EventModel):
    """What one job is to have from now on, and why.

    ``because`` names the other party: the jobs that take or gave the difference.
    """

    job_id: Identifier
    allocation: Allocation
    reason: Literal[
        "guaranteed-share", "spare-capacity", "makes-room", "policy", "capacity-lost"
    ] = "policy"
    because: tuple[str, ...] = ()


class AllocationPlanned(Event):
    """The allocator looked at the whole of a virtual cluster; here is what changes.

    ``plans`` replaces the guaranteed plans of the jobs it names. An empty decision says that
    everything stays as it is. ``look_again_seconds`` is when the plan itself has its next
    step.
    """

    writer: ClassVar[str] = "allocator"
    nature: ClassVar = "decision"
    type: Literal["AllocationPlanned"] = "AllocationPlanned"
    virtual_cluster: Identifier
    changes: tuple[AllocationChange, ...] = ()
    plans: dict[str, tuple[Segment, ...]] = Field(default_factory=dict)
    look_again_seconds: Timestamp | None = None


# --- placement -----------------------------------------------------------------------------


class _PlacementDecision(Event):
    writer: ClassVar[str] = "placement"
    nature: ClassVar = "decision"
    job_id: Identifier
    generation: Annotated[int, Field(ge=1)]


class JobPlaced(_PlacementDecision):
    """The job's next generation runs on these GPUs (a start, or another size)."""

    type: Literal["JobPlaced"] = "JobPlaced"
    gpus: GpuSet


class JobMigrated(_PlacementDecision):
    """The job moves at the same size, to make room for ``for_job``."""

    type: Literal["JobMigrated"] = "JobMigrated"
    gpus: GpuSet
    for_job: str | None = None


class JobSuspended(_PlacementDecision):
    """The job keeps no worker until it is placed again."""

    type: Literal["JobSuspended"] = "JobSuspended"


# --- loan-manager --------------------------------------------------------------------------


class _LoanDecision(Event):
    writer: ClassVar[str] = "loan-manager"
    nature: ClassVar = "decision"
    server_id: Identifier
    lender: Identifier
    borrower: Identifier


class ServerLoaned(_LoanDecision):
    """A server of one virtual cluster works for another."""

    type: Literal["ServerLoaned"] = "ServerLoaned"


class ServerReclaimRequested(_LoanDecision):
    """The lender wants its server back by then."""

    type: Literal["ServerReclaimRequested"] = "ServerReclaimRequested"
    due_seconds: Timestamp


class ServerReclaimed(_LoanDecision):
    """The server is its lender's again."""

    type: Literal["ServerReclaimed"] = "ServerReclaimed"


# --- metric-collector ----------------------------------------------------------------------


class _Measurement(Event):
    writer: ClassVar[str] = "metric-collector"
    nature: ClassVar = "fact"
    job_id: Identifier
    generation: Annotated[int, Field(ge=1)]


class ThroughputMeasured(_Measurement):
    """A running job's throughput differs from what was believed."""

    type: Literal["ThroughputMeasured"] = "ThroughputMeasured"
    workers: Annotated[int, Field(ge=1)]
    iterations_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GradientNoiseMeasured(_Measurement):
    """The gradient noise scale of a running job, in samples."""

    type: Literal["GradientNoiseMeasured"] = "GradientNoiseMeasured"
    gradient_noise_scale: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class UtilizationMeasured(_Measurement):
    """The mean utilisation of a running job's resources, 0 to 1."""

    type: Literal["UtilizationMeasured"] = "UtilizationMeasured"
    utilization_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


# --- stability-detector --------------------------------------------------------------------


class _Stability(Event):
    writer: ClassVar[str] = "stability-detector"
    nature: ClassVar = "fact"
    job_id: Identifier
    generation: Annotated[int, Field(ge=1)]


class JobStabilized(_Stability):
    """Training speed has settled since the last change (NEARCHUS §III)."""

    type: Literal["JobStabilized"] = "JobStabilized"
    iterations_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StragglerDetected(_Stability):
    """One worker is much slower than its peers (Or et al. §5)."""

    type: Literal["StragglerDetected"] = "StragglerDetected"
    server_id: Identifier
    gpu_index: Annotated[int, Field(ge=0)]
    relative_throughput: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BottleneckDetected(_Stability):
    """A component limits the job (NEARCHUS §IV)."""

    type: Literal["BottleneckDetected"] = "BottleneckDetected"
    role: Literal["worker", "parameter-server"]
    resource: Literal["compute", "network"]


# --- executor ------------------------------------------------------------------------------


class _ExecutorFact(Event):
    writer: ClassVar[str] = "executor"
    nature: ClassVar = "fact"


class NodeJoined(_ExecutorFact):
    """A server's node agent is up: its GPUs can be used.

    ``incarnation`` counts the node's starts, so a late repeat of an old report is known.
    """

    type: Literal["NodeJoined"] = "NodeJoined"
    server_id: Identifier
    incarnation: Annotated[int, Field(ge=1)]


class NodeLost(_ExecutorFact):
    """A server's node agent is gone, and with it every worker there."""

    type: Literal["NodeLost"] = "NodeLost"
    server_id: Identifier
    incarnation: Annotated[int, Field(ge=1)]


class _JobFact(_ExecutorFact):
    job_id: Identifier
    generation: Annotated[int, Field(ge=0)]


class WorkersReady(_JobFact):
    """A generation's workers are up and can be switched to."""

    type: Literal["WorkersReady"] = "WorkersReady"


class GenerationSwitched(_JobFact):
    """The job trains with this generation, after standing still for ``stopped_seconds``."""

    type: Literal["GenerationSwitched"] = "GenerationSwitched"
    workers: Annotated[int, Field(ge=1)]
    stopped_seconds: Seconds
    iterations_done: Iterations


class ProgressReported(_JobFact):
    """How far the job has come."""

    type: Literal["ProgressReported"] = "ProgressReported"
    iterations_done: Iterations


class WorkersReleased(_JobFact):
    """Workers have left these GPUs: they are free in fact.

    ``generation`` is the one that took the GPUs away. ``iterations_done`` is what the job
    had come to when they left.
    """

    type: Literal["WorkersReleased"] = "WorkersReleased"
    gpus: GpuSet
    iterations_done: Iterations


class WorkerLost(_JobFact):
    """Workers died; the job stands at its last checkpoint and needs to be placed again.

    ``failures`` counts the job's workers that failed by themselves so far.
    """

    type: Literal["WorkerLost"] = "WorkerLost"
    iterations_done: Iterations
    message: str = ""
    failures: Annotated[int, Field(ge=0)] = 0


class WorkerReplaced(_JobFact):
    """A worker died and was replaced where it was, while the others trained on.

    ``failures`` counts the job's workers that failed by themselves so far, this one included.
    """

    type: Literal["WorkerReplaced"] = "WorkerReplaced"
    server_id: Identifier
    gpu_index: Annotated[int, Field(ge=0)]
    failures: Annotated[int, Field(ge=1)]
    message: str = ""


class JobCompleted(_JobFact):
    """The job has done all its work."""

    type: Literal["JobCompleted"] = "JobCompleted"
    iterations_done: Iterations


class JobFailed(_JobFact):
    """The job ends without having done its work.

    ``reason`` is one of a closed list (``FailureReason``); a later version may know more of them.
    """

    type: Literal["JobFailed"] = "JobFailed"
    reason: Identifier
    message: str


class CurveProfiled(_ExecutorFact):
    """A job that waits for its answer was tried out: its throughput at the sizes tried."""

    type: Literal["CurveProfiled"] = "CurveProfiled"
    job_id: Identifier
    curve: Curve


class ProfileFailed(_ExecutorFact):
    """A job that was to be tried out did not run; ``reason`` as of a job that failed."""

    type: Literal["ProfileFailed"] = "ProfileFailed"
    job_id: Identifier
    reason: Identifier
    message: str


EVENT_TYPES: tuple[type[Event], ...] = (
    LeadershipClaimed,
    ClockTicked,
    JobSubmitted,
    CancellationRequested,
    DeadlineChangeRequested,
    ServerAdded,
    ServerRemoved,
    ServerCordoned,
    CellConfigured,
    CurvesImported,
    CommandRejected,
    ProfileRequested,
    JobAdmitted,
    JobRejected,
    JobCancelled,
    DeadlineChanged,
    DeadlineChangeRejected,
    AllocationPlanned,
    JobPlaced,
    JobMigrated,
    JobSuspended,
    ServerLoaned,
    ServerReclaimRequested,
    ServerReclaimed,
    ThroughputMeasured,
    GradientNoiseMeasured,
    UtilizationMeasured,
    JobStabilized,
    StragglerDetected,
    BottleneckDetected,
    NodeJoined,
    NodeLost,
    WorkersReady,
    GenerationSwitched,
    ProgressReported,
    WorkersReleased,
    WorkerLost,
    WorkerReplaced,
    JobCompleted,
    JobFailed,
    CurveProfiled,
    ProfileFailed,
)
