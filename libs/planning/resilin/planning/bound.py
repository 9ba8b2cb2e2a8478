"""The yardstick for deadline admission: how many deadlines could anybody meet?

Jobs ``i`` are released at ``a_i``, due at ``d_i``, have ``M_i`` iterations to run and a
throughput curve ``T_i``. Between two consecutive releases, deadlines or changes of capacity
nothing changes, and ``T_i`` lies under its upper concave hull ``H_i``. So whatever a
scheduler does in such an interval, its averages obey a linear program::

    for every interval k of L_k seconds with G_k GPUs, every job i, every edge s of H_i
    (width_s workers wide, slope_s iterations per second per worker):
        0 <= x_iks <= 1                                    share of the edge that is used
        sum_is  width_s L_k x_iks  <=  G_k L_k             GPU seconds
        sum_ks  slope_s width_s L_k x_iks  =  y_i M_i      iterations
        x_iks <= y_i                                       width rows, see below
    0 <= y_i <= 1, maximise sum y_i

With ``y`` whole the width rows say nothing new. With fractional ``y`` they keep half a job
from running at the efficient, small end of its curve only, which tightens the bound by
several jobs on a crowded cluster. They are many and few of them matter, so they are added
in rounds, for the jobs that break one.

What it proves: "cannot all be met" and the upper bounds hold for *every* scheduler, online
or clairvoyant, with or without costs of resizing. "Can all be met" is exact where sizes may
be shared in time freely (no resize cost, any mixture of sizes packs into the GPUs, as it
does when a job may have every whole number of GPUs and its curve is concave). It is
necessary but not always sufficient where only some sizes exist: three jobs that need 64 of
96 GPUs for half of an interval each pass the test but do not pack.

Source: the question is ElasticFlow's (ASPLOS 2023, §4.1), which answers it exactly for
linear curves and greedily for others. For the width rows see perspective reformulations
(Günlük and Linderoth, Mathematical Programming 124, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

from resilin.planning.capacity import CapacityProfile
from resilin.planning.concave import upper_concave_hull
from resilin.planning.curves import ThroughputCurve

__all__ = [
    "AdmissionBound",
    "DeadlineJob",
    "FractionalPlan",
    "FractionalShare",
    "SolverError",
    "can_all_meet",
    "fractional_plan",
    "most_deadlines_upper_bound",
]

TOLERANCE = 1e-6
"""Relative accuracy of every job's work; the solver's own rows are accurate to 1e-7."""

ROUNDING = 1e-5
"""What inaccuracy may take from the optimum for each job; the floor must not turn on it."""

OPTIMAL, OUT_OF_TIME = 0, 1
"""Status codes of ``scipy.optimize.milp``."""


class SolverError(RuntimeError):
    """The linear-programming solver is missing or gave up."""


@dataclass(frozen=True, slots=True)
class DeadlineJob:
    """A job with a deadline, as the yardstick sees it.

    Attributes:
        name: How to call it in an error.
        release_seconds: When it may start.
        deadline_seconds: When it must be finished, after its release.
        iterations: Work, above 0.
        curve: Iterations per second by worker count.

    Raises:
        ValueError: If a number is not finite or breaks the rules above.
    """

    name: str
    release_seconds: float
    deadline_seconds: float
    iterations: float
    curve: ThroughputCurve

    def __post_init__(self) -> None:
        if not (math.isfinite(self.release_seconds) and math.isfinite(self.deadline_seconds)):
            raise ValueError(f"job {self.name}: release and deadline must be finite seconds")
        if self.deadline_seconds <= self.release_seconds:
            raise ValueError(
                f"job {self.name}: the deadline ({self.deadline_seconds} s) must lie after "
                f"the release ({self.release_seconds} s)"
            )
        if not (math.isfinite(self.iterations) and self.iterations > 0):
            raise ValueError(f"job {self.name}: iterations must be above 0, got {self.iterations}")


class FractionalShare(NamedTuple):
    """What a job gets in one interval, on average over it."""

    start_seconds: float
    end_seconds: float
    gpus: float
    iterations_per_second: float


@dataclass(frozen=True, slots=True)
class FractionalPlan:
    """A certificate that all deadlines can be met.

    Attributes:
        shares: For each job, in the order given, its shares by time; intervals in which it
            gets nothing are left out. In each interval (GPUs, iterations per second) lies
            on or under the job's upper concave hull, the jobs' GPUs add up to at most what
            is free, and each job's iterations add up to its work (all to a relative
            accuracy of 1e-6).
    """

    shares: tuple[tuple[FractionalShare, ...], ...]


@dataclass(frozen=True, slots=True)
class AdmissionBound:
    """How many of the jobs can meet their deadlines, from above and from below.

    Attributes:
        jobs: How many there are.
        ceiling: Those that would meet it alone on the cluster, at their best count.
        relaxation: The optimum of the linear program, at most ``ceiling``.
        bound: No scheduler meets more deadlines than this.
        met: So many can be met together (in the sense of ``can_all_meet``), at most
            ``bound``.
        chosen: Positions of ``met`` such jobs, increasing.
    """

    jobs: int
    ceiling: int
    relaxation: float
    bound: int
    met: int
    chosen: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        """Whether bound and met agree, so that ``bound`` is the optimum."""
        return self.bound == self.met


def can_all_meet(jobs: Sequence[DeadlineJob], capacity: CapacityProfile) -> bool:
    """Tell whether all jobs can meet their deadlines together; see `fractional_plan`."""
    return fractional_plan(jobs, capacity) is not None


def fractional_plan(
    jobs: Sequence[DeadlineJob], capacity: CapacityProfile
) -> FractionalPlan | None:
    """Find shares with which all jobs meet their deadlines, or prove that there are none.

    Args:
        jobs: The jobs, with releases of their own or all the same one.
        capacity: Free GPUs over time, from the first release on or earlier. Below 0 counts
            as 0.

    Returns:
        A plan, not a particularly good one, or None if no scheduler can meet all deadlines.

    Raises:
        ValueError: If a job is released before the capacity profile starts.
        SolverError: If scipy is not installed or its solver gives up.
    """
    model = _Relaxation.of(jobs, capacity)
    if len(model.positions) < len(jobs):
        return None
    solution = _maximise(model)
    if not all(_is_whole(part) for part in solution.admitted):
        return None
    return _plan(model, solution)


def most_deadlines_upper_bound(
    jobs: Sequence[DeadlineJob],
    capacity: CapacityProfile,
    *,
    integer_seconds: float = 0.0,
) -> AdmissionBound:
    """Bound how many deadlines any scheduler can meet, even one that knows all arrivals.

    ::

        drop the jobs that cannot make it alone          # what remains is the ceiling
        repeat: solve the linear program; add the width rows of jobs that break one
        bound <- floor of its optimum
        met <- jobs with y = 1, plus those with fractional y, largest first, that still fit
        if bound > met and there is time for it: solve it with whole y by branch and bound

    Args:
        jobs: The jobs.
        capacity: Free GPUs over time, from the first release on or earlier.
        integer_seconds: Wall-clock limit for branch and bound; 0 leaves it out. A run that
            reaches the limit ends with a bound that holds but depends on the machine's
            speed; any other run gives the same answer everywhere.

    Raises:
        ValueError: If a job is released before the capacity profile starts.
        SolverError: If scipy is not installed or its solver gives up.
    """
    model = _Relaxation.of(jobs, capacity)
    solution = _tightened(model)
    chosen = _rounded(jobs, capacity, model, solution)
    bound = _floor(solution)
    if len(chosen) < bound and integer_seconds > 0:
        best = _maximise(model, solution.tight, integer_seconds=integer_seconds)
        bound = min(bound, _floor(best))
        whole = [
            position
            for position, part in zip(model.positions, best.admitted, strict=True)
            if part > 0.5
        ]
        chosen = max(chosen, whole, key=len)
    return AdmissionBound(
        jobs=len(jobs),
        ceiling=len(model.positions),
        relaxation=solution.value,
        bound=bound,
        met=len(chosen),
        chosen=tuple(sorted(chosen)),
    )


@dataclass(slots=True)
class _Relaxation:
    """The linear program as columns; one column for each job, interval and edge of its hull.

    Attributes:
        positions: The jobs in it: those that would meet their deadlines alone.
        boundaries: Ends of the intervals in seconds, one more than there are intervals.
        free: GPUs in each interval; none of a job's sizes fits into less than one.
        job: For each column, its job as an index into ``positions``.
        interval: For each column, its interval.
        gpu_seconds: What the column costs when it is used in full.
        work: What it then contributes, as a share of its job's iterations.
        iterations: The jobs' work.
    """

    positions: list[int] = field(default_factory=list)
    boundaries: list[float] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    job: list[int] = field(default_factory=list)
    interval: list[int] = field(default_factory=list)
    gpu_seconds: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    iterations: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, jobs: Sequence[DeadlineJob], capacity: CapacityProfile) -> _Relaxation:
        """Build the program of the jobs that would meet their deadlines alone."""
        for job in jobs:
            if job.release_seconds < capacity.times[0]:
                raise ValueError(
                    f"job {job.name} is released at {job.release_seconds} s, before the "
                    f"capacity profile starts ({capacity.times[0]} s): start it earlier"
                )
        model = cls()
        model._cut_time(jobs, capacity)
        index = {moment: k for k, moment in enumerate(model.boundaries)}
        sizes = sorted(set(model.free))
        edges: dict[ThroughputCurve, dict[int, list[tuple[float, float]]]] = {}
        for position, job in enumerate(jobs):
            if job.curve not in edges:
                edges[job.curve] = {gpus: _edges_within(job.curve, gpus) for gpus in sizes}
            edges_at = edges[job.curve]
            columns: list[tuple[int, float, float]] = []
            for k in range(index[job.release_seconds], index[job.deadline_seconds]):
                seconds = model.boundaries[k + 1] - model.boundaries[k]
                for width, slope in edges_at[model.free[k]]:
                    columns.append((k, width * seconds, slope * width * seconds / job.iterations))
            if math.fsum(work for _, _, work in columns) >= 1.0 - TOLERANCE:
                model._add(position, job.iterations, columns)
        return model

    def _cut_time(self, jobs: Sequence[DeadlineJob], capacity: CapacityProfile) -> None:
        ends = [moment for job in jobs for moment in (job.release_seconds, job.deadline_seconds)]
        if not ends:
            return
        changes = [moment for moment in capacity.times if min(ends) < moment < max(ends)]
        self.boundaries = sorted(dict.fromkeys(ends + changes))
        self.free = [capacity.free_at(start) for start in self.boundaries[:-1]]

    def _add(
        self, position: int, iterations: float, columns: list[tuple[int, float, float]]
    ) -> None:
        self.job.extend([len(self.positions)] * len(columns))
        self.positions.append(position)
        self.iterations.append(iterations)
        self.interval.extend(k for k, _, _ in columns)
        self.gpu_seconds.extend(gpu_seconds for _, gpu_seconds, _ in columns)
        self.work.extend(work for _, _, work in columns)


def _edges_within(curve: ThroughputCurve, gpus: int) -> list[tuple[float, float]]:
    """Return (width in workers, slope) of the hull's edges with at most ``gpus`` workers."""
    corners = upper_concave_hull(curve, gpus)
    return [
        (right[0] - left[0], (right[1] - left[1]) / (right[0] - left[0]))
        for left, right in pairwise(corners)
    ]


