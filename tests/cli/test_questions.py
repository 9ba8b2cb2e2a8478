"""Questions to a log: `verify`, `replay`, `state`, `explain`, `what-if`."""

from __future__ import annotations

import sqlite3

import pytest

SERVICES = {
    "admission",
    "allocator",
    "placement",
    "loan-manager",
    "metric-collector",
    "stability-detector",
    "executor",
}


# --- verify --------------------------------------------------------------------------------


def test_a_run_is_sound(resilin, recorded) -> None:
    outcome = resilin("verify", recorded, "-o", "json")
    assert outcome.code == 0
    answer = outcome.json
    assert answer["sound"] is True
    assert answer["findings"] == []
    assert answer["decisions_recomputed"] > 50
    assert "is sound" in resilin("verify", recorded).stdout


def test_an_edited_allocation_is_found(resilin, copied, edit) -> None:
    def one_worker_more(record) -> bool:
        for event in record["events"]:
            if event["type"] == "AllocationPlanned" and event["changes"]:
                event["changes"][0]["allocation"]["components"] = [
                    {"role": "worker", "count": 3, "gpus_per_member": 1}
                ]
                return True
        return False

    offset = edit(one_worker_more)
    outcome = resilin("verify", copied, "-o", "json")
    assert outcome.code == 1
    assert outcome.json["sound"] is False
    assert outcome.json["findings"][0].startswith(f"offset {offset}: invariant 8: allocator")
    table = resilin("verify", copied)
    assert table.code == 1
    assert "NOT sound" in table.stdout
    assert f"offset {offset}: invariant 8" in table.stdout


def test_a_taken_out_record_is_found(resilin, copied) -> None:
    connection = sqlite3.connect(copied)
    connection.execute("DELETE FROM records WHERE CAST(payload AS TEXT) LIKE '%JobAdmitted%'")
    connection.commit()
    connection.close()
    outcome = resilin("verify", copied, "--findings", 1, "-o", "json")
    assert outcome.code == 1
    assert len(outcome.json["findings"]) == 1
    assert outcome.json["more_findings"] > 0


def test_a_policy_that_no_core_knows_is_found(resilin, copied, edit) -> None:
    def other_policy(record) -> bool:
        for event in record["events"]:
            if event["type"] == "CellConfigured":
                event["configuration"]["virtualClusters"][0]["policy"] = "nonsense"
                return True
        return False

    edit(other_policy)
    assert resilin("verify", copied).code == 1


# --- replay --------------------------------------------------------------------------------


def test_replay_folds_every_service(resilin, recorded) -> None:
    answer = resilin("replay", recorded, "-o", "json").json
    assert {fold["service"] for fold in answer["services"]} == SERVICES
    for fold in answer["services"]:
        assert fold["records"] == fold["through_offset"] + 1
        assert fold["seconds"] >= 0
        assert len(fold["state_hash"]) == 32
    assert "state hash" in resilin("replay", recorded).stdout


def test_a_snapshot_saves_folding_and_changes_nothing(resilin, copied) -> None:
    whole = resilin("replay", copied, "-o", "json").json["services"]
    halfway = whole[0]["records"] // 2
    saved = resilin("replay", copied, "--save-snapshot", "--through", halfway, "-o", "json")
    assert saved.code == 0
    resumed = resilin("replay", copied, "--snapshot", "-o", "json").json["services"]
    assert [fold["from_offset"] for fold in resumed] == [halfway + 1] * len(SERVICES)
    hashes = [fold["state_hash"] for fold in resumed]
    assert hashes == [fold["state_hash"] for fold in whole]
    assert hashes != [fold["state_hash"] for fold in saved.json["services"]]
    assert {file.name for file in copied.parent.iterdir()} == {copied.name}


