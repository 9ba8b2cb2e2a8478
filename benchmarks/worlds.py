"""The workloads and cells that benchmarks run: public traces, or generated ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from resilin.admission.state import AdmissionState
from resilin.contracts.values import StopCost
from resilin.eventlog.memory import MemoryLog
from resilin.kernel.host import Folded
from resilin.simulation.cluster import Physics
from resilin.simulation.scenario import Cluster, configuration, opening_commands, submissions
from resilin.simulation.simulation import Simulation, TimedCommand
from resilin.workloads import (
    CurveBook,
    Trace,
    TraceJob,
    built_in_curves,
    generate_preset,
    generate_trace,
    read_profiles,
    read_trace,
)

__all__ = ["BUILT_IN", "World", "generated_world", "loaded_cell", "traced_world"]

BUILT_IN = "one-day-128-gpus"
"""The preset that stands for a trace where no trace file is meant."""

SETTLED_SECONDS = 60.0
"""After that long a job that was placed trains, whatever its stop takes."""


@dataclass(frozen=True, slots=True)
class World:
    """A workload, the cell it is sent to, and how the simulated cluster behaves.

    Attributes:
        trace: The jobs.
        curves: Their throughput.
        cluster: The servers.
        stop_cost: What the cell believes of stops, and what they really take.
        throughput_noise: See :class:`resilin.simulation.cluster.Physics`.
    """

    trace: Trace
    curves: CurveBook
    cluster: Cluster
    stop_cost: StopCost
    throughput_noise: float = 0.0

    @property
    def commands(self) -> list[TimedCommand]:
        """Everything that clients send, in order of time."""
        start = self.trace.jobs[0].submitted_at_seconds
        settings = configuration("elasticflow", self.stop_cost)
        opening = opening_commands(start, self.cluster, settings, self.curves)
        return [*opening, *submissions(self.trace.jobs)]

    @property
    def physics(self) -> Physics:
        """How the simulated cluster behaves."""
        return Physics(stop_cost=self.stop_cost, throughput_noise=self.throughput_noise)


def traced_world(traces: Path | None, trace: str, servers: int, *, modelled_stops: bool) -> World:
    """Read a trace of ElasticFlow's evaluation, or generate the built-in one-day preset.

    Args:
        traces: The folder with the public traces; only :data:`BUILT_IN` does without.
        trace: The file's name, or :data:`BUILT_IN`.
        servers: Servers of 8 GPUs.
        modelled_stops: Whether stops take time.
    """
    cost = StopCost.modelled() if modelled_stops else StopCost()
    cluster = Cluster(servers, 8)
    if trace == BUILT_IN:
        curves = built_in_curves()
        return World(generate_preset(trace, seed=0, curves=curves), curves, cluster, cost)
    if traces is None:
        raise ValueError(f"{trace} needs the folder of public traces")
    folder = traces / "elasticflow"
    curves = read_profiles(folder / "profiles" / "throughputs_A100")
    jobs = read_trace(folder / "traces" / trace, "elasticflow", curves=curves)
    return World(jobs, curves, cluster, cost)


def generated_world(
    jobs: int,
    servers: int,
    *,
    load: float,
    mean_interarrival_seconds: float,
    seed: int = 0,
    throughput_noise: float = 0.0,
    deadline_tightness: tuple[float, float] = (0.5, 1.5),
) -> World:
    """Generate jobs for a cell of servers of 8 GPUs with modelled stops."""
    curves = built_in_curves()
    cluster = Cluster(servers, 8)
    trace = generate_trace(
        jobs=jobs,
        seed=seed,
        curves=curves,
        mean_interarrival_seconds=mean_interarrival_seconds,
        cluster_gpus=cluster.gpus,
        load=load,
        deadline_tightness=deadline_tightness,
    )
    return World(trace, curves, cluster, StopCost.modelled(), throughput_noise)


def loaded_cell(
    live_jobs: int, servers: int, *, deadline_tightness: tuple[float, float]
) -> Folded[AdmissionState]:
    """Return what admission has folded of a cell in which so many jobs train.

    They are submitted all at once, admitted, allocated and placed by the services, and have
    just begun; a few of them may have to wait, or may not fit into the cell.

    Args:
        live_jobs: Jobs to submit; each could be in time if it were alone.
        servers: Servers of 8 GPUs.
        deadline_tightness: Least and largest deadline, in durations at the requested size.
            The tighter, the more GPUs a promise takes.
    """
    world = generated_world(
        4 * live_jobs,
        servers,
        load=0.9,
        mean_interarrival_seconds=60.0,
        deadline_tightness=deadline_tightness,
    )
    within_reach = tuple(job for job in world.trace.jobs if _can_be_met(world, job))
    world = replace(world, trace=replace(world.trace, jobs=within_reach[:live_jobs]))
    start = world.commands[0].at_seconds
    burst = [replace(timed, at_seconds=start) for timed in world.commands]
    simulation = Simulation(MemoryLog(), burst, world.physics)
    simulation.run(until_seconds=start + SETTLED_SECONDS)
    (admission,) = simulation.instances["admission"]
    folded: Folded[AdmissionState] = admission.host.folded
    return folded


def _can_be_met(world: World, job: TraceJob) -> bool:
    """Say whether a job alone would be in time, the time to settle left out."""
    fastest = max(world.curves[job.model, job.global_batch].iterations_per_second)
    after = 0.0 if job.deadline_seconds is None else job.deadline_seconds
    window = after - job.submitted_at_seconds
    return job.iterations / fastest + 2 * SETTLED_SECONDS < window
