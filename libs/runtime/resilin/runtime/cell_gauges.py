"""What there is in a cell at the moment of the last record, for the gauges of its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from resilin.cell import gpu_sets
from resilin.cell.state import CellState, JobState, Phase, ServerState
from resilin.planning.topology import Topology, fragmentation_ratio
from resilin.runtime.cell_figures import HELD, LOST, CellFigures, progress

__all__ = ["Gauge", "gauges"]

UNKNOWN_CLUSTER = "unknown"
"""Stands for virtual clusters that the cell does not have: anybody may name any."""

Gauge = tuple[str, tuple[str, ...], float]
"""A metric's name, the values of its labels, and its value."""


def gauges(figures: CellFigures, owner: str, *, per_job: bool = True) -> Iterator[Gauge]:
    """Yield what an owner shows of the cell at the moment of the last record.

    Args:
        figures: The figures.
        owner: The service.
        per_job: Whether the metric-collector shows series by job.
    """
    show = _GAUGES.get(owner)
    if show is not None:
        yield from show(figures)
    if owner == "metric-collector" and per_job:
        yield from _job_gauges(figures)


def _by_cluster(
    cell: CellState, name: str, amounts: Iterable[tuple[str, float]]
) -> Iterator[Gauge]:
    """Sum amounts up by virtual cluster; all that are configured are there."""
    sums = {cluster.name: 0.0 for cluster in cell.configuration.virtual_clusters}
    for cluster, amount in amounts:
        known = cluster if cluster in sums else UNKNOWN_CLUSTER
        sums[known] = sums.get(known, 0.0) + amount
    for cluster, amount in sums.items():
        yield name, (cluster,), amount


def _jobs(
    cell: CellState, name: str, amount: Callable[[JobState], float], *, live: bool = True
) -> Iterator[Gauge]:
    return _by_cluster(
        cell,
        name,
        (
            (job.job.spec.virtual_cluster, amount(job))
            for job in cell.jobs.values()
            if job.live or not live
        ),
    )


def _admission_gauges(figures: CellFigures) -> Iterator[Gauge]:
    cell = figures.cell
    yield from _jobs(
        cell, "resilin_pending_jobs", lambda job: job.phase is Phase.SUBMITTED, live=False
    )
    yield from _jobs(
        cell,
        "resilin_overdue_jobs",
        lambda job: job.deadline_seconds is not None and job.deadline_seconds < cell.now_seconds,
    )


def _allocator_gauges(figures: CellFigures) -> Iterator[Gauge]:
    cell = figures.cell
    yield from _jobs(cell, "resilin_allocated_gpus", lambda job: job.wanted_workers)
    yield from _jobs(cell, "resilin_promised_gpus", lambda job: _promised_now(cell, job))
    yield from _jobs(cell, "resilin_waiting_jobs", lambda job: not job.wanted_workers)


def _promised_now(cell: CellState, job: JobState) -> int:
    for begin, end, workers in job.plan:
        if begin <= cell.now_seconds < end:
            return workers
    return 0


def _placement_gauges(figures: CellFigures) -> Iterator[Gauge]:
    cell = figures.cell
    servers = [server for server in cell.servers.values() if not server.removed]
    gpus: dict[tuple[str, str], int] = {
        (cluster.name, condition): 0
        for cluster in cell.configuration.virtual_clusters
        for condition in ("usable", "cordoned", "down")
    }
    for server in servers:
        condition = "down" if not server.works else "cordoned" if server.cordoned else "usable"
        key = (server.virtual_cluster, condition)
        gpus[key] = gpus.get(key, 0) + server.server.gpus
    for key, amount in gpus.items():
        yield "resilin_gpus", key, amount
    yield from _jobs(cell, "resilin_placed_gpus", lambda job: job.placed_workers)
    yield from _jobs(cell, "resilin_used_gpus", lambda job: gpu_sets.count(job.held), live=False)
    for cluster in cell.configuration.virtual_clusters:
        usable = [one for one in servers if one.usable and one.virtual_cluster == cluster.name]
        yield "resilin_fragmentation_ratio", (cluster.name,), _fragmentation(cell, usable)


def _fragmentation(cell: CellState, servers: list[ServerState]) -> float:
    held: dict[str, tuple[int, ...]] = {}
    for job in cell.jobs.values():
        held = gpu_sets.union(held, job.held)
    free = [
        (server.server.server_id, index)
        for server in servers
        for index in range(server.server.gpus)
        if index not in held.get(server.server.server_id, ())
    ]
    topology = Topology.from_servers(
        (server.server.server_id, server.server.gpus, server.server.rack) for server in servers
    )
    return fragmentation_ratio(topology, free)


def _loan_gauges(figures: CellFigures) -> Iterator[Gauge]:
    lent = (
        (server.virtual_cluster, float(server.server.gpus))
        for server in figures.cell.servers.values()
        if server.virtual_cluster != server.server.virtual_cluster and not server.removed
    )
    yield from _by_cluster(figures.cell, "resilin_loan_active_gpus", lent)


def _executor_gauges(figures: CellFigures) -> Iterator[Gauge]:
    cell = figures.cell
    yield from _jobs(cell, "resilin_running_jobs", lambda job: job.trains)
    yield from _jobs(
        cell, "resilin_stopped_jobs", lambda job: bool(job.placed_workers) and not job.trains
    )
    for server_id, server in cell.servers.items():
        if not server.removed:
            yield "resilin_node_up", (server_id,), server.joined


def _collector_gauges(figures: CellFigures) -> Iterator[Gauge]:
    held = figures.numbers.value(HELD)
    lost = figures.numbers.total(LOST)
    yield "resilin_goodput_ratio", (), max(0.0, 1.0 - lost / held) if held else 1.0


def _job_gauges(figures: CellFigures) -> Iterator[Gauge]:
    cell = figures.cell
    for job_id, job in cell.jobs.items():
        if not job.live:
            continue
        labels = (job_id,)
        rate = cell.curve_rate(job, job.placed_workers) if job.trains else 0.0
        yield "resilin_job_workers", labels, job.placed_workers
        yield "resilin_job_allocated_workers", labels, job.wanted_workers
        yield "resilin_job_progress_ratio", labels, progress(cell, job)
        yield "resilin_job_iterations_per_second", labels, rate
        if job.deadline_seconds is None:
            continue
        yield "resilin_job_deadline_timestamp_seconds", labels, job.deadline_seconds
        end = _expected_end(cell, job, rate)
        if end is not None:
            yield "resilin_job_deadline_slack_seconds", labels, job.deadline_seconds - end
    for job_id, over in figures.ended.items():
        yield "resilin_job_workers", (job_id,), 0
        yield "resilin_job_progress_ratio", (job_id,), over.progress
        yield "resilin_job_iterations_per_second", (job_id,), 0


def _expected_end(cell: CellState, job: JobState, rate: float) -> float | None:
    if rate > 0:
        left = job.job.spec.total_iterations - cell.iterations_done(job, cell.now_seconds)
        return cell.now_seconds + left / rate
    return job.plan[-1][1] if job.plan else None


_GAUGES: dict[str, Callable[[CellFigures], Iterator[Gauge]]] = {
    "admission": _admission_gauges,
    "allocator": _allocator_gauges,
    "placement": _placement_gauges,
    "loan-manager": _loan_gauges,
    "executor": _executor_gauges,
    "metric-collector": _collector_gauges,
}
