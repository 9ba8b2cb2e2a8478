"""The public traces and profiles, where RESILIN_TRACES names their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from resilin.workloads import CurveBook, read_profiles, read_trace

COUNTS = {
    "elasticflow/traces/195job.csv": ("elasticflow", 195),
    "elasticflow/traces/cluster01.csv": ("elasticflow", 1_595),
    "elasticflow/traces/cluster06.csv": ("elasticflow", 2_396),
    "elasticflow/traces/cluster10.csv": ("elasticflow", 260),
    "elasticflow/traces-generated/25job_gen.csv": ("elasticflow", 25),
    "elasticflow/traces-generated/25job_first195.csv": ("elasticflow", 25),
    "elasticflow/traces-generated/200jobs_900lam_0.5.csv": ("elasticflow", 200),
    "elasticflow-itp/raw/cluster01.csv.gz": ("itp", 1_595),
    "elasticflow-itp/raw/cluster02.csv.gz": ("itp", 5_778),
    "elasticflow-itp/raw/cluster04.csv.gz": ("itp", 15_802),
    "elasticflow-itp/raw/cluster06.csv.gz": ("itp", 2_396),
    "elasticflow-itp/raw/cluster08.csv.gz": ("itp", 13_047),
    "elasticflow-itp/raw/cluster09.csv.gz": ("itp", 11_134),
    "elasticflow-itp/raw/cluster10.csv.gz": ("itp", 260),
    "elasticflow-itp/with_models_and_deadlines/cluster02.csv.gz": ("itp", 5_778),
    "elasticflow-itp/with_models_and_deadlines/cluster09.csv.gz": ("itp", 11_134),
    "philly/philly_jobs_to_2017-11-19.csv.gz": ("philly", 68_063),
}


@pytest.mark.parametrize("file", COUNTS)
def test_job_counts(file: str, traces_folder: Path, a100_curves: CurveBook) -> None:
    trace_format, count = COUNTS[file]
    trace = read_trace(traces_folder / file, trace_format, curves=a100_curves)
    assert len(trace.jobs) == count
    assert trace.skipped == ()


@pytest.mark.parametrize("cluster", ["02", "04", "08", "09"])
def test_published_models_stand_for_the_same_jobs_as_the_raw_logs(
    cluster: str, traces_folder: Path, a100_curves: CurveBook
) -> None:
    raw, given = (
        read_trace(
            traces_folder / f"elasticflow-itp/{folder}/cluster{cluster}.csv.gz",
            "itp",
            curves=a100_curves,
            limit=500,
        ).jobs
        for folder in ("raw", "with_models_and_deadlines")
    )
    for ours, theirs in zip(raw, given, strict=True):
        assert ours.submitted_at_seconds == theirs.submitted_at_seconds
        assert ours.duration_seconds == theirs.duration_seconds


def test_the_195_jobs_follow_the_rule_that_is_used_for_logs(
    traces_folder: Path, a100_curves: CurveBook
) -> None:
    """Their columns are what §6.1 says, so a column mixed up here would show."""
    trace = read_trace(
        traces_folder / "elasticflow/traces/195job.csv", "elasticflow", curves=a100_curves
    )
    for job in trace.jobs:
        rate = a100_curves[job.model, job.global_batch].rate(job.requested_workers)
        assert job.duration_seconds is not None
        assert job.deadline_seconds is not None
        assert job.iterations == int(job.duration_seconds * rate)
        tightness = (job.deadline_seconds - job.submitted_at_seconds) / job.duration_seconds
        assert 0.49 < tightness <= 1.5
    hours = sum(job.requested_workers * (job.duration_seconds or 0) for job in trace.jobs) / 3600
    assert hours == pytest.approx(5_490, abs=1)


def test_best_effort_sets_are_nested(traces_folder: Path, a100_curves: CurveBook) -> None:
    smaller: set[str] = set()
    for tenth in range(1, 10):
        trace = read_trace(
            traces_folder / f"elasticflow/traces-generated/200jobs_900lam_0.{tenth}.csv",
            "elasticflow",
            curves=a100_curves,
        )
        larger = {job.job_id for job in trace.jobs if job.deadline_seconds is None}
        assert smaller < larger
        assert len(larger) == pytest.approx(20 * tenth, abs=20)
        smaller = larger


def test_philly_begins_at_zero_and_rounds_sizes_down(
    traces_folder: Path, a100_curves: CurveBook
) -> None:
    trace = read_trace(
        traces_folder / "philly/philly_jobs_to_2017-11-19.csv.gz",
        "philly",
        curves=a100_curves.restricted_to(("bert", "gpt2", "inception3", "resnet50", "vgg16")),
    )
    assert trace.jobs[0].submitted_at_seconds == 0.0
    assert trace.jobs[-1].submitted_at_seconds == pytest.approx(1_837.4 * 3600, abs=360)
    assert {job.requested_workers for job in trace.jobs} == {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize(
    ("folder", "count"),
    [
        ("workloads", 160),
        ("workloads-0.5", 80),
        ("workloads-1.5", 240),
        ("workloads-2.0", 320),
        ("workloads-realistic", 160),
    ],
)
def test_pollux_workloads(folder: str, count: int, traces_folder: Path) -> None:
    models = traces_folder / "pollux/models"
    curves = read_profiles(models)
    for number in (1, 8):
        trace = read_trace(
            traces_folder / f"pollux/{folder}/workload-{number}.csv",
            "pollux",
            curves=curves,
            pollux_models=models,
        )
        assert len(trace.jobs) == count
        assert all(job.deadline_seconds is None for job in trace.jobs)


def test_pollux_iterations_are_those_of_a_full_training(traces_folder: Path) -> None:
    models = traces_folder / "pollux/models"
    trace = read_trace(
        traces_folder / "pollux/workloads/workload-1.csv",
        "pollux",
        curves=read_profiles(models),
        pollux_models=models,
    )
    lengths = {(job.model, job.global_batch): job.iterations for job in trace.jobs}
    assert lengths["cifar10", 2048] == 3_178
    assert lengths["deepspeech2", 320] == 2_264
    assert lengths["ncf", 32768] == 1_548


def test_a100_profiles(a100_curves: CurveBook) -> None:
    assert a100_curves.models == (
        *("bert", "deepspeech2", "gpt2", "inception3"),
        *("resnet50", "resnet50_cifar10", "vgg16"),
    )
    assert len(a100_curves) == 17
    assert a100_curves["deepspeech2", 32].workers == (1, 2, 4, 8, 16, 32)
    assert a100_curves["resnet50_cifar10", 64].workers == (1, 2, 4, 8)
    vgg = a100_curves["vgg16", 256]
    assert vgg.rate(8) / vgg.rate(1) / 8 == pytest.approx(0.7607, rel=1e-3)
    # Raw, not cut at the peak.
    assert a100_curves["bert", 64].cut_at_peak().workers[-1] == 8
    assert a100_curves["bert", 64].workers[-1] == 64


def test_pollux_curves_give_elasticflows_t4_profiles(traces_folder: Path) -> None:
    """ElasticFlow's T4 profiles were made of Pollux's files: an independent check of ours."""
    pollux = read_profiles(traces_folder / "pollux/models")
    t4 = read_profiles(traces_folder / "elasticflow/profiles/throughputs_T4")
    assert len(t4) == 9
    for key, curve in t4.items():
        ours = pollux[key]
        assert set(curve.workers) <= set(ours.workers)
        for workers, rate in zip(curve.workers, curve.iterations_per_second, strict=True):
            assert ours.rate(workers) == pytest.approx(rate, rel=1e-12)
    assert len(pollux) == 40
