"""`resilin submit`: submit jobs, or ask what they would be answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resilin.cli.answers import answer_code
from resilin.cli.asking import confirmed, on_terminal, yes_option
from resilin.cli.dry_runs import AskedCell, asked_jobs, dry_run_parts
from resilin.cli.errors import ExitCode, InputError
from resilin.cli.job_file import read_jobs
from resilin.cli.live import (
    LiveAddress,
    LiveCell,
    live_options,
    open_live,
    timeout_option,
    wait_option,
)
from resilin.cli.logs import Moment, read_moment
from resilin.cli.output import OutputFormat, emit, example, note, output_option
from resilin.cli.submission import (
    described_replies,
    reply_parts,
    submissions,
    submit,
)
from resilin.cli.workload import PATH, POLICY_NAMES, CellOptions, cell_options
from resilin.contracts.job_specification import JobSpecification

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

{
    example(
        "resilin submit -f job.yaml",
        "resilin submit --dry-run -f job.yaml --log run/log.resilin --at +6h",
    )
}
"""

_SHAPE = ("policy", *CellOptions.__dataclass_fields__)


@click.command("submit", epilog=_EPILOG)
@click.option(
    "-f", "--file", "job_file", type=PATH, required=True, help="Job file, YAML or JSON; - is stdin."
)
@click.option(
    "--id",
    "job_id",
    metavar="ID",
    help="The job's id, so that a repeat changes nothing.  [default: its name and a random end]",
)
@wait_option
@timeout_option(30.0, "Wait so long for the answer.")
@yes_option
@live_options
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
    job_id: str | None,
    waits: bool,
    timeout_seconds: float,
    yes: bool,
    address: LiveAddress,
    is_dry_run: bool,
    log_file: Path | None,
    moment: Moment | None,
    policy: str,
    output_format: OutputFormat,
    **options: Any,  # noqa: ANN401 (the options of the decorators)
) -> int:
    """Submit jobs to the live cell, or ask what they would be answered.

    On a terminal it shows what they would be answered first, and asks. With --dry-run it only
    asks: the cell of a log, the live cell, or, where none is named and none is there, an
    empty cell of the shape that the options give: when the jobs would start and finish, and
    who would make room. A file may hold several jobs (YAML documents), in order. Exits with 0
    if all are admitted, with 1 if not, with 4 if no answer came in time.
    """
    jobs = read_jobs(job_file)
    cell = CellOptions.take(options)
    if is_dry_run:
        return _dry_run(ctx, jobs, log_file, moment, address, policy, cell, output_format)
    if log_file is not None or moment is not None:
        raise click.UsageError("--log and --at go with --dry-run: a log takes no jobs", ctx)
    _refuse_shape(ctx, "--dry-run, which is missing, asks one")
    if not address.given and not address.exists:
        raise InputError(
            f"{address.home}: there is no cell to submit to; start one with `resilin up`, name"
            " one with --home or --bootstrap, or ask an empty one with --dry-run"
        )
    timeout = timeout_seconds if waits else None
    commands = submissions(address.cell, jobs, job_id)
    with open_live(address) as live:
        if on_terminal() and not yes and not _agreed(live, jobs):
            return ExitCode.NO
        replies = submit(live, commands, repeatable=job_id is not None, timeout_seconds=timeout)
        answer = described_replies(live, replies)
    emit(output_format, answer, reply_parts(answer))
    code = answer_code(answer["admitted"]) if waits else ExitCode.OK
    if len(commands) == 1 and code in (ExitCode.OK, ExitCode.NO_ANSWER):
        note(f"next: resilin watch {commands[0].job_id}")
    return code


def _agreed(live: LiveCell, jobs: list[JobSpecification]) -> bool:
    """Show what would be answered, on stderr's terminal, and ask."""
    plan = asked_jobs(AskedCell.of_live(live), jobs)
    emit("table", plan, dry_run_parts(plan), to_stderr=True)
    return confirmed(f"Submit {len(jobs)} job{'s' * (len(jobs) > 1)} to {live.name}?", yes=False)


# --- asking only ---------------------------------------------------------------------------


def _dry_run(
    ctx: click.Context,
    jobs: list[JobSpecification],
    log_file: Path | None,
    moment: Moment | None,
    address: LiveAddress,
    policy: str,
    options: CellOptions,
    output_format: OutputFormat,
) -> int:
    if log_file is not None:
        if address.typed:
            raise click.UsageError("--log and the live cell are both named: drop one", ctx)
        _refuse_shape(ctx, "leave it or --log out")
        cell = AskedCell.of_log(log_file, moment)
    elif moment is not None:
        raise click.UsageError("--at goes with --log, which is missing", ctx)
    elif address.given or (address.exists and _shaped(ctx) is None):
        _refuse_shape(ctx, "leave it or the live cell out")
        with open_live(address) as live:
            cell = AskedCell.of_live(live)
        if not cell.admission.state.cell.servers:
            raise InputError(f"{cell.log}: no server has joined yet; ask again later")
        note(f"asked: the live cell at {cell.log}")
    else:
        cell = AskedCell.empty(policy, options)
    answer = asked_jobs(cell, jobs)
    emit(output_format, answer, dry_run_parts(answer))
    return answer_code(answer["admitted"])


def _shaped(ctx: click.Context) -> str | None:
    """Return the first option given that shapes an empty cell."""
    for parameter in _SHAPE:
        if ctx.get_parameter_source(parameter) is not click.core.ParameterSource.DEFAULT:
            return f"--{parameter.replace('_', '-')}"
    return None


def _refuse_shape(ctx: click.Context, instead: str) -> None:
    option = _shaped(ctx)
    if option is not None:
        raise click.UsageError(f"{option} shapes an empty cell: {instead}", ctx)
