"""The entry point `resilin`: its commands, found by name and imported when they are used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

import click

from resilin.cli.errors import explained
from resilin.cli.output import example

__all__ = ["cli", "main"]

_COMMANDS = (
    "up",
    "down",
    "submit",
    "run",
    "list",
    "describe",
    "watch",
    "wait",
    "logs",
    "events",
    "cancel",
    "deadline",
    "node",
    "cell",
    "curves",
    "deadletter",
    "simulate",
    "compare",
    "evaluate",
    "verify",
    "replay",
    "state",
    "explain",
    "what-if",
    "bound",
    "version",
)


_ALIASES = {"ps": "list"}


class _Commands(click.Group):
    """A group that imports a command when it is asked for, and ends with our exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in the order in which the help lists them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's signature)
        """Import a command's module; None for an unknown name."""
        name = _ALIASES.get(cmd_name, cmd_name)
        if name not in _COMMANDS:
            return None
        module = import_module(f"resilin.cli.commands.{name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def main(  # type: ignore[override]  # it ends the process in any mode, and says so
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: object
    ) -> NoReturn:
        """Run a command and exit; every error is one line on stderr."""
        given = list(sys.argv[1:] if args is None else args)
        settings = cast("dict[str, Any]", {**extra, "standalone_mode": False})
        try:
            result = super().main(given or ["--help"], prog_name or "resilin", **settings)
        except Exception as error:
            message, code = explained(error)
            click.echo(f"resilin: {message}", err=True)
            sys.exit(code)
        sys.exit(result if isinstance(result, int) else 0)


_EXIT_CODES = """\b
Exit codes:
    0  done; where a question was asked, the answer is yes
    1  the answer is no: a log is not sound, a job is refused or did not complete
    2  the input or the usage is wrong; nothing was written
    3  a bug in resilin
    4  the live cell has not answered in time; what was sent is kept
  130  interrupted
"""

_EXAMPLE = example(
    "resilin submit -f job.yaml",
    "resilin simulate --servers 16 --policy elasticflow --out run",
    "resilin verify run/log.resilin",
)


@click.group(
    "resilin",
    cls=_Commands,
    epilog=f"{_EXIT_CODES}\n{_EXAMPLE}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def cli() -> None:
    """Resilin schedules elastic deep-learning jobs from an event log.

    Every command prints a table, or with -o json one JSON object and nothing else on stdout;
    messages and progress go to stderr.
    """


def main() -> None:
    """Run the command line."""
    cli.main()
