"""`resilin version`."""

from __future__ import annotations

import platform

import click

from resilin.cli.output import OutputFormat, emit, example, output_option
from resilin.kernel.software import SOFTWARE

__all__ = ["command"]


@click.command("version", epilog=example("resilin version -o json"))
@output_option
def command(output_format: OutputFormat) -> None:
    """Print the version."""
    answer = {"resilin": SOFTWARE, "python": platform.python_version()}
    emit(output_format, answer, [f"resilin {SOFTWARE} (Python {answer['python']})"])