@dataclass(frozen=True, slots=True)
class _Solution:
    """An answer of the solver.

    Attributes:
        value: Upper bound on the program's optimum; the optimum itself unless branch and
            bound ran out of time.
        admitted: ``y`` of each job of the program; all 0 if branch and bound found nothing.
        used: ``x`` of each column.
        tight: Jobs whose width rows were part of the program.
    """

    value: float
    admitted: list[float]
    used: list[float]
    tight: frozenset[int]


def _is_whole(part: float) -> bool:
    return part >= 1.0 - TOLERANCE


def _floor(solution: _Solution) -> int:
    """Return the most jobs that an optimum of this value can stand for."""
    return math.floor(solution.value + ROUNDING * len(solution.admitted))


def _tightened(model: _Relaxation) -> _Solution:
    """Solve the program, adding width rows until none is broken or none could help."""
    tight: frozenset[int] = frozenset()
    while True:
        solution = _maximise(model, tight)
        whole = sum(map(_is_whole, solution.admitted))
        if whole >= _floor(solution):
            return solution
        broken = frozenset(
            job
            for job, used in zip(model.job, solution.used, strict=True)
            if job not in tight and used > solution.admitted[job] + TOLERANCE
        )
        if not broken:
            return solution
        tight |= broken


def _rounded(
    jobs: Sequence[DeadlineJob],
    capacity: CapacityProfile,
    model: _Relaxation,
    solution: _Solution,
) -> list[int]:
    """Choose jobs that can all be met: those with y = 1, then what still fits of the rest."""
    ranked = sorted(
        zip(solution.admitted, model.positions, strict=True), key=lambda x: (-x[0], x[1])
    )
    chosen = [position for part, position in ranked if _is_whole(part)]
    for part, position in ranked[len(chosen) :]:
        if len(chosen) >= _floor(solution) or part <= TOLERANCE:
            break
        if can_all_meet([jobs[other] for other in (*chosen, position)], capacity):
            chosen.append(position)
    return chosen


