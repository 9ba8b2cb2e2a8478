"""The example job files: each is read, admitted by an empty cell, and shown in the documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from resilin.cli.job_file import read_jobs
from resilin.cli.main import cli
from resilin.contracts.job_specification import (
    DeadlinePolicy,
    Elastic,
    JobSpecification,
    Metadata,
    TrainingSpecification,
    WorkerSpecification,
)

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.yaml"))


def example(name: str) -> JobSpecification:
    (job,) = read_jobs(DOCS / "examples" / f"{name}.yaml")
    return job


def asked(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Ask an empty cell of the default shape."""
    given = ["submit", "--dry-run", "-o", "json", *(str(argument) for argument in arguments)]
    result = CliRunner().invoke(cli, given)
    return result.exit_code, json.loads(result.stdout)


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        *("minimal", "urgent", "soft", "best-effort", "elastic"),
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_empty_cell_admits_it(path: Path) -> None:
    assert len(read_jobs(path)) == 1
    code, answer = asked("-f", path)
    assert (code, answer["admitted"]) == (0, True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_documents_show_it(path: Path) -> None:
    text = (DOCS / "job-specification.md").read_text(encoding="utf-8")
    assert f"(examples/{path.name})" in text


def test_each_has_the_policy_that_it_is_there_to_show() -> None:
    assert example("minimal").spec.binding is DeadlinePolicy.GUARANTEED
    assert example("urgent").spec.binding is DeadlinePolicy.GUARANTEED
    assert example("soft").spec.binding is DeadlinePolicy.SOFT
    assert example("best-effort").spec.binding is DeadlinePolicy.BEST_EFFORT


def test_one_shows_every_field() -> None:
    job = example("elastic")
    shown: list[tuple[Any, Any]] = [
        (job, JobSpecification),
        (job.metadata, Metadata),
        (job.spec, TrainingSpecification),
        (job.spec.elastic, Elastic),
        (job.spec.worker, WorkerSpecification),
    ]
    for part, model in shown:
        assert part.model_fields_set == set(model.model_fields)


def test_a_busy_cell_refuses_the_urgent_one_and_says_what_it_would_accept(tmp_path: Path) -> None:
    text = (DOCS / "examples" / "urgent.yaml").read_text(encoding="utf-8")
    twice = tmp_path / "twice.yaml"
    twice.write_text(f"{text}---\n{text}", encoding="utf-8")
    code, answer = asked("-f", twice, "--servers", 8)
    first, second = answer["jobs"]
    assert (code, first["admitted"], second["admitted"]) == (1, True, False)
    assert second["reason"] == "CapacityPromised"
    offer = second["counter_offer"]
    assert offer["minimum_workers"] == 64
    accepted = text.replace("deadline: 1h", f"deadline: {offer['earliest_deadline']}")
    assert accepted != text
    twice.write_text(f"{text}---\n{accepted}", encoding="utf-8")
    assert asked("-f", twice, "--servers", 8)[0] == 0
