"""Seeded traces with the shape of published ones, so that nothing need be downloaded.

What the defaults are drawn from (computed from the public data; sizes in GPUs, times in s):

======================  ========  ========  =======  ========  ========  =========
data                        jobs    median      p90       p99  tail 10%  gaps < 60
======================  ========  ========  =======  ========  ========  =========
ElasticFlow 195-job          195    15,625   43,999   141,633      1.33       50 %
ITP, seven clusters       50,012    11,670   28,633   145,202      1.45    41-91 %
Philly to 2017-11-19      68,063     1,190   10,772   260,154      0.69       81 %
======================  ========  ========  =======  ========  ========  =========

(The first two are published in microsoft/elasticflow-traces; Philly as reduced to one row a job
in petuum/adaptdl. "tail 10%": Hill estimate of the Pareto exponent over the longest tenth of the
durations.)

* Arrivals come in sweeps: half of the gaps in the 195-job trace are below a minute (15 s on
  average), and a job that follows so closely has the size of the one before in 97 to 100 % of
  cases and a like duration (correlation of the logarithms 0.65 to 0.98). The other gaps have
  a coefficient of variation from 1.3 up. Overall the gaps of that trace have 2.0, those of
  the ITP clusters 3.3 to 9.4; a Poisson process has 1.
* The first daily harmonic of the arrivals of sweeps has an amplitude of 0.40 in the 195-job
  trace, 0.1 to 0.5 in the larger ITP clusters.
* Durations: a log-normal body, with a Pareto tail for the longest tenth. The geometric mean
  of the seven ITP medians is 9,050; the standard deviation of the logarithm is 1.19 over all
  ITP jobs and 1.42 in the 195-job trace. Larger jobs run longer: the logarithm of the duration
  rises with that of the size by 0.35 (ITP) and 0.44 (195 jobs).
* Sizes of the 195-job trace: 60.5 % 1, 0.5 % 2, 23.1 % 4, 14.4 % 8, 1.5 % 16; ITP and Philly have
  more of size 1 (87 %, 94 %) and a few up to 64 (1.3 % above 8).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from resilin.workloads.csv_table import MOST_SECONDS
from resilin.workloads.curve_book import CurveBook
from resilin.workloads.model_pool import ModelPool, check_tightness, deadline_after
from resilin.workloads.trace import Trace, TraceJob

__all__ = ["PRESETS", "GeneratorPreset", "generate_preset", "generate_trace"]

SIZE_SHARES: Mapping[int, float] = MappingProxyType(
    {1: 0.60, 2: 0.02, 4: 0.22, 8: 0.14, 16: 0.014, 32: 0.005, 64: 0.001}
)
"""Share of the jobs of each size."""

SWEEP_SHARE = 0.5
"""Share of the jobs that follow the one before within the same sweep."""

GAP_IN_SWEEP_SECONDS = 15.0

SHORT_GAP_SHARE, SHORT_GAP, LONG_GAP = 0.6, 0.35, 1.975
"""Gaps between sweeps are short or long, each exponential; their means in terms of the mean of
all. Together they have a coefficient of variation of 1.5."""

LIKENESS_IN_SWEEP = 0.85
"""Correlation of the logarithms of a job's duration and the one's before in its sweep."""

DAY_SECONDS = 86_400.0
DAILY_AMPLITUDE = 0.4
DAILY_PEAK_SECONDS = 15 * 3_600.0
"""Time of day, on the trace's clock, at which most sweeps begin."""

BODY_MEDIAN_SECONDS = 7_200.0
"""Median duration of a job of size 1; over the sizes above the median is about 9,000."""

BODY_DEVIATION = 1.2
"""Standard deviation of the body's logarithm."""

SIZE_EXPONENT = 0.35
TAIL_SHARE = 0.1
TAIL_EXPONENT = 1.45
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 1_728_000.0
"""A minute, and 20 days: the longest ITP job ran 18 days."""

MOST_LOAD = 1e3
"""Largest load that is accepted: a backlog of a thousand clusters."""

TAIL_BEGINS = 1.2815515655446004
"""Where the standard normal distribution has ``TAIL_SHARE`` of its mass above."""


@dataclass(frozen=True, slots=True)
class GeneratorPreset:
    """Arguments of :func:`generate_trace` under a name.

    Attributes:
        jobs: Jobs in the trace.
        mean_interarrival_seconds: Mean time between submissions.
        cluster_gpus: GPUs of the cluster that the trace is meant for.
        load: GPU time asked for, as a share of the GPU time there is while jobs arrive.
    """

    jobs: int
    mean_interarrival_seconds: float
    cluster_gpus: int
    load: float


