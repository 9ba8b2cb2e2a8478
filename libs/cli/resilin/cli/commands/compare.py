"""`resilin compare`: the same workload under several policies."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from resilin.cli.logs import new_log, output_folder
from resilin.cli.output import OutputFormat, Table, emit, example, note, output_option
from resilin.cli.runs import run
from resilin.cli.tables import summary_table
from resilin.cli.workload import PATH, POLICY_NAMES, Workload, cell_options, workload_options
from resilin.eventlog.memory import MemoryLog
from resilin.report.summary import summarize

__all__ = ["command"]

PAGE_NAME = "comparison.html"

# One of each kind: a table of all would be too wide to read.
DEFAULT_POLICIES = ("elasticflow", "edf", "fifo")


@click.command(
    "compare", epilog=example("resilin compare --policy elasticflow --policy edf --out comparison")
)
@workload_options
@cell_options
@click.option(
    "--policy",
    "policies",
    type=click.Choice(POLICY_NAMES),
    multiple=True,
    default=DEFAULT_POLICIES,
    help=f"A policy to run; give it once for each.  [default: {', '.join(DEFAULT_POLICIES)}]",
)
@click.option("--out", type=PATH, help=f"Folder for {PAGE_NAME} and a log of each run.")
@click.option("--force", is_flag=True, help="Replace the logs that the folder holds.")
@output_option
def command(
    *,
    policies: tuple[str, ...],
    out: Path | None,
    force: bool,
    output_format: OutputFormat,
    **options: Any,  # noqa: ANN401 (the options of the decorators)
) -> None:
    """Run the same jobs under several policies, side by side.

    simulation_cpu_seconds is the CPU time of each run alone: the start of the process and
    the reading of files serve all of them.
    """
    workload = Workload.of(options)
    chosen = list(dict.fromkeys(policies))
    logs = {policy: f"{policy}.resilin" for policy in chosen}
    with nullcontext() if out is None else output_folder(out, logs.values(), force=force):
        summaries = []
        for policy in chosen:
            path = None if out is None else out / logs[policy]
            summaries.append(_summary(workload, policy, path))
        if out is not None:
            _write_page(summaries, out / PAGE_NAME)
    answer = {"summaries": summaries, "scenario": workload.described()}
    emit(output_format, answer, _parts(workload, summaries))
    if out is not None:
        note(f"written: {out / PAGE_NAME} and {len(chosen)} logs beside it")
        note(f"next: resilin verify {shlex.quote(str(out / logs[chosen[0]]))}")


def _summary(workload: Workload, policy: str, path: Path | None) -> dict[str, Any]:
    began = time.process_time()
    with nullcontext(MemoryLog()) if path is None else new_log(path) as log:
        history = run(log, workload.commands(policy), workload.physics, f"simulating {policy}")
    seconds = time.process_time() - began
    return {**summarize(history).as_dict(), "simulation_cpu_seconds": seconds}


def _write_page(summaries: list[dict[str, Any]], path: Path) -> None:
    from resilin.report.comparison import comparison_page

    path.write_text(comparison_page(summaries), encoding="utf-8")


def _parts(workload: Workload, summaries: list[dict[str, Any]]) -> Iterator[Table]:
    seconds = [f"{summary['simulation_cpu_seconds']:.2f} s" for summary in summaries]
    yield summary_table(workload.title, summaries, (), ["CPU time of the run", *seconds])
