from __future__ import annotations

import math
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.workloads import (
    PRESETS,
    CurveBook,
    Trace,
    built_in_curves,
    generate_preset,
    generate_trace,
    read_profiles,
    read_trace,
)

BOOK = built_in_curves()
JOBS = 20_000


@pytest.fixture(scope="module")
def large() -> Trace:
    """Enough jobs for their statistics to be near what they are drawn from."""
    return generate_trace(
        jobs=JOBS, seed=5, curves=BOOK, mean_interarrival_seconds=887, cluster_gpus=128
    )


def gpu_seconds(trace: Trace) -> float:
    return sum(job.requested_workers * (job.duration_seconds or 0) for job in trace.jobs)


def gaps(trace: Trace) -> list[float]:
    times = [job.submitted_at_seconds for job in trace.jobs]
    return [later - earlier for earlier, later in pairwise(times)]


def sorted_durations(trace: Trace) -> list[float]:
    return sorted(job.duration_seconds or 0 for job in trace.jobs)


def test_arrivals_come_in_sweeps(large: Trace) -> None:
    between = gaps(large)
    variation = statistics.pstdev(between) / statistics.mean(between)
    assert 2.0 < variation < 3.0  # Poisson: 1; published traces: 2.0 to 9.4
    short = sum(gap < 60 for gap in between) / len(between)
    assert 0.48 < short < 0.56
    followers = [
        (job, earlier)
        for gap, (earlier, job) in zip(between, pairwise(large.jobs), strict=True)
        if gap < 60
    ]
    alike = sum(job.requested_workers == earlier.requested_workers for job, earlier in followers)
    assert alike / len(followers) > 0.9
    logarithms = [
        (math.log(job.duration_seconds or 1), math.log(earlier.duration_seconds or 1))
        for job, earlier in followers
    ]
    assert 0.7 < statistics.correlation(*zip(*logarithms, strict=True)) < 0.95


def test_arrivals_follow_the_day(large: Trace) -> None:
    angles = [2 * math.pi * job.submitted_at_seconds / 86_400 for job in large.jobs]
    east, north = (statistics.fmean(map(turn, angles)) for turn in (math.cos, math.sin))
    assert 2 * math.hypot(east, north) == pytest.approx(0.4, abs=0.05)
    peak_hour = math.atan2(north, east) % (2 * math.pi) / (2 * math.pi) * 24
    assert peak_hour == pytest.approx(15, abs=1)


def test_durations_have_a_log_normal_body_and_a_heavy_tail(large: Trace) -> None:
    durations = sorted_durations(large)
    assert 8_000 < statistics.median(durations) < 10_000
    assert 1.1 < statistics.pstdev(map(math.log, durations)) < 1.4
    begins = durations[int(0.9 * JOBS)]
    longest = durations[int(0.9 * JOBS) :]
    hill = len(longest) / sum(math.log(duration / begins) for duration in longest)
    assert 1.2 < hill < 1.7
    assert 120_000 < durations[int(0.99 * JOBS)] < 300_000
    assert durations[0] >= 60
    assert durations[-1] <= 20 * 86_400


def test_sizes_are_powers_of_two_and_mostly_small(large: Trace) -> None:
    shares = {
        size: sum(job.requested_workers == size for job in large.jobs) / JOBS
        for size in (1, 2, 4, 8, 16, 32, 64)
    }
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares[1] == pytest.approx(0.60, abs=0.03)
    assert shares[4] == pytest.approx(0.22, abs=0.03)
    assert shares[8] == pytest.approx(0.14, abs=0.03)
    assert 0.01 < shares[16] + shares[32] + shares[64] < 0.04
    medians = [
        statistics.median(
            job.duration_seconds or 0 for job in large.jobs if job.requested_workers == size
        )
        for size in (1, 4, 8)
    ]
    assert medians == sorted(medians)


def test_models_and_deadlines_are_drawn_as_by_elasticflow(large: Trace) -> None:
    counts = dict.fromkeys(BOOK, 0)
    tightness = []
    for job in large.jobs:
        counts[job.model, job.global_batch] += 1
        assert job.duration_seconds is not None
        assert job.deadline_seconds is not None
        rate = BOOK[job.model, job.global_batch].rate(job.requested_workers)
        assert job.iterations == max(1, int(job.duration_seconds * rate))
        tightness.append((job.deadline_seconds - job.submitted_at_seconds) / job.duration_seconds)
    assert min(counts.values()) > 0.8 * JOBS / len(counts)
    assert min(tightness) >= 0.5
    assert max(tightness) <= 1.5 + 1 / 60
    assert statistics.fmean(tightness) == pytest.approx(1.0, abs=0.01)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    jobs=st.integers(1, 60),
    seed=st.integers(0, 2**64),
    gap=st.floats(0.01, 1e6),
    gpus=st.integers(1, 200),
    share=st.floats(0, 1),
    load=st.one_of(st.none(), st.floats(0.01, 10)),
)
def test_every_trace_keeps_the_rules(
    jobs: int, seed: int, gap: float, gpus: int, share: float, load: float | None
) -> None:
    def make(best_effort_share: float) -> Trace:
        return generate_trace(
            jobs=jobs,
            seed=seed,
            curves=BOOK,
            mean_interarrival_seconds=gap,
            cluster_gpus=gpus,
            best_effort_share=best_effort_share,
            load=load,
        )

    trace = make(share)
    assert trace == make(share)
    assert len(trace.jobs) == jobs
    assert all(job.requested_workers <= gpus for job in trace.jobs)
    assert all(
        job.requested_workers in BOOK[job.model, job.global_batch].workers for job in trace.jobs
    )
    times = [job.submitted_at_seconds for job in trace.jobs]
    assert all(time == int(time) >= 0 for time in times)
    # The daily wave moves a submission by at most 2 x 0.4 x day / 2 pi.
    assert times[-1] == pytest.approx(jobs * gap, abs=11_002)
    assert all(job.deadline_seconds is not None for job in make(0.0).jobs)
    best_effort = {job.job_id for job in trace.jobs if job.deadline_seconds is None}
    more = make((1 + share) / 2)
    assert best_effort <= {job.job_id for job in more.jobs if job.deadline_seconds is None}
    assert times == [job.submitted_at_seconds for job in more.jobs]
    assert all(job.deadline_seconds is None for job in make(1.0).jobs)


