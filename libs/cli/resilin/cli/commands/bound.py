"""`resilin bound`: how many deadlines could any scheduler have met?"""

from __future__ import annotations

from typing import Any

import click

from resilin.cli.errors import InputError
from resilin.cli.output import OutputFormat, Table, emit, example, number_text, output_option
from resilin.cli.runs import run
from resilin.cli.workload import POLICY_NAMES, Workload, cell_options, workload_options
from resilin.contracts.job_specification import Elastic
from resilin.eventlog.memory import MemoryLog
from resilin.planning.bound import DeadlineJob, SolverError, most_deadlines_upper_bound
from resilin.planning.capacity import CapacityProfile
from resilin.planning.curves import ThroughputCurve
from resilin.report.summary import summarize
from resilin.simulation.scenario import job_specification

__all__ = ["command"]


@click.command(
    "bound",
    epilog=example(
        "resilin bound --trace 195job.csv --trace-format elasticflow --profiles throughputs_A100"
    ),
)
@workload_options
@cell_options
@click.option(
    "--policy",
    "policies",
    type=click.Choice(POLICY_NAMES),
    multiple=True,
    default=("elasticflow",),
    show_default=True,
    help="Run this policy beside it; may be given more than once.",
)
@output_option
def command(
    policies: tuple[str, ...],
    output_format: OutputFormat,
    **options: Any,  # noqa: ANN401 (the options of the decorators)
) -> None:
    """Bound how many deadlines any scheduler could meet.

    Runs policies beside it. The bound is the optimum of a linear program; it holds even for
    a scheduler that knows all arrivals beforehand and resizes for nothing. Needs scipy: pip
    install 'resilin[bound]'
    """
    workload = Workload.of(options)
    jobs = _deadline_jobs(workload)
    begins = workload.submissions[0].at_seconds
    try:
        bound = most_deadlines_upper_bound(
            jobs, CapacityProfile(begins, workload.cell.cluster.gpus)
        )
    except SolverError as error:
        raise InputError(str(error)) from None
    met = {}
    for policy in dict.fromkeys(policies):
        history = run(
            MemoryLog(), workload.commands(policy), workload.physics, f"simulating {policy}"
        )
        met[policy] = summarize(history).met
    answer = {
        "jobs": len(workload.trace.jobs),
        "jobs_with_deadline": sum(job.deadline_seconds is not None for job in workload.trace.jobs),
        "alone_in_time": bound.ceiling,
        "relaxation": bound.relaxation,
        "bound": bound.bound,
        "met_in_hindsight": bound.met,
        "met": met,
        "scenario": workload.described(),
    }
    rows = [
        ["jobs with a deadline", number_text(answer["jobs_with_deadline"])],
        ["in time if alone on the cluster", number_text(bound.ceiling)],
        ["in time under any scheduler, at most", number_text(bound.bound)],
        ["in time in hindsight, at least", number_text(bound.met)],
        *([f"in time under {policy}", number_text(count)] for policy, count in met.items()),
    ]
    emit(output_format, answer, [Table((), rows, workload.title, right=(1,))])


def _deadline_jobs(workload: Workload) -> list[DeadlineJob]:
    """Return the jobs with a deadline as the bound sees them; one that can never run is none."""
    jobs = []
    for job in workload.trace.jobs:
        curve = _allowed(workload.curves[job.model, job.global_batch])
        deadline = job_specification(job).spec.deadline_seconds(job.submitted_at_seconds)
        if deadline is not None and curve is not None:
            jobs.append(
                DeadlineJob(
                    job.job_id, job.submitted_at_seconds, deadline, float(job.iterations), curve
                )
            )
    return jobs


def _allowed(curve: ThroughputCurve) -> ThroughputCurve | None:
    """Leave only the sizes that a job of a trace may have."""
    elastic = Elastic()
    rates = {count: curve.rate(count) for count in curve.workers if elastic.allows(count)}
    return ThroughputCurve.from_mapping(rates) if rates else None
