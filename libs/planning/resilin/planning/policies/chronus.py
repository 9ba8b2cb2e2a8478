"""Chronus: as many deadlines as can be met at fixed sizes, by leases and an integer program.

Source: Gao et al., Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs
(SoCC 2021) §4. A baseline of ElasticFlow §6.1. At the end of a lease, if somebody waits::

    y_j = 1    job j meets its deadline
    x_j = 1    it runs in the next lease, of L_0 seconds
    z_jk       seconds that it runs in the k-th interval after that; between two deadlines
               nothing changes, so intervals end at deadlines

    maximise  sum y_j   such that, with G GPUs, s_j workers and r_j seconds of work left,
        r_j y_j  <=  L_0 x_j + sum_k z_jk        (L_0 no longer than until its deadline)
        sum s_j x_j  <=  G,     sum s_j z_jk  <=  G L_k,     z_jk  <=  L_k y_j

Who is chosen for the lease runs; then, on what is left, who is to meet its deadline, by
deadline; then jobs without a deadline and those that will miss theirs, shortest first.

What was simplified: jobs come in all the same (one that cannot be in time is late, not
refused); work after the next lease is a mean over its interval, not leases one by one; the
lease's length of five minutes is ours; all leases end together, and who comes waits for it.
Ties are broken by small weights, for who runs already and for who came first, so that the
answer does not rest on the solver's whims. Beyond the first 64 reachable jobs by deadline,
jobs are not in the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from resilin.planning.bound import SolverError
from resilin.planning.policies.fixed_size import (
    FixedSize,
    lease_ends,
    lease_plan,
    packed,
    requested_size,
)
from resilin.planning.policies.policy import AllocationPlan
from resilin.planning.view import Binding, ClusterView, JobView

__all__ = ["Chronus"]

LEASE_SECONDS = 300.0

MOST_JOBS = 64
"""Jobs in one program; those with the earliest deadlines that can be met."""

MOST_INTERVALS = 24
"""Intervals after the lease; where deadlines are more, some intervals hold several."""

MOST_NODES = 2000
"""Nodes of the solver's search; the best answer found by then is taken."""

# Together less than one deadline.
_RUNS_ALREADY = 2e-3
_RUNS = 1e-3
_CAME_FIRST = 1e-6


