"""What a submission is answered, for programs and for people: asked only, or for real."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from resilin.cli.errors import ExitCode
from resilin.cli.output import Table, duration_text, number_text, time_text
from resilin.contracts import events as ev

__all__ = [
    "ASKED",
    "SUBMITTED",
    "Wording",
    "answer_code",
    "answer_parts",
    "counter_offer",
    "described_verdict",
    "offer_parts",
    "unanimous",
]


class Wording(NamedTuple):
    """How an answer is put."""

    admitted: str
    refused: str
    open: str


ASKED = Wording("would be admitted", "would be refused", "would have no answer at once")
SUBMITTED = Wording("admitted", "refused", "has no answer yet")


def described_verdict(
    verdict: ev.JobAdmitted | ev.JobRejected | ev.ProfileRequested | ev.CommandRejected,
    *,
    deadline_seconds: float | None,
    now_seconds: float,
    workers_at_once: int = 0,
) -> dict[str, Any]:
    """Describe an answer.

    Args:
        verdict: The answer.
        deadline_seconds: The job's deadline.
        now_seconds: When the answer was given.
        workers_at_once: How many workers the job would get then.
    """
    match verdict:
        case ev.CommandRejected(message=message):
            return {"admitted": False, "reason": "CommandRejected", "message": message}
        case ev.ProfileRequested():
            message = "nothing is known of its throughput: it is tried out before it is answered"
            return {"admitted": None, "reason": "ProfileRequested", "message": message}
        case ev.JobRejected():
            return _refusal(verdict, now_seconds)
        case ev.JobAdmitted():
            return _admission(verdict, deadline_seconds, now_seconds, workers_at_once)


def _refusal(refused: ev.JobRejected, now: float) -> dict[str, Any]:
    return {
        "admitted": False,
        "reason": refused.reason.value,
        "message": refused.message,
        "counter_offer": {
            **counter_offer(refused.earliest_deadline_seconds, now),
            "minimum_workers": refused.minimum_workers,
        },
    }


def counter_offer(earliest_seconds: float | None, since_seconds: float) -> dict[str, Any]:
    """Describe the earliest deadline that would be accepted.

    Args:
        earliest_seconds: The deadline; None if there is none.
        since_seconds: What its duration is to count from.
    """
    # Rounded up to whole seconds, so that it would be accepted as it stands.
    wait = None if earliest_seconds is None else math.ceil(earliest_seconds - since_seconds)
    return {
        "earliest_deadline": None if wait is None else duration_text(wait),
        "earliest_deadline_seconds": None if wait is None else since_seconds + wait,
    }


def _admission(
    admitted: ev.JobAdmitted, deadline: float | None, now: float, workers: int
) -> dict[str, Any]:
    start: float | None = now if workers else None
    if start is None and admitted.plan:
        start = admitted.plan[0][0]
    finish = admitted.finish_seconds
    return {
        "admitted": True,
        "promised": admitted.promised,
        "start_seconds": start,
        "starts_in_seconds": None if start is None else start - now,
        "workers_at_once": workers,
        "finish_seconds": finish,
        "finishes_in_seconds": None if finish is None else finish - now,
        "slack_seconds": None if finish is None or deadline is None else deadline - finish,
        "minimum_satisfactory_share": admitted.minimum_satisfactory_share,
        "plan": [list(segment) for segment in admitted.plan],
        "plans_moved": list(admitted.plans_moved),
    }


def answer_parts(job: dict[str, Any], wording: Wording) -> list[str | Table]:
    """Put a described answer into sentences and figures; it has a ``job_id`` too."""
    if job["admitted"] is None:
        return [f"{job['job_id']}: {wording.open}: {job['message']}"]
    return _admitted(job, wording) if job["admitted"] else _refused(job, wording)


def unanimous(jobs: Sequence[dict[str, Any]]) -> bool | None:
    """Return whether all are admitted: no if one is refused, None if one has no answer."""
    verdicts = [job["admitted"] for job in jobs]
    return False if False in verdicts else None if None in verdicts else True


def answer_code(admitted: bool | None) -> ExitCode:  # noqa: FBT001 (the answer itself)
    """Return what to exit with."""
    if admitted is None:
        return ExitCode.NO_ANSWER
    return ExitCode.OK if admitted else ExitCode.NO


def _admitted(job: dict[str, Any], wording: Wording) -> list[str | Table]:
    promise = "its deadline is promised" if job["promised"] else "without a promise"
    starts, finish = job["starts_in_seconds"], job["finish_seconds"]
    rows = [["starts", "when GPUs are free" if starts is None else f"in {duration_text(starts)}"]]
    if starts is not None and starts <= 0:
        rows = [["starts", "at once"]]
    if job["workers_at_once"]:
        rows = [["starts", f"at once, with {job['workers_at_once']} workers"]]
    if finish is not None:
        within = duration_text(job["finishes_in_seconds"])
        rows.append(["finishes", f"in {within} at the latest, at {time_text(finish)}"])
    if job["slack_seconds"] is not None:
        rows.append(["slack", duration_text(job["slack_seconds"])])
    if job["promised"]:
        share = number_text(job["minimum_satisfactory_share"])
        rows.append(["minimum satisfactory share", f"{share} workers"])
    if job["plans_moved"]:
        rows.append(["plans that move to make room", ", ".join(job["plans_moved"])])
    return [f"{job['job_id']}: {wording.admitted}, {promise}", Table((), rows)]


def _refused(job: dict[str, Any], wording: Wording) -> list[str | Table]:
    head = f"{job['job_id']}: {wording.refused}, {job['reason']}: {job['message']}"
    return [head, *offer_parts(job.get("counter_offer", {}))]


def offer_parts(offer: dict[str, Any], since: str = "") -> list[str | Table]:
    """Put a counter-offer into figures; nothing if nothing is offered.

    Args:
        offer: The counter-offer.
        since: What its duration counts from, where that is not now.
    """
    rows = []
    if offer.get("earliest_deadline") is not None:
        moment = time_text(offer["earliest_deadline_seconds"])
        rows.append(["earliest deadline", f"{offer['earliest_deadline']}{since}, at {moment}"])
    if offer.get("minimum_workers") is not None:
        rows.append(["workers it would need in an empty cell", str(offer["minimum_workers"])])
    return [Table((), rows)] if rows else []
