"""`resilin run`: a class in a Python file becomes a job."""

from __future__ import annotations

import subprocess
import sys

import pytest

from resilin.cli.job_file import read_jobs
from resilin.contracts.commands import ImportCurves, SubmitJob, command_adapter
from resilin.contracts.values import Curve

CODE = """\
from resilin.elastic import ElasticJob

print("the code prints what it likes")


class Counting(ElasticJob):
    def __init__(self):
        super().__init__()
        self.set_hyperparameter(bs=64, lr=0.5, width=8, layers=[1, 2])
        self.term_condition(max_epochs=3, metric="accuracy", at_least=0.9)
        self.set_deadline("90m")

    def init_dataset(self):
        return range(self.hp.get("samples", 1000))


class ByMetric(ElasticJob):
    def __init__(self):
        super().__init__()
        self.set_hyperparameter(bs=64)
        self.term_condition(loss_at_most=0.1)


class NoJob:
    pass


def make():
    return Counting().set_deadline(1800)


def loop():
    from resilin.elastic import context

    ctx = context()
    for batch in ctx.shards(range(ctx.hp.bs)):
        raise AssertionError("it does not train when it is read")


def forgetful():
    return None


def broken():
    raise ValueError("no luck today")


def leaves():
    import os

    os._exit(7)


NUMBER = 3
"""


@pytest.fixture
def code(tmp_path):
    file = tmp_path / "research" / "jobs.py"
    file.parent.mkdir()
    file.write_text(CODE)
    return file


def specification(resilin, *arguments):
    outcome = resilin("run", *arguments, "--dry-run", "-o", "json")
    assert outcome.code == 0, outcome.stderr
    return outcome.json


def problem(resilin, *arguments) -> str:
    outcome = resilin("run", *arguments, "--dry-run")
    assert outcome.code == 2
    assert outcome.stdout == ""
    return outcome.stderr


# --- reading -------------------------------------------------------------------------------


def test_a_class_says_what_it_trains_until_when(resilin, code) -> None:
    job = specification(resilin, f"{code}:Counting")
    assert job["metadata"] == {"name": "counting"}
    spec = job["spec"]
    assert spec["globalBatch"] == 64
    assert spec["workload"] == {"totalIterations": 3 * 16}  # 15 of 64 samples, and one of 40
    assert spec["deadline"] == "5400s"
    assert spec["worker"] == {
        "entrypoint": "jobs.py:Counting",
        "directory": str(code.parent),
        "hyperparameters": {"width": 8},
        "learningRate": 0.5,
    }


def test_options_go_before_what_the_code_says(resilin, code) -> None:
    settings = ("--set", "bs=10", "--set", "samples=95", "--set", "width=9", "--set", "to=it")
    job = specification(
        resilin,
        f"{code}:Counting",
        *settings,
        *("--deadline", "2h30m", "--name", "mine", "--max-workers", 4),
    )
    assert job["metadata"] == {"name": "mine"}
    spec = job["spec"]
    assert (spec["globalBatch"], spec["deadline"]) == (10, "2h30m")
    assert spec["workload"] == {"totalIterations": 3 * 10}
    assert spec["elastic"] == {"maxReplicas": 4}
    assert spec["worker"]["hyperparameters"] == {"width": 9, "samples": 95, "to": "it"}


def test_a_dry_run_prints_a_job_file(resilin, code, tmp_path) -> None:
    outcome = resilin("run", f"{code}:make", "--max-iterations", 20, "--dry-run")
    file = tmp_path / "job.yaml"
    file.write_text(outcome.stdout)
    (job,) = read_jobs(file)
    assert job.spec.deadline == "1800s"
    assert job.spec.total_iterations == 20
    assert job.metadata.name == "jobs"


def test_a_training_loop_is_read_without_training(resilin, code) -> None:
    job = specification(resilin, f"{code}:loop", "--set", "bs=32", "--max-iterations", 500)
    assert job["spec"]["globalBatch"] == 32
    assert job["spec"]["workload"] == {"totalIterations": 500}
    assert "deadline" not in job["spec"]
    assert "--set bs=64" in problem(resilin, f"{code}:loop", "--max-iterations", 500)


def test_throughput_is_known_by_the_code_and_its_settings(resilin, code) -> None:
    def model(*settings: str) -> str:
        return specification(resilin, f"{code}:Counting", *settings)["spec"]["model"]

    first = model()
    assert first.startswith("Counting.")
    assert model("--set", "lr=0.1") == first
    assert model("--set", "width=16") != first
    code.write_text(CODE + "\n# another version\n")
    assert model() != first


def test_an_end_by_a_metric_needs_a_bound(resilin, code) -> None:
    said = problem(resilin, f"{code}:ByMetric")
    assert "term_condition(max_epochs=10)" in said
    assert "--max-iterations" in said
    job = specification(resilin, f"{code}:ByMetric", "--max-iterations", 7)
    assert job["spec"]["workload"] == {"totalIterations": 7}


def test_a_module_is_found_from_the_working_directory(resilin, code, monkeypatch) -> None:
    monkeypatch.chdir(code.parent.parent)
    worker = specification(resilin, "research.jobs:Counting")["spec"]["worker"]
    assert worker["entrypoint"] == "research.jobs:Counting"
    assert worker["directory"] == str(code.parent.parent)


