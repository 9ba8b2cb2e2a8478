"""What a planning algorithm sees: an immutable view of one virtual cluster at one moment.

Numbers in, numbers out. Times are seconds since the epoch of the cell's clock; a plan is a
tuple of segments (from, to, workers) in time order that do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from resilin.planning.curves import ThroughputCurve

__all__ = ["Binding", "ClusterView", "JobView", "Plan", "Segment", "SizeTable"]

Segment = tuple[float, float, int]
Plan = tuple[Segment, ...]


class Binding(IntEnum):
    """How binding a job's deadline is; a smaller value is served first."""

    GUARANTEED = 0
    SOFT = 1
    BEST_EFFORT = 2


class SizeTable:
    """A throughput curve prepared for planning: tables indexed by worker count.

    Built once per curve, set of allowed sizes and stop cost, and shared by all jobs with
    the same three. Sizes past the curve's peak are left out, so a larger size is faster.

    Attributes:
        sizes: The worker counts a job may have, increasing.
        rate_at: Iterations per second at each count from 0 to the largest; 0 where the
            count is not a size.
        stop_at: Seconds the job stands still when it changes to that count.
        floor_at: The largest size that is at most that count, 0 for none.
        largest: The largest size.
    """

    __slots__ = ("floor_at", "largest", "rate_at", "sizes", "stop_at")

    def __init__(self, curve: ThroughputCurve, stop_seconds: Sequence[float]) -> None:
        """Prepare ``curve``, cut at its peak unless noted otherwise; one stop cost a count."""
        self.sizes = curve.workers
        self.largest = curve.workers[-1]
        self.rate_at = [0.0] * (self.largest + 1)
        self.stop_at = [0.0] * (self.largest + 1)
        for count, rate, stop in zip(
            curve.workers, curve.iterations_per_second, stop_seconds, strict=True
        ):
            self.rate_at[count] = rate
            self.stop_at[count] = stop
        self.floor_at = [curve.floor(count) for count in range(self.largest + 1)]

    def floor(self, workers: int) -> int:
        """Return the largest size that is at most ``workers``; 0 for none."""
        if workers >= self.largest:
            return self.largest
        return self.floor_at[workers] if workers > 0 else 0

    def next_above(self, workers: int) -> int | None:
        """Return the smallest size above ``workers`` that is faster, if any."""
        for size in self.sizes:
            if size > workers and self.rate_at[size] > self.rate_at[workers]:
                return size
        return None


@dataclass(frozen=True, slots=True)
class JobView:
    """One unfinished job.

    Attributes:
        job_id: Its identity.
        order: Its place in the order of submission; breaks every tie.
        binding: How binding its deadline is.
        deadline_seconds: When it must be finished; infinite without a deadline.
        remaining_iterations: Work left at the view's moment.
        table: Its sizes, rates and stop costs.
        workers: What it has, or is changing to; 0 for nothing.
        resumes_at_seconds: When it trains again if it stands still for a change right now;
            any past moment otherwise.
        plan: The guaranteed plan that keeps its promise; empty for a job without one.
        requested_workers: The fixed size for policies without elasticity.
        full_table: All sizes that it may have, those past the peak too; None where the
            table has them all.
        submitted_at_seconds: When it was submitted.
        total_iterations: All its work.
        attained_gpu_seconds: GPU time that it has had.
        executed_seconds: Time that it has had GPUs.
        since_seconds: Since when it has had, or lacked, GPUs without a break.
        waited_seconds: How long it waited before its present run, or the one before.
        run_gpu_seconds: GPU time since ``since_seconds``.
        preemptions: How often it lost all its GPUs.
        generation: How often its GPUs were chosen; 0 if never.
        requested_batch: The global batch that it came with; its iterations are of this batch.
        global_batch: The one in force.
        gradient_noise_scale: In samples; None if it was never measured.
        batch_tables: Iterations per second, each of the batch itself, by global batch; only
            for a policy that adapts batches.
    """

    job_id: str
    order: int
    binding: Binding
    deadline_seconds: float
    remaining_iterations: float
    table: SizeTable
    workers: int = 0
    resumes_at_seconds: float = -math.inf
    plan: Plan = ()
    requested_workers: int = 1
    full_table: SizeTable | None = None
    submitted_at_seconds: float = 0.0
    total_iterations: float = 0.0
    attained_gpu_seconds: float = 0.0
    executed_seconds: float = 0.0
    since_seconds: float = 0.0
    waited_seconds: float = 0.0
    run_gpu_seconds: float = 0.0
    preemptions: int = 0
    generation: int = 0
    requested_batch: int = 1
    global_batch: int = 1
    gradient_noise_scale: float | None = None
    batch_tables: tuple[tuple[int, SizeTable], ...] = ()

    @property
    def all_sizes(self) -> SizeTable:
        """Every size that it may have, whether or not a smaller one is faster."""
        return self.table if self.full_table is None else self.full_table


# Compared by identity: whoever asks several questions of one view has its plans summed up once.
@dataclass(frozen=True, slots=True, eq=False)
class ClusterView:
    """One virtual cluster at one moment.

    Attributes:
        now_seconds: The moment.
        gpus: GPUs that work now.
        promised_gpus: GPUs that promises may count on: ``gpus`` less the reserve.
        jobs: Its unfinished, admitted jobs in order of submission.
        margin_seconds: A promise is planned to be kept this much before its deadline.
        smallest_refused_gpu_seconds: While more is asked than there is, jobs that need this
            much GPU time or more get no promise (:mod:`resilin.planning.overload`).
        installed_gpus: GPUs of all its servers, whether they work now or not.
        due_seconds: When the plan in force asked to be looked at again; None if it did not.
        finished_gpu_seconds: GPU time of each of the jobs that were done last, oldest first.
    """

    now_seconds: float
    gpus: int
    promised_gpus: int
    jobs: tuple[JobView, ...]
    margin_seconds: float = 0.0
    smallest_refused_gpu_seconds: float = math.inf
    installed_gpus: int = 0
    due_seconds: float | None = None
    finished_gpu_seconds: tuple[float, ...] = ()

    @property
    def most_gpus(self) -> int:
        """The most GPUs that there may be once all servers work."""
        return max(self.gpus, self.installed_gpus)

    @property
    def due(self) -> bool:
        """Whether no round is under way: its end has come, or none was asked for."""
        return self.due_seconds is None or self.now_seconds >= self.due_seconds
