"""`resilin down`: end the cell that `resilin up` started."""

from __future__ import annotations

import os
import signal
import time

import click

from resilin.cli.errors import ExitCode
from resilin.cli.homes import home_option
from resilin.cli.output import OutputFormat, emit, example, output_option
from resilin.embedded.folder import Home

__all__ = ["command"]

LOOK_SECONDS = 0.1


@click.command("down", epilog=example("resilin down"))
@home_option
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(0, 3_600),
    default=60.0,
    show_default=True,
    help="Wait so many seconds for an end in good order, then end it at once.",
)
@output_option
def command(*, home: Home, timeout_seconds: float, output_format: OutputFormat) -> int:
    """End the cell on this machine and its workers; their progress is kept.

    `resilin up` goes on where it stopped. Deadlines go on counting meanwhile. Exits with 1 if
    no cell runs there.
    """
    running = home.running()
    if running is None:
        emit(
            output_format,
            {"home": str(home.path), "was_running": False},
            [f"No cell runs in {home.path}."],
        )
        return ExitCode.NO
    os.kill(running.pid, signal.SIGTERM)
    until = time.monotonic() + timeout_seconds
    while home.running() == running and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    in_order = home.running() != running
    if not in_order:
        os.kill(running.pid, signal.SIGKILL)
    said = "has ended" if in_order else "was ended at once: it did not end in time"
    emit(
        output_format,
        {"home": str(home.path), "was_running": True, "in_good_order": in_order},
        [f"The cell in {home.path} {said}."],
    )
    return ExitCode.OK
