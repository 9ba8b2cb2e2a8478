"""One admission decision in a large, busy cell: 1,000 live jobs on 8,000 GPUs."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from benchmarks.harness import (
    Answer,
    Options,
    Table,
    answer_task,
    fresh,
    percentile,
    repeated,
    spread_of,
)
from benchmarks.worlds import generated_world, loaded_cell
from resilin.admission.decider import AdmissionDecider
from resilin.admission.state import AdmissionState
from resilin.cell.view import cluster_view
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry, Record
from resilin.contracts.values import SourcePosition
from resilin.kernel.snapshot import dump, load, state_hash
from resilin.planning.capacity import CapacityProfile
from resilin.simulation.scenario import job_specification
from resilin.workloads import TraceJob

__all__ = ["measure", "tables"]

SERVERS = 1_000
LIVE_JOBS = 1_000
NEWCOMERS = 400
# Deadlines in terms of a job's duration at its requested size: the tighter, the more GPUs a
# promise takes. The first leaves a few of the GPUs unpromised, the second none.
TIGHTNESS = ((0.25, 0.7), (0.2, 0.6))


def tables(options: Options) -> Iterator[Table]:
    """Build each cell once, then ask it for every newcomer in fresh processes."""
    decisions = Table(
        f"Admission: one decision with about {LIVE_JOBS:,} live jobs on {SERVERS * 8:,} GPUs",
        (
            "GPUs promised at the moment, answer",
            "newcomers",
            "median, CPU ms",
            "p90, CPU ms",
            "p99, CPU ms",
            "most, CPU ms",
        ),
    )
    for tightness in TIGHTNESS:
        with tempfile.TemporaryDirectory() as folder:
            task = {"tightness": tightness, "snapshot": str(Path(folder) / "admission.snapshot")}
            cell = fresh("admission", {**task, "step": "build"})
            answers = repeated("admission", {**task, "step": "decide"}, options.repetitions)
        promised = f"{cell['promised_gpus']:,}"
        for outcome in answers[0]["milliseconds"]:
            runs = [answer["milliseconds"][outcome] for answer in answers]
            shares = [spread_of(percentile(run, share) for run in runs) for share in (0.5, 0.9)]
            tail = [spread_of(percentile(run, share) for run in runs) for share in (0.99, 1.0)]
            decisions.rows.append((f"{promised}, {outcome}", len(runs[0]), *shares, *tail))
        decisions.notes.append(
            f"with {promised} GPUs promised: {cell['live_jobs']} live jobs, {cell['training']} of"
            f" them training, on {cell['held_gpus']:,} GPUs; built in {cell['seconds']:.1f} CPU s"
        )
    decisions.notes.append("a refusal includes the search for its counter-offer")
    yield decisions


def measure(task: Answer) -> Answer:
    """Build the cell, or ask it."""
    path = Path(task["snapshot"])
    least, most = task["tightness"]
    return _build(path, (least, most)) if task["step"] == "build" else _ask(path, (least, most))


def _build(path: Path, tightness: tuple[float, float]) -> Answer:
    began = time.process_time()
    folded = loaded_cell(LIVE_JOBS, SERVERS, deadline_tightness=tightness)
    path.write_bytes(dump(folded, AdmissionState))
    cell = folded.state.cell
    live = [job for job in cell.jobs.values() if job.live]
    view = cluster_view(cell, "default")
    left = CapacityProfile.after(view.now_seconds, view.gpus, [job.plan for job in live])
    return {
        "seconds": time.process_time() - began,
        "live_jobs": len(live),
        "training": sum(job.trains for job in live),
        "held_gpus": sum(job.placed_workers for job in live),
        "promised_gpus": view.gpus - left.free_at(view.now_seconds),
    }


def _ask(path: Path, tightness: tuple[float, float]) -> Answer:
    folded = load(path.read_bytes(), AdmissionState)
    before = state_hash(folded.state, AdmissionState)
    decider = AdmissionDecider()
    newcomers = generated_world(
        NEWCOMERS,
        SERVERS,
        seed=1,
        load=0.9,
        mean_interarrival_seconds=60.0,
        deadline_tightness=tightness,
    )
    milliseconds: dict[str, list[float]] = {}
    for number, job in enumerate(newcomers.trace.jobs):
        state = _scratch(folded.state)
        asked = _submission(number, job, state.cell.now_seconds)
        record = Record(
            "admission", "main", 1, folded.offset, "facts", state.cell.now_seconds, (asked,)
        )
        decider.evolve(state, asked, LogEntry(folded.offset + 1, record))
        began = time.process_time()
        (answer,) = decider.decide(state)
        elapsed = time.process_time() - began
        outcome = "accepted"
        if isinstance(answer, ev.JobRejected):
            outcome = f"refused: {answer.reason}"
        milliseconds.setdefault(outcome, []).append(1e3 * elapsed)
    assert state_hash(folded.state, AdmissionState) == before, "a newcomer left a trace"  # noqa: S101 (invariant)
    return {"milliseconds": dict(sorted(milliseconds.items()))}


def _scratch(state: AdmissionState) -> AdmissionState:
    """Copy all that a submission changes, which does not touch the jobs before it."""
    kept = {
        each.name: copy.deepcopy(getattr(state, each.name))
        for each in fields(state)
        if each.name != "cell"
    }
    return AdmissionState(cell=replace(state.cell, jobs=dict(state.cell.jobs)), **kept)


def _submission(number: int, job: TraceJob, now_seconds: float) -> ev.JobSubmitted:
    specification = job_specification(job)
    return ev.JobSubmitted(
        source=SourcePosition(topic="jobs.commands", offset=1_000_000 + number),
        command_id=f"newcomer-{number}",
        job_id=f"newcomer-{number}",
        job=specification,
        submitted_at_seconds=now_seconds,
        deadline_seconds=specification.spec.deadline_seconds(now_seconds),
    )


if __name__ == "__main__":
    answer_task(measure)
