"""Job files: YAML or JSON into job specifications, with file, line and field in every error."""

from __future__ import annotations

from pathlib import Path

from resilin.cli.documents import file_name, read_documents
from resilin.cli.errors import InputError
from resilin.contracts.job_specification import JobSpecification

__all__ = ["read_jobs"]

MOST_JOBS = 10_000


def read_jobs(path: Path) -> list[JobSpecification]:
    """Read the jobs of a file, one a document; ``-`` reads standard input.

    A relative directory of a job's code is taken from the folder of the file: its workers
    run elsewhere.

    Raises:
        InputError: If the file, or a job in it, cannot be used.
    """
    documents = read_documents(path)
    if not documents:
        raise InputError(
            f"{file_name(path)}: holds no job; see `resilin submit --help` for a minimal one"
        )
    if len(documents) > MOST_JOBS:
        raise InputError(f"{file_name(path)}: holds more than {MOST_JOBS} jobs; submit in parts")
    folder = (Path() if str(path) == "-" else path.parent).absolute()
    return [
        _with_its_code(
            document.read_as(JobSpecification, "a job", "apiVersion, kind, metadata and spec"),
            folder,
        )
        for document in documents
    ]


def _with_its_code(job: JobSpecification, folder: Path) -> JobSpecification:
    worker = job.spec.worker
    if worker is None:
        return job
    directory = str((folder / (worker.directory or ".")).resolve())
    spec = job.spec.model_copy(
        update={"worker": worker.model_copy(update={"directory": directory})}
    )
    return job.model_copy(update={"spec": spec})