@pytest.mark.parametrize(
    ("entrypoint", "says"),
    [
        ("jobs.py", "my_job.py:MyJob"),
        ("nowhere.py:Counting", "no such file"),
        ("jobs.py:Nobody", "jobs.py defines no Nobody"),
        ("jobs.py:NoJob", "NoJob is no ElasticJob"),
        ("jobs.py:NUMBER", "neither a class nor a function"),
        ("jobs.py:forgetful", "makes no ElasticJob"),
        ("jobs.py:broken", "ValueError: no luck today"),
        ("jobs.py:leaves", "ended the process that read it, with status 7"),
    ],
)
def test_what_is_no_job_is_said_in_a_line(resilin, code, monkeypatch, entrypoint, says) -> None:
    monkeypatch.chdir(code.parent)
    said = problem(resilin, entrypoint)
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("setting", ["width", "=8", "width=[1, 2]", "width=null"])
def test_a_setting_is_a_key_and_a_plain_value(resilin, code, setting) -> None:
    assert "'--set'" in problem(resilin, f"{code}:Counting", "--set", setting)


def test_a_deadline_that_is_none_is_said_so(resilin, code) -> None:
    assert "deadline" in problem(resilin, f"{code}:Counting", "--deadline", "soon")


# --- submitting ----------------------------------------------------------------------------


def learn(cell, resilin, *arguments) -> None:
    """Let the cell know the job's throughput, as if it had been tried out."""
    spec = specification(resilin, *arguments)["spec"]
    curve = Curve(
        model=spec["model"],
        global_batch=spec["globalBatch"],
        iterations_per_second={1: 1.0, 2: 1.9},
    )
    cell.send(ImportCurves(command_id="learn", curves=(curve,)))
    cell.wait_for("CurvesImported", 2)


def test_it_is_submitted_and_answered(resilin, cell, code) -> None:
    learn(cell, resilin, f"{code}:Counting")
    outcome = resilin("run", f"{code}:Counting", "--home", cell.home, "-o", "json")
    assert outcome.code == 0
    (answered,) = outcome.json["jobs"]
    assert answered["promised"] is True
    command = command_adapter.validate_json(cell.sent()[-1])
    assert isinstance(command, SubmitJob)
    assert command.job_id == answered["job_id"]
    assert command.job.spec.worker is not None
    assert command.job.spec.worker.directory == str(code.parent)
    assert f"resilin logs {command.job_id} -f" in outcome.stderr


def test_a_refusal_says_what_would_be_accepted(resilin, cell, code) -> None:
    learn(cell, resilin, f"{code}:Counting")
    arguments = ("run", f"{code}:Counting", "--deadline", "2s", "--home", cell.home)
    outcome = resilin(*arguments, "--follow")
    assert outcome.code == 1
    assert "earliest deadline" in outcome.stdout


def test_it_is_followed_until_it_ends(resilin, cell, code) -> None:
    learn(cell, resilin, f"{code}:Counting")
    cell.clock.run(50.0)
    outcome = resilin("run", f"{code}:Counting", "--home", cell.home, "--follow")
    assert outcome.code == 0
    assert outcome.stdout == ""  # simulated workers print nothing
    assert "admitted, its deadline is promised" in outcome.stderr
    assert "is done" in outcome.stderr


def test_without_a_cell_nothing_is_sent(resilin, code, tmp_path) -> None:
    outcome = resilin("run", f"{code}:Counting", "--home", tmp_path / "nowhere", "--timeout", 1)
    assert outcome.code == 2


# --- for real ------------------------------------------------------------------------------

REAL = """\
import torch
from torch import nn

from resilin.elastic import ElasticJob, Loss


class Line(ElasticJob):
    def __init__(self):
        super().__init__()
        self.set_hyperparameter(bs=16, lr=0.1)
        self.term_condition(max_epochs=10)

    def init_model(self):
        print("a model is made")
        return nn.Linear(1, 1)

    def init_dataset(self):
        inputs = torch.linspace(0, 1, 64)[:, None]
        return inputs, 3 * inputs - 1

    def init_optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.hp.lr)

    def train(self, batch, model):
        inputs, targets = batch
        return Loss(nn.functional.mse_loss(model(inputs), targets), len(inputs))
"""


@pytest.mark.xdist_group("elastic")
def test_a_class_trains_to_its_end(resilin, tmp_path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "line.py").write_text(REAL)
    home = tmp_path / "home"
    program = (sys.executable, "-m", "resilin.cli")
    subprocess.run([*program, "up", "--home", home, "--slots", "1"], check=True)  # noqa: S603 (this project's own)
    try:
        followed = ("--home", home, "--follow", "--timeout", 300)
        ended = resilin("run", f"{tmp_path / 'line.py'}:Line", "--deadline", "1h", *followed)
    finally:
        subprocess.run([*program, "down", "--home", home], check=True)  # noqa: S603 (this project's own)
    assert ended.code == 0, ended.stderr
    assert "a model is made" in ended.stdout
