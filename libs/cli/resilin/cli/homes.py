"""The folder of an embedded cell, and the process that runs there."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from resilin.cli.live import default_home
from resilin.embedded.folder import Home, Running

__all__ = ["answers", "home_option"]

ANSWER_SECONDS = 2.0

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


def home_option(command: AnyCommand) -> AnyCommand:
    """Give a command ``--home``, passed to it as a :class:`Home`."""

    @click.option(
        "--home",
        "folder",
        metavar="DIR",
        type=click.Path(path_type=Path),
        envvar="RESILIN_HOME",
        help="The cell's folder.  [env: RESILIN_HOME; default: .resilin in the user's home]",
    )
    @wraps(command)
    def call(*arguments: object, folder: Path | None, **options: object) -> object:
        home = Home((folder or default_home()).absolute())
        return command(*arguments, home=home, **options)

    return call  # type: ignore[return-value]  # what click sees is the same command


def answers(running: Running) -> bool:
    """Say whether the cell has folded its log and takes commands."""
    try:
        with urllib.request.urlopen(f"{running.url}/readyz", timeout=ANSWER_SECONDS) as page:  # noqa: S310 (loopback)
            return bool(page.status == 200)
    except OSError:
        return False
