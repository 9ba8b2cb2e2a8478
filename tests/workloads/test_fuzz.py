"""Whatever the bytes, a reader gives a trace or a WorkloadError, and nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.workloads import (
    TRACE_FORMATS,
    CurveBook,
    WorkloadError,
    built_in_curves,
    read_profiles,
    read_trace,
)

BOOK = built_in_curves()

HEADERS = {
    "elasticflow": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,"
    "duration",
    "itp": "submission_time,duration,num_gpu",
    "philly": "timestamp,duration,num_gpus",
    "helios": "job_id,gpu_num,submit_time,duration",
    "pollux": "name,time,application,num_replicas,batch_size",
    "csv": "job_id,submitted_at_seconds,model,global_batch,iterations,deadline_seconds,"
    "requested_workers,duration_seconds",
}

CELLS = st.one_of(
    st.sampled_from(
        [
            *("bert", "64", "1", "0", "8", "1e3", "-1", "nan", "inf", "", "2020-04-01 00:00:00"),
            *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2020-W01-1", "cifar10"),
            *("128", "256", '"', '""', "1e12", "9" * 12, "1e-300", "\u0661", "\u2028", "\x00"),
        ]
    ),
    st.integers(-10, 10**20).map(str),
    st.floats().map(str),
    st.datetimes().map(str),
    st.text(max_size=8),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def pollux_book(pollux_models: Path) -> CurveBook:
    return read_profiles(pollux_models)


def attempt(path: Path, trace_format: str, book: CurveBook, models: Path) -> None:
    try:
        trace = read_trace(
            path, trace_format, curves=book, pollux_models=models, start_at_zero=True, limit=3
        )
    except WorkloadError:
        return
    assert 1 <= len(trace.jobs) <= 3
    assert trace.jobs[0].submitted_at_seconds == 0.0


@settings(deadline=None, max_examples=60, derandomize=True)
@given(content=st.binary(max_size=300), packed=st.booleans())
def test_bytes(content: bytes, packed: bool, folder: Path, pollux_models: Path) -> None:
    path = folder / "bytes.csv"
    path.write_bytes(gzip.compress(content) if packed else content)
    for trace_format in TRACE_FORMATS:
        attempt(path, trace_format, BOOK, pollux_models)
    with pytest.raises(WorkloadError):
        read_profiles(path)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(data=st.data())
def test_damaged_gzip(data: st.DataObject, folder: Path, pollux_models: Path) -> None:
    content = bytearray(gzip.compress(f"{HEADERS['itp']}\n1,600,8\n2,600,8\n".encode() * 3))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(2, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "damaged.csv.gz"
    path.write_bytes(bytes(content))
    attempt(path, "itp", BOOK, pollux_models)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(
    trace_format=st.sampled_from(TRACE_FORMATS),
    rows=st.lists(st.lists(CELLS, min_size=8, max_size=8), min_size=1, max_size=4),
    quoted=st.booleans(),
)
def test_rows(
    trace_format: str,
    rows: list[list[str]],
    quoted: bool,
    folder: Path,
    pollux_models: Path,
    pollux_book: CurveBook,
) -> None:
    width = HEADERS[trace_format].count(",") + 1
    lines = [",".join(f'"{cell}"' if quoted else cell for cell in row[:width]) for row in rows]
    path = folder / "rows.csv"
    path.write_text("\n".join([HEADERS[trace_format], *lines]), encoding="utf-8", newline="")
    book = pollux_book if trace_format == "pollux" else BOOK
    attempt(path, trace_format, book, pollux_models)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    header=st.sampled_from(
        ["global_batch_size,1,2,4", "model,global_batch,workers,iterations_per_second"]
    ),
    rows=st.lists(st.lists(CELLS, min_size=4, max_size=4), min_size=1, max_size=4),
)
def test_profile_rows(header: str, rows: list[list[str]], folder: Path) -> None:
    path = folder / "profile.csv"
    lines = [header, *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    try:
        book = read_profiles(path)
    except WorkloadError:
        return
    assert len(book) >= 1


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    rows=st.lists(
        st.tuples(
            st.floats(0, 1e12),
            st.sampled_from(list(BOOK)),
            st.integers(1, 10**15),
            st.one_of(st.none(), st.floats(0, 1e6)),
            st.integers(1, 64),
            st.one_of(st.none(), st.floats(1e-9, 1e12)),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_plain_trace_reads_back_as_written(
    rows: list[tuple[float, tuple[str, int], int, float | None, int, float | None]],
    folder: Path,
) -> None:
    lines = [HEADERS["csv"]]
    written = {}
    for number, (submitted, (model, batch), iterations, slack, workers, duration) in enumerate(
        rows
    ):
        submitted = min(submitted, 1e12 - 1e6)
        deadline = None if slack is None else submitted + slack
        cells = (number, submitted, model, batch, iterations, deadline, workers, duration)
        lines.append(",".join("" if cell is None else str(cell) for cell in cells))
        written[str(number)] = (submitted, model, batch, iterations, deadline, duration)
    path = folder / "written.csv"
    path.write_text("\n".join(lines))
    trace = read_trace(path, "csv", curves=BOOK)
    assert len(trace.jobs) == len(rows)
    for job in trace.jobs:
        assert written[job.job_id] == (
            job.submitted_at_seconds,
            job.model,
            job.global_batch,
            job.iterations,
            job.deadline_seconds,
            job.duration_seconds,
        )
    assert [job.submitted_at_seconds for job in trace.jobs] == sorted(
        job.submitted_at_seconds for job in trace.jobs
    )
