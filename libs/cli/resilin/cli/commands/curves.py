"""`resilin curves`: what the live cell knows of throughput."""

from __future__ import annotations

from pathlib import Path

import click
from pydantic import ValidationError

from resilin.cli.administration import carry_out, change_options, command_id
from resilin.cli.documents import problem_of
from resilin.cli.errors import InputError
from resilin.cli.live import LiveAddress, live_options, open_live
from resilin.cli.output import OutputFormat, Table, emit, example, number_text, output_option
from resilin.contracts.commands import ImportCurves
from resilin.contracts.topics import JOBS_COMMANDS
from resilin.contracts.values import Curve
from resilin.workloads import CurveBook, read_profiles

__all__ = ["command"]

# Half of what the topic takes leaves room for the command around the curves.
BYTES_PER_COMMAND = JOBS_COMMANDS.message_bytes_max // 2


@click.group("curves", epilog=example("resilin curves import profiles", "resilin curves list"))
def command() -> None:
    """List and import throughput curves of the live cell."""


@command.command("list", epilog=example("resilin curves list"))
@live_options
@output_option
def list_curves(*, address: LiveAddress, output_format: OutputFormat) -> None:
    """List the curves that the cell knows: iterations per second by workers."""
    with open_live(address) as live:
        known = live.fold().cell.curves
        name = live.name
    curves = [
        {
            "model": key.rpartition("/")[0],
            "global_batch": int(key.rpartition("/")[2]),
            "iterations_per_second": {str(count): rate for count, rate in rates.items()},
        }
        for key, rates in known.items()
    ]
    rows = [
        [
            key.rpartition("/")[0],
            key.rpartition("/")[2],
            ", ".join(f"{count}: {number_text(rate)}" for count, rate in rates.items()),
        ]
        for key, rates in known.items()
    ]
    table = Table(("model", "global batch", "iterations/s by workers"), rows, right=(1,))
    nothing = f"{name}: no curve; `resilin curves import` brings some in"
    emit(output_format, {"cell": name, "curves": curves}, [table if rows else nothing])


@command.command("import", epilog=example("resilin curves import throughputs_A100"))
@click.argument("profiles", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--source",
    "curve_source",
    type=click.Choice(["imported", "profiled", "model"]),
    default="imported",
    show_default=True,
    help="How they were come by.",
)
@change_options
def import_curves(
    *,
    profiles: Path,
    curve_source: str,
    timeout_seconds: float,
    address: LiveAddress,
    output_format: OutputFormat,
) -> int:
    """Make throughput profiles known: a folder or file, in any layout that traces take.

    A curve of a model and global batch that is known already is replaced. See docs/traces.md.
    """
    curves = _curves(read_profiles(profiles), profiles)
    commands = [
        ImportCurves.model_validate(
            {
                "cell": address.cell,
                "command_id": command_id("curves"),
                "curves": part,
                "curve_source": curve_source,
            }
        )
        for part in _parts(curves)
    ]
    with open_live(address) as live:
        return carry_out(
            live,
            commands,
            f"{len(curves)} curves are known",
            timeout_seconds=timeout_seconds,
            output_format=output_format,
        )


def _curves(book: CurveBook, profiles: Path) -> list[Curve]:
    try:
        return [
            Curve(
                model=model,
                global_batch=batch,
                iterations_per_second=dict(
                    zip(curve.workers, curve.iterations_per_second, strict=True)
                ),
            )
            for (model, batch), curve in book.items()
        ]
    except ValidationError as error:
        raise InputError(f"{profiles}: {problem_of(error, 'a curve')[1]}") from None


def _parts(curves: list[Curve]) -> list[list[Curve]]:
    """Split curves into commands that the topic takes."""
    parts: list[list[Curve]] = [[]]
    size = 0
    for curve in curves:
        length = len(curve.model_dump_json())
        if parts[-1] and size + length > BYTES_PER_COMMAND:
            parts.append([])
            size = 0
        parts[-1].append(curve)
        size += length
    return parts