def test_a_load_can_be_asked_for() -> None:
    for load in (0.2, 1.7):
        trace = generate_trace(
            jobs=300,
            seed=1,
            curves=BOOK,
            mean_interarrival_seconds=600,
            cluster_gpus=64,
            load=load,
        )
        assert gpu_seconds(trace) / (64 * 300 * 600) == pytest.approx(load, rel=1e-3)


def test_seeds_differ() -> None:
    assert generate_preset("one-day-128-gpus", seed=0, curves=BOOK) != generate_preset(
        "one-day-128-gpus", seed=1, curves=BOOK
    )


def test_requested_workers_are_known_to_sparse_curves(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("global_batch_size,1,4\n64,1,3\n")
    (tmp_path / "b.csv").write_text("global_batch_size,4\n64,3\n")
    book = read_profiles(tmp_path)
    trace = generate_trace(
        jobs=400, seed=0, curves=book, mean_interarrival_seconds=100, cluster_gpus=64
    )
    assert {job.requested_workers for job in trace.jobs} == {1, 4}
    assert all(job.model == "a" for job in trace.jobs if job.requested_workers == 1)
    assert {job.model for job in trace.jobs} == {"a", "b"}
    with pytest.raises(ValueError, match=r"no curve of .* runs on 1 workers"):
        generate_trace(
            jobs=9,
            seed=0,
            curves=book.restricted_to(["b"]),
            mean_interarrival_seconds=100,
            cluster_gpus=1,
        )


@pytest.mark.parametrize("seed", range(5))
def test_the_preset_is_one_day_at_the_load_of_the_195_job_trace(seed: int) -> None:
    preset = PRESETS["one-day-128-gpus"]
    trace = generate_preset("one-day-128-gpus", seed=seed, curves=BOOK)
    assert trace.name == f"one-day-128-gpus-seed-{seed}"
    assert len(trace.jobs) == preset.jobs == 98
    assert trace.jobs[-1].submitted_at_seconds == pytest.approx(86_400, abs=1)
    assert gpu_seconds(trace) / (128 * 86_400) == pytest.approx(0.9, rel=1e-3)
    assert max(job.requested_workers for job in trace.jobs) <= 128


def test_the_preset_is_like_the_195_job_trace(traces_folder: Path, a100_curves: CurveBook) -> None:
    published = read_trace(
        traces_folder / "elasticflow/traces/195job.csv",
        "elasticflow",
        curves=a100_curves,
        start_at_zero=True,
    )
    span = published.jobs[-1].submitted_at_seconds
    load = gpu_seconds(published) / (128 * span)
    preset = PRESETS["one-day-128-gpus"]
    assert preset.load == pytest.approx(load, rel=0.02)
    assert preset.mean_interarrival_seconds == pytest.approx(span / 194, rel=0.02)
    seeds = [generate_preset("one-day-128-gpus", seed=seed, curves=BOOK) for seed in range(20)]
    pairs = [
        (statistics.median(sorted_durations(made)), statistics.pstdev(gaps(made))) for made in seeds
    ]
    median = statistics.median(sorted_durations(published))
    assert 0.4 < statistics.fmean(pair[0] for pair in pairs) / median < 1.2
    deviation = statistics.pstdev(gaps(published))
    assert 0.8 < statistics.fmean(pair[1] for pair in pairs) / deviation < 1.4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"jobs": 0}, "jobs and cluster GPUs"),
        ({"cluster_gpus": 0}, "jobs and cluster GPUs"),
        ({"mean_interarrival_seconds": 0.0}, "interarrival"),
        ({"mean_interarrival_seconds": -1.0}, "interarrival"),
        ({"mean_interarrival_seconds": math.nan}, "interarrival"),
        ({"mean_interarrival_seconds": math.inf}, "interarrival"),
        ({"best_effort_share": -0.1}, "share"),
        ({"best_effort_share": 1.1}, "share"),
        ({"best_effort_share": math.nan}, "share"),
        ({"load": 0.0}, "load"),
        ({"load": math.inf}, "load"),
        ({"load": math.nan}, "load"),
        ({"deadline_tightness": (1.5, 0.5)}, "tightness"),
    ],
)
def test_arguments_out_of_range(change: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {
        "jobs": 5,
        "seed": 0,
        "curves": BOOK,
        "mean_interarrival_seconds": 10.0,
        "cluster_gpus": 8,
    }
    with pytest.raises(ValueError, match=words):
        generate_trace(**(arguments | change))


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="one-day-128-gpus"):
        generate_preset("one-year", seed=0, curves=BOOK)
