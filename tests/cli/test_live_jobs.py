"""Looking at the jobs of a live cell, and changing them: from list to cancel and deadline."""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from resilin.cli.event_text import ChosenEvents
from resilin.cli.live import LiveCell
from resilin.cli.output import time_text
from resilin.contracts import events as ev
from resilin.contracts.commands import SubmitJob
from resilin.contracts.values import SourcePosition
from resilin.eventlog.sqlite import SqliteLog

from .conftest import JOB


def submit(cell, name: str, *, iterations: int = 50_000, deadline: str | None = "4h") -> None:
    spec = yaml.safe_load(JOB)
    spec["metadata"]["name"] = name
    spec["spec"]["workload"] = {"totalIterations": iterations}
    spec["spec"]["deadline"] = deadline
    spec["spec"] = {key: value for key, value in spec["spec"].items() if value is not None}
    command = {"commandId": f"submit-{name}", "jobId": name, "job": spec}
    cell.send(SubmitJob.model_validate(command))


@pytest.fixture
def busy(cell):
    """A cell with a job that trains."""
    submit(cell, "alpha-1")
    cell.wait_for("GenerationSwitched")
    return cell


@pytest.fixture
def many(recorded, tmp_path):
    """The folder of a cell that stands still in the middle of a run of many jobs."""
    home = tmp_path / "many"
    home.mkdir()
    with (
        SqliteLog(recorded, read_only=True) as whole,
        SqliteLog(home / "log.resilin") as part,
    ):
        for entry in whole.read():
            if entry.offset <= 120:
                part.append(entry.record)
    return home


# --- list ----------------------------------------------------------------------------------


def test_a_list_tells_what_jobs_do_and_how_they_stand(resilin, busy) -> None:
    submit(busy, "beta-1", deadline=None)
    busy.wait_for("GenerationSwitched", 3)
    answer = resilin("list", "--home", busy.home, "-o", "json").json
    alpha, beta = answer["jobs"]
    assert (alpha["job_id"], alpha["status"], alpha["promised"]) == ("alpha-1", "training", True)
    assert alpha["slack_seconds"] == alpha["deadline_seconds"] - alpha["finish_seconds"] > 0
    assert (beta["promised"], beta["deadline_in_seconds"]) == (False, None)
    assert answer["gpus"] == 8
    assert answer["gpus_busy"] == sum(job["workers"] for job in answer["jobs"])
    table = resilin("list", "--home", busy.home).stdout
    assert "8 of 8 GPUs on 2 servers are busy" in table
    assert "training" in table
    assert "resnet50" not in table
    assert "resnet50" in resilin("list", "--home", busy.home, "-o", "wide").stdout
    assert resilin("ps", "--home", busy.home, "-o", "json").json["jobs"][0]["job_id"] == "alpha-1"


def test_ended_jobs_are_listed_when_asked(resilin, many, recorded) -> None:
    live = resilin("list", "--home", many, "-o", "json").json
    everything = resilin("list", "--all", "--home", many, "-o", "json").json
    state = resilin("state", recorded, "--at", 120, "-o", "json").json
    assert [job["job_id"] for job in live["jobs"]] == [job["job_id"] for job in state["jobs"]]
    assert live["ended"] == []
    assert everything["jobs"] == live["jobs"]
    total = sum(state["jobs_by_outcome"].values())
    assert len(everything["jobs"]) + len(everything["ended"]) == total
    assert {job["status"] for job in everything["ended"]} <= {"met", "late", "declined"}
    assert everything["ended"]


def test_a_list_from_a_snapshot_is_the_list_from_the_whole_log(resilin, many) -> None:
    # The cell's clock counts from its trace, so that nothing depends on today's.
    whole = resilin("list", "--home", many, "-o", "json").json
    log = many / "log.resilin"
    assert resilin("replay", log, "--save-snapshot", "--through", 90).code == 0
    assert resilin("list", "--home", many, "-o", "json").json == whole
    with SqliteLog(log) as damaged:
        damaged._connection.execute("UPDATE snapshots SET payload = x'7b7d'")
    assert resilin("list", "--home", many, "-o", "json").json == whole


def test_an_empty_cell_has_no_jobs(resilin, cell) -> None:
    outcome = resilin("list", "--home", cell.home)
    assert outcome.code == 0
    assert "no job is live; --all shows those that have ended" in outcome.stdout


