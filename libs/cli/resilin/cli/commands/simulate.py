"""`resilin simulate`: run a workload through the production services under a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resilin.cli.logs import LOG_NAME, new_log, output_folder
from resilin.cli.output import OutputFormat, as_json, emit, note, output_option
from resilin.cli.runs import cost_figures, run
from resilin.cli.tables import summary_table
from resilin.cli.workload import (
    FOLDER,
    POLICY_NAMES,
    Workload,
    cell_options,
    workload_options,
)
from resilin.eventlog.memory import MemoryLog
from resilin.report.history import History
from resilin.report.summary import summarize

__all__ = ["command"]


@click.command("simulate")
@workload_options
@cell_options
@click.option(
    "--policy",
    type=click.Choice(POLICY_NAMES),
    default="elasticflow",
    show_default=True,
    help="Allocation policy.",
)
@click.option("--out", type=FOLDER, help="Folder for the log, summary, report page and plots.")
@click.option("--force", is_flag=True, help="Replace the log that the folder holds.")
@output_option
def command(
    policy: str, out: Path | None, force: bool, output_format: OutputFormat, **options: Any
) -> None:
    """Run a trace, or a generated one, through the services and sum the run up.

    The services, the log and the decisions are those of a live cell; only the clock and the
    cluster are not real. The same options give the same log, byte for byte.

    cpu_seconds is the CPU time of the whole process until the run is over and its log is
    written, start and reading included; the report page and the plots come after it.

    \b
    Example:
      resilin simulate --trace 195job.csv --trace-format elasticflow \\
        --profiles throughputs_A100 --policy elasticflow --out run
    """
    workload = Workload.of(options)
    commands = workload.commands(policy)
    what = f"simulating {policy}"
    if out is None:
        history = run(MemoryLog(), commands, workload.physics, what)
        answer = _answer(workload, policy, history)
    else:
        with output_folder(out, [LOG_NAME], force=force):
            with new_log(out / LOG_NAME) as log:
                history = run(log, commands, workload.physics, what)
            answer = _answer(workload, policy, history)
            _write_report(history, answer, out, f"{policy}: {workload.title}")
    emit(output_format, answer, summary_table(workload.title, [answer["summary"]]))
    for skip in workload.trace.skipped:
        note(f"left out of the trace: {skip.count} x {skip.reason}")
    if out is not None:
        note(f"next: resilin verify {out / LOG_NAME}")
        note(f"      resilin explain {out / LOG_NAME} {workload.trace.jobs[0].job_id}")


def _answer(workload: Workload, policy: str, history: History) -> dict[str, Any]:
    summary = summarize(history)
    return {
        "summary": {**summary.as_dict(), **cost_figures(summary.jobs)},
        "scenario": {"policy": policy, **workload.described()},
    }


def _write_report(history: History, answer: dict[str, Any], folder: Path, title: str) -> None:
    from resilin.report.page import report_page

    (folder / "summary.json").write_text(as_json(answer) + "\n", encoding="utf-8")
    page = report_page(history, answer["summary"], title=title)
    (folder / "report.html").write_text(page, encoding="utf-8")
    try:
        from resilin.report.plots import write_plots

        write_plots(history, folder)
    except ModuleNotFoundError as error:
        note(f"no plots: {error.name} is not installed (pip install 'resilin[plots]')")
