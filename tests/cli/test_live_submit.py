"""`resilin submit` to a live cell: answers, repeats, and cells that do not run."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest

from resilin.contracts.commands import SubmitJob, command_adapter

from .conftest import JOB


def written(folder, text=JOB, *, name="job.yaml", deadline="4h"):
    file = folder / name
    file.write_text(text.replace("deadline: 4h", f"deadline: {deadline}"))
    return file


def submitted(cell) -> list[SubmitJob]:
    commands = [command_adapter.validate_json(value) for value in cell.sent()]
    return [command for command in commands if isinstance(command, SubmitJob)]


def test_a_job_is_admitted_with_its_finish_and_slack(resilin, cell, job_file) -> None:
    outcome = resilin("submit", "-f", job_file, "--home", cell.home, "-o", "json")
    assert outcome.code == 0
    assert outcome.json["admitted"] is True
    (job,) = outcome.json["jobs"]
    assert job["promised"] is True
    assert 0 < job["finishes_in_seconds"] <= 4 * 3600
    assert job["slack_seconds"] == job["deadline_seconds"] - job["finish_seconds"]
    (command,) = submitted(cell)
    assert command.job_id == job["job_id"]
    assert command.job_id.startswith("nightly-")
    assert f"next: resilin watch {command.job_id}" in outcome.stderr
    table = resilin("submit", "-f", job_file, "--home", cell.home).stdout
    assert ": admitted, its deadline is promised" in table
    assert "slack" in table


def test_a_refusal_comes_with_a_counter_offer_that_holds(resilin, cell, tmp_path) -> None:
    file = written(tmp_path, deadline="60s")
    outcome = resilin("submit", "-f", file, "--home", cell.home, "-o", "json")
    assert outcome.code == 1
    (job,) = outcome.json["jobs"]
    assert (job["admitted"], job["reason"]) == (False, "DeadlineUnreachable")
    table = resilin("submit", "-f", file, "--home", cell.home)
    assert table.code == 1
    offer = job["counter_offer"]["earliest_deadline"]
    assert ": refused, DeadlineUnreachable" in table.stdout
    assert offer in table.stdout
    accepted = written(tmp_path, deadline=offer)
    assert resilin("submit", "-f", accepted, "--home", cell.home).code == 0


def test_a_dry_run_asks_the_live_cell_and_sends_nothing(resilin, cell, job_file) -> None:
    before = cell.sent()
    asked = resilin("submit", "--dry-run", "-f", job_file, "--home", cell.home, "-o", "json")
    assert asked.code == 0
    assert asked.json["log"] == str(cell.home)
    assert f"asked: the live cell at {cell.home}" in asked.stderr
    assert cell.sent() == before
    answered = resilin("submit", "-f", job_file, "--home", cell.home, "-o", "json").json
    assert asked.json["jobs"][0]["workers_at_once"] == 8
    for figure in ("promised", "minimum_satisfactory_share"):
        assert asked.json["jobs"][0][figure] == answered["jobs"][0][figure]


def test_a_cell_in_the_home_folder_is_asked_unless_a_shape_is_given(
    resilin, cell, job_file, monkeypatch, tmp_path
) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / ".resilin").symlink_to(cell.home)
    monkeypatch.setenv("HOME", str(user))
    asked = resilin("submit", "--dry-run", "-f", job_file, "-o", "json").json
    assert asked["log"] == str(user / ".resilin")
    empty = resilin("submit", "--dry-run", "-f", job_file, "--servers", 2, "-o", "json").json
    assert empty["log"] is None
    assert resilin("list", "-o", "json").json["cell"] == str(user / ".resilin")


def test_an_id_makes_a_repeat_harmless(resilin, cell, job_file, refuses, tmp_path) -> None:
    call = ("submit", "-f", job_file, "--home", cell.home, "--id", "nightly-1", "-o", "json")
    first, again = resilin(*call), resilin(*call)
    assert (first.code, again.code) == (0, 0)
    assert again.json == first.json
    assert "was submitted before; nothing changes" in again.stderr
    assert [command.job_id for command in submitted(cell)] == ["nightly-1"]
    # The same id for another job is no repeat.
    other = tmp_path / "other.yaml"
    other.write_text(JOB.replace("50000", "60000"))
    outcome = resilin("submit", "-f", other, "--home", cell.home, "--id", "nightly-1")
    assert outcome.code == 2
    assert "the id of another job" in outcome.stderr


def test_two_clients_with_one_id_get_one_job_and_one_answer(resilin, stopped, job_file) -> None:
    """Sent twice while nobody looks: the second is known as a repeat when both are taken in."""
    call = ("submit", "-f", job_file, "--home", stopped.home, "--id", "twice", "-o", "json")
    assert resilin(*call, "--timeout", 0).code == 4
    threading.Timer(0.3, stopped.start).start()
    outcome = resilin(*call)
    assert outcome.code == 0
    assert outcome.json["admitted"] is True
    assert "was submitted before" in outcome.stderr
    kinds = Counter(
        event.type
        for entry in stopped.entries()
        for event in entry.record.events
        if event.type in ("JobSubmitted", "CommandRejected")
    )
    assert kinds == {"JobSubmitted": 1, "CommandRejected": 1}


def test_what_is_sent_while_the_cell_is_down_is_kept_and_answered_later(
    resilin, stopped, job_file
) -> None:
    call = ("submit", "-f", job_file, "--home", stopped.home, "--id", "patient")
    late = resilin(*call, "--timeout", 0.1)
    assert late.code == 4
    assert "patient: has no answer yet: it is kept as message" in late.stdout
    assert "next: resilin watch patient" in late.stderr
    sent = resilin("describe", "patient", "--home", stopped.home, "-o", "json")
    assert sent.json["status"] == "sent"
    stopped.start()
    stopped.wait_for("JobAdmitted")
    job = resilin("describe", "patient", "--home", stopped.home, "-o", "json").json["job"]
    assert job["phase"] == "admitted"


def test_without_waiting_it_only_sends(resilin, idle, job_file) -> None:
    outcome = resilin("submit", "-f", job_file, "--home", idle.home, "--no-wait", "-o", "json")
    assert outcome.code == 0
    assert outcome.json["admitted"] is None
    (command,) = submitted(idle)
    assert outcome.json["jobs"][0]["job_id"] == command.job_id
    assert outcome.json["jobs"][0]["position"] == len(idle.sent()) - 1


def test_several_jobs_are_answered_each(resilin, cell, tmp_path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("\n---\n".join([JOB, JOB.replace("4h", "60s"), JOB.replace("4h", "9h")]))
    outcome = resilin("submit", "-f", file, "--home", cell.home, "-o", "json")
    assert outcome.code == 1
    assert [job["admitted"] for job in outcome.json["jobs"]] == [True, False, True]
    assert len({job["job_id"] for job in outcome.json["jobs"]}) == 3


def test_a_command_that_the_cell_cannot_take_says_why(resilin, cell, job_file, tmp_path) -> None:
    first = tmp_path / "first.yaml"
    named = JOB.replace("{name: nightly}", "{name: nightly, submissionId: once}")
    first.write_text(named)
    assert resilin("submit", "-f", first, "--home", cell.home).code == 0
    second = resilin("submit", "-f", first, "--home", cell.home, "-o", "json")
    assert second.code == 1
    assert second.json["jobs"][0]["message"] == "submission once was already taken"
    strange = resilin(
        "submit", "-f", job_file, "--home", cell.home, "--cell", "other", "-o", "json"
    )
    assert strange.code == 1
    assert "cell main, not other" in strange.json["jobs"][0]["message"]


class _Terminal:
    """Makes a call believe that somebody sits there and answers."""

    def __init__(self, monkeypatch, answer: str) -> None:
        import click

        from resilin.cli import asking
        from resilin.cli.commands import submit

        self.asked: list[str] = []

        def confirm(question: str, **_: object) -> bool:
            self.asked.append(question)
            return answer == "y"

        monkeypatch.setattr(asking, "on_terminal", lambda: True)
        monkeypatch.setattr(submit, "on_terminal", lambda: True)
        monkeypatch.setattr(click, "confirm", confirm)


@pytest.mark.parametrize(("answer", "code", "jobs"), [("y", 0, 1), ("n", 1, 0)])
def test_on_a_terminal_it_shows_what_would_be_answered_and_asks(
    resilin, cell, job_file, monkeypatch, answer, code, jobs
) -> None:
    terminal = _Terminal(monkeypatch, answer)
    outcome = resilin("submit", "-f", job_file, "--home", cell.home)
    assert outcome.code == code
    assert terminal.asked == [f"Submit 1 job to {cell.home}?"]
    assert "would be admitted, its deadline is promised" in outcome.stderr
    assert len(submitted(cell)) == jobs
    assert ("nothing was sent" in outcome.stderr) is (answer == "n")
    resilin("submit", "-f", job_file, "--home", cell.home, "--yes")
    assert len(terminal.asked) == 1


def test_answers_are_for_the_command_that_was_sent_not_for_others(resilin, cell, job_file) -> None:
    """Somebody else's commands and answers in between are passed over."""
    others = [
        SubmitJob.model_validate(
            {"commandId": f"o-{n}", "jobId": f"o-{n}", "job": _job(f"other-{n}", "1m")}
        )
        for n in range(20)
    ]
    cell.send(*others)
    outcome = resilin("submit", "-f", job_file, "--home", cell.home, "-o", "json")
    assert outcome.json["jobs"][0]["admitted"] is True
    rest = resilin("list", "--all", "--home", cell.home, "-o", "json").json
    assert Counter(job["status"] for job in rest["ended"]) == {"declined": 20}


