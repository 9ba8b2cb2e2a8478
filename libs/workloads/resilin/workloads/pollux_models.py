"""Model profiles of the Pollux simulator (petuum/adaptdl, branch osdi21-artifact).

One folder a model: ``placements.csv`` and ``scalability.csv`` hold step times by placement and
local batch, ``validation-<batch>.csv`` a full training with that total batch. All were measured
on servers with four T4 GPUs.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from resilin.planning.curves import ThroughputCurve
from resilin.workloads.csv_table import FilePath, Row, read_table
from resilin.workloads.curve_book import PACKED
from resilin.workloads.trace import WorkloadError

__all__ = [
    "is_models_folder",
    "iterations_to_train",
    "read_models",
    "validated_batches",
]

GPUS_PER_SERVER = 4

SHORTEST_STEP_SECONDS, LONGEST_STEP_SECONDS = 1e-9, 1e6

_VALIDATION = re.compile(r"validation-([1-9][0-9]{0,14})\.csv(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class _Step:
    """Seconds for one step at some local batch: all of it, and the part in synchronisation."""

    step_seconds: float
    sync_seconds: float


_StepsByLocalBatch = dict[int, _Step]


def is_models_folder(directory: Path) -> bool:
    """Tell whether a folder is laid out like Pollux's ``models``."""
    return any(_table_file(child, "placements") for child in directory.iterdir() if child.is_dir())


def validated_batches(directory: FilePath) -> dict[tuple[str, int], Path]:
    """Return the file of a full training for each model and total batch that has one.

    Raises:
        WorkloadError: If the folder cannot be listed.
    """
    found = {}
    try:
        for model in sorted(child for child in Path(directory).iterdir() if child.is_dir()):
            for file in sorted(model.iterdir()):
                matched = _VALIDATION.fullmatch(file.name)
                if matched:
                    found[model.name, int(matched[1])] = file
    except (OSError, ValueError) as error:
        raise WorkloadError(
            os.fspath(directory), f"cannot be listed ({error}); name a folder with model profiles"
        ) from None
    return found


def iterations_to_train(file: FilePath) -> int:
    """Return the iterations of a full training: ``iteration`` at the end of its last epoch.

    Raises:
        WorkloadError: If the file cannot be used.
    """
    table = read_table(file)
    table.require(("iteration",), layout="Pollux validation profile")
    return table.rows[-1].whole("iteration")


def read_models(directory: FilePath) -> dict[tuple[str, int, str], ThroughputCurve]:
    """Read the curve of each model at each total batch that was trained to the end.

    Raises:
        WorkloadError: If a file cannot be used, or no measured placement runs a batch.
    """
    steps: dict[str, dict[int, _StepsByLocalBatch]] = {}
    curves = {}
    for model, batch in validated_batches(directory):
        folder = Path(directory, model)
        if model not in steps:
            steps[model] = _packed_steps(folder)
        rates = {
            workers: rate
            for workers, by_local_batch in sorted(steps[model].items())
            if (rate := _iterations_per_second(by_local_batch, batch, workers))
        }
        if not rates:
            raise WorkloadError(
                os.fspath(folder),
                f"no placement was measured that runs a total batch of {batch}; add one to "
                f"placements.csv, or drop validation-{batch}.csv",
            )
        curves[model, batch, PACKED] = ThroughputCurve.from_mapping(rates)
    return curves


def _iterations_per_second(
    by_local_batch: Mapping[int, _Step], batch: int, workers: int
) -> float | None:
    """Return the rate of a total batch, or None if its local batch is below all measured.

    A worker whose share is too large for its GPU accumulates gradients over equal parts and
    synchronises in the last one only::

        parts = ceil(share / largest measured local batch)
        time  = (parts - 1) x (step - sync) + step,  both at ceil(share / parts)

    Between two measured local batches times are interpolated linearly. This is also how the
    T4 profiles that ElasticFlow publishes come out of these files, to the last digit.
    """
    measured = sorted(by_local_batch)
    share = -(-batch // workers)
    parts = -(-share // measured[-1])
    local_batch = -(-share // parts)
    if local_batch < measured[0]:
        return None
    step = _interpolated(by_local_batch, measured, local_batch)
    return 1 / ((parts - 1) * (step.step_seconds - step.sync_seconds) + step.step_seconds)


def _interpolated(
    by_local_batch: Mapping[int, _Step], measured: list[int], local_batch: int
) -> _Step:
    position = bisect_left(measured, local_batch)
    above = by_local_batch[measured[position]]
    if measured[position] == local_batch:
        return above
    below = by_local_batch[measured[position - 1]]
    weight = (local_batch - measured[position - 1]) / (measured[position] - measured[position - 1])
    return _Step(
        (1 - weight) * below.step_seconds + weight * above.step_seconds,
        (1 - weight) * below.sync_seconds + weight * above.sync_seconds,
    )


def _packed_steps(folder: Path) -> dict[int, _StepsByLocalBatch]:
    """Read the step times of each worker count at its tightest packing, where measured."""
    steps: dict[int, _StepsByLocalBatch] = {}
    scalability = read_table(_required_file(folder, "scalability"))
    scalability.require(
        ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"),
        layout="Pollux scalability profile",
    )
    for row in scalability.rows:
        workers, servers = row.whole("num_replicas"), row.whole("num_nodes")
        local_batch, step = row.whole("local_bsz"), _step(row)
        if servers == -(-workers // GPUS_PER_SERVER):
            steps.setdefault(workers, {})[local_batch] = step
    placements = read_table(_required_file(folder, "placements"))
    placements.require(
        ("placement", "local_bsz", "step_time", "sync_time"), layout="Pollux placement profile"
    )
    exact: dict[int, _StepsByLocalBatch] = {}
    for row in placements.rows:
        packed, local_batch, step = _packed_workers(row), row.whole("local_bsz"), _step(row)
        if packed is not None:
            exact.setdefault(packed, {})[local_batch] = step
    # A placement measured one by one is worth more than a row that only counts servers.
    return steps | exact


def _packed_workers(row: Row) -> int | None:
    """Return the workers of a placement if it is the tightest for them, else None.

    A placement is written as the GPUs on each server in turn, smallest rotation first, so the
    tightest one of nine workers is 144.
    """
    text = row.text("placement")
    if not text or text.strip("1234") or len(text) > 64:
        raise row.error(
            "placement",
            f"{text[:40]!r} is no placement; write the GPUs on each server (1 to "
            f"{GPUS_PER_SERVER}) as digits, such as 144",
        )
    workers = sum(map(int, text))
    full, rest = divmod(workers, GPUS_PER_SERVER)
    packed = (str(rest) if rest else "") + str(GPUS_PER_SERVER) * full
    return workers if text == packed else None


def _step(row: Row) -> _Step:
    step, sync = row.positive_seconds("step_time"), row.seconds("sync_time")
    if not SHORTEST_STEP_SECONDS <= step <= LONGEST_STEP_SECONDS:
        raise row.error("step_time", f"a step of {step:g} seconds is not plausible; check the unit")
    if sync > step:
        raise row.error(
            "sync_time", f"{sync:g} is more than the whole step, {step:g}; check the two columns"
        )
    return _Step(step, sync)


def _table_file(folder: Path, stem: str) -> Path | None:
    for name in (f"{stem}.csv", f"{stem}.csv.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def _required_file(folder: Path, stem: str) -> Path:
    file = _table_file(folder, stem)
    if file is None:
        raise WorkloadError(
            os.fspath(folder / f"{stem}.csv"), "is missing beside the validation files; add it"
        )
    return file