def interrupt_after(monkeypatch, looks: int, meanwhile=lambda: None) -> None:
    """Press Ctrl-C at the so-maniest look at the log."""
    seen = 0

    def sleep(_: float) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            meanwhile()
        if seen == looks:
            raise KeyboardInterrupt

    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr("resilin.cli.live.time", clock)


def test_a_watched_list_shows_every_change_until_interrupted(resilin, cell, monkeypatch) -> None:
    def meanwhile() -> None:
        submit(cell, "newcomer")
        cell.wait_for("GenerationSwitched")

    interrupt_after(monkeypatch, 4, meanwhile)
    outcome = resilin("list", "--watch", "--home", cell.home, "-o", "json")
    assert outcome.code == 130
    lists = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert lists[0]["jobs"] == []
    assert [job["status"] for job in lists[-1]["jobs"]] == ["training"]
    offsets = [one["offset"] for one in lists]
    assert offsets == sorted(set(offsets))


# --- describe, explain ---------------------------------------------------------------------


def test_describe_shows_all_of_a_job(resilin, busy) -> None:
    submit(busy, "beta-1")
    busy.wait_for("GenerationSwitched", 3)
    answer = resilin("describe", "alpha", "--home", busy.home, "-o", "json").json
    assert answer["specification"]["metadata"]["name"] == "alpha-1"
    assert [workers for _, workers in answer["workers"]] == [8, 4]
    assert answer["resizes"] == 1
    job = answer["job"]
    assert (job["phase"], job["status"], job["workers"]) == ("admitted", "training", 4)
    assert job["plan"][-1][1] + job["slack_seconds"] == job["deadline_seconds"]
    reasons = [said["because"] for said in answer["story"]]
    assert any("beta-1 takes them" in reason for reason in reasons)
    table = resilin("describe", "alpha", "--home", busy.home, "--last", 2).stdout
    for part in ("workers over time", "plan, after submission", "deadline slack", "last of its"):
        assert part in table
    assert "was submitted" not in table
    told = resilin("explain", "alpha", "--home", busy.home, "-o", "json").json
    assert told["statements"] == answer["story"]


def test_describe_shows_a_job_that_ended(resilin, many) -> None:
    ended = resilin("list", "--all", "--home", many, "-o", "json").json["ended"][0]
    answer = resilin("describe", ended["job_id"], "--home", many, "-o", "json").json
    assert answer["job"]["status"] == ended["status"]
    assert "plan" not in answer["job"]
    assert resilin("describe", ended["job_id"], "--home", many).code == 0


def test_jobs_are_named_by_the_beginning_of_their_ids(resilin, refuses, many) -> None:
    assert resilin("describe", "job-00013", "--home", many).code in (0, 2)
    for command in ("describe", "watch", "wait", "explain"):
        (message,) = refuses_live(resilin, command, "job-0000", "--home", many)
        assert "10 jobs begin with 'job-0000'" in message
        (message,) = refuses_live(resilin, command, "nobody", "--home", many)
        assert "no job's id begins with 'nobody'" in message


