"""`resilin simulate` and `resilin compare`: what they print and what they write."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from resilin.planning.policies.registry import POLICIES

SUMMARY = {
    "jobs",
    "admitted",
    "declined",
    "met",
    "late",
    "resizes",
    "migrations",
    "mean_completion_seconds",
    "makespan_seconds",
    "cluster_efficiency",
    "cpu_seconds",
    "jobs_per_cpu_second",
    "peak_memory_bytes",
}

TRACE = """\
job_id,submitted_at_seconds,model,global_batch,iterations,deadline_seconds
first,0,resnet50,256,20000,40000
second,60,resnet50,256,20000,40000
third,120,resnet50,256,20000,40000
"""
PROFILE = """\
model,global_batch,workers,iterations_per_second
resnet50,256,1,1.0
resnet50,256,2,1.9
resnet50,256,4,3.5
"""


def test_summary_has_the_promised_names(resilin, small) -> None:
    answer = resilin("simulate", *small, "-o", "json").json
    summary = answer["summary"]
    assert set(summary) >= SUMMARY
    assert summary["jobs"] == 14 == summary["admitted"] + summary["declined"]
    assert summary["met"] + summary["late"] == summary["admitted"]
    assert summary["cpu_seconds"] > 0
    assert summary["peak_memory_bytes"] > 2**20
    assert summary["jobs_per_cpu_second"] == pytest.approx(14 / summary["cpu_seconds"])
    assert answer["scenario"]["servers"] == 2


def test_yaml_says_what_json_says(resilin, small) -> None:
    plain = yaml.safe_load(resilin("simulate", *small, "-o", "yaml").stdout)
    answer = resilin("simulate", *small, "-o", "json").json
    for costs in ("cpu_seconds", "jobs_per_cpu_second", "peak_memory_bytes", "wall_seconds"):
        del plain["summary"][costs], answer["summary"][costs]
    assert plain == answer


def test_table_is_for_people(resilin, small) -> None:
    outcome = resilin("simulate", *small)
    assert outcome.code == 0
    assert "Deadlines met" in outcome.stdout
    assert "CPU time of the process" in outcome.stdout


def test_out_holds_exactly_what_is_promised(recorded) -> None:
    names = {file.name for file in recorded.parent.iterdir()}
    assert {name for name in names if not name.endswith(".png")} == {
        "log.resilin",
        "summary.json",
        "report.html",
    }
    summary = json.loads((recorded.parent / "summary.json").read_text())["summary"]
    assert set(summary) >= SUMMARY
    assert (recorded.parent / "report.html").read_text().startswith("<!")


def test_reading_a_log_leaves_nothing_beside_it(resilin, recorded) -> None:
    before = {file.name for file in recorded.parent.iterdir()}
    assert resilin("verify", recorded).code == 0
    assert {file.name for file in recorded.parent.iterdir()} == before


def test_log_and_memory_give_the_same_figures(resilin, recorded, small) -> None:
    written = json.loads((recorded.parent / "summary.json").read_text())["summary"]
    summary = resilin("simulate", *small, "-o", "json").json["summary"]
    for costs in ("cpu_seconds", "jobs_per_cpu_second", "peak_memory_bytes", "wall_seconds"):
        del written[costs], summary[costs]
    assert written == summary


def test_hint_names_commands_that_work(resilin, small, tmp_path) -> None:
    outcome = resilin("simulate", *small, "--out", tmp_path / "my run")
    lines = outcome.stderr.splitlines()[-2:]
    hints = [shlex.split(line.split("resilin ", 1)[1]) for line in lines]
    assert [hint[0] for hint in hints] == ["verify", "explain"]
    for hint in hints:
        assert resilin(*hint).code == 0


def test_out_is_not_overwritten_without_force(resilin, refuses, small, tmp_path) -> None:
    out = tmp_path / "run"
    assert resilin("simulate", *small, "--out", out).code == 0
    refuses("simulate", *small, "--out", out, says=(str(out), "log.resilin", "--force"))
    assert resilin("simulate", *small, "--policy", "fifo", "--out", out, "--force").code == 0
    summary = json.loads((out / "summary.json").read_text())["summary"]
    assert summary["policy"] == "fifo"
    assert not [file for file in out.iterdir() if file.name.startswith(".")]


def test_plots_are_left_out_without_matplotlib(resilin, small, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    outcome = resilin("simulate", *small, "--out", tmp_path / "run", "-o", "json")
    assert outcome.code == 0
    assert "no plots" in outcome.stderr
    assert not list((tmp_path / "run").glob("*.png"))
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_that_breaks_leaves_nothing(resilin, small, tmp_path, monkeypatch) -> None:
    from resilin.simulation.simulation import Simulation

    def broken(self: Simulation) -> None:
        raise ArithmeticError("two and two is five")

    monkeypatch.setattr(Simulation, "run", broken)
    outcome = resilin("simulate", *small, "--out", tmp_path / "new" / "run")
    assert outcome.code == 3
    assert outcome.stderr.startswith("resilin: this is a bug in resilin: ArithmeticError: two and")
    assert outcome.stderr.count("\n") == 1
    assert not (tmp_path / "new" / "run").exists()


def test_own_trace_and_profiles(resilin, tmp_path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "profile.csv").write_text(PROFILE)
    answer = resilin(
        *("simulate", "--trace", tmp_path / "trace.csv", "--profiles", tmp_path / "profile.csv"),
        *("--servers", 1, "--gpus-per-server", 4, "--resize-cost", "none", "-o", "json"),
    ).json
    assert answer["summary"]["jobs"] == 3
    assert answer["summary"]["met"] == 3
    limited = resilin(
        *("simulate", "--trace", tmp_path / "trace.csv", "--profiles", tmp_path / "profile.csv"),
        *("--servers", 1, "--jobs", 2, "-o", "json"),
    ).json
    assert limited["summary"]["jobs"] == 2


def test_left_out_jobs_are_named(resilin, tmp_path) -> None:
    header = "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration"
    times = "2020-05-01 00:00:00,2020-05-01 00:00:10,2020-05-01 01:00:10,3600"
    rows = [f"1,u,1,4,1,COMPLETED,{times},0", f"2,u,0,4,1,COMPLETED,{times},0"]
    file = tmp_path / "helios.csv"
    file.write_text("\n".join([f"{header},queue", *rows]) + "\n")
    outcome = resilin(
        *("simulate", "--trace", file, "--trace-format", "helios", "--servers", 1, "-o", "json")
    )
    assert outcome.code == 0, outcome
    assert outcome.json["scenario"]["left_out"][0]["count"] == 1
    assert "left out of the trace: 1 x" in outcome.stderr


def test_noise_and_failures_are_seeded(resilin, small) -> None:
    world = ("--throughput-noise", "0.1", "--node-mtbf-hours", "6", "--reserve-servers", "1")
    runs = [resilin("simulate", *small, *world, "-o", "json").json["summary"] for _ in range(2)]
    calm = resilin("simulate", *small, "-o", "json").json["summary"]
    assert runs[0]["records"] == runs[1]["records"] != calm["records"]


def test_each_policy_runs(resilin, small) -> None:
    for policy in ("elasticflow", "edf", "fifo"):
        summary = resilin("simulate", *small, "--policy", policy, "-o", "json").json["summary"]
        assert summary["policy"] == policy
        assert summary["declined"] == 0 or policy == "elasticflow"


def test_same_seed_gives_the_same_log_in_every_process(tmp_path, small) -> None:
    payloads = []
    runs = {"1": ("simulate", "log"), "4711": ("compare", "elasticflow")}
    processes = [
        subprocess.Popen(  # noqa: S603 (our own command)
            [
                *(sys.executable, "-m", "resilin.cli", command, *small),
                *("--policy", "elasticflow", "--out", tmp_path / command),
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for seed, (command, _) in runs.items()
    ]
    for (command, name), process in zip(runs.values(), processes, strict=True):
        assert process.wait() == 0
        connection = sqlite3.connect(tmp_path / command / f"{name}.resilin")
        payloads.append(connection.execute("SELECT * FROM records ORDER BY offset").fetchall())
        connection.close()
    assert len(payloads[0]) > 100
    assert payloads[0] == payloads[1]


def test_json_needs_no_table_plot_or_yaml_code(small) -> None:
    script = (
        "import sys\n"
        "from resilin.cli.main import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('rich', 'matplotlib', 'yaml', 'scipy', 'resilin.report.page')"
        " if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(  # noqa: S603 (our own command)
        [sys.executable, "-c", script, "simulate", *small, "-o", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1] == "[]"


# --- compare -------------------------------------------------------------------------------


def test_compare_runs_one_policy_of_each_kind(resilin, small) -> None:
    answer = resilin("compare", *small, "-o", "json").json
    policies = [summary["policy"] for summary in answer["summaries"]]
    assert policies == ["elasticflow", "edf", "fifo"]
    for summary in answer["summaries"]:
        alone = resilin("simulate", *small, "--policy", summary["policy"], "-o", "json").json
        assert summary["met"] == alone["summary"]["met"]
        assert summary["mean_completion_seconds"] == alone["summary"]["mean_completion_seconds"]


def test_compare_table_and_folder(resilin, refuses, small, tmp_path) -> None:
    out = tmp_path / "comparison"
    chosen = ("--policy", "edf", "--policy", "fifo")
    outcome = resilin("compare", *small, *chosen, "--out", out)
    assert outcome.code == 0
    assert "edf" in outcome.stdout
    assert "elasticflow" not in outcome.stdout
    names = {file.name for file in out.iterdir()}
    assert names == {"comparison.html", "edf.resilin", "fifo.resilin"}
    assert resilin("verify", out / "fifo.resilin").code == 0
    refuses("compare", *small, *chosen, "--out", out, says=(str(out), "edf.resilin"))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_can_be_simulated(resilin, small, policy: str) -> None:
    if policy == "chronus":
        pytest.importorskip("scipy")
    summary = resilin("simulate", *small, "--policy", policy, "-o", "json").json["summary"]
    assert summary["policy"] == policy
    assert summary["completed"] + summary["declined"] == summary["jobs"]


def test_a_policy_without_its_solver_says_what_to_install(
    refuses, small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    refuses("simulate", *small, "--policy", "chronus", says=("scipy", "resilin[bound]"))


# --- bound ---------------------------------------------------------------------------------


def test_no_policy_meets_more_than_the_bound(resilin, small) -> None:
    pytest.importorskip("scipy", reason="the bound needs scipy")
    chosen = ("--policy", "elasticflow", "--policy", "edf")
    answer = resilin("bound", *small, *chosen, "-o", "json").json
    assert answer["alone_in_time"] >= answer["bound"] >= answer["met_in_hindsight"] > 0
    assert set(answer["met"]) == {"elasticflow", "edf"}
    assert max(answer["met"].values()) <= answer["bound"]
    assert "under any scheduler" in resilin("bound", *small).stdout


def test_paths_may_be_anywhere(resilin, small, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resilin("simulate", *small, "--out", Path("a") / "b ä").code == 0
    assert resilin("verify", Path("a") / "b ä" / "log.resilin").code == 0


def test_a_published_trace(resilin) -> None:
    folder = os.environ.get("RESILIN_TRACES")
    if not folder:
        pytest.skip("RESILIN_TRACES names no folder of published traces")
    published = Path(folder) / "elasticflow"
    outcome = resilin(
        *("simulate", "--trace", published / "traces" / "195job.csv"),
        *("--trace-format", "elasticflow"),
        *("--profiles", published / "profiles" / "throughputs_A100"),
        *("--servers", 16, "--gpus-per-server", 8, "--policy", "elasticflow"),
        *("--resize-cost", "none", "--seed", 0, "-o", "json"),
    )
    summary = outcome.json["summary"]
    assert summary["jobs"] == 195
    assert summary["late"] == 0
    assert summary["met"] > 150
