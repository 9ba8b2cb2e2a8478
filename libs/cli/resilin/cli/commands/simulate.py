"""`resilin simulate`: run a workload through the production services under a virtual clock."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from resilin.cli.logs import LOG_NAME, new_log, output_folder
from resilin.cli.output import (
    OutputFormat,
    Table,
    as_json,
    emit,
    example,
    note,
    number_text,
    output_option,
)
from resilin.cli.runs import cost_figures, run
from resilin.cli.tables import summary_table
from resilin.cli.workload import (
    PATH,
    POLICY_NAMES,
    Workload,
    cell_options,
    workload_options,
)
from resilin.eventlog.memory import MemoryLog
from resilin.report.history import History
from resilin.report.summary import summarize

__all__ = ["command"]


@click.command(
    "simulate",
    epilog=example(
        "resilin simulate --servers 16 --policy elasticflow --out run",
        "resilin simulate --trace 195job.csv --trace-format elasticflow --profiles A100 -o json",
    ),
)
@workload_options
@cell_options
@click.option(
    "--policy",
    type=click.Choice(POLICY_NAMES),
    default="elasticflow",
    show_default=True,
    help="Allocation policy.",
)
@click.option("--out", type=PATH, help="Folder for the log, summary, report page and plots.")
@click.option("--force", is_flag=True, help="Replace the log that the folder holds.")
@output_option
def command(
    *,
    policy: str,
    out: Path | None,
    force: bool,
    output_format: OutputFormat,
    **options: Any,  # noqa: ANN401 (the options of the decorators)
) -> None:
    """Run a workload through the services and sum the run up.

    The workload is a trace, or is generated where none is named. The services, the log and
    the decisions are those of a live cell; only the clock and the cluster are not real. The
    same options give the same log, byte for byte.

    cpu_seconds is the CPU time of the whole process until the run is over and its log is
    written, start and reading included; the report page and the plots come after it.
    wall_seconds is the time that the run itself took.
    """
    workload = Workload.of(options)
    commands = workload.commands(policy)
    what = f"simulating {policy}"
    began = time.perf_counter()
    if out is None:
        history = run(MemoryLog(), commands, workload.physics, what)
        answer = _answer(workload, policy, history, time.perf_counter() - began)
    else:
        with output_folder(out, [LOG_NAME], force=force):
            with new_log(out / LOG_NAME) as log:
                history = run(log, commands, workload.physics, what)
            answer = _answer(workload, policy, history, time.perf_counter() - began)
            _write_report(history, answer, out, f"{policy}: {workload.title}")
    emit(output_format, answer, _parts(workload, answer["summary"]))
    for skip in workload.trace.skipped:
        note(f"left out of the trace: {skip.count} x {skip.reason}")
    if out is not None:
        log_file = shlex.quote(str(out / LOG_NAME))
        note(f"next: resilin verify {log_file}")
        note(f"      resilin explain {log_file} {shlex.quote(workload.trace.jobs[0].job_id)}")


def _answer(
    workload: Workload, policy: str, history: History, wall_seconds: float
) -> dict[str, Any]:
    summary = summarize(history)
    costs = {"wall_seconds": wall_seconds, **cost_figures(summary.jobs)}
    return {
        "summary": {**summary.as_dict(), **costs},
        "scenario": {"policy": policy, **workload.described()},
    }


def _parts(workload: Workload, summary: dict[str, Any]) -> Iterator[Table]:
    yield summary_table(
        workload.title,
        [summary],
        (),
        ["CPU time of the process", f"{summary['cpu_seconds']:.2f} s"],
        ["Jobs per CPU second", number_text(round(summary["jobs_per_cpu_second"], 1))],
        ["Peak memory", f"{summary['peak_memory_bytes'] / 2**20:.0f} MiB"],
    )


def _write_report(history: History, answer: dict[str, Any], folder: Path, title: str) -> None:
    from resilin.report.page import report_page
    from resilin.report.plots import PlotsUnavailableError, write_plots

    (folder / "summary.json").write_text(as_json(answer) + "\n", encoding="utf-8")
    page = report_page(history, answer["summary"], title=title)
    (folder / "report.html").write_text(page, encoding="utf-8")
    try:
        write_plots(history, folder)
    except PlotsUnavailableError as error:
        note(f"no plots: {error}")
