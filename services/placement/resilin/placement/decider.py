"""Placement's decisions: GPUs for every job whose allocation differs from what it has.

    allocation (a wish)  -->  JobPlaced | JobSuspended, and JobMigrated to make room

The plan counts on GPUs that workers are about to leave, but a job is placed only once all
its GPUs are free in fact. So a decision may hold just the first step: those who leave.
When their executor has said WorkersReleased, the next decision holds the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from resilin.cell.state import CellState, JobState, evolve_cell
from resilin.cell.view import job_view, stop_seconds
from resilin.contracts import events as ev
from resilin.contracts.job_specification import DeadlinePolicy
from resilin.contracts.record import LogEntry
from resilin.contracts.values import GpuSet
from resilin.planning.filling import projected_finish
from resilin.planning.placement import PlacedJob, PlacementPlan, plan_placement
from resilin.planning.topology import Gpu, Topology

__all__ = ["PlacementDecider", "PlacementState"]

# A move never comes for free: with stops that cost nothing, fewer moved GPUs are better.
LEAST_MOVE_SECONDS = 1e-3
# A move that breaks a promise is worth any number of moves that do not.
BROKEN_PROMISE_SECONDS = 1e9

# Steps of the search for the cheapest moves, about a microsecond each. On the 195-job trace
# 5,000 find no fewer migrations than these.
SEARCH_LIMIT = 500


@dataclass(slots=True)
class PlacementState:
    """The folded state of placement.

    Attributes:
        cell: Jobs and servers.
    """

    cell: CellState = field(default_factory=CellState)


class PlacementDecider:
    """The core of the placement service."""

    service = "placement"
    state_type = PlacementState

    def initial_state(self) -> PlacementState:
        """Return the state before the first entry."""
        return PlacementState()

    def evolve(
        self, state: PlacementState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
    ) -> PlacementState:
        """Fold one event."""
        state.cell = evolve_cell(state.cell, event, entry)
        return state

    def decide(self, state: PlacementState) -> Sequence[ev.Event]:
        """Place every job whose GPUs are not what they should be, as far as GPUs are free."""
        cell = state.cell
        unsettled: dict[str, dict[str, int]] = {}
        for job in cell.jobs.values():
            if job.live and (job.wanted_workers != job.placed_workers or _must_leave(cell, job)):
                wanted = unsettled.setdefault(job.job.spec.virtual_cluster, {})
                wanted[job.job_id] = job.wanted_workers
        decision: list[ev.Event] = []
        for virtual_cluster, requests in unsettled.items():
            decision += _placements(cell, virtual_cluster, requests)
        return decision

    def next_timer(self, state: PlacementState) -> float | None:  # noqa: ARG002 (the contract)
        """Return nothing: placement acts on allocations and released GPUs."""
        return None


def _must_leave(cell: CellState, job: JobState) -> bool:
    """Say whether a job has workers on a server that is to leave the cell.

    A job that must not move stays there until it ends; the server leaves after it.
    """
    return job.job.spec.migratable and any(cell.servers[server].removed for server in job.placed)


def _placements(cell: CellState, virtual_cluster: str, requests: dict[str, int]) -> list[ev.Event]:
    servers = [
        server
        for server in cell.servers.values()
        if server.virtual_cluster == virtual_cluster and server.works
    ]
    topology = _topology(
        tuple(
            (server.server.server_id, server.server.gpus, server.server.rack) for server in servers
        )
    )
    cordoned = [
        Gpu(server.server.server_id, index)
        for server in servers
        if server.cordoned
        for index in range(server.server.gpus)
    ]
    staying = topology.position
    jobs = [
        job
        for job in cell.jobs.values()
        if job.live and job.placed and job.job.spec.virtual_cluster == virtual_cluster
    ]
    occupancy = {
        job.job_id: [
            (server, index)
            for server, indexes in job.placed.items()
            if server in staying
            for index in indexes
        ]
        for job in jobs
    }
    plan = plan_placement(
        topology,
        occupancy,
        requests,
        migration_costs={job.job_id: _move_cost(cell, job, requests) for job in jobs},
        unavailable=cordoned,
        search_limit=SEARCH_LIMIT,
    )
    return _free_in_fact(cell, plan)


@lru_cache(maxsize=64)
def _topology(servers: tuple[tuple[str, int, str], ...]) -> Topology:
    """Build the tree of a virtual cluster; it changes only when its servers do."""
    return Topology.from_servers(servers)


def _move_cost(cell: CellState, job: JobState, requests: dict[str, int]) -> float | None:
    """Return the GPU seconds that a move loses; None for a job that must not move."""
    if not job.job.spec.migratable:
        return None
    if job.job_id in requests:
        return 0.0  # its GPUs change anyway
    workers = job.placed_workers
    stop = stop_seconds(cell.configuration.stop_cost, workers)
    seconds = max(stop, LEAST_MOVE_SECONDS)
    if stop and job.promised and job.binding is DeadlinePolicy.GUARANTEED:
        view = job_view(cell, job)
        deadline = job.deadline_seconds
        if view is not None and deadline is not None:
            finish = projected_finish(view, job.plan, cell.now_seconds, allowance_seconds=stop)
            if finish > deadline:
                seconds += BROKEN_PROMISE_SECONDS
    return seconds * workers


def _free_in_fact(cell: CellState, plan: PlacementPlan) -> list[ev.Event]:
    """Return the part of a plan that can be done now: nobody else is on the GPUs."""
    wanted = {gpu.server for placed in (*plan.migrated, *plan.placed) for gpu in placed.gpus}
    holder = {
        (server, index): job.job_id
        for job in cell.jobs.values()
        for server, indexes in job.held.items()
        if server in wanted
        for index in indexes
    }

    def ready(placed: PlacedJob) -> bool:
        return all(holder.get(gpu, placed.job_id) == placed.job_id for gpu in placed.gpus)

    steps: list[ev.Event] = [
        ev.JobSuspended(job_id=job_id, generation=cell.jobs[job_id].generation + 1)
        for job_id in plan.suspended
    ]
    for placed in plan.migrated:
        if ready(placed):
            waiting = (other.job_id for other in plan.placed if placed.job_id in other.waits_for)
            steps.append(
                ev.JobMigrated(
                    job_id=placed.job_id,
                    generation=cell.jobs[placed.job_id].generation + 1,
                    gpus=_gpu_set(placed),
                    for_job=next(waiting, None),
                )
            )
    steps += [
        ev.JobPlaced(
            job_id=placed.job_id,
            generation=cell.jobs[placed.job_id].generation + 1,
            gpus=_gpu_set(placed),
        )
        for placed in plan.placed
        if ready(placed)
    ]
    return steps or _untangled(cell, plan)


def _untangled(cell: CellState, plan: PlacementPlan) -> list[ev.Event]:
    """Break a ring of jobs that wait for each other's GPUs: one of them steps aside.

    It would stop for its move anyway, and is placed as soon as the others have moved.
    """
    if any(job.leaving for job in cell.jobs.values()):
        return []
    ring = [placed for placed in (*plan.migrated, *plan.placed) if placed.previous]
    if not ring:
        return []
    aside = min(ring, key=lambda placed: (len(placed.previous), cell.jobs[placed.job_id].order))
    generation = cell.jobs[aside.job_id].generation + 1
    return [ev.JobSuspended(job_id=aside.job_id, generation=generation)]


def _gpu_set(placed: PlacedJob) -> GpuSet:
    gpus: dict[str, list[int]] = {}
    for gpu in placed.gpus:
        gpus.setdefault(gpu.server, []).append(gpu.index)
    return {server: tuple(indexes) for server, indexes in gpus.items()}
