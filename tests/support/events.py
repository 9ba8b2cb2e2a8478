"""Events in few words, so that a test reads as given-events, when-decide, then-events.

The model ``linear`` makes n iterations per second with n workers (1, 2, 4 or 8): 100
iterations are 100 s with one worker and 25 s with four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resilin.contracts import commands as cmd
from resilin.contracts import events as ev
from resilin.contracts.job_specification import (
    DeadlinePolicy,
    Elastic,
    JobSpecification,
    Metadata,
    TrainingSpecification,
    WorkerSpecification,
    Workload,
)
from resilin.contracts.values import (
    CellConfiguration,
    Curve,
    GpuSet,
    Server,
    SourcePosition,
    StopCost,
    VirtualCluster,
    training_allocation,
)

__all__ = [
    "BATCH",
    "LINEAR",
    "add_server",
    "admitted",
    "cancellation_asked",
    "completed",
    "configured",
    "cordoned",
    "curves_imported",
    "deadline_asked",
    "job",
    "joined",
    "lost",
    "measured",
    "migrated",
    "placed",
    "planned",
    "profile_asked",
    "profile_failed",
    "profiled",
    "progressed",
    "rejected",
    "released",
    "server_added",
    "server_removed",
    "submit",
    "submitted",
    "suspended",
    "switched",
    "worker_lost",
    "worker_replaced",
]

BATCH = 64
LINEAR: Mapping[int, float] = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}


def _source(offset: int) -> SourcePosition:
    return SourcePosition(topic="jobs.commands", offset=offset)


def job(
    name: str = "a",
    *,
    iterations: int = 100,
    within_seconds: float | None = None,
    policy: DeadlinePolicy | None = None,
    model: str = "linear",
    tenant: str = "default",
    virtual_cluster: str = "default",
    sizes: Sequence[int] | None = None,
    requested: int | None = None,
    migratable: bool = True,
    submission_id: str | None = None,
    worker: WorkerSpecification | None = None,
) -> JobSpecification:
    """A job as its user would write it; without ``within_seconds`` it has no deadline."""
    return JobSpecification(
        metadata=Metadata(name=name, submission_id=submission_id),
        spec=TrainingSpecification(
            model=model,
            global_batch=BATCH,
            workload=Workload(total_iterations=iterations),
            deadline=None if within_seconds is None else f"{within_seconds:.6f}s",
            deadline_policy=policy,
            elastic=Elastic(
                allowed_replicas=None if sizes is None else tuple(sizes),
                requested_replicas=requested,
            ),
            tenant=tenant,
            virtual_cluster=virtual_cluster,
            migratable=migratable,
            worker=worker,
        ),
    )


def submit(job_id: str = "a", *, command_id: str | None = None, **of_job: Any) -> cmd.SubmitJob:
    """The command that submits :func:`job`."""
    return cmd.SubmitJob(
        command_id=command_id or f"submit-{job_id}",
        job_id=job_id,
        job=job(job_id, **of_job),
    )


def submitted(
    job_id: str = "a",
    *,
    at: float = 0.0,
    deadline: float | None = None,
    offset: int = 0,
    **of_job: Any,
) -> ev.JobSubmitted:
    """A submission at ``at`` with an absolute deadline."""
    within = None if deadline is None else max(deadline - at, 0.001)
    return ev.JobSubmitted(
        source=_source(offset),
        command_id=f"submit-{job_id}",
        job_id=job_id,
        job=job(job_id, within_seconds=within, **of_job),
        submitted_at_seconds=at,
        deadline_seconds=deadline,
    )


def cancellation_asked(job_id: str = "a", *, offset: int = 0) -> ev.CancellationRequested:
    return ev.CancellationRequested(
        source=_source(offset), command_id=f"cancel-{job_id}", job_id=job_id
    )


def deadline_asked(job_id: str, deadline: float, *, offset: int = 0) -> ev.DeadlineChangeRequested:
    return ev.DeadlineChangeRequested(
        source=_source(offset),
        command_id=f"move-{job_id}",
        job_id=job_id,
        deadline_seconds=deadline,
    )


def configured(
    *clusters: VirtualCluster, stop_cost: StopCost | None = None, margin: float = 0.0
) -> ev.CellConfigured:
    """Settings: by default one cluster under ElasticFlow, free stops and no margin."""
    return ev.CellConfigured(
        source=_source(0),
        command_id="configure",
        configuration=CellConfiguration(
            virtual_clusters=clusters or (VirtualCluster(),),
            stop_cost=stop_cost or StopCost(),
            promise_margin_seconds=margin,
        ),
    )


def curves_imported(**rates: Mapping[int, float]) -> ev.CurvesImported:
    """Curves by model; by default only ``linear``."""
    curves = tuple(
        Curve(model=model, global_batch=BATCH, iterations_per_second=dict(curve))
        for model, curve in (rates or {"linear": LINEAR}).items()
    )
    return ev.CurvesImported(source=_source(0), command_id="curves", curves=curves)


def _server(server_id: str, gpus: int, virtual_cluster: str) -> Server:
    return Server(server_id=server_id, gpus=gpus, virtual_cluster=virtual_cluster)


def server_added(
    server_id: str = "s1", gpus: int = 4, virtual_cluster: str = "default"
) -> ev.ServerAdded:
    return ev.ServerAdded(
        source=_source(0),
        command_id=f"add-{server_id}",
        server=_server(server_id, gpus, virtual_cluster),
    )


def add_server(
    server_id: str = "s1", gpus: int = 4, virtual_cluster: str = "default"
) -> cmd.AddServer:
    """The command that adds a server."""
    return cmd.AddServer(
        command_id=f"add-{server_id}", server=_server(server_id, gpus, virtual_cluster)
    )


def server_removed(server_id: str = "s1") -> ev.ServerRemoved:
    return ev.ServerRemoved(
        source=_source(0), command_id=f"remove-{server_id}", server_id=server_id
    )


def cordoned(server_id: str = "s1", *, cordon: bool = True) -> ev.ServerCordoned:
    return ev.ServerCordoned(
        source=_source(0), command_id=f"cordon-{server_id}", server_id=server_id, cordoned=cordon
    )


def joined(server_id: str = "s1", incarnation: int = 1) -> ev.NodeJoined:
    return ev.NodeJoined(server_id=server_id, incarnation=incarnation)


def lost(server_id: str = "s1", incarnation: int = 1) -> ev.NodeLost:
    return ev.NodeLost(server_id=server_id, incarnation=incarnation)


def admitted(
    job_id: str = "a", *plan: tuple[float, float, int], promised: bool | None = None
) -> ev.JobAdmitted:
    """An admission; promised if it has a plan, unless told otherwise."""
    return ev.JobAdmitted(
        job_id=job_id,
        promised=bool(plan) if promised is None else promised,
        minimum_satisfactory_share=max((workers for _, _, workers in plan), default=0),
        finish_seconds=plan[-1][1] if plan else None,
        plan=plan,
    )


def rejected(job_id: str = "a") -> ev.JobRejected:
    return ev.JobRejected(
        job_id=job_id, reason=ev.RejectionReason.CAPACITY_PROMISED, message="no room"
    )


def planned(
    workers: Mapping[str, int] | None = None,
    *,
    plans: Mapping[str, Sequence[tuple[float, float, int]]] | None = None,
    look_again: float | None = None,
    virtual_cluster: str = "default",
) -> ev.AllocationPlanned:
    return ev.AllocationPlanned(
        virtual_cluster=virtual_cluster,
        changes=tuple(
            ev.AllocationChange(job_id=job_id, allocation=training_allocation(count, BATCH))
            for job_id, count in (workers or {}).items()
        ),
        plans={job_id: tuple(plan) for job_id, plan in (plans or {}).items()},
        look_again_seconds=look_again,
    )


def placed(job_id: str, generation: int, gpus: GpuSet) -> ev.JobPlaced:
    return ev.JobPlaced(job_id=job_id, generation=generation, gpus=gpus)


def migrated(job_id: str, generation: int, gpus: GpuSet) -> ev.JobMigrated:
    return ev.JobMigrated(job_id=job_id, generation=generation, gpus=gpus)


def suspended(job_id: str, generation: int) -> ev.JobSuspended:
    return ev.JobSuspended(job_id=job_id, generation=generation)


def switched(
    job_id: str, generation: int, workers: int, done: float = 0.0
) -> ev.GenerationSwitched:
    return ev.GenerationSwitched(
        job_id=job_id,
        generation=generation,
        workers=workers,
        stopped_seconds=0.0,
        iterations_done=done,
    )


def progressed(job_id: str, generation: int, done: float) -> ev.ProgressReported:
    return ev.ProgressReported(job_id=job_id, generation=generation, iterations_done=done)


def released(job_id: str, generation: int, gpus: GpuSet, done: float = 0.0) -> ev.WorkersReleased:
    return ev.WorkersReleased(job_id=job_id, generation=generation, gpus=gpus, iterations_done=done)


def profile_asked(job_id: str = "a") -> ev.ProfileRequested:
    return ev.ProfileRequested(job_id=job_id)


def profiled(job_id: str = "a", model: str = "new", **rates: float) -> ev.CurveProfiled:
    """A profile's curve, by default that of ``linear`` up to four workers: ``n1=1.0, n2=...``."""
    measured_rates = {int(name[1:]): rate for name, rate in rates.items()}
    curve = Curve(
        model=model,
        global_batch=BATCH,
        iterations_per_second=measured_rates or {1: 1.0, 2: 2.0, 4: 4.0},
    )
    return ev.CurveProfiled(job_id=job_id, curve=curve)


def profile_failed(
    job_id: str = "a", reason: ev.FailureReason = ev.FailureReason.USER_CODE_FAILED
) -> ev.ProfileFailed:
    return ev.ProfileFailed(job_id=job_id, reason=reason, message="it raised")


def worker_replaced(
    job_id: str, generation: int, failures: int = 1, server: str = "s1", index: int = 0
) -> ev.WorkerReplaced:
    return ev.WorkerReplaced(
        job_id=job_id,
        generation=generation,
        server_id=server,
        gpu_index=index,
        failures=failures,
        message="killed",
    )


def worker_lost(job_id: str, generation: int, done: float = 0.0) -> ev.WorkerLost:
    return ev.WorkerLost(job_id=job_id, generation=generation, iterations_done=done)


def completed(job_id: str, generation: int, done: float = 100.0) -> ev.JobCompleted:
    return ev.JobCompleted(job_id=job_id, generation=generation, iterations_done=done)


def measured(job_id: str, generation: int, workers: int, rate: float) -> ev.ThroughputMeasured:
    return ev.ThroughputMeasured(
        job_id=job_id, generation=generation, workers=workers, iterations_per_second=rate
    )