def test_snapshots_of_no_use_are_passed_over(resilin, copied) -> None:
    whole = resilin("replay", copied, "--service", "allocator", "-o", "json").json["services"]
    none = resilin("replay", copied, "--service", "allocator", "--snapshot", "-o", "json")
    assert "no snapshot" in none.stderr
    resilin("replay", copied, "--save-snapshot")
    early = resilin("replay", copied, "--snapshot", "--through", 5, "-o", "json")
    assert "later offset" in early.stderr
    assert early.json["services"][0]["records"] == 6
    connection = sqlite3.connect(copied)
    connection.execute("UPDATE snapshots SET payload = x'00'")
    connection.commit()
    connection.close()
    damaged = resilin(*("replay", copied, "--service", "allocator", "--snapshot", "-o", "json"))
    assert "allocator: the snapshot is no JSON" in damaged.stderr
    assert damaged.json["services"][0]["state_hash"] == whole[0]["state_hash"]


# --- state ---------------------------------------------------------------------------------


def test_state_at_the_end_and_at_an_offset(resilin, recorded) -> None:
    end = resilin("state", recorded, "-o", "json").json
    assert end["jobs"] == []
    assert end["gpus_busy"] == 0
    assert sum(end["jobs_by_outcome"].values()) == 14
    early = resilin("state", recorded, "--at", 60, "-o", "json").json
    assert early["offset"] == 60
    assert early["jobs"]
    assert early["gpus"] == 16
    assert 0 < early["gpus_busy"] <= 16
    table = resilin("state", recorded, "--at", "60")
    assert "(offset 60)" in table.stdout
    assert early["jobs"][0]["job_id"] in table.stdout


def test_state_at_a_time(resilin, recorded) -> None:
    first = resilin("state", recorded, "--at", "+0s", "-o", "json").json
    begins = first["at_seconds"]
    assert sum(first["jobs_by_outcome"].values()) == 1
    later = resilin("state", recorded, "--at", "+1h", "-o", "json").json
    assert later["at_seconds"] == begins + 3600
    same = resilin("state", recorded, "--at", f"{begins + 3600:.0f}s", "-o", "json").json
    assert later == same
    moving = [job for job in later["jobs"] if job["trains"]]
    minute = resilin("state", recorded, "--at", "+1h1s", "-o", "json").json
    if minute["offset"] == later["offset"]:  # nothing was logged in between, yet jobs train on
        done = {job["job_id"]: job["iterations_done"] for job in minute["jobs"]}
        assert all(done[job["job_id"]] > job["iterations_done"] for job in moving)


def test_state_of_a_job_and_of_a_service(resilin, recorded) -> None:
    early = resilin("state", recorded, "--at", 60, "-o", "json").json
    job_id = early["jobs"][0]["job_id"]
    answer = resilin("state", recorded, "--at", 60, "--job", job_id, "-o", "json").json
    assert answer["job"]["job_id"] == job_id
    assert answer["job"]["workers"] == early["jobs"][0]["workers"]
    assert answer["standing"].startswith(f"Job {job_id} ")
    ended = resilin("state", recorded, "--job", job_id, "-o", "json").json
    assert ended["job"]["outcome"] in {"met", "late"}
    assert job_id in resilin("state", recorded, "--at", 60, "--job", job_id).stdout
    service = resilin("state", recorded, "--service", "admission", "-o", "json").json
    assert len(service["state"]["recent_jobs"]) == 14
    assert "recent_jobs:" in resilin("state", recorded, "--service", "admission").stdout


# --- explain -------------------------------------------------------------------------------


def test_explain_tells_the_story(resilin, recorded) -> None:
    early = resilin("state", recorded, "--at", 60, "-o", "json").json
    job_id = early["jobs"][0]["job_id"]
    answer = resilin("explain", recorded, job_id, "-o", "json").json
    said = [statement["what"] for statement in answer["statements"]]
    assert said[0].startswith("was submitted")
    assert said[-1] == "is done"
    offsets = [statement["offset"] for statement in answer["statements"]]
    assert offsets == sorted(offsets)
    assert answer["standing"].startswith(f"Job {job_id} is done, ")
    table = resilin("explain", recorded, job_id)
    assert table.stdout.startswith(answer["standing"])
    assert "was submitted" in table.stdout


