"""Scenarios: from a trace, curves and a cluster's shape to the commands a run starts from.

A simulated run enters through the same door as a live one: commands. First the cell's
settings, its curves and its servers, then one submission a job of the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resilin.contracts.commands import (
    AddServer,
    Command,
    ConfigureCell,
    ImportCurves,
    SubmitJob,
)
from resilin.contracts.job_specification import (
    Elastic,
    JobSpecification,
    Metadata,
    TrainingSpecification,
    Workload,
)
from resilin.contracts.values import CellConfiguration, Curve, Server, StopCost, VirtualCluster
from resilin.planning.curves import ThroughputCurve, powers_of_two
from resilin.simulation.simulation import TimedCommand
from resilin.workloads import TraceJob

__all__ = ["Cluster", "configuration", "job_specification", "opening_commands", "submissions"]


MOST_WORKERS = 4096
"""Where sizes must be listed, the list of powers of two ends here."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The shape of a cluster.

    Attributes:
        servers: How many.
        gpus_per_server: GPUs in each.
        servers_per_rack: Servers in each rack; 0 puts all into one.
    """

    servers: int
    gpus_per_server: int
    servers_per_rack: int = 0

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.servers * self.gpus_per_server

    def server(self, number: int) -> Server:
        """Describe one server, numbered from 0."""
        rack = number // self.servers_per_rack if self.servers_per_rack else 0
        return Server(
            server_id=f"server-{number:04d}", gpus=self.gpus_per_server, rack=f"rack-{rack:03d}"
        )


def configuration(
    policy: str,
    stop_cost: StopCost,
    *,
    reserve_servers: int = 0,
    promise_margin_seconds: float = 1.0,
) -> CellConfiguration:
    """Configure a cell of one virtual cluster."""
    return CellConfiguration(
        virtual_clusters=(VirtualCluster(policy=policy, reserve_servers=reserve_servers),),
        stop_cost=stop_cost,
        promise_margin_seconds=promise_margin_seconds,
    )


def opening_commands(
    at_seconds: float,
    cluster: Cluster,
    settings: CellConfiguration,
    curves: Mapping[tuple[str, int], ThroughputCurve],
) -> list[TimedCommand]:
    """Return the commands that set a cell up."""
    commands: list[Command] = [
        ConfigureCell(command_id="configure", configuration=settings),
        ImportCurves(
            command_id="curves",
            curves=tuple(
                Curve(
                    model=model,
                    global_batch=batch,
                    iterations_per_second=dict(
                        zip(curve.workers, curve.iterations_per_second, strict=True)
                    ),
                )
                for (model, batch), curve in curves.items()
            ),
        ),
    ]
    commands += [
        AddServer(command_id=f"add-{number}", server=cluster.server(number))
        for number in range(cluster.servers)
    ]
    return [TimedCommand(at_seconds, command) for command in commands]


def submissions(jobs: Sequence[TraceJob]) -> list[TimedCommand]:
    """Return one submission a job, at its time."""
    return [
        TimedCommand(
            job.submitted_at_seconds,
            SubmitJob(
                command_id=f"submit-{job.job_id}", job_id=job.job_id, job=job_specification(job)
            ),
        )
        for job in jobs
    ]


def job_specification(job: TraceJob) -> JobSpecification:
    """Write a trace's job as its user would have."""
    deadline = None
    if job.deadline_seconds is not None:
        # A trace may set a deadline at the submission itself; a specification may not.
        window = max(job.deadline_seconds - job.submitted_at_seconds, 0.001)
        deadline = f"{window:.6f}s"
    return JobSpecification(
        metadata=Metadata(name=job.job_id),
        spec=TrainingSpecification(
            model=job.model,
            global_batch=job.global_batch,
            workload=Workload(total_iterations=job.iterations),
            deadline=deadline,
            elastic=_elastic(job.requested_workers),
        ),
    )


def _elastic(requested: int) -> Elastic:
    """Allow powers of two, as by default, and the size that was asked for as well."""
    if requested.bit_count() == 1:
        return Elastic(requested_replicas=requested)
    allowed = sorted((*powers_of_two(MOST_WORKERS), requested))
    return Elastic(requested_replicas=requested, allowed_replicas=tuple(allowed))
