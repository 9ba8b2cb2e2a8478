"""From the cell's state to what planning algorithms see: numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from resilin.cell.state import CellState, JobState
from resilin.contracts.job_specification import DeadlinePolicy, Elastic
from resilin.contracts.values import StopCost
from resilin.planning.curves import ThroughputCurve
from resilin.planning.view import Binding, ClusterView, JobView, SizeTable

__all__ = ["cluster_view", "job_view", "stop_seconds"]

# How much longer a job is taken to run that should have been done by now.
OVERDUE_SECONDS = 60.0
# What floating point may leave of a job that was stopped at its very end.
LEAST_ITERATIONS = 1e-3

_BINDINGS = {
    DeadlinePolicy.GUARANTEED: Binding.GUARANTEED,
    DeadlinePolicy.SOFT: Binding.SOFT,
    DeadlinePolicy.BEST_EFFORT: Binding.BEST_EFFORT,
}


def stop_seconds(cost: StopCost, workers: int) -> float:
    """Return how long a job stands still when it changes to ``workers`` workers."""
    return cost.fixed_seconds + cost.per_doubling_seconds * (math.log2(workers) + 1)


def cluster_view(
    state: CellState,
    virtual_cluster: str,
    *,
    due_seconds: float | None = None,
    with_batches: bool = False,
) -> ClusterView:
    """View one virtual cluster at the state's moment: its GPUs and its live jobs.

    Promises count on all GPUs but those of the largest ``reserve_servers`` servers; while
    servers are lost the reserve is used first.

    Args:
        state: The cell.
        virtual_cluster: Its name.
        due_seconds: When the plan in force asked to be looked at again.
        with_batches: Whether a policy is to choose batches.
    """
    servers = [
        server
        for server in state.servers.values()
        if server.virtual_cluster == virtual_cluster and not server.removed
    ]
    gpus = sum(server.server.gpus for server in servers if server.usable)
    settings = state.configuration.virtual_cluster(virtual_cluster)
    reserve_servers = settings.reserve_servers if settings is not None else 0
    sizes = sorted((server.server.gpus for server in servers), reverse=True)
    promised = min(gpus, sum(sizes[reserve_servers:]))
    jobs = (
        job_view(state, job, with_batches=with_batches)
        for job in state.jobs.values()
        if job.live and job.job.spec.virtual_cluster == virtual_cluster
    )
    return ClusterView(
        now_seconds=state.now_seconds,
        gpus=gpus,
        promised_gpus=promised,
        jobs=tuple(job for job in jobs if job is not None),
        margin_seconds=state.configuration.promise_margin_seconds,
        installed_gpus=sum(sizes),
        due_seconds=due_seconds,
        finished_gpu_seconds=tuple(state.finished_gpu_seconds.get(virtual_cluster, ())),
    )


def job_view(state: CellState, job: JobState, *, with_batches: bool = False) -> JobView | None:
    """View one job at the state's moment; None if no throughput is known at any of its sizes."""
    spec = job.job.spec
    elastic, cost = spec.elastic, state.configuration.stop_cost
    rates = state.believed_rates(job)
    tables = _size_tables(
        tuple(rates.items()),
        elastic.min_replicas,
        elastic.max_replicas,
        elastic.allowed_replicas,
        cost.fixed_seconds,
        cost.per_doubling_seconds,
        bool(job.measured),
    )
    if tables is None:
        return None
    table, full_table = tables
    resumes_at = -math.inf
    if job.placed_workers and not job.trains:
        stop = stop_seconds(cost, job.placed_workers)
        resumes_at = max(job.placed_at_seconds + stop, state.now_seconds)
    requested = elastic.requested_replicas
    now, service = state.now_seconds, job.service
    attained = service.gpu_seconds_at(now)
    return JobView(
        job_id=job.job_id,
        order=job.order,
        binding=_BINDINGS[spec.binding],
        deadline_seconds=math.inf if job.deadline_seconds is None else job.deadline_seconds,
        remaining_iterations=_remaining_iterations(state, job),
        table=table,
        workers=job.placed_workers,
        resumes_at_seconds=resumes_at,
        plan=job.plan,
        requested_workers=table.sizes[0] if requested is None else requested,
        full_table=full_table,
        submitted_at_seconds=job.submitted_at_seconds,
        total_iterations=spec.total_iterations,
        attained_gpu_seconds=attained,
        executed_seconds=service.seconds_at(now),
        since_seconds=service.since_seconds,
        waited_seconds=service.waited_seconds,
        run_gpu_seconds=attained - service.gpu_seconds_before,
        preemptions=service.preemptions,
        generation=job.generation,
        requested_batch=spec.global_batch,
        global_batch=spec.global_batch if job.adapted_batch is None else job.adapted_batch,
        gradient_noise_scale=job.gradient_noise_scale,
        batch_tables=_batch_tables(state, job) if with_batches else (),
    )


