"""`resilin submit`: what a job would be answered."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from resilin.admission.decider import AdmissionDecider
from resilin.admission.state import AdmissionState
from resilin.allocator.decider import AllocatorDecider, AllocatorState
from resilin.audit.dry_run import Answer, DryRun, dry_run
from resilin.audit.replay import fold_log
from resilin.cli.errors import ExitCode, InputError
from resilin.cli.job_file import read_jobs
from resilin.cli.logs import Moment, open_log, read_moment
from resilin.cli.output import (
    OutputFormat,
    Table,
    duration_text,
    emit,
    example,
    number_text,
    output_option,
    time_text,
)
from resilin.cli.workload import PATH, POLICY_NAMES, CellOptions, cell_options
from resilin.contracts import events as ev
from resilin.eventlog.memory import MemoryLog
from resilin.kernel.host import Folded
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import Simulation

__all__ = ["command"]


_EPILOG = f"""\b
A minimal job file:
  apiVersion: resilin.dev/v1alpha1
  kind: TrainingJob
  metadata: {{name: nightly-resnet}}
  spec:
    model: resnet50
    globalBatch: 256
    workload: {{totalIterations: 50000}}
    deadline: 2h

{example("resilin submit --dry-run -f job.yaml --log run/log.resilin --at +6h")}
"""


@click.command("submit", epilog=_EPILOG)
@click.option(
    "-f", "--file", "job_file", type=PATH, required=True, help="Job file, YAML or JSON; - is stdin."
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Ask only; submit nothing.")
@click.option("--log", "log_file", type=PATH, help="Ask the cell of this log.")
@click.option(
    "--at",
    "moment",
    metavar="OFFSET|TIME",
    callback=read_moment,
    help="Ask it at this offset or time; see `resilin state --help`.  [default: the end]",
)
@click.option(
    "--policy",
    type=click.Choice(POLICY_NAMES),
    default="elasticflow",
    show_default=True,
    help="Policy of the empty cell.",
)
@cell_options
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    job_file: Path,
    is_dry_run: bool,
    log_file: Path | None,
    moment: Moment | None,
    policy: str,
    output_format: OutputFormat,
    **options: Any,  # noqa: ANN401 (the options of the decorators)
) -> int:
    """Say whether and when jobs would run, and who would make room.

    Asks the cell of a log, or an empty cell of the shape that the options give. A file may
    hold several jobs (YAML documents); they are asked together, in order. Exits with 0 if
    all would be admitted, with 1 if not.
    """
    if not is_dry_run:
        raise click.UsageError(
            "no live cell can be reached by this version: ask with --dry-run", ctx
        )
    jobs = read_jobs(job_file)
    cell = CellOptions.take(options)
    if log_file is None:
        if moment is not None:
            raise click.UsageError("--at goes with --log, which is missing", ctx)
        folds = _empty_cell(policy, cell)
    else:
        _refuse_with_log(ctx)
        folds = _cell_of(log_file, moment)
    outcome = dry_run(folds.admission, folds.allocator, jobs, at_seconds=folds.at_seconds)
    answers = [_described(answer, outcome) for answer in outcome.answers]
    answer = {
        "log": None if log_file is None else str(log_file),
        "offset": folds.offset,
        "at_seconds": outcome.at_seconds,
        "admitted": all(answer["admitted"] for answer in answers),
        "jobs": answers,
        "workers_change": [
            {"job_id": job_id, "before": before, "after": after}
            for job_id, (before, after) in outcome.workers.items()
        ],
    }
    emit(output_format, answer, _parts(answer))
    return ExitCode.OK if answer["admitted"] else ExitCode.NO


# --- the cell that is asked ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Folds:
    admission: Folded[AdmissionState]
    allocator: Folded[AllocatorState]
    at_seconds: float
    offset: int | None


def _refuse_with_log(ctx: click.Context) -> None:
    for parameter in ("policy", *CellOptions.__dataclass_fields__):
        if ctx.get_parameter_source(parameter) is not click.core.ParameterSource.DEFAULT:
            option = f"--{parameter.replace('_', '-')}"
            raise click.UsageError(f"{option} shapes an empty cell: leave it or --log out", ctx)


def _cell_of(log_file: Path, moment: Moment | None) -> _Folds:
    with open_log(log_file) as log:
        bound = {} if moment is None else moment.through(log)
        admission = fold_log(log.read(), AdmissionDecider(), **bound)
        allocator = fold_log(log.read(), AllocatorDecider(), **bound)
    asked = bound.get("through_seconds")
    at_seconds = admission.timestamp if asked is None else max(asked, admission.timestamp)
    if not admission.state.cell.servers:
        raise InputError(
            f"{log_file}: no server had joined by offset {admission.offset}; ask for a later one"
        )
    return _Folds(admission, allocator, at_seconds, admission.offset)


def _empty_cell(policy: str, cell: CellOptions) -> _Folds:
    # Whole seconds of today, so that a deadline may be a date.
    now = float(int(time.time()))
    log = MemoryLog()
    Simulation(log, cell.opening(policy, cell.curves(), now), Physics()).run()
    admission = fold_log(log.read(), AdmissionDecider())
    return _Folds(admission, fold_log(log.read(), AllocatorDecider()), now, None)


