from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from resilin.workloads import CurveBook, SkippedJobs, TraceJob, read_profiles, read_trace

ELASTICFLOW = """\
job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration
b,200,50,bert,260,64,4,100
a,100,7,vgg16,100,256,1,30.5
c,200,9,resnet50,900,128,3,60
"""
GENERATED = """\
job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
0,0,50,bert,60,64,4,100,0
1,5,7,vgg16,0,256,1,30,1
"""
ITP_RAW = """\
job_id,submission_time,duration,num_gpu
x,50,1000,3
y,40,600,100
"""
ITP_WITH_MODELS = """\
row,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration
0,5010,7628,bert,5985,64,1,1265
"""
PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-03 00:01:30,60.0,12,720.0,abc
2017-10-03 00:00:30,120.0,1,120.0,abc
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u,v,0,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:10:00,600,0
2,u,v,8,4,1,FAILED,2020-04-01 00:01:00,2020-04-01 00:01:00,2020-04-01 00:11:00,600,0
3,u,v,1,4,1,CANCELLED,2020-04-01 00:02:00,2020-04-01 00:02:00,2020-04-01 00:02:00,0,0
4,u,v,0,4,1,COMPLETED,2020-04-01 00:02:00,2020-04-01 00:02:00,2020-04-01 00:02:01,1,0
5,u,v,16,4,2,COMPLETED,2020-04-01 00:03:30,2020-04-01 00:04:00,2020-04-01 01:04:00,3600,30
"""
PLAIN = """\
job_id,submitted_at_seconds,model,global_batch,iterations,deadline_seconds,requested_workers,\
duration_seconds
a,1.5,bert,64,10,2.5,2,1
b,3,bert,64,10,,,
"""


def write(folder: Path, text: str, name: str = "some.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_elasticflow_published_columns(tmp_path: Path, curves: CurveBook) -> None:
    trace = read_trace(write(tmp_path, ELASTICFLOW), "elasticflow", curves=curves)
    assert trace.name == "some"
    assert trace.skipped == ()
    assert trace.jobs == (
        TraceJob("a", 100.0, "vgg16", 256, 7, 100.0, 1, 30.5),
        TraceJob("b", 200.0, "bert", 64, 50, 260.0, 4, 100.0),
        TraceJob("c", 200.0, "resnet50", 128, 9, 900.0, 2, 60.0),  # 3 GPUs: 2 are profiled
    )


def test_elasticflow_generated_columns_and_best_effort(tmp_path: Path, curves: CurveBook) -> None:
    trace = read_trace(write(tmp_path, GENERATED), "elasticflow", curves=curves)
    assert [job.deadline_seconds for job in trace.jobs] == [60.0, None]
    assert [job.iterations for job in trace.jobs] == [50, 7]


def test_itp_with_models_names_jobs_by_row(tmp_path: Path, curves: CurveBook) -> None:
    (job,) = read_trace(write(tmp_path, ITP_WITH_MODELS), "itp", curves=curves).jobs
    assert job == TraceJob("0", 5010.0, "bert", 64, 7628, 5985.0, 1, 1265.0)


def check_assigned(job: TraceJob, curves: CurveBook) -> None:
    """Check a job against ElasticFlow §6.1."""
    rate = curves[job.model, job.global_batch].rate(job.requested_workers)
    assert job.duration_seconds is not None
    assert job.deadline_seconds is not None
    assert job.iterations == int(job.duration_seconds * rate)
    tightness = (job.deadline_seconds - job.submitted_at_seconds) / job.duration_seconds
    assert 0.5 <= tightness <= 1.5


def test_itp_raw_gets_models_and_deadlines(tmp_path: Path, curves: CurveBook) -> None:
    trace = read_trace(write(tmp_path, ITP_RAW), "itp", curves=curves)
    assert [job.job_id for job in trace.jobs] == ["y", "x"]
    assert [job.submitted_at_seconds for job in trace.jobs] == [40.0, 50.0]
    assert trace.jobs[1].requested_workers == 2
    assert trace.jobs[0].requested_workers in (32, 64)
    for job in trace.jobs:
        check_assigned(job, curves)


def test_itp_raw_without_ids_names_jobs_by_row(tmp_path: Path, curves: CurveBook) -> None:
    text = "submission_time,duration,num_gpu\n5,600,1\n3,600,1\n"
    trace = read_trace(write(tmp_path, text), "itp", curves=curves)
    assert [job.job_id for job in trace.jobs] == ["1", "0"]


def test_philly_counts_from_its_first_job(tmp_path: Path, curves: CurveBook) -> None:
    trace = read_trace(write(tmp_path, PHILLY), "philly", curves=curves)
    assert [(job.job_id, job.submitted_at_seconds) for job in trace.jobs] == [
        ("1", 0.0),
        ("0", 60.0),
    ]
    assert trace.jobs[1].requested_workers == 8
    for job in trace.jobs:
        check_assigned(job, curves)


def test_helios_skips_and_counts_cpu_jobs(tmp_path: Path, curves: CurveBook) -> None:
    trace = read_trace(write(tmp_path, HELIOS), "helios", curves=curves)
    assert trace.skipped == (SkippedJobs("CPU job", 2), SkippedJobs("ran for 0 seconds", 1))
    assert [(job.job_id, job.submitted_at_seconds) for job in trace.jobs] == [
        ("2", 0.0),
        ("5", 150.0),
    ]
    assert [job.requested_workers for job in trace.jobs] == [8, 16]
    for job in trace.jobs:
        check_assigned(job, curves)


def test_plain_columns_may_be_empty_or_absent(tmp_path: Path, curves: CurveBook) -> None:
    full = read_trace(write(tmp_path, PLAIN), "csv", curves=curves)
    assert full.jobs == (
        TraceJob("a", 1.5, "bert", 64, 10, 2.5, 2, 1.0),
        TraceJob("b", 3.0, "bert", 64, 10, None, 1, None),
    )
    text = "job_id,submitted_at_seconds,model,global_batch,iterations\nb,3,bert,64,10\n"
    assert read_trace(write(tmp_path, text), "csv", curves=curves).jobs == full.jobs[1:]


def test_pollux_takes_iterations_from_the_models_folder(
    tmp_path: Path, pollux_models: Path
) -> None:
    text = (
        "name,time,application,num_replicas,batch_size\nn-0,7,cifar10,5,256\nn-1,9,cifar10,4,128\n"
    )
    book = read_profiles(pollux_models)
    trace = read_trace(write(tmp_path, text), "pollux", curves=book, pollux_models=pollux_models)
    assert trace.jobs == (
        TraceJob("n-0", 7.0, "cifar10", 256, 600, None, 4, None),
        TraceJob("n-1", 9.0, "cifar10", 128, 1000, None, 4, None),
    )


@pytest.mark.parametrize(
    ("trace_format", "text"),
    [
        ("elasticflow", ELASTICFLOW),
        ("itp", ITP_RAW),
        ("philly", PHILLY),
        ("helios", HELIOS),
        ("csv", PLAIN),
    ],
)
def test_gzip_bom_crlf_and_blank_lines_change_nothing(
    trace_format: str, text: str, tmp_path: Path, curves: CurveBook
) -> None:
    plain = read_trace(write(tmp_path, text), trace_format, curves=curves)
    packed = tmp_path / "some.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_trace(packed, trace_format, curves=curves) == plain
    odd = tmp_path / "odd" / "some.csv"
    odd.parent.mkdir()
    odd.write_bytes(("\ufeff" + text.replace("\n", "\r\n") + "\r\n  \r\n").encode())
    assert read_trace(odd, trace_format, curves=curves) == plain
    misnamed = tmp_path / "misnamed" / "some.csv"
    misnamed.parent.mkdir()
    misnamed.write_bytes(packed.read_bytes())
    assert read_trace(misnamed, trace_format, curves=curves) == plain


def test_limit_keeps_the_first_by_submission(tmp_path: Path, curves: CurveBook) -> None:
    path = write(tmp_path, ITP_RAW)
    whole = read_trace(path, "itp", curves=curves, seed=3)
    assert read_trace(path, "itp", curves=curves, seed=3, limit=1).jobs == whole.jobs[:1]
    assert read_trace(path, "itp", curves=curves, seed=3, limit=9).jobs == whole.jobs
    with pytest.raises(ValueError, match="limit"):
        read_trace(path, "itp", curves=curves, limit=0)


def test_the_clock_can_start_at_zero(tmp_path: Path, curves: CurveBook) -> None:
    path = write(tmp_path, ELASTICFLOW)
    shifted = read_trace(path, "elasticflow", curves=curves, start_at_zero=True)
    assert [job.submitted_at_seconds for job in shifted.jobs] == [0.0, 100.0, 100.0]
    assert [job.deadline_seconds for job in shifted.jobs] == [0.0, 160.0, 800.0]
    best_effort = read_trace(write(tmp_path, PLAIN), "csv", curves=curves, start_at_zero=True)
    assert [job.deadline_seconds for job in best_effort.jobs] == [1.0, None]


def test_a_seed_decides_and_a_longer_log_begins_alike(tmp_path: Path, curves: CurveBook) -> None:
    rows = [f"{position},{900 + position},1" for position in range(200)]
    header = "submission_time,duration,num_gpu"
    path = write(tmp_path, "\n".join([header, *rows]))
    shuffled = write(tmp_path, "\n".join([header, *reversed(rows)]), "shuffled.csv")
    start = write(tmp_path, "\n".join([header, *rows[:50]]), "start.csv")
    whole = read_trace(path, "itp", curves=curves, seed=1)
    assert whole.jobs == read_trace(path, "itp", curves=curves, seed=1).jobs
    assert whole.jobs != read_trace(path, "itp", curves=curves, seed=2).jobs
    assert read_trace(start, "itp", curves=curves, seed=1).jobs == whole.jobs[:50]
    drawn = read_trace(shuffled, "itp", curves=curves, seed=1).jobs
    assert [replace(job, job_id="") for job in drawn] == [
        replace(job, job_id="") for job in whole.jobs
    ]
    pairs = {(job.model, job.global_batch) for job in whole.jobs}
    assert pairs == set(curves)  # 200 uniform draws of 14 leave none out


def test_the_tightness_of_drawn_deadlines_can_be_set(tmp_path: Path, curves: CurveBook) -> None:
    path = write(tmp_path, ITP_RAW)
    for job in read_trace(path, "itp", curves=curves, deadline_tightness=(1.5, 1.5)).jobs:
        assert job.duration_seconds is not None
        assert job.deadline_seconds == job.submitted_at_seconds + 1.5 * job.duration_seconds
    for wrong in ((0.0, 1.0), (2.0, 1.0), (1.0, float("inf")), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match="tightness"):
            read_trace(path, "itp", curves=curves, deadline_tightness=wrong)


def test_a_quoted_cell_may_span_lines(tmp_path: Path, curves: CurveBook) -> None:
    text = 'job_id,submission_time,duration,num_gpu,note\na,1,600,1,"two\nlines"\nb,2,600,x,\n'
    with pytest.raises(ValueError, match=r"some\.csv:4: field 'num_gpu'"):
        read_trace(write(tmp_path, text), "itp", curves=curves)
