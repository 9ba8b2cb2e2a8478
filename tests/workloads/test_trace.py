from __future__ import annotations

import math
from dataclasses import replace

import pytest

from resilin.workloads import Trace, TraceJob, WorkloadError

JOB = TraceJob("a", 10.0, "bert", 64, 100, 20.0, 2, 5.0)


def test_jobs_are_sorted_by_submission_and_ties_keep_their_order() -> None:
    jobs = tuple(
        replace(JOB, job_id=job_id, submitted_at_seconds=at, deadline_seconds=None)
        for job_id, at in (("late", 9.0), ("tie 1", 3.0), ("first", 1.0), ("tie 2", 3.0))
    )
    assert [job.job_id for job in Trace("t", jobs).jobs] == ["first", "tie 1", "tie 2", "late"]


def test_two_jobs_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="two jobs with the id 'a'"):
        Trace("t", (JOB, replace(JOB, submitted_at_seconds=11.0)))


@pytest.mark.parametrize(
    "change",
    [
        {"submitted_at_seconds": math.nan},
        {"submitted_at_seconds": math.inf, "deadline_seconds": None},
        {"global_batch": 0},
        {"iterations": 0},
        {"requested_workers": -1},
        {"deadline_seconds": 9.99},
        {"deadline_seconds": math.nan},
        {"deadline_seconds": math.inf},
        {"duration_seconds": 0.0},
        {"duration_seconds": math.nan},
        {"duration_seconds": math.inf},
    ],
)
def test_a_job_that_breaks_a_rule_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="job 'a'"):
        replace(JOB, **change)


def test_a_deadline_at_submission_and_no_deadline_are_fine() -> None:
    assert replace(JOB, deadline_seconds=10.0).deadline_seconds == 10.0
    assert replace(JOB, deadline_seconds=None, duration_seconds=None).deadline_seconds is None


@pytest.mark.parametrize(
    ("line", "field", "text"),
    [
        (None, None, "f.csv: bad; mend it"),
        (7, None, "f.csv:7: bad; mend it"),
        (7, "num_gpu", "f.csv:7: field 'num_gpu': bad; mend it"),
        (None, "num_gpu", "f.csv: field 'num_gpu': bad; mend it"),
    ],
)
def test_the_error_names_its_place(line: int | None, field: str | None, text: str) -> None:
    error = WorkloadError("f.csv", "bad; mend it", line=line, field=field)
    assert str(error) == text
    assert (error.file, error.line, error.field) == ("f.csv", line, field)
    assert error.message == "bad; mend it"
    assert isinstance(error, ValueError)