class Chronus(FixedSize):
    """Meets as many deadlines as an integer program finds."""

    name = "chronus"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Choose who gets the next lease; let everything be while one lasts.

        Raises:
            SolverError: If scipy is not installed or its solver gives up.
        """
        reachable = [job for job in view.jobs if _reachable(view, job)]
        reachable.sort(key=lambda job: (job.deadline_seconds, job.order))
        others = [job for job in view.jobs if not _reachable(view, job)]
        others.sort(key=lambda job: (_seconds_left(view, job), job.order))
        everyone = [*reachable, *others]
        if lease_ends(view) and not all(packed(view, everyone).values()):
            chosen, in_time = _program(view, reachable[:MOST_JOBS])
            first = [job for job in reachable if job.job_id in chosen]
            then = [job for job in reachable if job.job_id in in_time and job not in first]
            rest = [job for job in everyone if job not in first and job not in then]
            rest.sort(key=lambda job: (_seconds_left(view, job), job.order))
            everyone = [*first, *then, *rest]
        return lease_plan(view, everyone, LEASE_SECONDS)


def _seconds_left(view: ClusterView, job: JobView) -> float:
    size = requested_size(job)
    sizes = job.all_sizes
    if job.workers == size:
        stop = max(0.0, job.resumes_at_seconds - view.now_seconds)
    else:
        stop = sizes.stop_at[size]
    return stop + job.remaining_iterations / sizes.rate_at[size]


def _reachable(view: ClusterView, job: JobView) -> bool:
    return (
        job.binding is not Binding.BEST_EFFORT
        and job.deadline_seconds < math.inf
        and requested_size(job) <= view.gpus
        and view.now_seconds + _seconds_left(view, job) <= job.deadline_seconds
    )


def _program(view: ClusterView, jobs: Sequence[JobView]) -> tuple[dict[str, None], dict[str, None]]:
    """Solve the program; return who runs in the next lease, and who will be in time."""
    if not jobs:
        return {}, {}
    try:
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array
    except ImportError:
        raise SolverError("the policy chronus needs scipy: install resilin[bound]") from None
    rows = _rows(view, jobs)
    count, columns = len(jobs), len(rows.upper)
    matrix = coo_array((rows.values, (rows.rows, rows.columns)), (len(rows.limits), columns))
    result = milp(
        _weights(jobs) + [0.0] * (columns - 2 * count),
        integrality=np.array([1] * (2 * count) + [0] * (columns - 2 * count)),
        bounds=Bounds(0.0, rows.upper),
        constraints=LinearConstraint(matrix.tocsc(), ub=rows.limits),
        # A limit in time would make the answer depend on the machine.
        options={"node_limit": MOST_NODES, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        raise SolverError(f"the solver ended without an answer: {result.message}")
    chosen = {job.job_id: None for n, job in enumerate(jobs) if result.x[count + n] > 0.5}
    in_time = {job.job_id: None for n, job in enumerate(jobs) if result.x[n] > 0.5}
    return chosen, in_time


@dataclass(slots=True)
class _Rows:
    """The constraints of a program: entries, an upper limit each row, one each column."""

    upper: list[float]
    limits: list[float]
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def entry(self, row: int, column: int, value: float) -> None:
        self.rows.append(row)
        self.columns.append(column)
        self.values.append(value)


def _rows(view: ClusterView, jobs: Sequence[JobView]) -> _Rows:
    """Write the constraints down.

    Columns are y of every job, x of every job, then the z. Rows are the work of every job,
    the GPUs of the lease, those of every interval, then the bounds of the z.
    """
    count, now = len(jobs), view.now_seconds
    ends = _interval_ends(now, jobs)
    intervals = [*pairwise((now + LEASE_SECONDS, *ends))]
    rows = _Rows([1.0] * (2 * count), [0.0] * count + [float(view.gpus)])
    rows.limits += [view.gpus * (end - start) for start, end in intervals]
    for number, job in enumerate(jobs):
        size, deadline = float(requested_size(job)), job.deadline_seconds
        rows.entry(number, number, _seconds_left(view, job))
        rows.entry(number, count + number, -min(LEASE_SECONDS, deadline - now))
        rows.entry(count, count + number, size)
        for position, (start, end) in enumerate(intervals):
            if start >= deadline:
                break
            column, usable = len(rows.upper), min(end, deadline) - start
            rows.upper.append(usable)
            rows.entry(number, column, -1.0)
            rows.entry(count + 1 + position, column, size)
            rows.entry(len(rows.limits), column, 1.0)
            rows.entry(len(rows.limits), number, -usable)
            rows.limits.append(0.0)
    return rows


def _weights(jobs: Sequence[JobView]) -> list[float]:
    """Return what each y and each x is worth, as costs: the solver minimises."""
    count = len(jobs)
    met = [-1.0 + _CAME_FIRST * number for number in range(count)]
    runs = [
        (-(_RUNS_ALREADY if job.workers else _RUNS) + _CAME_FIRST * number) / count
        for number, job in enumerate(jobs)
    ]
    return met + runs


def _interval_ends(now_seconds: float, jobs: Sequence[JobView]) -> list[float]:
    """Return the ends of the intervals after the lease: deadlines, thinned out if many."""
    begin = now_seconds + LEASE_SECONDS
    deadlines = sorted({job.deadline_seconds: None for job in jobs if job.deadline_seconds > begin})
    step = math.ceil(len(deadlines) / MOST_INTERVALS) or 1
    ends = deadlines[step - 1 :: step]
    if deadlines and ends[-1] != deadlines[-1]:
        ends.append(deadlines[-1])
    return ends
