"""Samples: what is optional, and which of two is news."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from resilin.contracts.telemetry import StepSample, WorkerSample


def sample(generation: int = 1, sequence: int | None = None, **fields: object) -> StepSample:
    known = {"job_id": "a", "generation": generation, "workers": 2, "iterations_per_second": 1.5}
    return StepSample.model_validate({**known, "sequence": sequence, **fields})


@pytest.mark.parametrize(
    ("last", "item", "news"),
    [
        (None, sample(), True),
        (sample(1, 7), sample(1, 8), True),
        (sample(1, 7), sample(1, 7), False),
        (sample(1, 7), sample(1, 6), False),
        (sample(2, 7), sample(1, 8), False),
        (sample(1, 7), sample(2, 0), True),
        (sample(1), sample(1), True),
        (sample(1, 7), sample(1), True),
        (sample(1), sample(1, 7), True),
    ],
)
def test_a_repeat_and_an_older_generation_are_no_news(
    last: StepSample | None, item: StepSample, news: bool
) -> None:
    assert item.follows(last) is news


def test_a_sample_without_a_stretch_is_exact() -> None:
    assert sample().exact
    assert not sample(seconds=1.0).exact


def test_a_sample_of_the_first_version_is_still_read() -> None:
    payload = b'{"job_id":"a","generation":1,"workers":2,"iterations_per_second":1.5}'
    assert StepSample.model_validate_json(payload) == sample()


def test_what_a_later_version_adds_is_ignored() -> None:
    payload = sample(seconds=1.0).model_dump_json()[:-1] + ',"loss":0.1}'
    assert StepSample.model_validate_json(payload) == sample(seconds=1.0)


def test_a_sample_comes_back_whole() -> None:
    worker = WorkerSample(server_id="s1", gpu_index=3, step_seconds=0.2, compute_seconds=0.1)
    written = sample(1, 7, seconds=1.0, ended_at_seconds=9.5, worker_samples=(worker,))
    assert StepSample.model_validate_json(written.model_dump_json()) == written


@pytest.mark.parametrize(
    "field",
    [
        {"iterations_per_second": 0.0},
        {"iterations_per_second": float("inf")},
        {"seconds": -1.0},
        {"sequence": -1},
        {"worker_samples": [{"server_id": "s1", "gpu_index": 0, "step_seconds": float("nan")}]},
    ],
)
def test_what_cannot_be_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        sample(**field)  # type: ignore[arg-type]  # by name