def _maximise(
    model: _Relaxation,
    tight: frozenset[int] = frozenset(),
    *,
    integer_seconds: float = 0.0,
) -> _Solution:
    """Solve the program with the width rows of the jobs in ``tight``.

    Args:
        model: The program.
        tight: Jobs whose width rows are part of it.
        integer_seconds: Above 0, ``y`` must be whole, found within that time.
    """
    try:
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array
    except ImportError as error:
        raise SolverError(
            "the linear-programming yardstick needs scipy: install resilin[bound]"
        ) from error
    jobs, columns = len(model.positions), len(model.job)
    if not jobs:
        return _Solution(0.0, [], [], tight)
    constraints = [
        LinearConstraint(
            coo_array((values, (rows, variables)), (height, jobs + columns)).tocsc(), least, most
        )
        for values, rows, variables, height, least, most in _rows(model, tight)
    ]
    whole = integer_seconds > 0
    result = milp(
        np.append(-np.ones(jobs), np.zeros(columns)),
        integrality=np.append(np.full(jobs, int(whole)), np.zeros(columns, dtype=int)),
        bounds=Bounds(0, 1),
        constraints=constraints,
        # The optimum is a whole number: less than one job apart is close enough.
        options={"mip_rel_gap": 0.99 / jobs, "time_limit": integer_seconds} if whole else {},
    )
    if whole and result.status == OUT_OF_TIME and result.x is None:
        return _Solution(float(jobs), [0.0] * jobs, [0.0] * columns, tight)
    if result.x is None or result.status not in (OPTIMAL, OUT_OF_TIME):
        raise SolverError(f"the solver ended without an answer: {result.message}")
    bound = result.mip_dual_bound if whole else result.fun
    parts = [float(part) for part in result.x]
    return _Solution(min(-float(bound), float(jobs)), parts[:jobs], parts[jobs:], tight)


