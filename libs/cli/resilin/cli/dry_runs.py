"""The cells that a dry run can ask: that of a log, a live one, an empty one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resilin.admission.decider import AdmissionDecider
from resilin.admission.state import AdmissionState
from resilin.allocator.decider import AllocatorDecider, AllocatorState
from resilin.audit.dry_run import Answer, DryRun, dry_run
from resilin.audit.replay import fold_log
from resilin.cli.answers import ASKED, answer_parts, described_verdict, unanimous
from resilin.cli.errors import InputError
from resilin.cli.live import LiveCell, now_seconds
from resilin.cli.logs import Moment, open_log
from resilin.cli.output import Table
from resilin.cli.workload import CellOptions
from resilin.contracts import events as ev
from resilin.contracts.job_specification import JobSpecification
from resilin.eventlog.memory import MemoryLog
from resilin.kernel.host import Folded
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import Simulation

__all__ = ["AskedCell", "asked_jobs", "dry_run_parts"]


@dataclass(frozen=True, slots=True)
class AskedCell:
    """A cell that is asked: the two services that answer, folded.

    Attributes:
        admission: The one.
        allocator: The other, at the same offset.
        at_seconds: When it is asked, on its clock.
        log: The log or the live cell; None for an empty cell.
        offset: Where in its log; None for an empty cell.
    """

    admission: Folded[AdmissionState]
    allocator: Folded[AllocatorState]
    at_seconds: float
    log: str | None
    offset: int | None

    @classmethod
    def of_log(cls, log_file: Path, moment: Moment | None) -> AskedCell:
        """Take the cell of a log, at its end or at a moment.

        Raises:
            InputError: If no server had joined by then.
        """
        with open_log(log_file) as log:
            bound = {} if moment is None else moment.through(log, log_file)
            admission = fold_log(log.read(), AdmissionDecider(), **bound)
            allocator = fold_log(log.read(), AllocatorDecider(), **bound)
        asked = bound.get("through_seconds")
        at_seconds = admission.timestamp if asked is None else max(asked, admission.timestamp)
        if not admission.state.cell.servers:
            raise InputError(
                f"{log_file}: no server had joined by offset {admission.offset}; ask for a later"
                " one"
            )
        return cls(admission, allocator, at_seconds, str(log_file), admission.offset)

    @classmethod
    def of_live(cls, live: LiveCell) -> AskedCell:
        """Take a live cell as it is now."""
        allocator = live.fold_service(AllocatorDecider())
        # Folded second, so it may know of more: only as much as the other is asked.
        admission = live.fold_service(AdmissionDecider(), through_offset=allocator.offset)
        now = now_seconds(admission.state.cell)
        return cls(admission, allocator, now, live.name, admission.offset)

    @classmethod
    def empty(cls, policy: str, cell: CellOptions) -> AskedCell:
        """Make an empty cell of the shape that the options give."""
        # Whole seconds of today, so that a deadline may be a date.
        now = float(int(time.time()))
        log = MemoryLog()
        Simulation(log, cell.opening(policy, cell.curves(), now), Physics()).run()
        admission = fold_log(log.read(), AdmissionDecider())
        return cls(admission, fold_log(log.read(), AllocatorDecider()), now, None, None)


def asked_jobs(cell: AskedCell, jobs: Sequence[JobSpecification]) -> dict[str, Any]:
    """Ask a cell about jobs, together and in order; return the answer for programs."""
    outcome = dry_run(cell.admission, cell.allocator, jobs, at_seconds=cell.at_seconds)
    answers = [_described(answer, outcome) for answer in outcome.answers]
    return {
        "log": cell.log,
        "offset": cell.offset,
        "at_seconds": outcome.at_seconds,
        "admitted": unanimous(answers),
        "jobs": answers,
        "workers_change": [
            {"job_id": job_id, "before": before, "after": after}
            for job_id, (before, after) in outcome.workers.items()
        ],
    }


def _described(answer: Answer, outcome: DryRun) -> dict[str, Any]:
    return {
        "name": answer.job.metadata.name,
        "job_id": answer.job_id,
        "deadline_seconds": answer.deadline_seconds,
        **described_verdict(
            answer.verdict,
            deadline_seconds=answer.deadline_seconds,
            now_seconds=outcome.at_seconds,
            workers_at_once=_at_once(answer, outcome),
        ),
    }


def _at_once(answer: Answer, outcome: DryRun) -> int:
    admitted = isinstance(answer.verdict, ev.JobAdmitted)
    return outcome.workers.get(answer.job_id, (0, 0))[1] if admitted else 0


def dry_run_parts(answer: dict[str, Any]) -> list[str | Table]:
    """Put that answer into sentences and tables."""
    parts: list[str | Table] = []
    for job in answer["jobs"]:
        parts += answer_parts(job, ASKED)
    changes = [
        [change["job_id"], str(change["before"]), str(change["after"])]
        for change in answer["workers_change"]
    ]
    if changes:
        parts.append(
            Table(("job", "workers now", "then"), changes, "workers that change", right=(1, 2))
        )
    return parts
