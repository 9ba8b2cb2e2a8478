"""`resilin evaluate`: the papers' figures and tables again, the published numbers beside ours."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from resilin.cli.errors import ExitCode, InputError
from resilin.cli.output import (
    OutputFormat,
    Table,
    duration_text,
    emit,
    example,
    note,
    number_text,
    output_option,
)
from resilin.cli.progress import progress
from resilin.cli.workload import PATH, POLICY_NAMES

if TYPE_CHECKING:
    from resilin.evaluation.runner import Outcome
    from resilin.evaluation.scenario import Evaluation

__all__ = ["command"]

PAGE_NAME = "evaluation.html"


@click.command(
    "evaluate",
    epilog=example(
        "resilin evaluate --list",
        "resilin evaluate smoke --out evaluation",
        "resilin evaluate elasticflow-figure-6 --traces traces --jobs 8 --out evaluation",
    ),
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Run every scenario that comes along.")
@click.option("--list", "listed", is_flag=True, help="List the scenarios, and run nothing.")
@click.option(
    "--out",
    type=PATH,
    default="evaluation",
    show_default=True,
    help="Folder for results; those that it holds are not run again.",
)
@click.option(
    "--jobs",
    "processes",
    type=click.IntRange(1, 1024),
    help="Processes.  [default: as many as there are processors]",
)
@click.option(
    "--traces",
    type=PATH,
    envvar="RESILIN_TRACES",
    help="Folder of public traces.  [default: $RESILIN_TRACES]",
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice(POLICY_NAMES),
    multiple=True,
    help="Run only this policy of the grid; may be given more than once.",
)
@output_option
def command(
    names: tuple[str, ...],
    out: Path,
    processes: int | None,
    traces: Path | None,
    policies: tuple[str, ...],
    output_format: OutputFormat,
    *,
    everything: bool,
    listed: bool,
) -> int:
    """Regenerate figures and tables of the papers.

    A scenario is a grid of policies, traces, cluster sizes, seeds and resize costs, and the
    published numbers that belong beside it. NAME is one of --list, or a scenario file of your
    own, which ends in .yaml. Exits with 1 if a run failed; the others go on.

    A run that was interrupted goes on where it was: a result is kept under a digest of the
    inputs, the files and the code that it hangs on.
    """
    if listed:
        if names or everything:
            raise click.UsageError("--list goes with no name and without --all")
        answer = {"scenarios": [_described(scenario) for scenario in _shipped()]}
        emit(output_format, answer, [_list_table(answer["scenarios"])])
        return ExitCode.OK
    if everything == bool(names):
        raise click.UsageError("name scenarios (see `resilin evaluate --list`), or give --all")
    scenarios = _shipped() if everything else _named(names)
    return _evaluate(scenarios, out, processes, traces, policies, output_format)


def _shipped() -> list[Evaluation]:
    from resilin.evaluation.scenario import load, shipped

    return [load(path) for path in shipped().values()]


def _named(names: Sequence[str]) -> list[Evaluation]:
    from resilin.evaluation.scenario import ScenarioError, load, shipped

    known = shipped()
    found = []
    for name in dict.fromkeys(names):
        path = Path(name) if name.endswith(".yaml") else known.get(name)
        if path is None:
            raise InputError(
                f"no scenario is called {name!r}; there are {', '.join(known)}, or name a file "
                "that ends in .yaml"
            )
        try:
            found.append(load(path))
        except ScenarioError as error:
            raise InputError(str(error)) from None
    twice = [one.name for one in found if sum(one.name == other.name for other in found) > 1]
    if twice:
        raise InputError(f"two scenarios are called {twice[0]!r}: they would share a folder")
    return found


def _described(scenario: Evaluation) -> dict[str, Any]:
    from resilin.evaluation.grid import cells, missing_policies

    spec = scenario.spec
    return {
        "name": scenario.name,
        "title": spec.title,
        "paper": spec.answers.paper,
        "item": spec.answers.item,
        "policies": list(spec.policies),
        "missing_policies": list(missing_policies(scenario)),
        "workloads": [workload.name for workload in spec.workloads],
        "resize_costs": [cost.name for cost in spec.resize_costs],
        "runs": sum(1 for _ in cells(scenario)),
        "needs_traces": any(workload.source.paths for workload in spec.workloads),
    }


def _list_table(scenarios: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            each["name"],
            each["title"],
            f"{each['paper']}, {each['item']}",
            number_text(each["runs"]),
            number_text(each["needs_traces"]),
        ]
        for each in scenarios
    ]
    return Table(["scenario", "shows", "answers", "runs", "needs traces"], rows, right=[3])


# --- running -------------------------------------------------------------------------------


def _evaluate(
    scenarios: Sequence[Evaluation],
    out: Path,
    processes: int | None,
    traces: Path | None,
    policies: tuple[str, ...],
    output_format: OutputFormat,
) -> int:
    from resilin.evaluation.grid import cells, check_policies, check_traces
    from resilin.evaluation.runner import run_cells
    from resilin.evaluation.scenario import ScenarioError

    grids = [list(cells(scenario, policies)) for scenario in scenarios]
    try:
        for scenario, grid in zip(scenarios, grids, strict=True):
            check_policies(scenario, policies)
            if grid:
                check_traces(scenario, traces)
    except ScenarioError as error:
        raise InputError(str(error)) from None
    if not any(grids):
        raise InputError(f"none of these scenarios runs {' or '.join(policies)}")
    began = time.perf_counter()
    everything = [cell for grid in grids for cell in grid]
    with progress("evaluating", len(everything)) as advance:
        outcome = run_cells(
            everything,
            out,
            traces=traces,
            jobs=processes or os.cpu_count() or 1,
            done=advance or (lambda: None),
        )
    answers = _write(scenarios, grids, outcome, out)
    answer = {
        "scenarios": answers,
        "page": str(out / PAGE_NAME),
        "runs": len(outcome.runs),
        "reused": outcome.reused,
        "failed": len(outcome.failures),
        "wall_seconds": time.perf_counter() - began,
        "cpu_seconds": _cpu_seconds(),
        # Cells that scenarios share, or that were there before, count as often as they are shown.
        "simulation_cpu_seconds": sum(run.cpu_seconds for run in outcome.runs.values()),
    }
    emit(output_format, answer, _parts(answer))
    for failure in outcome.failures:
        note(f"failed: {failure.cell.label}: {failure.message}")
    note(f"written: {out / PAGE_NAME}")
    return ExitCode.NO if outcome.failures else ExitCode.OK


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it started and that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _write(
    scenarios: Sequence[Evaluation], grids: Sequence[Sequence[Any]], outcome: Outcome, out: Path
) -> list[dict[str, Any]]:
    """Write each scenario's folder and the page of all; return what to say about them."""
    from resilin.evaluation.charts import panels
    from resilin.evaluation.comparison import beside
    from resilin.evaluation.page import Part, evaluation_page
    from resilin.evaluation.plots import write_plots
    from resilin.evaluation.tables import costs_csv, markdown, published_csv, results_csv
    from resilin.report.plots import PlotsUnavailableError

    parts, answers, no_plots = [], [], ""
    for scenario, grid in zip(scenarios, grids, strict=True):
        runs = {cell: outcome.runs[cell] for cell in grid if cell in outcome.runs}
        failures = [
            (failure.cell.label, failure.message)
            for failure in outcome.failures
            if failure.cell in grid
        ]
        folder = out / scenario.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("results.csv", results_csv(scenario, runs)),
            ("costs.csv", costs_csv(scenario, runs)),
            ("published.csv", published_csv(scenario, runs)),
            ("tables.md", markdown(scenario, runs, failures)),
        ):
            (folder / name).write_text(text, encoding="utf-8")
        try:
            write_plots(panels(scenario, runs), folder)
        except PlotsUnavailableError as error:
            no_plots = str(error)
        parts.append(Part(scenario, runs, failures))
        answers.append(
            {
                "name": scenario.name,
                "folder": str(folder),
                "runs": len(runs),
                "failures": [{"run": what, "message": why} for what, why in failures],
                "beside": [
                    {
                        "what": each.what,
                        **dict(
                            zip(("workload", "cluster", "resize_cost"), each.where, strict=True)
                        ),
                        "published": each.published,
                        "ours": each.ours,
                        "ours_text": each.ours_text,
                        "source": each.source,
                        "within": each.within,
                    }
                    for each in beside(scenario, runs)
                ],
            }
        )
    (out / PAGE_NAME).write_text(evaluation_page(parts), encoding="utf-8")
    if no_plots:
        note(f"no plots: {no_plots}")
    return answers


def _parts(answer: Mapping[str, Any]) -> Iterator[str | Table]:
    for scenario in answer["scenarios"]:
        rows = [
            [
                each["what"],
                f"{each['workload']}, {each['cluster']}, {each['resize_cost']}",
                each["published"],
                each["ours_text"] + (" (outside)" if each["within"] is False else ""),
            ]
            for each in scenario["beside"]
        ]
        if rows:
            yield Table(["", "on", "published", "ours"], rows, scenario["name"], right=[2, 3])
        else:
            yield f"{scenario['name']}: {scenario['runs']} runs, see {scenario['folder']}"
    yield (
        f"\n{answer['runs']:,} runs, {answer['reused']:,} of them were there, "
        f"{answer['failed']:,} failed; CPU time {duration_text(answer['cpu_seconds'])}"
    )
