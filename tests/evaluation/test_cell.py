"""One run: the jobs that a source stands for, and what is told of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resilin.evaluation.cell import run_cell
from resilin.evaluation.grid import cells
from resilin.evaluation.measures import Run
from resilin.evaluation.scenario import load
from resilin.workloads import WorkloadError

TRACE = """\
job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration
one,100,1000,resnet50,2100,64,1,1000
two,200,1000,resnet50,1200,64,2,1000
three,300,1000,resnet50,1300,64,4,500
"""
PROFILE = "global_batch_size,1,2,4\n64,1,2,3\n"
OTHER = "global_batch_size,1,2,4\n32,10,15,20\n"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    for name, text in (("a/resnet50.csv", PROFILE), ("t/bert.csv", OTHER), ("jobs.csv", TRACE)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(write, traces: Path | None = None, **source) -> Run:
    path = write(spec__workloads__0__source=source)
    return Run.from_json(run_cell(next(cells(load(path))), traces))


def test_a_trace_is_read_with_its_profiles(write, traces) -> None:
    jobs = run(write, traces, file="jobs.csv", format="elasticflow", profiles="a").jobs
    assert [job.job_id for job in jobs] == ["one", "two", "three"]
    assert [job.submitted_seconds for job in jobs] == [0.0, 100.0, 200.0]
    assert [job.gpu_seconds for job in jobs] == [1000.0, 2000.0, 2000.0]
    assert all(job.met for job in jobs)


def test_some_of_the_jobs_can_be_taken(write, traces) -> None:
    source = {"file": "jobs.csv", "format": "elasticflow", "profiles": "a"}
    assert [job.job_id for job in run(write, traces, **source, everyNth=2).jobs] == ["one", "three"]
    assert [job.job_id for job in run(write, traces, **source, jobs=2).jobs] == ["one", "two"]


def test_models_can_be_drawn_anew(write, traces) -> None:
    jobs = run(
        write, traces, file="jobs.csv", format="elasticflow", profiles="t", originalProfiles="a"
    ).jobs
    # Each runs on its requested workers for as long as before, now as bert.
    assert [job.iterations for job in jobs] == [10_000, 15_000, 10_000]
    assert [job.gpu_seconds for job in jobs] == [1000.0, 2000.0, 2000.0]


def test_deadlines_can_be_set_anew(write, traces) -> None:
    source = {"file": "jobs.csv", "format": "elasticflow", "profiles": "a"}
    assert run(write, traces, **source, deadlineDurations=0.1).summary["declined"] == 3
    assert run(write, traces, **source, deadlineDurations=1.5).summary["declined"] == 0


def test_all_profiled_sizes_can_be_allowed(write, traces) -> None:
    (traces / "a" / "resnet50.csv").write_text("global_batch_size,1,3\n64,1,3\n")
    source = {"file": "jobs.csv", "format": "elasticflow", "profiles": "a", "jobs": 1}
    by_powers = run(write, traces, **source).jobs[0].completion_seconds
    by_profile = run(write, traces, **source, sizes="profiled").jobs[0].completion_seconds
    assert (by_powers, by_profile) == (pytest.approx(1000.0), pytest.approx(1000.0 / 3))


def test_a_transient_server_comes_and_goes(write) -> None:
    single = {"model": "resnet50", "globalBatch": 256, "iterations": 2000, "workers": 4}
    source = {"single": single}
    clusters = [
        {"servers": 1, "gpusPerServer": 4},
        {
            "servers": 1,
            "gpusPerServer": 4,
            "transient": {"gpus": 4, "presentSeconds": 50, "absentSeconds": 50},
        },
    ]
    path = write(
        spec__workloads__0__source=source,
        spec__workloads__0__clusters=clusters,
        spec__policies=["edf"],
        spec__resizeCosts=["none", {"name": "dear", "fixedSeconds": 40}],
        spec__published=[],
    )
    alone, _, free, dear = (
        Run.from_json(run_cell(cell, None)).jobs[0].completion_seconds for cell in cells(load(path))
    )
    assert alone is not None
    assert free is not None
    assert dear is not None
    assert free < alone < dear


def test_what_a_run_tells_survives_json_and_is_the_same_again(tiny) -> None:
    cell = next(cells(tiny))
    told, again = run_cell(cell, None), run_cell(cell, None)
    del told["cpu_seconds"], again["cpu_seconds"]
    assert json.dumps(told) == json.dumps(again)


def test_efficiency_by_hour_adds_up_to_the_whole(tiny) -> None:
    run = Run.from_json(run_cell(next(cells(tiny)), None))
    makespan = run.summary["makespan_seconds"]
    hours = run.efficiency_by_hour
    lengths = [3600.0] * (len(hours) - 1) + [makespan - 3600.0 * (len(hours) - 1)]
    mean = sum(h * s for h, s in zip(hours, lengths, strict=True)) / makespan
    assert mean == pytest.approx(run.summary["cluster_efficiency"])
    held = run.gpu_seconds_held / makespan / 16
    assert held == pytest.approx(run.summary["gpu_utilization"])


def test_a_wrong_trace_is_named(write, traces) -> None:
    (traces / "jobs.csv").write_text("nothing\n1\n")
    with pytest.raises(WorkloadError, match=r"jobs\.csv"):
        run(write, traces, file="jobs.csv", format="elasticflow", profiles="a")
    single = {"model": "oracle", "globalBatch": 1, "iterations": 1, "workers": 1}
    with pytest.raises(WorkloadError, match="is no built-in model"):
        run(write, single=single)