def _job(name: str, deadline: str) -> dict:
    return {
        "apiVersion": "resilin.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "model": "resnet50",
            "globalBatch": 256,
            "workload": {"totalIterations": 50000},
            "deadline": deadline,
        },
    }


def test_json_and_standard_input(resilin, cell) -> None:
    data = json.dumps(_job("piped", "4h")).encode()
    outcome = resilin("submit", "-f", "-", "--home", cell.home, "-o", "json", stdin=data)
    assert outcome.json["jobs"][0]["name"] == "piped"
    assert outcome.code == 0


def test_a_job_of_unknown_throughput_is_tried_out_before_its_answer(
    resilin, cell, tmp_path
) -> None:
    file = tmp_path / "new.yaml"
    worker = '  worker: {entrypoint: "train.py:Job", directory: code}\n'
    file.write_text(JOB.replace("resnet50", "brand-new") + worker)
    asked = resilin("submit", "--dry-run", "-f", file, "--home", cell.home, "-o", "json")
    assert (asked.code, asked.json["admitted"]) == (4, None)
    assert asked.json["jobs"][0]["reason"] == "ProfileRequested"
    call = ("submit", "-f", file, "--home", cell.home, "--id", "new")
    waits = resilin(*call, "--timeout", 0.5)
    assert waits.code == 4
    assert "new: has no answer yet: nothing is known of its throughput" in waits.stdout
    # The simulated workers find that it does not run: that is its answer.
    cell.clock.run(1_000)
    answered = resilin(*call, "-o", "json")
    assert answered.code == 1
    assert answered.json["jobs"][0]["reason"] == "ProfileFailed"
