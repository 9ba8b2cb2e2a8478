"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from resilin.cli.output import note, safe_text

__all__ = ["confirmed", "on_terminal", "yes_option"]

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


def yes_option(command: AnyCommand) -> AnyCommand:
    """Give a command ``--yes``, passed to it as ``yes``."""
    return click.option("-y", "--yes", is_flag=True, help="Do it without asking first.")(command)


def on_terminal() -> bool:
    """Say whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, *, yes: bool, needed: bool = False) -> bool:
    """Ask whether to go on; where nobody can be asked, go on unless a yes is needed.

    Raises:
        click.UsageError: If a yes is needed and nobody can be asked.
    """
    if yes:
        return True
    if not on_terminal():
        if needed:
            raise click.UsageError("nobody can be asked here: look at it first, then give --yes")
        return True
    if click.confirm(safe_text(question), err=True):
        return True
    note("nothing was sent")
    return False
