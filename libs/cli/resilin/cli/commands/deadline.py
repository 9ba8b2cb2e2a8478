"""`resilin deadline`: ask for another deadline of a job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click
from pydantic import ValidationError

from resilin.cli.administration import command_id
from resilin.cli.answers import answer_code, counter_offer, offer_parts
from resilin.cli.asking import confirmed, yes_option
from resilin.cli.errors import ExitCode, InputError
from resilin.cli.following import job_named
from resilin.cli.live import (
    LiveAddress,
    LiveCell,
    Reply,
    ask,
    live_options,
    open_live,
    timeout_option,
    wait_option,
)
from resilin.cli.logs import fold_history
from resilin.cli.output import OutputFormat, emit, example, note, output_option, time_text
from resilin.contracts import events as ev
from resilin.contracts.commands import ChangeDeadline
from resilin.contracts.job_specification import parse_deadline

__all__ = ["command"]


def _read_when(ctx: click.Context, param: click.Parameter, value: str) -> timedelta | datetime:
    try:
        return parse_deadline(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command(
    "deadline",
    epilog=example(
        "resilin deadline nightly 5h30m", "resilin deadline nightly 2026-01-31T18:00:00Z"
    ),
)
@click.argument("job")
@click.argument("when", callback=_read_when)
@wait_option
@timeout_option(30.0, "Wait so long for the answer.")
@yes_option
@live_options
@output_option
def command(
    *,
    job: str,
    when: timedelta | datetime,
    waits: bool,
    timeout_seconds: float,
    yes: bool,
    address: LiveAddress,
    output_format: OutputFormat,
) -> int:
    """Ask for another deadline of a job; if that cannot be promised, the old one stands.

    WHEN is what the deadline of a job file takes: a time such as 2026-01-31T18:00:00Z, or a
    duration such as 5h30m. As there, a duration counts from the job's submission, not from
    now; `resilin describe` shows when that was.

    Exits with 0 if the deadline is changed, with 1 if it is refused (the earliest one that
    would be accepted is printed) or the job has ended, with 4 if no answer came in time.
    """
    with open_live(address) as live:
        job_id = job_named(live, job)
        request = _request(live, job_id, when)
        moment = time_text(request.deadline_seconds)
        if not confirmed(f"Ask for {moment} as the deadline of {job_id}?", yes=yes):
            return ExitCode.NO
        (reply,) = ask(live, [request], timeout_seconds=timeout_seconds if waits else None)
        answer = {
            "cell": live.name,
            "job_id": job_id,
            "command_id": request.command_id,
            "position": reply.position,
            "deadline_seconds": request.deadline_seconds,
            **_described(live, job_id, reply),
        }
    changed, offer = answer["changed"], answer["counter_offer"]
    said = {True: "is changed", False: "is not changed", None: "is not changed yet"}
    verdict = said[changed] if waits else "is to be changed"
    head = f"the deadline of {job_id} {verdict}: {answer['message']}"
    emit(output_format, answer, [head, *offer_parts(offer, " after its submission")])
    if offer["earliest_deadline"] is not None:
        note(f"next: resilin deadline {job_id} {offer['earliest_deadline']}")
    return answer_code(changed) if waits else ExitCode.OK


def _request(live: LiveCell, job_id: str, when: timedelta | datetime) -> ChangeDeadline:
    if isinstance(when, datetime):
        deadline = when.timestamp()
    else:
        deadline = _submitted_at_seconds(live, job_id) + when.total_seconds()
    try:
        return ChangeDeadline(
            cell=live.cell,
            command_id=command_id(f"deadline-{job_id}"),
            job_id=job_id,
            deadline_seconds=deadline,
        )
    except ValidationError:
        raise click.BadParameter(
            "lies before 1970, or further ahead than a cell plans; give a nearer time",
            param_hint="'WHEN'",
        ) from None


def _submitted_at_seconds(live: LiveCell, job_id: str) -> float:
    past = fold_history(live.log.read(), live.name).jobs.get(job_id)
    if past is None:
        raise InputError(
            f"WHEN: {job_id} is not taken in yet, so a duration cannot count from its submission;"
            " give a time such as 2026-01-31T18:00:00Z, or ask again once the cell runs"
        )
    return past.submitted_at_seconds


def _described(live: LiveCell, job_id: str, reply: Reply) -> dict[str, Any]:
    """Describe what came back, for programs."""
    changed: bool | None = False
    offer = counter_offer(None, 0.0)
    match reply.answer:
        case ev.DeadlineChanged(deadline_seconds=deadline):
            changed, message = True, f"it is {time_text(deadline)} now"
        case ev.DeadlineChangeRejected(message=message, earliest_deadline_seconds=earliest):
            if earliest is not None:
                offer = counter_offer(earliest, _submitted_at_seconds(live, job_id))
        case ev.DeadlineChangeRequested(deadline_seconds=deadline):
            message = f"{time_text(deadline)} was asked for before it was answered"
        case _ if reply.open:
            changed, message = None, f"it is kept as message {reply.position} of jobs.commands"
        case _:
            message = reply.problem or "the job ended before that"
    return {"changed": changed, "message": message, "counter_offer": offer}