PRESETS: Mapping[str, GeneratorPreset] = MappingProxyType(
    {
        # The 195-job trace asks for 5,490 GPU-hours in 47.8 hours: 115 of 128 GPUs on average.
        "one-day-128-gpus": GeneratorPreset(
            jobs=98, mean_interarrival_seconds=DAY_SECONDS / 98, cluster_gpus=128, load=0.9
        ),
    }
)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A job before it has a model: what its user asks for."""

    gap_seconds: float
    size: int
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is drawn for a draft."""

    model: str
    global_batch: int
    workers: int
    tightness_fraction: float
    effort_fraction: float


def generate_preset(
    name: str, *, seed: int, curves: CurveBook, best_effort_share: float = 0.0
) -> Trace:
    """Generate the trace of a named preset (see :data:`PRESETS`).

    Raises:
        ValueError: If there is no such preset, or :func:`generate_trace` raises it.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise ValueError(f"{name!r} is no preset; choose one of {', '.join(PRESETS)}")
    trace = generate_trace(
        jobs=preset.jobs,
        seed=seed,
        curves=curves,
        mean_interarrival_seconds=preset.mean_interarrival_seconds,
        cluster_gpus=preset.cluster_gpus,
        best_effort_share=best_effort_share,
        load=preset.load,
    )
    return replace(trace, name=f"{name}-seed-{seed}")


def generate_trace(
    *,
    jobs: int,
    seed: int,
    curves: CurveBook,
    mean_interarrival_seconds: float,
    cluster_gpus: int,
    best_effort_share: float = 0.0,
    load: float | None = None,
    deadline_tightness: tuple[float, float] = (0.5, 1.5),
) -> Trace:
    """Generate a trace: bursty arrivals, heavy-tailed durations, mostly small jobs.

    The clock begins at 0, at midnight. Times are whole seconds. Models and deadlines are drawn
    as in ElasticFlow's evaluation (§6.1): a uniformly drawn pair of the curve book,
    iterations = duration x rate at the requested count, deadline = submission + U x duration.
    The same arguments give the same trace in every process. The best-effort jobs of a smaller
    share are best effort under a larger one, too, with all else unchanged.

    Args:
        jobs: Jobs to generate, at least 1.
        seed: Seed of the call's own random numbers.
        curves: Throughput curves: the pool of models.
        mean_interarrival_seconds: Mean gap between submissions, above 0. The gaps are scaled
            so that theirs is exactly this, before the daily wave moves them.
        cluster_gpus: GPUs of the cluster, at least 1. No job asks for more.
        best_effort_share: Share of the jobs that have no deadline, 0 to 1, on average.
        load: If given, durations are scaled by one factor so that the jobs ask for this share
            of ``cluster_gpus x jobs x mean_interarrival_seconds``; otherwise they stay as
            published traces have them, and the load follows from the other arguments.
        deadline_tightness: Least and largest deadline, in durations after submission.

    Raises:
        ValueError: If an argument is out of its range, or no curve runs on so few GPUs.
    """
    _check(jobs, mean_interarrival_seconds, cluster_gpus, best_effort_share, load)
    check_tightness(deadline_tightness)
    draws = random.Random(seed)  # noqa: S311  a workload, no secret
    drafts = _drafts(draws, jobs, mean_interarrival_seconds, cluster_gpus)
    choices = _choices(draws, drafts, curves)
    scale = 1.0
    if load is not None:
        asked = sum(
            choice.workers * draft.duration_seconds
            for draft, choice in zip(drafts, choices, strict=True)
        )
        scale = load * cluster_gpus * jobs * mean_interarrival_seconds / asked
    arrivals = _arrivals([draft.gap_seconds for draft in drafts], mean_interarrival_seconds)
    generated = []
    for number, (draft, choice) in enumerate(zip(drafts, choices, strict=True)):
        duration = max(1.0, float(round(draft.duration_seconds * scale)))
        rate = curves[choice.model, choice.global_batch].rate(choice.workers)
        after = math.ceil(deadline_after(deadline_tightness, choice.tightness_fraction, duration))
        best_effort = choice.effort_fraction < best_effort_share
        generated.append(
            TraceJob(
                job_id=f"job-{number:05d}",
                submitted_at_seconds=arrivals[number],
                model=choice.model,
                global_batch=choice.global_batch,
                iterations=max(1, int(duration * rate)),
                deadline_seconds=None if best_effort else arrivals[number] + after,
                requested_workers=choice.workers,
                duration_seconds=duration,
            )
        )
    return Trace(f"generated-{jobs}-jobs-seed-{seed}", tuple(generated))


def _check(
    jobs: int,
    mean_interarrival_seconds: float,
    cluster_gpus: int,
    best_effort_share: float,
    load: float | None,
) -> None:
    if jobs < 1 or cluster_gpus < 1:
        raise ValueError(f"jobs and cluster GPUs must be at least 1, got {jobs}, {cluster_gpus}")
    if not 0 < jobs * mean_interarrival_seconds <= MOST_SECONDS:
        raise ValueError(
            "the mean interarrival time must be above 0 and the whole trace no longer than "
            f"{MOST_SECONDS:g} seconds, got {mean_interarrival_seconds} seconds for {jobs} jobs"
        )
    if not 0 <= best_effort_share <= 1:
        raise ValueError(f"the best-effort share must be from 0 to 1, got {best_effort_share}")
    if load is not None and not 0 < load <= MOST_LOAD:
        raise ValueError(f"the load must be above 0 and at most {MOST_LOAD:g}, got {load}")


def _drafts(
    draws: random.Random, jobs: int, mean_gap_seconds: float, cluster_gpus: int
) -> list[_Draft]:
    """Draw gaps, sizes and durations, six numbers a job."""
    sizes = [size for size in SIZE_SHARES if size <= cluster_gpus]
    in_sweep = min(GAP_IN_SWEEP_SECONDS, mean_gap_seconds / 2)
    between = (mean_gap_seconds - SWEEP_SHARE * in_sweep) / (1 - SWEEP_SHARE)
    drafts: list[_Draft] = []
    size, deviate = sizes[0], 0.0
    for _ in range(jobs):
        follows = draws.random() < SWEEP_SHARE and bool(drafts)
        phase, exponential = draws.random(), -math.log(1 - draws.random())
        size_fraction, own_deviate = draws.random(), _normal(draws)
        if follows:
            gap = in_sweep * exponential
            deviate = (
                LIKENESS_IN_SWEEP * deviate + math.sqrt(1 - LIKENESS_IN_SWEEP**2) * own_deviate
            )
        else:
            gap = between * exponential * (SHORT_GAP if phase < SHORT_GAP_SHARE else LONG_GAP)
            size, deviate = _size(sizes, size_fraction), own_deviate
        drafts.append(_Draft(gap, size, _duration(deviate, size)))
    return drafts


def _normal(draws: random.Random) -> float:
    """Return a standard normal deviate from two draws (Box and Muller, 1958)."""
    radius = math.sqrt(-2 * math.log(1 - draws.random()))
    return radius * math.cos(2 * math.pi * draws.random())


def _size(sizes: Sequence[int], fraction: float) -> int:
    """Return the size at a fraction of the shares of those that fit."""
    left = fraction * sum(SIZE_SHARES[size] for size in sizes)
    for size in sizes:
        left -= SIZE_SHARES[size]
        if left < 0:
            return size
    return sizes[-1]


def _duration(deviate: float, size: int) -> float:
    """Return the duration at a standard normal deviate: log-normal body, Pareto tail."""
    median = BODY_MEDIAN_SECONDS * float(size**SIZE_EXPONENT)
    seconds = median * math.exp(BODY_DEVIATION * min(deviate, TAIL_BEGINS))
    if deviate > TAIL_BEGINS:
        beyond = math.erfc(deviate / math.sqrt(2)) / 2
        seconds *= float((TAIL_SHARE / beyond) ** (1 / TAIL_EXPONENT))
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)


def _choices(draws: random.Random, drafts: Sequence[_Draft], curves: CurveBook) -> list[_Choice]:
    """Draw model, tightness and effort, three numbers a job."""
    pool = ModelPool(curves)
    choices = []
    for draft in drafts:
        drawn = pool.draw(draws.random(), draft.size)
        if drawn is None:
            raise ValueError(f"no curve of {curves.source} runs on {draft.size} workers or fewer")
        choices.append(_Choice(*drawn, draws.random(), draws.random()))
    return choices


def _arrivals(gaps: Sequence[float], mean_gap_seconds: float) -> list[float]:
    """Return submission times with this mean gap, moved by the daily wave, in whole seconds.

    Times at a constant rate are put through the inverse of the integrated rate
    ``1 + amplitude x cos(2 pi (t - peak) / day)``, which keeps whole days as they are.
    """
    stretch = len(gaps) * mean_gap_seconds / (sum(gaps) or 1.0)
    elapsed = 0.0
    arrivals = []
    for gap in gaps:
        elapsed += gap * stretch
        arrivals.append(float(round(_by_day(elapsed))))
    return arrivals


def _by_day(elapsed_seconds: float) -> float:
    """Return the time by which the integrated daily rate reaches a number of seconds."""
    angle = 2 * math.pi / DAY_SECONDS
    swing = DAILY_AMPLITUDE / angle
    at_midnight = math.sin(angle * DAILY_PEAK_SECONDS)
    low, high = max(0.0, elapsed_seconds - 2 * swing), elapsed_seconds + 2 * swing
    while high - low > 0.01 and low < (middle := (low + high) / 2) < high:
        wave = math.sin(angle * (middle - DAILY_PEAK_SECONDS)) + at_midnight
        if middle + swing * wave < elapsed_seconds:
            low = middle
        else:
            high = middle
    return (low + high) / 2
