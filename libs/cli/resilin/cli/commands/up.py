"""`resilin up`: run a cell on this machine, all services in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click

from resilin.cli.errors import ExitCode, InputError
from resilin.cli.homes import answers, home_option
from resilin.cli.output import OutputFormat, emit, example, output_option, safe_text
from resilin.embedded.folder import Home

__all__ = ["command"]

START_SECONDS = 60.0
LOOK_SECONDS = 0.1
HIGHEST_PORT = 65_535


@click.command("up", epilog=example("resilin up --slots 4", "resilin up --simulate --slots 64"))
@home_option
@click.option(
    "--slots",
    type=click.IntRange(1, 4_096),
    help="How many workers this machine runs at once, in a new cell.  [default: its cores]",
)
@click.option("--simulate", is_flag=True, help="Simulate the workers instead of running any.")
@click.option(
    "--time-scale",
    type=click.FloatRange(0, 100_000, min_open=True),
    default=1.0,
    show_default=True,
    help="With --simulate: seconds of the cell a second.",
)
@click.option(
    "--port",
    type=click.IntRange(0, HIGHEST_PORT),
    default=0,
    help="Where health and metrics listen, on loopback.  [default: a free one]",
)
@click.option("--foreground", is_flag=True, help="Stay in this terminal until interrupted.")
@output_option
def command(
    *,
    home: Home,
    slots: int | None,
    simulate: bool,
    time_scale: float,
    port: int,
    foreground: bool,
    output_format: OutputFormat,
) -> int:
    """Run a cell on this machine: all services in one process, workers beside it.

    What was going on when the cell last ended goes on, from its log and from checkpoints.
    Nothing outside this machine can reach it. Jobs run as you: submit only what you would run.
    """
    if time_scale != 1.0 and not simulate:
        raise click.UsageError("--time-scale needs --simulate: real workers take real time")
    running = home.running()
    if running is not None:
        raise InputError(f"a cell runs in {home.path} already, as process {running.pid}")
    program = [sys.executable, "-m", "resilin.embedded", "--home", str(home.path)]
    program += ["--slots", str(slots or os.cpu_count() or 1), "--port", str(port)]
    if simulate:
        program += ["--simulate", "--time-scale", str(time_scale)]
    if foreground:
        return subprocess.run(program, check=False).returncode  # noqa: S603 (this project's own)
    home.path.mkdir(parents=True, exist_ok=True)
    with home.output.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 (this project's own)
            program,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = _wait_until_ready(home, process)
    emit(
        output_format,
        {"home": str(home.path), "pid": process.pid, "url": url},
        [
            f"A cell runs in {home.path} (process {process.pid}).",
            f"Health and metrics: {url}/readyz, {url}/metrics",
            "Next: resilin submit -f job.yaml; resilin list --watch; resilin down",
        ],
    )
    return ExitCode.OK


def _wait_until_ready(home: Home, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise InputError(f"the cell ended at once: {_last_words(home.output)}")
        running = home.running()
        if running is not None and running.pid == process.pid and answers(running):
            return running.url
        time.sleep(LOOK_SECONDS)
    process.terminate()
    raise InputError(
        f"the cell was not ready after {START_SECONDS:g} s: {_last_words(home.output)}"
    )


def _last_words(output: Path) -> str:
    lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return safe_text(lines[-1]) if lines else f"it said nothing; see {output}"
