"""Wrong traces and profiles: each must end in a WorkloadError that says where and what to do.

Most of the corpus is made by putting wrong cells into small valid files, one at a time, in
every column; the rest is written by hand.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from resilin.workloads import CurveBook, WorkloadError, read_profiles, read_trace
from resilin.workloads import csv_table as csv_table_module

NOT_FINITE = ["nan", "inf", "-inf", "1e999", "NaN"]
NOT_NUMBERS = ["", "abc", "1_000", "\uff11\uff12", "0x10", "1,5", "12 s", "--1", "\x00"]
WRONG = {
    "id": ["", " ", "x" * 300, "a\x07b", "first"],
    "model": ["", "no-such-model", "x" * 300],
    "batch": [*NOT_NUMBERS, *NOT_FINITE, "0", "-64", "64.0", "63", "9" * 20, "9" * 5000],
    "count": [*NOT_NUMBERS, *NOT_FINITE, "0", "-1", "1.5", "1e3", "+1", "9" * 20, "9" * 5000],
    "gpus": [*NOT_NUMBERS, *NOT_FINITE, "-1", "1.5", "9" * 20],
    "time": [*NOT_NUMBERS, *NOT_FINITE, "-1", "-0.001", "1e13", "9" * 400],
    "deadline": [*NOT_NUMBERS, *NOT_FINITE, "-1", "1", "1e13"],
    "duration": [*NOT_NUMBERS, *NOT_FINITE, "-1", "0", "-0.0", "1e13"],
    "long": [*NOT_NUMBERS, *NOT_FINITE, "-1", "0", "1e13"],
    "flag": ["", "2", "yes", "-1", "1.0", "True"],
    "moment": ["", "abc", "12", "2020-13-01 00:00:00", "2020-04-01 25:00:00", "NaT", "x" * 500],
    "rate": [*(text for text in NOT_NUMBERS), "inf", "-inf", "1e999", "-1", "1e10", "1e-300"],
    "digits": ["", "0", "5", "1.4", "4-4", "9" * 100, "abc"],
    "step": [*NOT_NUMBERS, *NOT_FINITE, "-1", "0", "1e-12", "1e7"],
    "any": [],
}


@dataclass(frozen=True)
class Sample:
    """A valid file of two rows with the kind of each column; the second row is made wrong."""

    trace_format: str
    kinds: dict[str, str]
    rows: tuple[str, str]

    def text(self, change: tuple[str, str] | None = None) -> str:
        cells = [row.split(",") for row in self.rows]
        if change:
            column, wrong = change
            cells[1][list(self.kinds).index(column)] = wrong
        quoted = [",".join(f'"{cell}"' for cell in row) for row in cells]
        return "\n".join([",".join(self.kinds), *quoted]) + "\n"


ELASTICFLOW_KINDS = {
    "job_id": "id",
    "submission_time": "time",
    "num_iteration": "count",
    "model_name": "model",
    "deadline": "deadline",
    "batch_size": "batch",
    "num_gpu": "count",
    "duration": "duration",
}
ELASTICFLOW_ROWS = ("first,100,50,bert,260,64,4,100", "second,200,7,vgg16,300,256,1,30")

SAMPLES = {
    "elasticflow": Sample("elasticflow", ELASTICFLOW_KINDS, ELASTICFLOW_ROWS),
    "generated": Sample(
        "elasticflow",
        {
            "job_id": "id",
            "submit_time": "time",
            "iteration": "count",
            "model_name": "model",
            "ddl": "deadline",
            "batch_size": "batch",
            "num_gpu": "count",
            "duration": "duration",
            "best_effort": "flag",
        },
        ("first,100,50,bert,260,64,4,100,1", "second,200,7,vgg16,300,256,1,30,0"),
    ),
    "itp raw": Sample(
        "itp",
        {"job_id": "id", "submission_time": "time", "duration": "long", "num_gpu": "count"},
        ("first,100,600,1", "second,200,600,8"),
    ),
    "itp with models": Sample(
        "itp",
        {"row" if name == "job_id" else name: kind for name, kind in ELASTICFLOW_KINDS.items()},
        ELASTICFLOW_ROWS,
    ),
    "philly": Sample(
        "philly",
        {"timestamp": "moment", "duration": "long", "num_gpus": "count", "cluster": "any"},
        ("2017-10-03 00:00:30,60,1,a", "2017-10-03 00:01:30,60,2,a"),
    ),
    "helios": Sample(
        "helios",
        {"job_id": "id", "user": "any", "gpu_num": "gpus", "submit_time": "moment"}
        | {"duration": "time"},
        ("first,u,1,2020-04-01 00:00:00,60", "second,u,8,2020-04-01 00:01:00,60"),
    ),
    "pollux": Sample(
        "pollux",
        {"name": "id", "time": "time", "application": "model"}
        | {"num_replicas": "count", "batch_size": "batch"},
        ("first,100,cifar10,2,128", "second,200,cifar10,1,256"),
    ),
    "csv": Sample(
        "csv",
        {
            "job_id": "id",
            "submitted_at_seconds": "time",
            "model": "model",
            "global_batch": "batch",
            "iterations": "count",
            "deadline_seconds": "deadline",
            "requested_workers": "count",
            "duration_seconds": "duration",
        },
        ("first,100,bert,64,50,260,4,100", "second,200,vgg16,256,7,300,1,30"),
    ),
}

OPTIONAL = {"deadline_seconds", "requested_workers", "duration_seconds"}
NOT_NEEDED = OPTIONAL | {"cluster", "user"}


def wrong_cells() -> Iterator[tuple[str, str, str]]:
    for name, sample in SAMPLES.items():
        for column, kind in sample.kinds.items():
            for wrong in WRONG[kind]:
                if not (wrong == "" and column in OPTIONAL):
                    yield name, column, wrong


CELLS = list(wrong_cells())


@pytest.fixture(scope="module")
def books(curves: CurveBook, pollux_models: Path) -> dict[str, CurveBook]:
    return dict.fromkeys(SAMPLES, curves) | {"pollux": read_profiles(pollux_models)}


Refused = Callable[..., WorkloadError]


@pytest.fixture
def refused(books: dict[str, CurveBook], pollux_models: Path, tmp_path: Path) -> Refused:
    """Read a wrong trace and return the error, with its common part checked."""

    def read(name: str, content: bytes | str) -> WorkloadError:
        path = tmp_path / "wrong.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(WorkloadError) as caught:
            read_trace(
                path,
                SAMPLES[name].trace_format,
                curves=books[name],
                pollux_models=pollux_models,
            )
        check(caught.value, path)
        return caught.value

    return read


def check(error: WorkloadError, path: Path) -> None:
    assert error.file == str(path)
    assert str(error).startswith(str(path))
    assert ";" in error.message, "the error must say what to do"
    assert len(str(error)) < 1_000


def test_the_corpus_is_large() -> None:
    assert len(CELLS) + len(HAND_WRITTEN) + len(PROFILES) + len(POLLUX_FILES) > 600


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_valid(
    name: str, books: dict[str, CurveBook], pollux_models: Path, tmp_path: Path
) -> None:
    path = tmp_path / "right.csv"
    path.write_text(SAMPLES[name].text())
    trace = read_trace(
        path, SAMPLES[name].trace_format, curves=books[name], pollux_models=pollux_models
    )
    assert len(trace.jobs) == 2


@pytest.mark.parametrize(("name", "column", "wrong"), CELLS, ids=range(len(CELLS)))
def test_a_wrong_cell(name: str, column: str, wrong: str, refused: Refused) -> None:
    error = refused(name, SAMPLES[name].text((column, wrong)))
    assert (error.line, error.field) == (3, column)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        (name, column)
        for name, sample in SAMPLES.items()
        for column in sample.kinds
        if column not in NOT_NEEDED and (name, column) != ("itp raw", "job_id")
    ],
)
def test_a_missing_column(name: str, column: str, refused: Refused) -> None:
    text = SAMPLES[name].text()
    renamed = refused(name, text.replace(column, f"{column}_of_another_kind", 1))
    assert renamed.line == 1
    assert renamed.field is not None
    # A variant is told by one of its columns: without it, another one's column is missing.
    assert renamed.field not in text.splitlines()[0].split(",") or renamed.field == column


SOME = SAMPLES["itp raw"].text()

HAND_WRITTEN: dict[str, tuple[bytes | str, int | None, str | None]] = {
    "empty": ("", None, None),
    "only blank lines": ("\n\r\n\n", None, None),
    "only a byte order mark": ("\ufeff", None, None),
    "only a header": ("job_id,submission_time,duration,num_gpu\n", None, None),
    "no header": ("a,100,600,1\nb,200,600,8\n", 1, "submission_time"),
    "another separator": (SOME.replace('"', "").replace(",", ";"), 1, "submission_time"),
    "tabs": (SOME.replace('"', "").replace(",", "\t"), 1, "submission_time"),
    "a column twice": (SOME.replace("job_id", "duration", 1), 1, "duration"),
    "a short row": (SOME + "c,300\n", 4, "duration"),
    "a long row": (SOME + "c,300,600,1,1\n", 4, None),
    "a short row among others": (SOME.replace('"first",', ""), 2, "num_gpu"),
    "a quote left open": (SOME + '"c,300,600,1\n', 4, None),
    "a quote closed early": (SOME + '"c"d,300,600,1\n', 4, None),
    "a field beyond the limit of the csv module": (SOME + "x" * 200_000 + ",1,600,1\n", 4, None),
    "a number beyond the limit": (SOME + "c," + "1" * 200_000 + ",600,1\n", 4, None),
    "a wide header": ("job_id," + "x" * 200_000 + "\n1,2\n", 1, None),
    "many columns": (",".join(f"c{number}" for number in range(5_000)), 1, "submission_time"),
    "no text at all": (bytes(range(256)), 2, None),
    "a stray byte in a later line": (SOME.encode() + b"c,300,600,\xff\n", 4, None),
    "UTF-16": (SOME.encode("utf-16"), 1, None),
    "Latin-1": (SOME.replace("second", "zweit\u00e9").encode("latin-1"), 3, None),
    "zeros": (b"\x00" * 4_096, 1, "submission_time"),
    "a PNG": (b"\x89PNG\r\n\x1a\n" + bytes(100), 1, None),
    "a zip": (b"PK\x03\x04" + b"\x00\xff" * 100, 1, None),
    "gzip of nothing": (gzip.compress(b""), None, None),
    "gzip cut short": (gzip.compress(SOME.encode() * 50)[:-12], None, None),
    "gzip cut in its header": (gzip.compress(SOME.encode())[:5], None, None),
    "gzip with a wrong sum": (gzip.compress(SOME.encode())[:-8] + bytes(8), None, None),
    "gzip with a damaged block": (gzip.compress(SOME.encode())[:10] + b"\xff" * 40, None, None),
    "gzip with rubbish behind": (gzip.compress(SOME.encode()) + b"rubbish", None, None),
    "gzip of a gzip": (gzip.compress(gzip.compress(SOME.encode())), 1, None),
    "only the magic of gzip": (b"\x1f\x8b", None, None),
    "an id twice, far apart": (
        SOME + "".join(f"j{number},1,600,1\n" for number in range(40)) + "j3,1,600,1\n",
        44,
        "job_id",
    ),
    "more iterations than can be counted": (SOME + "c,1,1e12,8\nd,1,1e12,8\n" * 1, 4, "duration"),
}


@pytest.mark.parametrize("title", HAND_WRITTEN)
def test_a_wrong_file(title: str, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    if title.startswith("more iterations"):
        monkeypatch.setattr("resilin.workloads.readers.assignment.MOST_WHOLE", 10**12)
    content, line, field = HAND_WRITTEN[title]
    error = refused("itp raw", content)
    assert (error.line, error.field) == (line, field)


@pytest.mark.parametrize(
    ("name", "row", "field", "words"),
    [
        ("elasticflow", "c,200,7,vgg16,199,256,1,30", "deadline", "before the submission 200"),
        ("elasticflow", "c,200,7,VGG16,300,256,1,30", "model_name", "bert, deepspeech2, gpt2"),
        ("elasticflow", "c,200,7,vgg16,300,32,1,30", "batch_size", "64, 128, 256"),
        ("elasticflow", "first,200,7,vgg16,300,256,1,30", "job_id", "line 2"),
        ("csv", "c,200,bert,64,1,199,1,", "deadline_seconds", "before the submission 200"),
        ("csv", "c,200,bert,64,1,,0,", "requested_workers", "from 1"),
        ("pollux", "c,1,../cifar10,1,128", "application", "cifar10"),
        ("helios", "c,u,1.0,2020-04-01,60", "gpu_num", "digits"),
    ],
)
def test_the_message_helps(name: str, row: str, field: str, words: str, refused: Refused) -> None:
    error = refused(name, SAMPLES[name].text() + row + "\n")
    assert (error.line, error.field) == (4, field)
    assert words in error.message


def test_a_log_of_cpu_jobs_only_has_no_trace(refused: Refused) -> None:
    kinds = ",".join(SAMPLES["helios"].kinds)
    error = refused("helios", f"{kinds}\n1,u,0,2020-04-01,60\n2,u,1,2020-04-01,0\n")
    assert "1 CPU jobs and 1 GPU jobs of 0 seconds" in error.message


def test_counts_below_all_that_is_known(tmp_path: Path) -> None:
    profile = tmp_path / "net.csv"
    profile.write_text("global_batch_size,4,8\n64,1,2\n")
    book = read_profiles(profile)
    for name, text in {
        "itp": "submission_time,duration,num_gpu\n1,600,4\n1,600,3\n",
        "csv": "job_id,submitted_at_seconds,model,global_batch,iterations,requested_workers\n"
        "a,1,net,64,1,4\nb,1,net,64,1,3\n",
    }.items():
        path = tmp_path / "trace.csv"
        path.write_text(text)
        with pytest.raises(WorkloadError) as caught:
            read_trace(path, name, curves=book)
        check(caught.value, path)
        assert caught.value.line == 3
        assert caught.value.field in ("num_gpu", "requested_workers")


def test_a_pollux_workload_needs_the_models_folder(
    tmp_path: Path, pollux_models: Path, books: dict[str, CurveBook]
) -> None:
    path = tmp_path / "w.csv"
    path.write_text(SAMPLES["pollux"].text())
    with pytest.raises(WorkloadError, match="pollux_models") as caught:
        read_trace(path, "pollux", curves=books["pollux"])
    check(caught.value, path)
    partial = tmp_path / "partial"
    shutil.copytree(pollux_models, partial)
    (partial / "cifar10/validation-256.csv").unlink()
    with pytest.raises(WorkloadError, match=r"validation-256\.csv") as caught:
        read_trace(path, "pollux", curves=books["pollux"], pollux_models=partial)
    assert (caught.value.line, caught.value.field) == (3, "batch_size")
    with pytest.raises(WorkloadError, match="cannot be listed"):
        read_trace(path, "pollux", curves=books["pollux"], pollux_models=tmp_path / "nowhere")


@pytest.mark.parametrize("path", ["nowhere/at-all.csv", ".", "", "nul\x00byte.csv", "x" * 5_000])
def test_a_path_that_cannot_be_read(path: str, curves: CurveBook) -> None:
    with pytest.raises(WorkloadError, match="cannot be read") as caught:
        read_trace(path, "itp", curves=curves)
    assert caught.value.file == path


@pytest.mark.parametrize("path", ["nowhere/at-all", "nul\x00byte", "x" * 5_000])
def test_a_profile_path_that_cannot_be_read(path: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_profiles(path)
    assert caught.value.file == path


def test_an_unknown_format_is_refused(tmp_path: Path, curves: CurveBook) -> None:
    with pytest.raises(WorkloadError, match="choose one of elasticflow, itp"):
        read_trace(tmp_path / "x.csv", "slurm", curves=curves)


def test_a_file_beyond_the_size_limit(
    tmp_path: Path, curves: CurveBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_table_module, "MOST_BYTES", 1_000)
    for content in (SOME.encode() * 100, gzip.compress(SOME.encode() * 100)):
        path = tmp_path / "big.csv"
        path.write_bytes(content)
        with pytest.raises(WorkloadError, match="larger than 1000 bytes"):
            read_trace(path, "itp", curves=curves)


FLOW = "global_batch_size,1,2\n64,1,2\n"
PLAIN = "model,global_batch,workers,iterations_per_second,locality\nnet,64,1,2,\n"


def profile_cells() -> Iterator[tuple[str, int | None, str | None]]:
    for wrong in WRONG["rate"]:
        # Nothing, NaN and 0 mean "not measured" in ElasticFlow's layout.
        if wrong:
            yield f'{FLOW}128,"{wrong}",2\n', 3, "1"
        yield f'{PLAIN}net,64,2,"{wrong}",\n', 3, "iterations_per_second"
    for wrong in WRONG["count"]:
        yield f'{FLOW}"{wrong}",1,2\n', 3, "global_batch_size"
        yield f'{PLAIN}net,"{wrong}",2,1,\n', 3, "global_batch"
        yield f'{PLAIN}net,64,"{wrong}",1,\n', 3, "workers"
    for wrong in ("", "x" * 300, "a\x07"):
        yield f'{PLAIN}"{wrong}",64,2,1,\n', 3, "model"
        if wrong:
            yield f'{PLAIN}net,64,2,1,"{wrong}"\n', 3, "locality"


PROFILES: list[tuple[str | bytes, int | None, str | None]] = [
    *profile_cells(),
    ("", None, None),
    ("global_batch_size,1,2\n", None, None),
    ("model,global_batch,workers,iterations_per_second\n", None, None),
    ("batch,1,2\n64,1,2\n", 1, "model"),
    ("model,global_batch,workers\nnet,64,1\n", 1, "iterations_per_second"),
    ("global_batch_size\n64\n", 2, None),
    ("global_batch_size,1,two\n64,1,2\n", 1, "two"),
    ("global_batch_size,1,0\n64,1,2\n", 1, "0"),
    ("global_batch_size,1,-2\n64,1,2\n", 1, "-2"),
    ("global_batch_size,1,2.0\n64,1,2\n", 1, "2.0"),
    ("global_batch_size,1,\n64,1,2\n", 1, ""),
    ("global_batch_size,1," + "9" * 30 + "\n64,1,2\n", 1, "9" * 30),
    ("global_batch_size,1," + "9" * 5_000 + "\n64,1,2\n", 1, "9" * 40),
    ("global_batch_size,1,1\n64,1,2\n", 1, "1"),
    ("global_batch_size,1,01\n64,1,2\n", 2, "01"),
    (f"{FLOW}64,1,2\n", 3, "global_batch_size"),
    (f"{FLOW}128,1\n", 3, "2"),
    (f"{FLOW}128,1,2,3\n", 3, None),
    (f"{FLOW}128,nan,0\n", 3, None),
    (f"{FLOW}128,,\n", 3, None),
    (f'{FLOW}"128,1,2\n', 3, None),
    (f"{PLAIN}net,64,1,3,\n", 3, "workers"),
    (f"{PLAIN}net,64,1,3,packed\n", 3, "workers"),
    (f"{PLAIN}net,128,1,3,spread\n", 3, "locality"),
    (b"\xff\xfe\x00", 1, None),
    (gzip.compress(FLOW.encode())[:-4], None, None),
]


@pytest.mark.parametrize(("content", "line", "field"), PROFILES, ids=range(len(PROFILES)))
def test_a_wrong_profile(
    content: str | bytes, line: int | None, field: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "net.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for place in (tmp_path, path):
        with pytest.raises(WorkloadError) as caught:
            read_profiles(place)
        check(caught.value, path)
        assert (caught.value.line, caught.value.field) == (line, field)


def test_two_files_with_one_model(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(FLOW)
    (tmp_path / "net.csv.gz").write_bytes(gzip.compress(FLOW.encode()))
    with pytest.raises(WorkloadError, match=r"already profiled at .*net\.csv:2") as caught:
        read_profiles(tmp_path)
    assert (caught.value.line, caught.value.field) == (2, "1")


def test_a_folder_without_profiles(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(FLOW)
    with pytest.raises(WorkloadError, match="holds no throughput profile"):
        read_profiles(tmp_path)


PLACEMENTS = "placement,local_bsz,step_time,sync_time\n1,32,0.1,0.01\n"
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,24,32,0.1,0.01\n"


def pollux_cells() -> Iterator[tuple[str, str, int | None, str | None]]:
    for wrong in WRONG["digits"]:
        yield "placements", f'{PLACEMENTS}"{wrong}",32,0.1,0.01\n', 3, "placement"
    for wrong in WRONG["count"]:
        yield "placements", f'{PLACEMENTS}1,"{wrong}",0.1,0.01\n', 3, "local_bsz"
        yield "scalability", f'{SCALABILITY}"{wrong}",24,32,0.1,0\n', 3, "num_nodes"
        yield "scalability", f'{SCALABILITY}6,"{wrong}",32,0.1,0\n', 3, "num_replicas"
        yield "scalability", f'{SCALABILITY}6,24,"{wrong}",0.1,0\n', 3, "local_bsz"
    for wrong in WRONG["step"]:
        yield "placements", f'{PLACEMENTS}1,32,"{wrong}",0\n', 3, "step_time"
        yield "scalability", f'{SCALABILITY}6,24,32,"{wrong}",0\n', 3, "step_time"
    for wrong in (*WRONG["time"], "0.2"):
        yield "placements", f'{PLACEMENTS}1,32,0.1,"{wrong}"\n', 3, "sync_time"
    yield "placements", PLACEMENTS.replace("placement", "where"), 1, "placement"
    yield "placements", "", None, None
    yield "placements", PLACEMENTS.splitlines()[0], None, None
    yield "scalability", SCALABILITY.replace("num_nodes", "nodes"), 1, "num_nodes"
    yield "scalability", "\n", None, None


POLLUX_FILES = list(pollux_cells())


@pytest.mark.parametrize(
    ("stem", "text", "line", "field"), POLLUX_FILES, ids=range(len(POLLUX_FILES))
)
def test_a_wrong_pollux_profile(
    stem: str, text: str, line: int | None, field: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "placements.csv").write_text(PLACEMENTS)
    (folder / "scalability.csv").write_text(SCALABILITY)
    (folder / "validation-64.csv").write_text("iteration\n5\n")
    assert read_profiles(tmp_path).models == ("net",)
    path = folder / f"{stem}.csv"
    path.write_text(text)
    with pytest.raises(WorkloadError) as caught:
        read_profiles(tmp_path)
    check(caught.value, path)
    assert (caught.value.line, caught.value.field) == (line, field)


def test_pollux_folders_that_lack_something(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "placements.csv").write_text(PLACEMENTS)
    with pytest.raises(WorkloadError, match="holds no throughput profile"):
        read_profiles(tmp_path)
    (folder / "validation-64.csv").write_text("iteration\n5\n")
    with pytest.raises(WorkloadError, match="is missing beside the validation") as caught:
        read_profiles(tmp_path)
    assert caught.value.file == str(folder / "scalability.csv")
    (folder / "scalability.csv").write_text(SCALABILITY)
    (folder / "validation-8.csv").write_text("iteration\n5\n")
    with pytest.raises(WorkloadError, match="runs a total batch of 8"):
        read_profiles(tmp_path)


@pytest.mark.parametrize("last", ["", "0", "-5", "1.5", "nan", "9" * 40])
def test_a_wrong_training_length(
    last: str, tmp_path: Path, pollux_models: Path, books: dict[str, CurveBook]
) -> None:
    models = tmp_path / "models"
    shutil.copytree(pollux_models, models)
    wrong = models / "cifar10/validation-256.csv"
    wrong.write_text(f"progress,iteration\n1,10\n2,{last}\n")
    path = tmp_path / "w.csv"
    path.write_text(SAMPLES["pollux"].text())
    with pytest.raises(WorkloadError) as caught:
        read_trace(path, "pollux", curves=books["pollux"], pollux_models=models)
    check(caught.value, wrong)
    assert (caught.value.line, caught.value.field) == (3, "iteration")