def refuses_live(resilin, *arguments) -> list[str]:
    outcome = resilin(*arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    return outcome.stderr.splitlines()


def test_all_questions_to_a_log_can_be_asked_of_a_live_cell(resilin, many, tmp_path) -> None:
    log = tmp_path / "same.resilin"
    shutil.copy(many / "log.resilin", log)
    for question in ("state", "verify"):
        of_cell = resilin(question, "--home", many, "-o", "json")
        of_log = resilin(question, log, "-o", "json")
        assert of_cell.code == of_log.code
        assert of_cell.json | {"log": ""} == of_log.json | {"log": ""}
        assert of_cell.json["log"] == str(many)
    hashes = [
        [one["state_hash"] for one in resilin("replay", *where, "-o", "json").json["services"]]
        for where in (("--home", many), (log,))
    ]
    assert hashes[0] == hashes[1]
    early = resilin("state", "--home", many, "--at", 60, "-o", "json").json
    assert early["offset"] == 60


# --- watch, wait ---------------------------------------------------------------------------


def test_watch_tells_the_story_to_its_end(resilin, busy) -> None:
    busy.clock.run(20_000)
    outcome = resilin("watch", "alpha", "--home", busy.home)
    assert outcome.code == 0
    lines = outcome.stdout.splitlines()
    assert "was submitted" in lines[0]
    assert lines[-2].endswith("executor: is done")
    assert lines[-1].startswith("Job alpha-1 is done, ")


def test_watch_in_json_is_an_object_a_line(resilin, busy) -> None:
    busy.clock.run(20_000)
    outcome = resilin("watch", "alpha-1", "--home", busy.home, "-o", "json")
    said = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert said[0]["what"].startswith("admission: was submitted")
    assert said[-1]["phase"] == "completed"
    offsets = [one["offset"] for one in said[:-1]]
    assert offsets == sorted(offsets)


def test_the_outcome_is_the_exit_code(resilin, busy) -> None:
    submit(busy, "hopeless", deadline="1m")
    busy.wait_for("JobRejected")
    refused = resilin("watch", "hopeless", "--home", busy.home)
    assert refused.code == 1
    assert "was refused: DeadlineUnreachable" in refused.stdout
    assert resilin("wait", "hopeless", "--home", busy.home).code == 1
    late = resilin("wait", "alpha", "hopeless", "--home", busy.home, "--timeout", 0.1)
    assert late.code == 1
    late = resilin("wait", "alpha", "--home", busy.home, "--timeout", 0.1, "-o", "json")
    assert late.code == 4
    assert late.json["jobs"] == [{"job_id": "alpha-1", "status": None}]
    impatient = resilin("watch", "alpha", "--home", busy.home, "--timeout", 0.1)
    assert impatient.code == 4
    assert "has not ended within 0.1 s" in impatient.stderr
    busy.clock.run(20_000)
    done = resilin("wait", "alpha", "--home", busy.home, "-o", "json")
    assert done.code == 0
    assert done.json["jobs"][0]["phase"] == "completed"


def test_watch_waits_for_a_job_that_was_sent_but_not_taken_in(resilin, stopped) -> None:
    submit(stopped, "early-bird", iterations=600)
    stopped.clock.run(500)
    threading.Timer(0.3, stopped.start).start()
    outcome = resilin("watch", "early", "--home", stopped.home)
    assert outcome.code == 0
    assert "Job early-bird is done" in outcome.stdout


def test_watch_can_be_interrupted(resilin, busy, monkeypatch) -> None:
    interrupt_after(monkeypatch, 2)
    outcome = resilin("watch", "alpha", "--home", busy.home)
    assert outcome.code == 130
    assert "was submitted" in outcome.stdout
    assert outcome.stderr.splitlines()[-1] == "resilin: interrupted"


# --- events --------------------------------------------------------------------------------


def test_events_are_those_of_the_log(resilin, busy) -> None:
    answer = resilin("events", "--home", busy.home, "-n", 1000, "-o", "json").json
    logged = [
        (entry.offset, event.type) for entry in busy.entries() for event in entry.record.events
    ]
    assert [(one["offset"], one["type"]) for one in answer["events"]] == logged
    assert all(one["counts"] for one in answer["events"])
    last = resilin("events", "--home", busy.home, "-n", 3, "-o", "json").json["events"]
    assert last == answer["events"][-3:]
    since = resilin("events", "--home", busy.home, "--since", 5, "-o", "json").json["events"]
    assert [one["offset"] for one in since] == [offset for offset, _ in logged if offset >= 5]
    chosen = resilin("events", "--home", busy.home, "--type", "JobAdmitted", "-o", "json").json
    assert [one["type"] for one in chosen["events"]] == ["JobAdmitted"]
    table = resilin("events", "--home", busy.home).stdout
    assert "GenerationSwitched" in table


def test_the_events_of_a_job_are_also_those_that_move_it(resilin, busy) -> None:
    submit(busy, "beta-1")
    busy.wait_for("GenerationSwitched", 3)
    answer = resilin("events", "--job", "alpha", "--home", busy.home, "-o", "json").json
    types = [one["type"] for one in answer["events"]]
    assert types[:2] == ["JobSubmitted", "JobAdmitted"]
    assert "AllocationPlanned" in types
    assert not any(one["event"].get("job_id") == "beta-1" for one in answer["events"])


def test_events_go_on_as_they_come(resilin, cell, monkeypatch) -> None:
    def meanwhile() -> None:
        submit(cell, "newcomer")
        cell.wait_for("GenerationSwitched")

    interrupt_after(monkeypatch, 3, meanwhile)
    outcome = resilin("events", "-f", "-n", 0, "--home", cell.home, "-o", "json")
    assert outcome.code == 130
    types = [json.loads(line)["type"] for line in outcome.stdout.splitlines()]
    of_the_job = types[types.index("JobSubmitted") :]
    assert of_the_job[:2] == ["JobSubmitted", "JobAdmitted"]
    assert "GenerationSwitched" in of_the_job


def test_a_record_that_does_not_count_is_marked(resilin, many) -> None:
    with SqliteLog(many / "log.resilin") as log:
        repeated = next(e for e in log.read() if e.record.nature == "decision")
        log.append(repeated.record)
    last = resilin("events", "-n", 1, "--home", many, "-o", "json").json["events"]
    assert [one["counts"] for one in last] == [False]
    assert "DOES NOT COUNT" in resilin("events", "-n", 1, "--home", many).stdout


# --- cancel --------------------------------------------------------------------------------


def test_a_job_is_cancelled_once(resilin, busy) -> None:
    done = resilin("cancel", "alpha", "--home", busy.home, "-o", "json")
    assert done.code == 0
    assert done.json["cancelled"] is True
    again = resilin("cancel", "alpha-1", "--home", busy.home, "-o", "json")
    assert again.code == 1
    assert again.json["cancelled"] is False
    assert "alpha-1 is not cancelled: job alpha-1 is not live" in (
        resilin("cancel", "alpha", "--home", busy.home).stdout
    )
    assert resilin("wait", "alpha", "--home", busy.home).code == 1


def test_a_cell_that_is_down_cancels_later(resilin, busy) -> None:
    busy.stop()
    late = resilin("cancel", "alpha", "--home", busy.home, "--timeout", 0.1)
    assert late.code == 4
    assert "alpha-1 has no answer yet: it is kept as message" in late.stdout
    sent = resilin("cancel", "alpha", "--home", busy.home, "--no-wait", "-o", "json")
    assert (sent.code, sent.json["cancelled"]) == (0, None)
    busy.start()
    busy.wait_for("JobCancelled")


# --- deadline ------------------------------------------------------------------------------


def deadline_of(resilin, cell, job_id: str) -> float:
    """Return a job's deadline, in seconds from its submission."""
    job = resilin("describe", job_id, "--home", cell.home, "-o", "json").json["job"]
    return job["deadline_seconds"] - job["submitted_at_seconds"]


def test_a_deadline_is_changed_to_a_duration_from_the_submission_or_a_time(resilin, busy) -> None:
    submitted = busy.clock.now_seconds()
    busy.clock.run(1_000)
    busy.wait_until(lambda _: busy.clock.now_seconds() > submitted + 60)
    busy.clock.run(0)
    done = resilin("deadline", "alpha", "5h30m", "--home", busy.home, "-o", "json")
    assert (done.code, done.json["changed"]) == (0, True)
    assert done.json["counter_offer"]["earliest_deadline"] is None
    assert deadline_of(resilin, busy, "alpha-1") == 5.5 * 3600
    later = done.json["deadline_seconds"] + 1800
    when = time_text(later)
    table = resilin("deadline", "alpha-1", when, "--home", busy.home)
    assert (table.code, table.stderr) == (0, "")
    assert table.stdout == f"the deadline of alpha-1 is changed: it is {when} now\n"
    assert deadline_of(resilin, busy, "alpha-1") == 6 * 3600
    story = resilin("explain", "alpha", "--home", busy.home, "-o", "json").json["statements"]
    told = [said["what"] for said in story if "new deadline" in said["what"]]
    assert told == [f"has a new deadline: {text} after its submission" for text in ("5h30m", "6h")]


def test_a_deadline_that_is_refused_comes_with_one_that_is_accepted(resilin, busy) -> None:
    refused = resilin("deadline", "alpha", "10m", "--home", busy.home, "-o", "json")
    assert (refused.code, refused.json["changed"]) == (1, False)
    assert deadline_of(resilin, busy, "alpha-1") == 4 * 3600
    offer = refused.json["counter_offer"]
    earliest = offer["earliest_deadline"]
    assert f"next: resilin deadline alpha-1 {earliest}" in refused.stderr
    table = resilin("deadline", "alpha", "10m", "--home", busy.home).stdout
    assert "the deadline of alpha-1 is not changed: " in table
    moment = time_text(offer["earliest_deadline_seconds"])
    assert f"earliest deadline   {earliest} after its submission, at {moment}" in table
    accepted = resilin("deadline", "alpha", earliest, "--home", busy.home, "-o", "json")
    assert (accepted.code, accepted.json["changed"]) == (0, True)
    assert accepted.json["deadline_seconds"] == offer["earliest_deadline_seconds"]


def test_a_job_that_has_ended_has_no_other_deadline(resilin, busy) -> None:
    assert resilin("cancel", "alpha", "--home", busy.home).code == 0
    late = resilin("deadline", "alpha", "5h", "--home", busy.home, "-o", "json")
    assert (late.code, late.json["changed"]) == (1, False)
    assert "job alpha-1 is not live" in late.json["message"]
    assert late.json["counter_offer"]["earliest_deadline"] is None


def test_a_job_without_a_deadline_gets_none(resilin, cell) -> None:
    submit(cell, "free-1", deadline=None)
    cell.wait_for("JobAdmitted")
    refused = resilin("deadline", "free", "5h", "--home", cell.home)
    assert refused.code == 1
    assert "free-1 is not changed: the job has no deadline" in refused.stdout
    assert "earliest" not in refused.stdout
    assert "next:" not in refused.stderr


@pytest.mark.parametrize(
    ("job", "when", "says"),
    [
        ("nobody", "5h", ("no job's id begins with 'nobody'; it has 1 jobs",)),
        ("alpha", "soon", ("'WHEN'", "'soon'", "90m or 1d12h", "2026-01-31T18:00:00Z")),
        ("alpha", "2026-01-31T18:00:00", ("'WHEN'", "add Z")),
        ("alpha", "1960-01-31T18:00:00Z", ("'WHEN'", "before 1970", "nearer time")),
        ("alpha", "900000000d", ("'WHEN'", "nearer time")),
    ],
)
def test_what_can_be_no_deadline_is_not_sent(resilin, busy, job, when, says) -> None:
    before = busy.sent()
    (message,) = refuses_live(resilin, "deadline", job, when, "--home", busy.home)
    assert all(part in message for part in says)
    assert busy.sent() == before


def test_a_cell_that_is_down_changes_a_deadline_later(resilin, busy) -> None:
    busy.stop()
    late = resilin("deadline", "alpha", "5h", "--home", busy.home, "--timeout", 0.1)
    assert late.code == 4
    assert "alpha-1 is not changed yet: it is kept as message" in late.stdout
    call = ("deadline", "alpha", "6h", "--home", busy.home, "--no-wait")
    sent = resilin(*call, "-o", "json")
    assert (sent.code, sent.json["changed"]) == (0, None)
    assert "alpha-1 is to be changed: it is kept as message" in resilin(*call).stdout
    busy.start()
    busy.wait_for("DeadlineChanged")


def test_a_duration_waits_for_the_submission_that_it_counts_from(resilin, stopped) -> None:
    submit(stopped, "early-bird")
    before = stopped.sent()
    early = resilin("deadline", "early", "5h", "--home", stopped.home)
    assert (early.code, early.stdout) == (2, "")
    assert "WHEN: early-bird is not taken in yet" in early.stderr
    assert stopped.sent() == before
    when = time_text(stopped.clock.now_seconds() + 5 * 3600)
    threading.Timer(0.3, stopped.start).start()
    assert resilin("deadline", "early", when, "--home", stopped.home).code == 0
    assert deadline_of(resilin, stopped, "early-bird") == 5 * 3600


@pytest.mark.parametrize("agrees", [True, False])
def test_on_a_terminal_a_deadline_is_asked_about_first(resilin, busy, monkeypatch, agrees) -> None:
    asked = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return agrees

    monkeypatch.setattr("resilin.cli.asking.on_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    before = len(busy.sent())
    outcome = resilin("deadline", "alpha", "2100-01-01T00:00:00Z", "--home", busy.home)
    assert asked == ["Ask for 2100-01-01T00:00:00Z as the deadline of alpha-1?"]
    assert outcome.code == (0 if agrees else 1)
    assert len(busy.sent()) == before + agrees
    assert resilin("deadline", "alpha", "9h", "--yes", "--home", busy.home).code == 0
    assert len(asked) == 1


# --- what overtakes a command --------------------------------------------------------------


def append(cell, service: str, nature: str, *events) -> None:
    """Append a record to the log of a cell that does not run, as a service would."""
    entries = cell.entries()
    last = next(entry.record for entry in reversed(entries) if entry.record.service == service)
    with SqliteLog(cell.home / "log.resilin") as log:
        log.append(replace(last, basis=entries[-1].offset, nature=nature, events=events))


def newest(cell) -> dict:
    """Return what ties a fact to the command that was sent last."""
    sent = cell.sent()
    position = SourcePosition(topic="jobs.commands", partition=0, offset=len(sent) - 1)
    return {"source": position, "command_id": json.loads(sent[-1])["commandId"]}


def asked_for(cell, deadline: float, **origin) -> ev.DeadlineChangeRequested:
    return ev.DeadlineChangeRequested(job_id="alpha-1", deadline_seconds=deadline, **origin)


def test_a_newer_request_for_the_same_job_is_the_one_that_is_answered(
    resilin, busy, monkeypatch
) -> None:
    """The answers around it are to others: before it is taken, and after it was replaced."""
    busy.stop()
    other = {"source": SourcePosition(topic="jobs.commands", partition=0, offset=10_000)}

    def meanwhile() -> None:
        others = ev.DeadlineChanged(job_id="alpha-1", deadline_seconds=2e9)
        append(busy, "admission", "facts", asked_for(busy, 2e9, command_id="o-1", **other))
        append(busy, "admission", "decision", others)
        append(
            busy,
            "admission",
            "facts",
            asked_for(busy, 3e9, **newest(busy)),
            asked_for(busy, 4e9, command_id="o-2", **other),
        )
        append(busy, "admission", "decision", others)

    interrupt_after(monkeypatch, 1_000, meanwhile)
    outcome = resilin("deadline", "alpha", "5h", "--home", busy.home, "-o", "json")
    assert (outcome.code, outcome.json["changed"]) == (1, False)
    assert outcome.json["message"] == (f"{time_text(4e9)} was asked for before it was answered")


@pytest.mark.parametrize("end_comes_first", [True, False])
@pytest.mark.parametrize(
    ("call", "fact", "says"),
    [
        (("cancel", "alpha"), "CancellationRequested", "it ended before it could be cancelled"),
        (("deadline", "alpha", "5h"), "DeadlineChangeRequested", "the job ended before that"),
    ],
)
def test_a_job_that_ends_meanwhile_is_the_answer(
    resilin, busy, monkeypatch, call, fact, says, end_comes_first
) -> None:
    """Admission took the command in and decides nothing: the end was on its way."""
    busy.stop()

    def ends() -> None:
        done = ev.JobCompleted(job_id="alpha-1", generation=1, iterations_done=50_000)
        append(busy, "executor", "facts", done)

    def meanwhile() -> None:
        deadline = {"deadline_seconds": 2e9} if call[0] == "deadline" else {}
        if end_comes_first:
            ends()
        taken = getattr(ev, fact)(job_id="alpha-1", **deadline, **newest(busy))
        append(busy, "admission", "facts", taken)
        if not end_comes_first:
            ends()

    interrupt_after(monkeypatch, 1_000, meanwhile)
    outcome = resilin(*call, "--home", busy.home, "-o", "json")
    assert (outcome.code, outcome.json["message"]) == (1, says)


# --- following -----------------------------------------------------------------------------


def test_following_yields_each_entry_once(many) -> None:
    from resilin.cli.live import LiveAddress, open_live

    with open_live(LiveAddress(None, many)) as live:
        assert isinstance(live, LiveCell)
        offsets = [entry.offset for entry in live.follow(timeout_seconds=0) if entry is not None]
        assert offsets == list(range(121))
        fold = live.fold()
        assert fold.offset == 120
        chosen = [logged for entry in live.log.read() for logged in ChosenEvents().of(entry, fold)]
        assert not any(logged.counts for logged in chosen), "folded twice, nothing counts again"
