"""What is decided in a log, to compare a live one with the same run again in simulation.

The commands come again when they came, and the world of the log stands where a simulated cluster
would: what was measured, when workers were ready, how long they stood still, who was killed. The
services, the log and the job specifications are the same ones as live. They are told of no
decision: each decides anew, from what the others decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.values import GpuSet

__all__ = ["Decisions", "decisions"]


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided about one job.

    Attributes:
        answer: What admission answered it.
        shares: The worker counts that the allocator gave it, in order.
        places: The slots that placement gave it, in order; none where it was suspended.
    """

    answer: str
    shares: tuple[int, ...]
    places: tuple[GpuSet, ...]


def decisions(entries: Sequence[LogEntry]) -> dict[str, Decisions]:
    """Return what a log's services decided, by job."""
    answers: dict[str, str] = {}
    shares: dict[str, list[int]] = {}
    places: dict[str, list[GpuSet]] = {}
    for event in itertools.chain.from_iterable(entry.record.events for entry in entries):
        match event:
            case ev.JobAdmitted(job_id=job_id, minimum_satisfactory_share=share):
                answers[job_id] = f"promised, {share} at least"
            case ev.JobRejected(job_id=job_id, reason=reason):
                answers[job_id] = f"refused, {reason.value}"
            case ev.AllocationPlanned(changes=changes):
                for change in changes:
                    shares.setdefault(change.job_id, []).append(change.allocation.workers)
            case ev.JobPlaced(job_id=job_id, gpus=gpus) | ev.JobMigrated(job_id=job_id, gpus=gpus):
                places.setdefault(job_id, []).append(gpus)
            case ev.JobSuspended(job_id=job_id):
                places.setdefault(job_id, []).append({})
            case _:
                pass
    return {
        job_id: Decisions(answer, tuple(shares.get(job_id, ())), tuple(places.get(job_id, ())))
        for job_id, answer in answers.items()
    }
