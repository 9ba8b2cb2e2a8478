"""Reads what a job's own code says of itself, in a process of its own.

``python -m resilin.cli.job_reader ENTRYPOINT DIRECTORY`` imports the code, which may do anything
and needs PyTorch: the command line does neither. Hyperparameters that go before the code's own
come as JSON on standard input; what was read goes as JSON to standard output, and whatever the
code prints to standard error.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from resilin.cli.errors import InputError
from resilin.contracts.job_specification import HyperParameter
from resilin.elastic.api import ElasticJob
from resilin.elastic.context import Context, enter
from resilin.elastic.entrypoint import load_entrypoint

__all__ = ["JobReading", "read_job"]


class JobReading(BaseModel):
    """What a job's code says of itself.

    Attributes:
        problem: Why it could not be read; then nothing else counts.
        hyperparameters: Those that are plain values; the code has the others by itself.
        max_iterations: The end that it sets.
        max_epochs: The end that it sets.
        samples: How large its dataset is, asked only where an end by epochs needs it.
        ends_by_metric: Whether it may end by what it has learned.
        deadline_seconds: The deadline that it sets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: str | None = None
    hyperparameters: dict[str, HyperParameter] = {}
    max_iterations: int | None = None
    max_epochs: int | None = None
    samples: int | None = None
    ends_by_metric: bool = False
    deadline_seconds: float | None = None


def read_job(entrypoint: str, directory: Path, overrides: dict[str, HyperParameter]) -> JobReading:
    """Read a job's code.

    Args:
        entrypoint: The file or module, and the class or function in it.
        directory: Where the code lies.
        overrides: Hyperparameters that go before the code's own.

    Raises:
        InputError: If the code is not there, raises an error, or defines no job.
    """
    # -P: what lies in the user's folder must not come before this program's own modules.
    done = subprocess.run(  # noqa: S603 (running the user's code is what this is for)
        [sys.executable, "-P", "-m", "resilin.cli.job_reader", entrypoint, str(directory)],
        input=json.dumps(overrides),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        reading = JobReading.model_validate_json(done.stdout)
    except ValidationError:
        raise InputError(
            f"{entrypoint}: its code ended the process that read it, with status {done.returncode}"
        ) from None
    if reading.problem is not None:
        hint = ""
        if "No module named 'torch'" in reading.problem:
            hint = "; PyTorch comes with pip install 'resilin[train]'"
        raise InputError(f"{entrypoint}: {reading.problem}{hint}")
    return reading


# --- in the process that runs the user's code ------------------------------------------------


class _LoopStyleError(BaseException):
    """The code is a training loop: it says nothing of itself until it runs in a worker."""


class _NoWorker:
    """Stands where a worker's context would, and ends a training loop before it begins."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _LoopStyleError


def _read(entrypoint: str, directory: str, overrides: dict[str, Any]) -> JobReading:
    enter(cast("Context", _NoWorker()))
    target = load_entrypoint(entrypoint, directory)
    if inspect.isclass(target) and not issubclass(target, ElasticJob):
        return JobReading(problem=f"{target.__name__} is no ElasticJob")
    if not callable(target) and not isinstance(target, ElasticJob):
        return JobReading(problem=f"is {type(target).__name__}, neither a class nor a function")
    try:
        job = target if isinstance(target, ElasticJob) else target()
    except _LoopStyleError:
        return JobReading()
    if not isinstance(job, ElasticJob):
        return JobReading(problem="the function makes no ElasticJob, and does not use context()")
    job.settings.hyperparameters |= overrides
    settings, end = job.settings, job.settings.end
    by_epochs = end.max_epochs is not None and end.max_iterations is None
    return JobReading(
        hyperparameters={
            name: value
            for name, value in settings.hyperparameters.items()
            if isinstance(value, bool | int | float | str)
        },
        max_iterations=end.max_iterations,
        max_epochs=end.max_epochs,
        samples=_samples(job.init_dataset()) if by_epochs else None,
        ends_by_metric=end.metric is not None or end.loss_at_most is not None,
        deadline_seconds=settings.deadline_seconds,
    )


def _samples(dataset: Any) -> int:  # noqa: ANN401 (tensors, tuples of tensors, or map-style)
    tensors = getattr(dataset, "tensors", dataset)
    return len(tensors[0]) if isinstance(tensors, tuple) else len(dataset)


def main() -> None:
    """Read the job that the arguments name."""
    # What the code prints, however deep it does so, must not stand among the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    overrides = json.load(sys.stdin)
    try:
        reading = _read(sys.argv[1], sys.argv[2], overrides)
    except Exception as error:
        traceback.print_exc()
        reading = JobReading(problem=f"{type(error).__name__}: {error}")
    with answer:
        answer.write(reading.model_dump_json())


if __name__ == "__main__":
    main()
