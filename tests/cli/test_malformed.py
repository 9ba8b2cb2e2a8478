"""Bad input of every kind: one line that says what and where, exit code 2, nothing written."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

GOOD_JOB = """\
apiVersion: resilin.dev/v1alpha1
kind: TrainingJob
metadata: {name: nightly}
spec:
  model: resnet50
  globalBatch: 256
  workload: {totalIterations: 50000}
  deadline: 4h
"""

# --- options -------------------------------------------------------------------------------

OPTIONS = {
    "unknown-command": (("simulat",), "simulat"),
    "unknown-option": (("simulate", "--serverz", "3"), "--serverz"),
    "option-without-value": (("simulate", "--servers"), "--servers"),
    "stray-argument": (("simulate", "now"), "now"),
    "policy-unknown": (("simulate", "--policy", "best"), "elasticflow"),
    "policy-in-capitals": (("simulate", "--policy", "EDF"), "EDF"),
    "servers-none": (("simulate", "--servers", "0"), "--servers"),
    "servers-negative": (("simulate", "--servers", "-4"), "--servers"),
    "servers-huge": (("simulate", "--servers", "9" * 30), "--servers"),
    "servers-no-number": (("simulate", "--servers", "many"), "many"),
    "servers-a-fraction": (("simulate", "--servers", "1.5"), "1.5"),
    "gpus-none": (("simulate", "--gpus-per-server", "0"), "--gpus-per-server"),
    "gpus-huge": (("simulate", "--gpus-per-server", "100000"), "--gpus-per-server"),
    "gpus-in-all-huge": (
        ("simulate", "--servers", "10000", "--gpus-per-server", "1024"),
        "1000000",
    ),
    "rack-negative": (("simulate", "--servers-per-rack", "-1"), "--servers-per-rack"),
    "reserve-is-everything": (
        ("simulate", "--servers", "2", "--reserve-servers", "2"),
        "--reserve-servers",
    ),
    "cost-unknown": (("simulate", "--resize-cost", "some"), "modelled"),
    "seed-negative": (("simulate", "--seed", "-1"), "--seed"),
    "seed-a-float": (("simulate", "--seed", "1e3"), "--seed"),
    "jobs-none": (("simulate", "--jobs", "0"), "--jobs"),
    "jobs-huge": (("simulate", "--jobs", "1000000000000"), "--jobs"),
    "noise-negative": (("simulate", "--throughput-noise", "-0.1"), "--throughput-noise"),
    "noise-nan": (("simulate", "--throughput-noise", "nan"), "--throughput-noise"),
    "noise-infinite": (("simulate", "--throughput-noise", "inf"), "--throughput-noise"),
    "failures-too-frequent": (("simulate", "--node-mtbf-hours", "0.1"), "--node-mtbf-hours"),
    "failures-nan": (("simulate", "--node-mtbf-hours", "nan"), "--node-mtbf-hours"),
    "preset-unknown": (("simulate", "--preset", "one-year"), "one-day-128-gpus"),
    "format-unknown": (("simulate", "--trace", "t", "--trace-format", "xml"), "philly"),
    "format-without-trace": (("simulate", "--trace-format", "csv"), "--trace"),
    "preset-with-trace": (("simulate", "--trace", "t", "--preset", "one-day-128-gpus"), "--preset"),
    "models-without-pollux": (
        ("simulate", "--trace", "t", "--trace-format", "csv", "--pollux-models", "m"),
        "pollux",
    ),
    "output-unknown": (("simulate", "-o", "xml"), "table"),
    "compare-policy-unknown": (("compare", "--policy", "edf", "--policy", "lifo"), "lifo"),
    "bound-policy-unknown": (("bound", "--policy", "lifo"), "lifo"),
    "submit-without-file": (("submit", "--dry-run"), "--file"),
    "submit-at-without-log": (("submit", "--dry-run", "-f", "job.yaml", "--at", "3"), "--log"),
    "submit-for-real": (("submit", "-f", "job.yaml"), "--dry-run"),
    "verify-nothing": (("verify",), "LOG"),
    "explain-no-job": (("explain",), "LOG"),
    "explain-without-a-cell": (("explain", "job-17"), "there is no cell"),
    "replay-through-negative": (("replay", "log", "--through", "-1"), "--through"),
    "replay-unknown-service": (("replay", "log", "--service", "nobody"), "allocator"),
    "state-unknown-service": (("state", "log", "--service", "nobody"), "allocator"),
    "state-job-and-service": (("state", "l", "--job", "a", "--service", "executor"), "--job"),
    "moment-empty": (("state", "log", "--at", ""), "--at"),
    "moment-negative": (("state", "log", "--at", "-5"), "--at"),
    "moment-a-word": (("state", "log", "--at", "yesterday"), "yesterday"),
    "moment-without-zone": (("state", "log", "--at", "2026-01-31T18:00:00"), "18:00:00Z"),
    "moment-plus-alone": (("state", "log", "--at", "+"), "--at"),
    "moment-huge": (("state", "log", "--at", f"+{'9' * 40}d"), "--at"),
    "what-if-servers-none": (("what-if", "log", "--servers", "0"), "--servers"),
    "what-if-policy-unknown": (("what-if", "log", "--policy", "lifo"), "lifo"),
}


@pytest.mark.parametrize(("arguments", "says"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options(refuses, tmp_path, monkeypatch, arguments, says) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(GOOD_JOB)
    out = ("--out", "run") if arguments[0] in ("simulate", "compare") else ()
    refuses(*arguments, *out, says=(says,))


# --- traces and profiles -------------------------------------------------------------------

HEADER = "job_id,submitted_at_seconds,model,global_batch,iterations,deadline_seconds"
ROW = "a,0,resnet50,256,1000,9000"

TRACES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("trace.csv", "empty")),
    "header-only": (HEADER.encode(), ("trace.csv",)),
    "other-columns": (b"name,when\nx,1\n", ("trace.csv:1", "job_id")),
    "binary": (b"\x00\xff\xfe" * 50, ("trace.csv:1",)),
    "cut-off-gzip": (gzip.compress(HEADER.encode() * 100)[:60], ("trace.csv", "gzip")),
    "open-quote": (f'{HEADER}\n"a,0,resnet50\n'.encode(), ("trace.csv:2",)),
    "cell-missing": (f"{HEADER}\na,0,resnet50,256,1000\n".encode(), ("trace.csv:2",)),
    "no-iterations": (
        f"{HEADER}\n{ROW}\nb,0,resnet50,256,0,9000\n".encode(),
        ("trace.csv:3", "iterations"),
    ),
    "negative-time": (
        f"{HEADER}\na,-5,resnet50,256,1,9000\n".encode(),
        ("trace.csv:2", "submitted_at_seconds"),
    ),
    "time-nan": (
        f"{HEADER}\na,nan,resnet50,256,1,9000\n".encode(),
        ("trace.csv:2", "submitted_at_seconds"),
    ),
    "deadline-passed": (
        f"{HEADER}\na,50,resnet50,256,1,49\n".encode(),
        ("trace.csv:2", "deadline_seconds"),
    ),
    "unknown-model": (f"{HEADER}\na,0,skynet,256,1,9\n".encode(), ("trace.csv:2", "skynet")),
    "unknown-batch": (f"{HEADER}\na,0,resnet50,7,1,9\n".encode(), ("trace.csv:2", "global_batch")),
    "id-twice": (f"{HEADER}\n{ROW}\n{ROW}\n".encode(), ("trace.csv:3", "job_id")),
    "id-with-a-blank": (
        f"{HEADER}\n{ROW}\nmy job,0,resnet50,256,1,9\n".encode(),
        ("trace.csv:3", "my job"),
    ),
    "id-too-long": (f"{HEADER}\n{'x' * 210},0,resnet50,256,1,9\n".encode(), ("trace.csv:2", "xxx")),
}


@pytest.mark.parametrize(("content", "says"), TRACES.values(), ids=TRACES.keys())
def test_traces(refuses, tmp_path, content, says) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(content)
    refuses("simulate", "--trace", trace, "--out", tmp_path / "run", says=says)


PROFILES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "none": ({}, ("profiles", "no throughput profile")),
    "rate-negative": ({"resnet50.csv": "global_batch_size,1,2\n256,-1,2\n"}, ("resnet50.csv:2",)),
    "rate-a-word": ({"resnet50.csv": "global_batch_size,1,2\n256,fast,2\n"}, ("resnet50.csv:2",)),
    "workers-a-word": ({"resnet50.csv": "global_batch_size,one\n256,1\n"}, ("resnet50.csv:1",)),
    "model-with-a-blank": ({"my model.csv": "global_batch_size,1\n256,1\n"}, ("my model",)),
}


@pytest.mark.parametrize(("files", "says"), PROFILES.values(), ids=PROFILES.keys())
def test_profiles(refuses, tmp_path, files, says) -> None:
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    refuses("simulate", "--profiles", folder, "--out", tmp_path / "run", says=says)
    (tmp_path / "job.yaml").write_text(GOOD_JOB)
    refuses(*("submit", "--dry-run", "-f", tmp_path / "job.yaml", "--profiles", folder), says=says)


def test_files_that_are_not_there(refuses, tmp_path) -> None:
    missing = tmp_path / "missing"
    refuses("simulate", "--trace", missing, "--out", tmp_path / "run", says=(str(missing),))
    refuses("simulate", "--profiles", missing, "--out", tmp_path / "run", says=(str(missing),))
    refuses("simulate", "--trace", tmp_path, "--out", tmp_path / "run", says=(str(tmp_path),))
    refuses("submit", "--dry-run", "-f", missing, says=(str(missing),))
    refuses("submit", "--dry-run", "-f", tmp_path, says=(str(tmp_path),))


def test_out_that_is_no_folder(refuses, tmp_path, small) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    refuses("simulate", *small, "--out", file, says=(str(file),))
    refuses("simulate", *small, "--out", file / "run", says=(str(file),))
    refuses("compare", *small, "--out", file, says=(str(file),))


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything"
)
def test_files_that_may_not_be_read(refuses, tmp_path, copied) -> None:
    copied.chmod(0)
    refuses("verify", copied, says=(str(copied),))
    copied.chmod(0o600)
    (tmp_path / "job.yaml").write_text(GOOD_JOB)
    (tmp_path / "job.yaml").chmod(0)
    message = refuses("submit", "--dry-run", "-f", tmp_path / "job.yaml")
    assert "job.yaml" in message
    (tmp_path / "job.yaml").chmod(0o600)


def test_trace_without_a_job_that_can_run(refuses, tmp_path) -> None:
    header = "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration"
    times = "2020-05-01 00:00:00,2020-05-01 00:00:10,2020-05-01 01:00:10,3600"
    file = tmp_path / "helios.csv"
    file.write_text(f"{header},queue\n1,u,0,4,1,COMPLETED,{times},0\n")
    says = (str(file), "no GPU job")
    refuses("simulate", "--trace", file, "--trace-format", "helios", says=says)


# --- logs ----------------------------------------------------------------------------------

Spoil = Callable[[Path], None]


def _truncated(keep: float) -> Spoil:
    def spoil(log: Path) -> None:
        content = log.read_bytes()
        log.write_bytes(content[: int(len(content) * keep)])

    return spoil


def _payload(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(log: Path) -> None:
        connection = sqlite3.connect(log)
        (payload,) = connection.execute("SELECT payload FROM records WHERE offset = 40").fetchone()
        connection.execute("UPDATE records SET payload = ? WHERE offset = 40", (change(payload),))
        connection.commit()
        connection.close()

    return spoil


def _sql(statement: str) -> Spoil:
    def spoil(log: Path) -> None:
        connection = sqlite3.connect(log)
        connection.execute(statement)
        connection.commit()
        connection.close()

    return spoil


def _overwritten(log: Path) -> None:
    content = bytearray(log.read_bytes())
    middle = slice(len(content) // 4, len(content) // 4 * 3)
    content[middle] = b"\xa5" * (middle.stop - middle.start)
    log.write_bytes(content)


LOGS: dict[str, tuple[Spoil, tuple[str, ...]]] = {
    "missing": (lambda log: log.unlink(), ("no such log file",)),
    "empty": (lambda log: log.write_bytes(b""), ("not a Resilin log",)),
    "text": (lambda log: log.write_text("records\n" * 99), ("not a Resilin log",)),
    "cut-in-half": (_truncated(0.5), ("copy.resilin",)),
    "cut-to-its-head": (_truncated(0.001), ("copy.resilin",)),
    "overwritten": (_overwritten, ("copy.resilin",)),
    "other-layout": (_sql("PRAGMA user_version = 99"), ("not a Resilin log of layout",)),
    "no-table": (_sql("DROP TABLE records"), ("copy.resilin",)),
    "no-record": (_sql("DELETE FROM records"), ("the log is empty",)),
    "record-cut": (_payload(lambda payload: payload[:-9]), ("offset 40",)),
    "record-no-json": (_payload(lambda _: b"\x80\x81"), ("offset 40",)),
    "record-empty": (_payload(lambda _: b""), ("offset 40",)),
    "record-null": (_payload(lambda _: b"null"), ("offset 40",)),
    "record-field-missing": (
        _payload(lambda payload: payload.replace(b'"nature"', b'"nurture"')),
        ("offset 40", "nature"),
    ),
    "record-field-wrong": (
        _payload(lambda payload: payload.replace(b'"cell":"main"', b'"cell":17')),
        ("offset 40", "cell"),
    ),
    "record-events-none": (
        _payload(
            lambda _: (
                b'{"service":"a","cell":"main","epoch":1,"basis":0,'
                b'"nature":"facts","timestamp":0,"events":[]}'
            )
        ),
        ("offset 40", "events"),
    ),
}
QUESTIONS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "LOG"),
    "replay": ("replay", "LOG"),
    "replay-save": ("replay", "LOG", "--save-snapshot"),
    "state": ("state", "LOG"),
    "explain": ("explain", "LOG", "job-00001"),
    "what-if": ("what-if", "LOG", "--policy", "edf"),
    "submit": ("submit", "--dry-run", "-f", "JOB", "--log", "LOG"),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize(("spoil", "says"), LOGS.values(), ids=LOGS.keys())
def test_logs(refuses, copied, job_file, spoil, says, question) -> None:
    spoil(copied)
    names = {"LOG": copied, "JOB": job_file}
    refuses(*(names.get(part, part) for part in question), says=(str(copied), *says))


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_folder_is_no_log(refuses, tmp_path, job_file, question) -> None:
    names = {"LOG": tmp_path, "JOB": job_file}
    arguments = [names.get(part, part) for part in question]
    refuses(*arguments, says=(str(tmp_path), "is a folder", "log.resilin"))


def test_a_record_about_an_unknown_job(refuses, copied, edit) -> None:
    def other_job(record) -> bool:
        for event in record["events"]:
            if event["type"] == "JobAdmitted":
                event["job_id"] = "stranger"
                return True
        return False

    offset = edit(other_job)
    for question in (("explain", copied, "job-00001"), ("state", copied), ("what-if", copied)):
        refuses(*question, says=(str(copied), f"offset {offset}", "stranger"))


def test_places_outside_a_log(refuses, recorded, job_file) -> None:
    for place in ("100000", "0.5s"):
        refuses("state", recorded, "--at", place, says=(str(recorded),))
        refuses(
            *("submit", "--dry-run", "-f", job_file, "--log", recorded, "--at", place),
            says=(str(recorded),),
        )
    refuses("replay", recorded, "--through", "100000", says=(str(recorded), "100000"))
    refuses("state", recorded, "--job", "nobody", says=(str(recorded), "nobody"))


def test_a_log_without_servers_or_jobs(refuses, recorded, job_file, copied) -> None:
    _sql("DELETE FROM records WHERE offset > 12")(copied)
    refuses("what-if", copied, says=(str(copied), "no job"))
    refuses("state", copied, "--at", "+1h", says=(str(copied), "no job"))
    at_first = ("--log", recorded, "--at", "2")
    refuses("submit", "--dry-run", "-f", job_file, *at_first, says=(str(recorded), "no server"))


@pytest.mark.parametrize("option", [("--servers", 4), ("--policy", "edf"), ("--profiles", ".")])
def test_a_log_has_a_shape_already(refuses, recorded, job_file, option) -> None:
    refuses(*("submit", "--dry-run", "-f", job_file, "--log", recorded, *option), says=(option[0],))


# --- job files -----------------------------------------------------------------------------


def changed(old: str, new: str) -> bytes:
    """The good job file with one piece of it changed."""
    assert GOOD_JOB.count(old) == 1
    return GOOD_JOB.replace(old, new).encode()


BOMB = "a: &a [x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)

JOB_FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("no job",)),
    "comment-only": (b"# nothing here\n", ("no job",)),
    "empty-documents": (b"---\n---\n# nothing\n", ("no job",)),
    "scalar": (b"train my model, please\n", (":1:", "str")),
    "list": (b"- a\n- b\n", (":1:", "list")),
    "binary": (bytes(range(256)), ("UTF-8",)),
    "nul": (changed("nightly", "night\0ly"), (":3:",)),
    "latin-1": (changed("nightly", "n\u00e4chtlich").decode().encode("latin-1"), (":3:", "UTF-8")),
    "tab": (changed("  model:", "\tmodel:"), (":5:",)),
    "tab-after-blank": (changed("  globalBatch: 256", "  globalBatch:\n\t256"), (":7:",)),
    "bad-indent": (changed("  globalBatch", "   globalBatch"), (":6:",)),
    "open-bracket": (changed("nightly}", "nightly"), (":4:",)),
    "open-quote": (changed("4h", '"4h'), ("YAML",)),
    "colon-in-value": (changed("resnet50", "resnet50: small"), (":5:",)),
    "python-object": (
        changed("resnet50", "!!python/object/apply:os.system ['touch pwned']"),
        (":5:", "python/object"),
    ),
    "python-name": (changed("resnet50", "!!python/name:os.system"), (":5:",)),
    "own-tag": (changed("resnet50", "!model resnet50"), (":5:", "!model")),
    "alias": (
        changed("resnet50\n", "&m resnet50\n  tenant: *m\n"),
        (":6:", "*m"),
    ),
    "alias-bomb": (BOMB.encode(), (":2:", "*a")),
    "alias-unknown": (changed("resnet50", "*nowhere"), (":5:", "nowhere")),
    "alias-of-itself": (b"a: &a [*a]\n", (":1:", "*a")),
    "deep": (b"a: " + b"[" * 100_000 + b"]" * 100_000, (":1:", "levels")),
    "deep-json": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", (":1:", "levels")),
    "large": (b"# " + b"x" * (1 << 20), ("1048576 bytes",)),
    "key-twice": (changed("  deadline: 4h", "  deadline: 4h\n  deadline: 5h"), (":9:", "line 8")),
    "key-twice-inside": (
        changed("{totalIterations: 50000}", "{totalIterations: 5, totalIterations: 6}"),
        (":7:", "spec.workload.totalIterations"),
    ),
    "key-a-list": (changed("  deadline: 4h", "  [a, b]: 4h"), (":8:",)),
    "other-api": (changed("v1alpha1", "v9"), (":1:", "apiVersion", "v9")),
    "other-kind": (changed("TrainingJob", "Deployment"), (":2:", "kind", "Deployment")),
    "no-name": (changed("{name: nightly}", "{}"), (":3:", "metadata.name", "missing")),
    "name-with-a-blank": (changed("nightly", "my job"), (":3:", "metadata.name", "my job")),
    "name-a-path": (changed("nightly", "../../etc"), (":3:", "metadata.name")),
    "name-a-number": (changed("nightly", "17"), (":3:", "metadata.name")),
    "name-empty": (changed("nightly", "''"), (":3:", "metadata.name")),
    "name-too-long": (changed("nightly", "n" * 201), (":3:", "metadata.name")),
    "spec-missing": (b"apiVersion: resilin.dev/v1alpha1\nmetadata: {name: a}\n", ("'spec'",)),
    "spec-a-list": (
        b"metadata: {name: a}\nspec: [1, 2]\n",
        (":2:", "'spec'"),
    ),
    "model-missing": (changed("  model: resnet50\n", ""), (":4:", "spec.model", "missing")),
    "batch-none": (changed("256", "0"), (":6:", "spec.globalBatch")),
    "batch-negative": (changed("256", "-256"), (":6:", "spec.globalBatch")),
    "batch-huge": (changed("256", "9" * 40), (":6:", "spec.globalBatch")),
    "batch-a-word": (changed("256", "large"), (":6:", "spec.globalBatch", "large")),
    "batch-a-fraction": (changed("256", "2.5"), (":6:", "spec.globalBatch")),
    "batch-nan": (changed("256", ".nan"), (":6:", "spec.globalBatch")),
    "batch-thousands-of-digits": (changed("256", "9" * 5000), ("digits",)),
    "work-missing": (changed("{totalIterations: 50000}", "{}"), (":7:", "spec.workload")),
    "work-twice": (
        changed("totalIterations: 50000", "totalIterations: 5, totalSamples: 5"),
        (":7:", "exactly one"),
    ),
    "field-unknown": (changed("deadline:", "dedline:"), (":8:", "spec.dedline", "spelling")),
    "field-in-snake-case": (
        changed("  deadline: 4h", "  elastic:\n    min_replica: 2"),
        (":9:", "spec.elastic.min_replica"),
    ),
    "deadline-no-duration": (changed("4h", "soon"), (":8:", "spec.deadline", "soon")),
    "deadline-zero": (changed("4h", "0s"), (":8:", "spec.deadline")),
    "deadline-a-number": (changed("4h", "14400"), (":8:", "spec.deadline")),
    "deadline-sexagesimal": (changed("4h", "4:00:00"), (":8:", "spec.deadline")),
    "deadline-without-zone": (changed("4h", "2026-01-31 18:00:00"), (":8:", "time zone")),
    "deadline-too-long": (changed("4h", "9999999999999d"), (":8:", "too long")),
    "deadline-for-best-effort": (
        changed("4h", "4h\n  deadlinePolicy: BestEffort"),
        (":4:", "'spec'", "BestEffort"),
    ),
    "sizes-reversed": (
        changed("4h", "4h\n  elastic: {minReplicas: 8, maxReplicas: 4}"),
        (":9:", "maxReplicas"),
    ),
    "sizes-not-increasing": (
        changed("4h", "4h\n  elastic:\n    allowedReplicas: [4, 2]"),
        (":9:", "allowedReplicas"),
    ),
    "size-of-none": (
        changed("4h", "4h\n  elastic:\n    allowedReplicas:\n      - 1\n      - 0"),
        (":12:", "spec.elastic.allowedReplicas[1]"),
    ),
    "second-document": (
        GOOD_JOB.encode() + b"---\n" + changed("256", "0"),
        (":15:", "spec.globalBatch"),
    ),
    "second-document-unreadable": (GOOD_JOB.encode() + b"---\n}\n", (":10:",)),
}


@pytest.mark.parametrize(("content", "says"), JOB_FILES.values(), ids=JOB_FILES.keys())
def test_job_files(refuses, tmp_path, content, says) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(content)
    refuses("submit", "--dry-run", "-f", file, says=(str(file), *says))


JSON_FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", (":1:", "JSON")),
    "trailing-comma": (b'{\n "kind": "TrainingJob",\n}', ("JSON",)),
    "single-quotes": (b"{'kind': 'TrainingJob'}", (":1:", "JSON")),
    "key-twice": (b'{\n"kind": "TrainingJob",\n"kind": "TrainingJob"}', (":3:", "line 2")),
    "wrong-field": (
        b'{\n\t"metadata": {"name": "a"},\n\t"spec": {"model": "m",\n\t"globalBatch": "x"}}',
        (":4:", "spec.globalBatch"),
    ),
    "yaml": (GOOD_JOB.encode(), (":1:", "JSON")),
    "thousands-of-digits": (b'{"spec": ' + b"9" * 5000 + b"}", ("digits",)),
}


@pytest.mark.parametrize(("content", "says"), JSON_FILES.values(), ids=JSON_FILES.keys())
def test_json_job_files(refuses, tmp_path, content, says) -> None:
    file = tmp_path / "job.json"
    file.write_bytes(content)
    refuses("submit", "--dry-run", "-f", file, says=(str(file), *says))


def test_bad_standard_input(refuses) -> None:
    refuses(*("submit", "--dry-run", "-f", "-"), stdin=b"a: [", says=("standard input:",))


def test_the_corpus_is_large_enough() -> None:
    sizes = [len(OPTIONS), len(TRACES), len(PROFILES), len(LOGS) * len(QUESTIONS)]
    assert sum(sizes) + len(JOB_FILES) + len(JSON_FILES) >= 80