class _Rows(NamedTuple):
    """Rows of one kind: entries (value, row, variable), how many rows, and limits on each."""

    values: list[float]
    rows: list[int]
    variables: list[int]
    height: int
    least: float
    most: float


def _rows(model: _Relaxation, tight: frozenset[int]) -> list[_Rows]:
    """Return the rows on iterations, on GPU seconds and on widths; variables are y, then x."""
    jobs, columns = len(model.positions), len(model.job)
    used = list(range(jobs, jobs + columns))
    admitted = list(range(jobs))
    iterations = _Rows(
        model.work + [-1.0] * jobs, model.job + admitted, used + admitted, jobs, 0.0, 0.0
    )
    available = [
        gpus * (end - start)
        for gpus, start, end in zip(
            model.free, model.boundaries, model.boundaries[1:], strict=False
        )
    ]
    shares = [
        cost / available[k] for cost, k in zip(model.gpu_seconds, model.interval, strict=True)
    ]
    gpus = _Rows(shares, model.interval, used, len(available), -math.inf, 1.0)
    wide = [column for column, job in enumerate(model.job) if job in tight]
    rows = list(range(len(wide)))
    widths = _Rows(
        [1.0] * len(wide) + [-1.0] * len(wide),
        rows + rows,
        [jobs + column for column in wide] + [model.job[column] for column in wide],
        len(wide),
        -math.inf,
        0.0,
    )
    return [iterations, gpus, widths] if wide else [iterations, gpus]


def _plan(model: _Relaxation, solution: _Solution) -> FractionalPlan:
    """Add up what each job gets in each interval, over the edges of its hull."""
    shares: list[list[FractionalShare]] = [[] for _ in model.positions]
    cells = zip(
        model.job, model.interval, model.gpu_seconds, model.work, solution.used, strict=True
    )
    for (job, k), cell in groupby(cells, key=lambda column: column[:2]):
        start, end = model.boundaries[k], model.boundaries[k + 1]
        edges = [(gpu_seconds * used, work * used) for _, _, gpu_seconds, work, used in cell]
        gpu_seconds = math.fsum(edge[0] for edge in edges)
        iterations = math.fsum(edge[1] for edge in edges) * model.iterations[job]
        if gpu_seconds > 0:
            seconds = end - start
            shares[job].append(
                FractionalShare(start, end, gpu_seconds / seconds, iterations / seconds)
            )
    return FractionalPlan(tuple(map(tuple, shares)))