def test_explain_says_why_a_job_was_refused(resilin, recorded) -> None:
    end = resilin("state", recorded, "--service", "admission", "-o", "json").json
    stories = [
        resilin("explain", recorded, job_id, "-o", "json").json
        for job_id in end["state"]["recent_jobs"]
    ]
    refused = [story for story in stories if "was refused" in story["standing"]]
    assert refused
    assert "The earliest deadline it could have had was" in refused[0]["standing"]


def test_a_job_may_be_named_by_the_beginning_of_its_id(resilin, refuses, recorded) -> None:
    whole = resilin("explain", recorded, "job-00013", "-o", "json").json
    assert resilin("explain", recorded, "job-00013"[:-1] + "3", "-o", "json").json == whole
    refuses("explain", recorded, "job-0001", says=("4 jobs", "job-00010"))
    refuses("explain", recorded, "nightly", says=("nightly", "14 jobs"))


# --- what if -------------------------------------------------------------------------------


def test_the_same_circumstances_give_the_same_run(resilin, recorded) -> None:
    answer = resilin("what-if", recorded, "-o", "json").json
    assert answer["recorded"] == answer["what_if"]
    assert answer["jobs_that_fare_otherwise"] == []
    assert "Every job fares as it did." in resilin("what-if", recorded).stdout


def test_another_policy(resilin, recorded, small) -> None:
    answer = resilin("what-if", recorded, "--policy", "fifo", "-o", "json").json
    alone = resilin("simulate", *small, "--policy", "fifo", "-o", "json").json["summary"]
    for name, value in answer["what_if"].items():
        assert value == alone[name]
    changes = answer["jobs_that_fare_otherwise"]
    assert changes
    assert all(change["recorded"]["outcome"] != change["what_if"]["outcome"] for change in changes)
    table = resilin("what-if", recorded, "--policy", "fifo")
    assert "what if (fifo)" in table.stdout
    assert changes[0]["job_id"] in table.stdout


@pytest.mark.parametrize(
    ("what_if", "simulate"),
    [
        (("--servers", "4"), ("--servers", "4")),
        (("--gpus-per-server", "4"), ("--servers", "2", "--gpus-per-server", "4")),
        (("--resize-cost", "none"), ("--servers", "2", "--resize-cost", "none")),
        (("--reserve-servers", "1"), ("--servers", "2", "--reserve-servers", "1")),
    ],
)
def test_other_circumstances(resilin, tmp_path, what_if, simulate) -> None:
    """What if finds what a simulation under those circumstances finds."""
    (tmp_path / "trace.csv").write_text(
        "job_id,submitted_at_seconds,model,global_batch,iterations,deadline_seconds\n"
        + "".join(f"j{n},{n * 100},resnet50,256,40000,{9000 + n * 900}\n" for n in range(8))
    )
    (tmp_path / "profile.csv").write_text(
        "model,global_batch,workers,iterations_per_second\n"
        + "".join(f"resnet50,256,{n},{3 * n**0.8}\n" for n in (1, 2, 4, 8, 16))
    )
    trace = ("--trace", tmp_path / "trace.csv", "--profiles", tmp_path / "profile.csv")
    folder = ("--policy", "elasticflow", "--out", tmp_path / "run")
    assert resilin("compare", *trace, "--servers", 2, *folder).code == 0
    log = tmp_path / "run" / "elasticflow.resilin"
    answer = resilin("what-if", log, *what_if, "-o", "json").json
    summary = resilin("simulate", *trace, *simulate, "-o", "json").json["summary"]
    for name in ("met", "declined", "mean_completion_seconds", "resizes"):
        assert answer["what_if"][name] == summary[name]
    assert answer["what_if"] != answer["recorded"]
