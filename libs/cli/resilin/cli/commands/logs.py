"""`resilin logs`: what a job's workers print."""

from __future__ import annotations

from itertools import chain

import click

from resilin.agent.job_directory import JobDirectory
from resilin.cli.errors import InputError
from resilin.cli.following import job_named
from resilin.cli.live import LiveAddress, live_options, open_live
from resilin.cli.output import OutputFormat, emit, example, output_option
from resilin.cli.worker_output import JobOutput, OutputLine, followed_output, print_line

__all__ = ["command"]


@click.command("logs", epilog=example("resilin logs nightly -f", "resilin logs nightly --worker 2"))
@click.argument("job")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--worker", metavar="WORKER", help="Only this worker, such as 2, or leader.  [default: all]"
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    help="So many of the last lines of each.",
)
@live_options
@output_option
def command(
    *,
    job: str,
    follows: bool,
    worker: str | None,
    last: int,
    address: LiveAddress,
    output_format: OutputFormat,
) -> None:
    """Print what a job's workers print, in an embedded cell.

    Each line begins with its worker where there are several. On a terminal, characters that
    could steer it are escaped; into a pipe or file they go as they are.
    """
    if address.bootstrap is not None:
        raise InputError(
            f"{address.name}: workers' output is kept on the servers that they run on; `resilin"
            " logs` reads that of an embedded cell (--home)"
        )
    with open_live(address) as live:
        job_id = job_named(live, job)
        folder = JobDirectory.of_job(address.home, job_id).logs
        files = JobOutput(folder, worker)
        try:
            lines = files.last(last)
            if not follows:
                if not files.known:
                    which = "" if worker is None else f" of worker {worker}"
                    raise InputError(f"{job_id}: there is no output{which} in {folder} yet")
                _emit(output_format, job_id, files, lines)
                return
            for line in chain(lines, followed_output(live, job_id, files)):
                print_line(output_format, line, several=len(files.known) > 1)
        finally:
            files.close()


def _emit(
    output_format: OutputFormat, job_id: str, files: JobOutput, lines: list[OutputLine]
) -> None:
    lines = [*lines, *files.unfinished()]
    several = len(files.known) > 1
    if output_format in ("json", "yaml"):
        listed = [{"worker": line.worker, "text": line.text} for line in lines]
        emit(output_format, {"job_id": job_id, "lines": listed}, ())
        return
    for line in lines:
        click.echo(line.shown(several=several), color=True)
