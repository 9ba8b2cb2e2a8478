"""`resilin cell`: the settings of the live cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resilin.cli.administration import carry_out, change_options, command_id
from resilin.cli.asking import confirmed, yes_option
from resilin.cli.documents import file_name, read_documents
from resilin.cli.errors import ExitCode, InputError
from resilin.cli.live import LiveAddress, live_options, open_live
from resilin.cli.output import OutputFormat, emit, example, output_option
from resilin.cli.workload import PATH
from resilin.contracts.commands import ConfigureCell
from resilin.contracts.values import CellConfiguration
from resilin.planning.policies.registry import POLICIES

__all__ = ["command"]

_EPILOG = f"""\b
A settings file; what is left out has its default:
  virtualClusters:
    - name: default
      policy: elasticflow
      reserveServers: 1
  stopCost: {{fixedSeconds: 2, perDoublingSeconds: 2}}
  promiseMarginSeconds: 1

{example("resilin cell configure -f cell.yaml")}
"""


@click.group(
    "cell", epilog=example("resilin cell show -o yaml", "resilin cell configure -f c.yaml")
)
def command() -> None:
    """Show and change the settings of the live cell."""


@command.command("show", epilog=example("resilin cell show"))
@live_options
@output_option
def show(*, address: LiveAddress, output_format: OutputFormat) -> None:
    """Print the settings in force, as `resilin cell configure` takes them."""
    with open_live(address) as live:
        settings = live.fold().cell.configuration
    plain: dict[str, Any] = settings.model_dump(mode="json")
    # Settings have no shape that a table could show better than the file they are made of.
    emit("yaml" if output_format in ("table", "wide") else output_format, plain, ())


@command.command("configure", epilog=_EPILOG)
@click.option(
    "-f", "--file", "file", type=PATH, required=True, help="Settings, YAML or JSON; - is stdin."
)
@yes_option
@change_options
def configure(
    *,
    file: Path,
    yes: bool,
    timeout_seconds: float,
    address: LiveAddress,
    output_format: OutputFormat,
) -> int:
    """Set policies, virtual clusters, quotas and costs, all of them together.

    The file replaces every setting: begin with what `resilin cell show` prints.
    """
    settings = _read(file)
    with open_live(address) as live:
        if not confirmed(f"Replace the settings of {live.name}?", yes=yes):
            return ExitCode.NO
        command = ConfigureCell(
            cell=live.cell, command_id=command_id("configure"), configuration=settings
        )
        policies = ", ".join(f"{c.name}: {c.policy}" for c in settings.virtual_clusters)
        return carry_out(
            live,
            [command],
            f"the settings are in force ({policies})",
            timeout_seconds=timeout_seconds,
            output_format=output_format,
        )


def _read(file: Path) -> CellConfiguration:
    documents = read_documents(file)
    if len(documents) != 1:
        raise InputError(f"{file_name(file)}: holds {len(documents)} documents; settings are one")
    settings = documents[0].read_as(
        CellConfiguration, "a cell's settings", "virtualClusters, stopCost and the like"
    )
    for number, cluster in enumerate(settings.virtual_clusters):
        if cluster.policy not in POLICIES:
            line = documents[0].line_of(("virtualClusters", number, "policy"))
            raise InputError(
                f"{file_name(file)}:{line}: field 'virtualClusters[{number}].policy':"
                f" {cluster.policy!r} is no policy; choose of {', '.join(POLICIES)}"
            )
    return settings
