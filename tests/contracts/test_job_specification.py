"""The job specification: what is valid, what is filled in, and how errors name their field."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from resilin.contracts import job_specification
from resilin.contracts.job_specification import (
    DeadlinePolicy,
    Elastic,
    JobSpecification,
    parse_deadline,
)

from .strategies import models

MINIMAL: dict[str, Any] = {
    "metadata": {"name": "nightly-resnet"},
    "spec": {"model": "resnet50", "globalBatch": 256, "workload": {"totalIterations": 50_000}},
}


def job_with(path: str, value: object) -> dict[str, Any]:
    content = copy.deepcopy(MINIMAL)
    *folders, name = path.split(".")
    place = content
    for folder in folders:
        place = place.setdefault(folder, {})
    place[name] = value
    return content


def test_the_minimal_file_of_the_documentation_is_valid() -> None:
    documentation = job_specification.__doc__ or ""
    example = documentation.partition("::")[2]
    job = JobSpecification.model_validate(yaml.safe_load(example))
    assert job.spec.deadline == "2h"
    assert job.spec.binding is DeadlinePolicy.GUARANTEED


def test_what_is_not_given_is_filled_in() -> None:
    job = JobSpecification.model_validate(MINIMAL)
    assert job.model_dump(mode="json", exclude_none=True) == {
        "apiVersion": "resilin.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "nightly-resnet", "labels": {}},
        "spec": {
            "model": "resnet50",
            "globalBatch": 256,
            "workload": {"totalIterations": 50_000},
            "elastic": {"minReplicas": 1},
            "virtualCluster": "default",
            "tenant": "default",
            "migratable": True,
            "maxFailures": 3,
        },
    }
    assert job.spec.binding is DeadlinePolicy.BEST_EFFORT
    assert job.spec.deadline_seconds(100.0) is None


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("apiVersion", "resilin.dev/v2", "apiVersion"),
        ("kind", "InferenceService", "kind"),
        ("metadata", None, "metadata"),
        ("metadata.name", None, "metadata.name"),
        ("metadata.name", "", "metadata.name"),
        ("metadata.name", "-starts-with-a-dash", "metadata.name"),
        ("metadata.name", "two words", "metadata.name"),
        ("metadata.name", "r\u00e9seau", "metadata.name"),
        ("metadata.name", "trailing\n", "metadata.name"),
        ("metadata.name", "x" * 201, "metadata.name"),
        ("metadata.labels", {str(n): "" for n in range(65)}, "metadata.labels"),
        ("metadata.labels", {"a": 1}, "metadata.labels.a"),
        ("metadata.submissionId", "", "metadata.submissionId"),
        ("metadata.nickname", "n", "metadata.nickname"),
        ("spec", [], "spec"),
        ("spec.model", 5, "spec.model"),
        ("spec.globalBatch", 0, "spec.globalBatch"),
        ("spec.globalBatch", 10**9 + 1, "spec.globalBatch"),
        ("spec.globalBatch", 2.5, "spec.globalBatch"),
        ("spec.globalBatch", "many", "spec.globalBatch"),
        ("spec.batch", 1, "spec.batch"),
        ("spec.workload", {}, "totalIterations"),
        ("spec.workload", {"totalIterations": 1, "totalSamples": 1}, "totalSamples"),
        ("spec.workload.totalIterations", 0, "spec.workload.totalIterations"),
        ("spec.workload.totalIterations", 10**15 + 1, "spec.workload.totalIterations"),
        ("spec.workload", {"totalSamples": -1}, "spec.workload.totalSamples"),
        ("spec.workload.epochs", 3, "spec.workload.epochs"),
        ("spec.deadline", "soon", "spec.deadline"),
        ("spec.deadline", "0s", "spec.deadline"),
        ("spec.deadline", 7200, "spec.deadline"),
        ("spec.deadline", "9" * 65, "spec.deadline"),
        ("spec.deadline", "2026-01-31T18:00:00", "spec.deadline"),
        ("spec.deadlinePolicy", "Guaranteed", "deadlinePolicy"),
        ("spec.deadlinePolicy", "Soft", "deadlinePolicy"),
        ("spec.deadlinePolicy", "Whenever", "spec.deadlinePolicy"),
        ("spec.elastic.minReplicas", 0, "spec.elastic.minReplicas"),
        ("spec.elastic.minReplicas", 1_000_001, "spec.elastic.minReplicas"),
        ("spec.elastic", {"minReplicas": 4, "maxReplicas": 2}, "maxReplicas"),
        ("spec.elastic", {"minReplicas": 5, "maxReplicas": 7}, "minReplicas"),
        ("spec.elastic.allowedReplicas", [], "spec.elastic.allowedReplicas"),
        ("spec.elastic.allowedReplicas", [2, 2], "allowedReplicas"),
        ("spec.elastic.allowedReplicas", [4, 2], "allowedReplicas"),
        ("spec.elastic.allowedReplicas", [0], "spec.elastic.allowedReplicas.0"),
        ("spec.elastic.allowedReplicas", list(range(1, 66)), "spec.elastic.allowedReplicas"),
        ("spec.elastic", {"minReplicas": 8, "allowedReplicas": [2, 4]}, "allowedReplicas"),
        ("spec.elastic.requestedReplicas", 0, "spec.elastic.requestedReplicas"),
        ("spec.virtualCluster", "", "spec.virtualCluster"),
        ("spec.tenant", "a b", "spec.tenant"),
        ("spec.migratable", "perhaps", "spec.migratable"),
    ],
)
def test_every_error_names_its_field(path: str, value: object, named: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        JobSpecification.model_validate(job_with(path, value))
    error = refusal.value.errors()[0]
    place = ".".join(str(part) for part in error["loc"])
    assert place == named or (named in error["msg"] and path.startswith(place)), (place, error)


@pytest.mark.parametrize("field", ["metadata", "spec", "spec.model", "spec.globalBatch"])
def test_a_missing_field_is_named(field: str) -> None:
    content = copy.deepcopy(MINIMAL)
    *folders, name = field.split(".")
    place = content
    for folder in folders:
        place = place[folder]
    del place[name]
    with pytest.raises(ValidationError, match="Field required") as refusal:
        JobSpecification.model_validate(content)
    assert [".".join(map(str, error["loc"])) for error in refusal.value.errors()] == [field]


def test_a_deadline_goes_with_its_policy() -> None:
    content = job_with("spec.deadline", "1h")
    assert JobSpecification.model_validate(content).spec.binding is DeadlinePolicy.GUARANTEED
    content["spec"]["deadlinePolicy"] = "Soft"
    assert JobSpecification.model_validate(content).spec.binding is DeadlinePolicy.SOFT
    content["spec"]["deadlinePolicy"] = "BestEffort"
    with pytest.raises(ValidationError, match="BestEffort takes no deadline"):
        JobSpecification.model_validate(content)


@pytest.mark.parametrize(
    ("samples", "batch", "iterations"),
    [(1, 256, 1), (256, 256, 1), (257, 256, 2), (10**18, 1, 1e18)],
)
def test_samples_become_whole_iterations(samples: int, batch: int, iterations: float) -> None:
    content = job_with("spec.workload", {"totalSamples": samples})
    content["spec"]["globalBatch"] = batch
    assert JobSpecification.model_validate(content).spec.total_iterations == iterations


# --- deadlines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "deadline"),
    [
        ("90m", timedelta(minutes=90)),
        ("1d12h", timedelta(hours=36)),
        ("1d2h3m4.5s", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("0d1s", timedelta(seconds=1)),
        ("48h", timedelta(days=2)),
        ("2026-01-31T18:00:00Z", datetime(2026, 1, 31, 18, tzinfo=UTC)),
        (
            "2026-01-31T18:00:00.5+01:30",
            datetime(
                2026, 1, 31, 18, 0, 0, 500_000, tzinfo=timezone(timedelta(hours=1, minutes=30))
            ),
        ),
    ],
)
def test_a_deadline_is_a_duration_or_a_time(text: str, deadline: timedelta | datetime) -> None:
    assert parse_deadline(text) == deadline


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither a duration"),
        ("2", "neither a duration"),
        ("2h 30m", "neither a duration"),
        ("30m2h", "neither a duration"),
        ("-2h", "neither a duration"),
        ("1.5h", "neither a duration"),
        ("1e3s", "neither a duration"),
        ("2H", "neither a duration"),
        ("\u0663h", "neither a duration"),
        ("tomorrow", "neither a duration"),
        ("2026-02-30T00:00:00Z", "neither a duration"),
        ("2026-01-31T25:00:00Z", "neither a duration"),
        ("0s", "later than the submission"),
        ("0d0h", "later than the submission"),
        ("0.0000001s", "later than the submission"),
        ("2026-01-31T18:00:00", "no time zone"),
        ("2026-01-31", "no time zone"),
        ("9" * 10 + "d", "too long"),
        ("9" * 400 + "h", "too long"),
    ],
)
def test_anything_else_is_no_deadline(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_deadline(text)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 10**6))
def test_durations_add_up(days: int, hours: int, minutes: int, milliseconds: int) -> None:
    total = timedelta(days=days, hours=hours, minutes=minutes, milliseconds=milliseconds)
    text = f"{days}d{hours}h{minutes}m{milliseconds / 1000:.3f}s"
    if total:
        assert parse_deadline(text) == total
        content = JobSpecification.model_validate(job_with("spec.deadline", text))
        assert content.spec.deadline_seconds(1_000.0) == 1_000.0 + total.total_seconds()
    else:
        with pytest.raises(ValueError, match="later"):
            parse_deadline(text)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.datetimes(), st.integers(-24 * 60 + 1, 24 * 60 - 1))
def test_a_moment_is_read_back(local: datetime, offset_minutes: int) -> None:
    moment = local.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    text = moment.isoformat()
    assert parse_deadline(text) == moment
    content = JobSpecification.model_validate(job_with("spec.deadline", text))
    assert content.spec.deadline_seconds(5.0) == moment.timestamp()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=30) | st.from_regex(r"[0-9TZ:+.dhms-]{1,30}", fullmatch=True))
def test_no_text_raises_another_error(text: str) -> None:
    try:
        deadline = parse_deadline(text)
    except ValueError:
        return
    if isinstance(deadline, timedelta):
        assert deadline > timedelta(0)
    else:
        assert deadline.tzinfo is not None


# --- properties ----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(models(JobSpecification))
def test_a_job_is_read_back_by_its_aliases(job: JobSpecification) -> None:
    text = job.model_dump_json()
    assert not [name for name in json.loads(text)["spec"] if "_" in name]
    assert JobSpecification.model_validate_json(text) == job
    as_yaml = yaml.safe_dump(json.loads(text))
    assert JobSpecification.model_validate(yaml.safe_load(as_yaml)) == job
    assert JobSpecification.model_validate_json(job.model_dump_json(exclude_none=True)) == job


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 40),
    st.none() | st.integers(1, 40),
    st.none() | st.sets(st.integers(1, 40), min_size=1, max_size=4).map(sorted),
)
def test_an_elastic_job_that_is_accepted_can_have_some_size(
    fewest: int, most: int | None, listed: list[int] | None
) -> None:
    sizes = [
        size
        for size in range(fewest, 65 if most is None else most + 1)
        if (size in listed if listed is not None else size in (1, 2, 4, 8, 16, 32, 64))
    ]
    content = {"minReplicas": fewest, "maxReplicas": most, "allowedReplicas": listed}
    if not sizes:
        with pytest.raises(ValidationError):
            Elastic.model_validate(content)
        return
    elastic = Elastic.model_validate(content)
    assert [size for size in range(66) if elastic.allows(size)] == sizes
