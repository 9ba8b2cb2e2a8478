"""Workloads of the Pollux simulator (petuum/adaptdl, branch osdi21-artifact)."""

from __future__ import annotations

from resilin.workloads.csv_table import FilePath, Table
from resilin.workloads.pollux_models import iterations_to_train, validated_batches
from resilin.workloads.readers.common import JobIds, Reading, ReadRequest, curve_of, known_workers
from resilin.workloads.trace import TraceJob

__all__ = ["read_pollux"]


def read_pollux(table: Table, request: ReadRequest) -> Reading:
    """Read ``name,time,application,num_replicas,batch_size``.

    Jobs are best effort. A workload does not say how long a job is: its iterations are those
    of a full training at its batch, out of the models folder (see
    :func:`resilin.workloads.pollux_models.iterations_to_train`).

    Raises:
        WorkloadError: If a column is missing, a cell is wrong, there is no models folder, or
            it lacks a job's application and batch.
    """
    table.require(
        ("name", "time", "application", "num_replicas", "batch_size"), layout="Pollux workload"
    )
    if request.pollux_models is None:
        raise table.error(
            "is a Pollux workload, which has no iteration counts; name the folder of Pollux's "
            "model profiles (pollux_models), which has them"
        )
    lengths = _Lengths(request.pollux_models)
    ids = JobIds()
    jobs = []
    for row in table.rows:
        model, batch = row.name("application"), row.whole("batch_size")
        curve = curve_of(row, request.curves, model, batch, columns=("application", "batch_size"))
        iterations = lengths.iterations(model, batch)
        if iterations is None:
            raise row.error(
                "batch_size",
                f"no training of {model!r} with batch {batch} in {request.pollux_models}; add its "
                f"validation-{batch}.csv, or use a batch that has one",
            )
        jobs.append(
            TraceJob(
                job_id=ids.take(row, "name"),
                submitted_at_seconds=row.seconds("time"),
                model=model,
                global_batch=batch,
                iterations=iterations,
                deadline_seconds=None,
                requested_workers=known_workers(
                    row, "num_replicas", row.whole("num_replicas"), curve
                ),
                duration_seconds=None,
            )
        )
    return Reading(jobs)


class _Lengths:
    """Iterations of a full training, each file read once."""

    def __init__(self, models: FilePath) -> None:
        self._files = validated_batches(models)
        self._known: dict[tuple[str, int], int] = {}

    def iterations(self, model: str, batch: int) -> int | None:
        """Return the iterations, or None if the folder lacks the model or batch.

        Raises:
            WorkloadError: If the file that has them is wrong.
        """
        file = self._files.get((model, batch))
        if file is None:
            return None
        if (model, batch) not in self._known:
            self._known[model, batch] = iterations_to_train(file)
        return self._known[model, batch]
