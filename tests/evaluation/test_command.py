"""`resilin evaluate`: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Read before the fixture hides it from the command.
TRACES = os.environ.get("RESILIN_TRACES")


def test_lists_what_there_is(resilin) -> None:
    answer = resilin("evaluate", "--list", "-o", "json").json
    by_name = {each["name"]: each for each in answer["scenarios"]}
    assert by_name["smoke"]["needs_traces"] is False
    assert by_name["elasticflow-figure-6"]["item"] == "Figure 6"
    assert by_name["elasticflow-figure-6"]["needs_traces"] is True
    assert all(each["runs"] > 0 for each in answer["scenarios"])
    table = resilin("evaluate", "--list").stdout
    assert "elasticflow-figure-10" in table


def test_runs_a_file_of_ones_own_and_goes_on(resilin, write, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = resilin("evaluate", write(), "--out", out, "--jobs", 2, "-o", "json")
    assert first.code == 0
    answer = first.json
    assert (answer["runs"], answer["reused"], answer["failed"]) == (4, 0, 0)
    assert answer["cpu_seconds"] > 0
    assert [each["published"] for each in answer["scenarios"][0]["beside"]] == ["7.65x", "7.65x"]
    assert {file.name for file in (out / "tiny").iterdir() if file.suffix != ".png"} == {
        *("results.csv", "costs.csv", "published.csv", "tables.md"),
    }
    written = (out / "tiny" / "results.csv").read_bytes()
    again = resilin("evaluate", write(), "--out", out)
    assert again.code == 0
    assert "4 runs, 4 of them were there" in again.stdout
    assert "7.65x" in again.stdout
    assert (out / "tiny" / "results.csv").read_bytes() == written
    assert (out / "evaluation.html").read_text().startswith("<!DOCTYPE html>")


def test_a_run_that_fails_is_reported_and_the_rest_goes_on(resilin, write, tmp_path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "bad.csv").write_text("nothing\n1\n")
    good = {
        "name": "good",
        "source": {"generated": {"jobs": 3, "meanInterarrivalSeconds": 9, "clusterGpus": 8}},
        "clusters": [{"servers": 1, "gpusPerServer": 8}],
    }
    bad = {**good, "name": "bad", "source": {"file": "bad.csv", "format": "csv"}}
    path = write(spec__workloads=[bad, good], spec__resizeCosts=["none"])
    outcome = resilin(
        "evaluate", path, "--out", tmp_path / "out", "--traces", tmp_path / "traces", "-o", "json"
    )
    assert outcome.code == 1
    assert (outcome.json["runs"], outcome.json["failed"]) == (2, 2)
    assert "failed: elasticflow on bad, 1 x 8 GPUs" in outcome.stderr
    assert "bad.csv" in outcome.json["scenarios"][0]["failures"][0]["message"]


def test_only_some_policies_of_a_grid_can_be_run(resilin, write, tmp_path: Path) -> None:
    answer = resilin(
        "evaluate", write(), "--policy", "edf", "--out", tmp_path / "out", "-o", "json"
    ).json
    assert (answer["runs"], answer["scenarios"][0]["beside"]) == (2, [])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--list"),
        (("smoke", "--all"), "--all"),
        (("--list", "smoke"), "--list"),
        (("figure-7",), "no scenario is called 'figure-7'"),
        (("nothing.yaml",), "nothing.yaml: cannot be read"),
        (("policies-195job",), "'spec.workloads.0.source'"),
        (("policies-195job", "--traces", "nowhere"), "there is no nowhere"),
        (("smoke", "--policy", "sjf"), "none of these scenarios runs sjf"),
    ],
)
def test_refuses_what_makes_no_sense(resilin, arguments, says, tmp_path: Path) -> None:
    outcome = resilin("evaluate", *arguments, "--out", tmp_path / "out")
    assert outcome.code == 2
    assert says in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_refuses_a_malformed_file_and_a_policy_that_is_not_there(resilin, write) -> None:
    outcome = resilin("evaluate", write(spec__policies="all"))
    assert (outcome.code, "'spec.policies'" in outcome.stderr) == (2, True)
    outcome = resilin("evaluate", write(spec__policies=["elasticflow", "edf", "oracle"]))
    assert outcome.code == 2
    assert "no policy is called 'oracle'" in outcome.stderr


@pytest.mark.skipif(TRACES is None, reason="RESILIN_TRACES names no folder of traces")
def test_the_headline_is_regenerated(resilin, tmp_path: Path) -> None:
    answer = resilin(
        *("evaluate", "policies-195job", "--traces", TRACES, "--out", tmp_path / "out"),
        *("--policy", "elasticflow", "--policy", "edf-uncapped", "-o", "json"),
    ).json
    beside = {
        (each["what"], each["resize_cost"]): each["ours"]
        for each in answer["scenarios"][0]["beside"]
    }
    assert beside["Deadlines met: elasticflow", "none"] >= 176
    assert beside["Deadlines met: elasticflow over edf-uncapped", "none"] > 7
