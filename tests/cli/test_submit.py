"""`resilin submit --dry-run`: what a job would be answered."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from resilin.cli.output import duration_text

JOB = {
    "apiVersion": "resilin.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "nightly"},
    "spec": {
        "model": "resnet50",
        "globalBatch": 256,
        "workload": {"totalIterations": 50000},
        "deadline": "4h",
    },
}


def job(**changes) -> dict:
    """The job with other fields in its spec."""
    return {**JOB, "spec": {**JOB["spec"], **changes}}


def written(folder, *jobs, name="jobs.yaml"):
    """A file of jobs; JSON is YAML."""
    file = folder / name
    file.write_text("\n---\n".join(json.dumps(one, indent=1) for one in jobs) + "\n")
    return file


def test_an_empty_cell_admits(resilin, job_file) -> None:
    outcome = resilin("submit", "--dry-run", "-f", job_file, "-o", "json")
    assert outcome.code == 0
    answer = outcome.json
    assert answer["admitted"] is True
    (one,) = answer["jobs"]
    assert one["promised"] is True
    assert one["starts_in_seconds"] == 0
    assert 0 < one["finishes_in_seconds"] <= 4 * 3600
    assert one["slack_seconds"] == 4 * 3600 - one["finishes_in_seconds"]
    assert one["minimum_satisfactory_share"] >= 1
    assert one["workers_at_once"] >= one["minimum_satisfactory_share"]
    assert answer["workers_change"] == [
        {"job_id": "nightly", "before": 0, "after": one["workers_at_once"]}
    ]
    table = resilin("submit", "--dry-run", "-f", job_file).stdout
    assert "would be admitted, its deadline is promised" in table
    assert "minimum satisfactory share" in table


def test_a_counter_offer_is_accepted(resilin, tmp_path) -> None:
    file = written(tmp_path, job(deadline="60s"))
    outcome = resilin("submit", "--dry-run", "-f", file, "-o", "json")
    assert outcome.code == 1
    (one,) = outcome.json["jobs"]
    assert one["admitted"] is False
    assert one["reason"] == "DeadlineUnreachable"
    offer = one["counter_offer"]["earliest_deadline"]
    table = resilin("submit", "--dry-run", "-f", file)
    assert table.code == 1
    assert "would be refused, DeadlineUnreachable" in table.stdout
    assert offer in table.stdout
    accepted = written(tmp_path, job(deadline=offer))
    assert resilin("submit", "--dry-run", "-f", accepted).code == 0


def test_jobs_of_one_file_are_asked_together(resilin, tmp_path) -> None:
    """Each is promised beside those before it, and two of one name are two jobs."""
    alone = resilin(
        *("submit", "--dry-run", "--servers", 1, "-o", "json"),
        *("-f", written(tmp_path, job(deadline="80m"))),
    ).json["jobs"]
    assert alone[0]["admitted"] is True
    both = resilin(
        *("submit", "--dry-run", "--servers", 1, "-o", "json"),
        *("-f", written(tmp_path, job(deadline="80m"), job(deadline="80m"))),
    )
    assert both.code == 1
    first, second = both.json["jobs"]
    assert first["admitted"] is True
    assert (second["job_id"], second["reason"]) == ("nightly-2", "CapacityPromised")


def test_json_files_and_standard_input(resilin, tmp_path) -> None:
    file = written(tmp_path, JOB, name="job.json")
    text = file.read_text().replace("\n ", "\n\t").replace("50000", "5e4")
    file.write_text(text.replace('"4h"', '"\\u0034h"'))
    from_json = resilin("submit", "--dry-run", "-f", file, "-o", "json")
    assert from_json.code == 0
    piped = resilin("submit", "--dry-run", "-f", "-", "-o", "json", stdin=file.read_bytes())
    assert piped.code == 0
    assert piped.json["jobs"][0]["plan"][0][2] == from_json.json["jobs"][0]["plan"][0][2]


def test_empty_documents_are_passed_over(resilin, job_file) -> None:
    job_file.write_text(f"---\n{job_file.read_text()}---\n")
    answer = resilin("submit", "--dry-run", "-f", job_file, "-o", "json").json
    assert len(answer["jobs"]) == 1


def test_a_busy_cell_says_who_makes_room(resilin, recorded, job_file) -> None:
    changed: dict[str, list] = {}
    for hour in range(1, 12):
        outcome = resilin(
            *("submit", "--dry-run", "-f", job_file, "--log", recorded),
            *("--at", f"+{hour}h", "-o", "json"),
        )
        state = resilin("state", recorded, "--at", f"+{hour}h", "-o", "json").json
        answer = outcome.json
        assert outcome.code == (0 if answer["admitted"] else 1)
        assert answer["offset"] == state["offset"]
        assert answer["at_seconds"] == state["at_seconds"]
        busy = {job["job_id"]: job["wanted_workers"] for job in state["jobs"]}
        for change in answer["workers_change"]:
            assert busy.get(change["job_id"], 0) == change["before"]
            kind = "shrinks" if change["after"] < change["before"] else "grows"
            changed.setdefault(kind, []).append(change["job_id"])
    assert "shrinks" in changed
    assert "nightly" in changed["grows"]


def test_asking_changes_nothing(resilin, copied, job_file) -> None:
    before = copied.read_bytes()
    assert resilin("submit", "--dry-run", "-f", job_file, "--log", copied).code == 0
    assert copied.read_bytes() == before


def test_the_answer_is_what_a_real_submission_gets(resilin, tmp_path) -> None:
    """Ask for the last job of a trace just before it comes, then let it come."""
    rows = [f"j{n},{n * 300},resnet50,256,40000,{7000 + n * 600}" for n in range(9)]
    header = "job_id,submitted_at_seconds,model,global_batch,iterations,deadline_seconds"
    for name, count in (("without", 8), ("with", 9)):
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *rows[:count]]) + "\n")
        options = ("--trace", tmp_path / f"{name}.csv", "--servers", 2)
        folder = ("--policy", "elasticflow", "--out", tmp_path / name)
        assert resilin("compare", *options, *folder).code == 0
    asked = job(workload={"totalIterations": 40000}, deadline=f"{7000 + 8 * 600 - 8 * 300}s")
    asked["metadata"] = {"name": "j8"}
    answer = resilin(
        *("submit", "--dry-run", "-f", written(tmp_path, asked), "-o", "json"),
        *("--log", tmp_path / "without" / "elasticflow.resilin", "--at", f"{8 * 300}s"),
    ).json["jobs"][0]
    story = resilin("explain", tmp_path / "with" / "elasticflow.resilin", "j8", "-o", "json").json
    said = story["statements"][1]["what"]
    if answer["admitted"]:
        after = duration_text(round(answer["finish_seconds"] - 8 * 300))
        assert said == f"was promised: its plan ends {after} after its submission"
    else:
        assert said == f"was refused: {answer['reason']}"


def test_policies_without_promises(resilin, job_file) -> None:
    answer = resilin("submit", "--dry-run", "-f", job_file, "--policy", "edf", "-o", "json").json
    (one,) = answer["jobs"]
    assert (one["admitted"], one["promised"]) == (True, False)
    assert one["finish_seconds"] is None
    table = resilin("submit", "--dry-run", "-f", job_file, "--policy", "edf")
    assert "without a promise" in table.stdout


def test_unknown_model_and_virtual_cluster_are_answers(resilin, tmp_path) -> None:
    file = written(tmp_path, job(model="unheard-of"), job(virtualCluster="mars"))
    outcome = resilin("submit", "--dry-run", "-f", file, "-o", "json")
    assert outcome.code == 1
    reasons = [one["reason"] for one in outcome.json["jobs"]]
    assert reasons == ["CurveUnknown", "NoSuchVirtualCluster"]


def test_a_repeated_submission_id_is_an_answer(resilin, tmp_path) -> None:
    twice = {**JOB, "metadata": {"name": "nightly", "submissionId": "once"}}
    file = written(tmp_path, twice, twice)
    outcome = resilin("submit", "--dry-run", "-f", file, "-o", "json")
    assert outcome.code == 1
    assert [one["admitted"] for one in outcome.json["jobs"]] == [True, False]
    assert "submission once was already taken" in outcome.json["jobs"][1]["message"]


def test_dates_are_read_as_deadlines(resilin, tmp_path) -> None:
    far = tmp_path / "far.yaml"
    lines = [
        "apiVersion: resilin.dev/v1alpha1",
        "kind: TrainingJob",
        "metadata: {name: nightly}",
        "spec: {model: resnet50, globalBatch: 256, workload: {totalSamples: 1000000},",
        "  deadline: 2099-01-31T18:00:00Z}",
    ]
    far.write_text("\n".join(lines) + "\n")
    answer = resilin("submit", "--dry-run", "-f", far, "-o", "json").json
    assert answer["admitted"] is True
    assert (
        answer["jobs"][0]["deadline_seconds"] == datetime(2099, 1, 31, 18, tzinfo=UTC).timestamp()
    )