def _batch_tables(state: CellState, job: JobState) -> tuple[tuple[int, SizeTable], ...]:
    """Return a table for every batch that a curve of the job's model is known at."""
    elastic, cost = job.job.spec.elastic, state.configuration.stop_cost
    prefix = f"{job.job.spec.model}/"
    found = []
    for key, rates in state.curves.items():
        if key.startswith(prefix) and key[len(prefix) :].isdecimal():
            tables = _size_tables(
                tuple(rates.items()),
                elastic.min_replicas,
                elastic.max_replicas,
                elastic.allowed_replicas,
                cost.fixed_seconds,
                cost.per_doubling_seconds,
                measured=False,
            )
            if tables is not None:
                found.append((int(key[len(prefix) :]), tables[0]))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _remaining_iterations(state: CellState, job: JobState) -> float:
    """Return the work left of a live job: never nothing, for its executor would have said so.

    A job that should be done by now is slower than believed, nobody knows by how much; a
    little more of the same keeps it running until it is done or measured.
    """
    left = job.job.spec.total_iterations - state.iterations_done(job, state.now_seconds)
    if left <= 0 and job.trains:
        return OVERDUE_SECONDS * state.curve_rate(job, job.placed_workers)
    return max(left, LEAST_ITERATIONS)


@lru_cache(maxsize=4096)
def _size_tables(
    rates: tuple[tuple[int, float], ...],
    min_replicas: int,
    max_replicas: int | None,
    allowed_replicas: tuple[int, ...] | None,
    fixed_seconds: float,
    per_doubling_seconds: float,
    measured: bool,  # noqa: FBT001 (a cache key)
) -> tuple[SizeTable, SizeTable] | None:
    """Prepare a curve for planning, cut at its peak and whole.

    The same few curves serve all jobs of a cell.

    Keyed by plain values: to compare two models takes longer than all the rest of a view.
    """
    elastic = Elastic(
        min_replicas=min_replicas, max_replicas=max_replicas, allowed_replicas=allowed_replicas
    )
    cost = StopCost(fixed_seconds=fixed_seconds, per_doubling_seconds=per_doubling_seconds)
    known: Mapping[int, float] = dict(rates)
    # Rates of absurd scale over- or underflow when they are scaled: not known, then.
    allowed = [n for n in sorted(known) if elastic.allows(n) and 0 < known[n] < math.inf]
    if not allowed:
        return None
    curve = ThroughputCurve.from_mapping({n: known[n] for n in allowed})
    # A measured rate beside scaled ones may fake a peak below the size that is running:
    # such a curve is levelled instead, so that no size the job holds disappears.
    cut = curve.levelled() if measured else curve.cut_at_peak()
    table = SizeTable(cut, [stop_seconds(cost, n) for n in cut.workers])
    if cut == curve:
        return table, table
    return table, SizeTable(curve, [stop_seconds(cost, n) for n in curve.workers])
