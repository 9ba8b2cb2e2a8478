"""`resilin version`."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from resilin.cli.output import OutputFormat, emit, example, output_option

__all__ = ["command"]


@click.command("version", epilog=example("resilin version -o json"))
@output_option
def command(output_format: OutputFormat) -> None:
    """Print the version."""
    version = metadata.version("resilin")
    answer = {"resilin": version, "python": platform.python_version()}
    emit(output_format, answer, [f"resilin {version} (Python {answer['python']})"])
