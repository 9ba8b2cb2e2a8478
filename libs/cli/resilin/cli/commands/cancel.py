"""`resilin cancel`: stop a job."""

from __future__ import annotations

import secrets

import click

from resilin.cli.asking import confirmed, yes_option
from resilin.cli.errors import ExitCode
from resilin.cli.following import job_named
from resilin.cli.live import (
    LiveAddress,
    ask,
    live_options,
    open_live,
    timeout_option,
    wait_option,
)
from resilin.cli.output import OutputFormat, emit, example, output_option
from resilin.contracts import events as ev
from resilin.contracts.commands import CancelJob

__all__ = ["command"]


@click.command("cancel", epilog=example("resilin cancel nightly"))
@click.argument("job")
@wait_option
@timeout_option(30.0, "Wait so long for the answer.")
@yes_option
@live_options
@output_option
def command(
    *,
    job: str,
    waits: bool,
    timeout_seconds: float,
    yes: bool,
    address: LiveAddress,
    output_format: OutputFormat,
) -> int:
    """Stop a job and give its GPUs back; its progress is kept as far as it was saved.

    Exits with 0 if the job is cancelled, with 1 if it had ended already, with 4 if no answer
    came in time.
    """
    with open_live(address) as live:
        job_id = job_named(live, job)
        if not confirmed(f"Cancel {job_id}?", yes=yes):
            return ExitCode.NO
        command_id = f"cancel-{job_id[:170]}-{secrets.token_hex(4)}"
        command = CancelJob(cell=live.cell, command_id=command_id, job_id=job_id)
        (reply,) = ask(live, [command], timeout_seconds=timeout_seconds if waits else None)
        name = live.name
    answer = {
        "cell": name,
        "job_id": job_id,
        "command_id": command_id,
        "position": reply.position,
        "cancelled": None,
        "message": f"it is kept as message {reply.position} of jobs.commands",
    }
    code = ExitCode.NO_ANSWER if waits else ExitCode.OK
    if isinstance(reply.answer, ev.JobCancelled):
        answer |= {"cancelled": True, "message": "its GPUs are free once its workers have left"}
        code = ExitCode.OK
    elif not reply.open:
        ended = "it ended before it could be cancelled"
        answer |= {"cancelled": False, "message": reply.problem or ended}
        code = ExitCode.NO
    said = {True: "is cancelled", False: "is not cancelled", None: "has no answer yet"}
    verdict = said[answer["cancelled"]] if waits else "is to be cancelled"  # type: ignore[index]  # one of the three
    emit(output_format, answer, [f"{job_id} {verdict}: {answer['message']}"])
    return code
