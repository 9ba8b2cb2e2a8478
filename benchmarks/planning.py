"""The planning algorithms alone, without a log: pure functions on cells of three sizes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from benchmarks.harness import (
    Answer,
    Options,
    Spread,
    Table,
    answer_task,
    percentile,
    repeated,
    spread_of,
)
from benchmarks.worlds import loaded_cell
from resilin.cell.state import CellState
from resilin.cell.view import cluster_view
from resilin.placement.decider import SEARCH_LIMIT
from resilin.planning.capacity import CapacityProfile
from resilin.planning.filling import fill_at_level, minimum_satisfactory_share
from resilin.planning.guarantees import (
    filled_by_deadline,
    full_allowance,
    guaranteed,
    promise_limit,
    standing_plans,
)
from resilin.planning.placement import plan_placement
from resilin.planning.policies.elasticflow import ElasticFlow
from resilin.planning.topology import Topology
from resilin.planning.view import ClusterView

__all__ = ["measure", "tables"]

CELLS = ((16, 30), (64, 70), (1_000, 1_000))
"""Servers of 8 GPUs, and live jobs."""

TIGHTNESS = (0.25, 0.7)
CHANGED_JOBS = 3
SAMPLES = 200
SLOW_SAMPLES = 20

Input = TypeVar("Input")


def tables(options: Options) -> Iterator[Table]:
    """Measure every algorithm on every cell."""
    table = Table(
        "Planning alone: one call of each algorithm",
        ("algorithm", "cell", "median, CPU ms", "p99, CPU ms"),
    )
    rows: dict[str, list[tuple[str, Spread, Spread]]] = {}
    for servers, jobs in CELLS:
        task = {"servers": servers, "jobs": jobs}
        answers = repeated("planning", task, options.repetitions)
        cell = f"{servers:,} x 8 GPUs, {answers[0]['live_jobs']:,} live jobs"
        for algorithm in answers[0]["milliseconds"]:
            runs = [answer["milliseconds"][algorithm] for answer in answers]
            median, tail = (
                spread_of(percentile(run, share) for run in runs) for share in (0.5, 0.99)
            )
            rows.setdefault(algorithm, []).append((cell, median, tail))
    for algorithm, cells in rows.items():
        table.rows += [(algorithm, *figures) for figures in cells]
    yield table


def measure(task: Answer) -> Answer:
    """Measure every algorithm on one cell."""
    cell = loaded_cell(task["jobs"], task["servers"], deadline_tightness=TIGHTNESS).state.cell
    view = cluster_view(cell, "default")
    draws = random.Random("planning")  # noqa: S311 (a benchmark)
    picked = [draws.choice(view.jobs) for _ in range(SAMPLES)]
    standing = standing_plans(view)
    profile = CapacityProfile.after(view.now_seconds, view.promised_gpus, standing.values())
    slowly = range(SLOW_SAMPLES)
    milliseconds = {
        "minimum satisfactory share of one job": _timed(
            lambda job: minimum_satisfactory_share(
                job,
                profile,
                promise_limit(view, job),
                allowance_seconds=full_allowance(view, job),
            ),
            picked,
        ),
        "fill one job at its largest size": _timed(
            lambda job: fill_at_level(job, profile, job.table.largest, float("inf")), picked
        ),
        "profile that the standing plans leave": _timed(
            lambda _: CapacityProfile.after(
                view.now_seconds, view.promised_gpus, standing_plans(view).values()
            ),
            slowly,
        ),
        "fill all promises anew (Algorithm 1)": _timed(
            lambda _: filled_by_deadline(view, guaranteed(view)), slowly
        ),
        "plan all jobs (ElasticFlow.plan)": _timed(lambda _: ElasticFlow().plan(view), slowly),
        f"place {CHANGED_JOBS} changed jobs": _placements(cell, view, draws),
    }
    return {"milliseconds": milliseconds, "live_jobs": len(view.jobs)}


def _timed(function: Callable[[Input], object], inputs: Iterable[Input]) -> list[float]:
    """Return the CPU milliseconds of a call for each input."""
    milliseconds = []
    for each in inputs:
        began = time.process_time()
        function(each)
        milliseconds.append(1e3 * (time.process_time() - began))
    return milliseconds


def _placements(cell: CellState, view: ClusterView, draws: random.Random) -> list[float]:
    topology = Topology.from_servers(
        (server.server.server_id, server.server.gpus, server.server.rack)
        for server in cell.servers.values()
    )
    occupancy = {
        job.job_id: [(server, index) for server, held in job.placed.items() for index in held]
        for job in cell.jobs.values()
        if job.placed
    }
    costs = {job_id: float(len(gpus)) for job_id, gpus in occupancy.items()}
    return _timed(
        lambda requests: plan_placement(
            topology, occupancy, requests, migration_costs=costs, search_limit=SEARCH_LIMIT
        ),
        [_changes(view, draws) for _ in range(SAMPLES)],
    )


def _changes(view: ClusterView, draws: random.Random) -> dict[str, int]:
    """Let some jobs, not all of one size, pass their sizes on among them."""
    running = [job for job in view.jobs if job.workers]
    while True:
        picked = draws.sample(running, CHANGED_JOBS)
        requests = {
            job.job_id: other.workers
            for job, other in zip(picked, [*picked[1:], picked[0]], strict=True)
        }
        if len(set(requests.values())) > 1:
            return requests


if __name__ == "__main__":
    answer_task(measure)
