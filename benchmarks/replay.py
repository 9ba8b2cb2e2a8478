"""Replay: folding a long log from disk to the live state's hash, with and without a snapshot."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    Answer,
    BenchmarkError,
    Options,
    Table,
    answer_task,
    fresh,
    repeated,
    spread_of,
)
from benchmarks.worlds import generated_world
from resilin.contracts.record import LogEntry
from resilin.eventlog.port import Snapshot
from resilin.eventlog.sqlite import SqliteLog
from resilin.kernel.decider import Decider
from resilin.kernel.host import ServiceHost
from resilin.kernel.snapshot import dump, load, state_hash
from resilin.simulation.simulation import Simulation, deciders

__all__ = ["measure", "tables"]

SERVERS = 8
# A job leaves 25 to 30 records in the log of this cell. The log is cut to measure.
LEAST_RECORDS_A_JOB = 20
SNAPSHOT_SHARE = 0.9
# The allocator's fold is the heaviest: it looks at a job's plan whenever that job reports.
FOLDERS = {
    "reading and decoding alone": (),
    "allocator, the heaviest": ("allocator",),
    "all seven services in one pass": tuple(decider.service for decider in deciders()),
}


def tables(options: Options) -> Iterator[Table]:
    """Have the production services write one log, then fold it in fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        task = {"log": str(Path(folder) / "log.resilin"), "records": options.records}
        built = fresh("replay", {**task, "step": "build"})
        table = Table(
            f"Replay of {built['records']:,} records from disk",
            ("who folds", "from", "records folded", "CPU s", "records/CPU s", "live state's hash"),
        )
        for title, services in FOLDERS.items():
            for snapshot in (False, True) if services else (False,):
                step = {**task, "step": "fold", "services": services, "snapshot": snapshot}
                answers = repeated("replay", step, options.repetitions)
                live = {service: built["hashes"][service] for service in services}
                if any(answer["hashes"] != live for answer in answers):
                    raise BenchmarkError(f"a replayed state is not the live one: {title}")
                table.rows.append(
                    (
                        title,
                        "a snapshot at 90 %" if snapshot else "the first record",
                        answers[0]["records"],
                        spread_of(answer["seconds"] for answer in answers),
                        spread_of(answer["records"] / answer["seconds"] for answer in answers),
                        "reached" if services else None,
                    )
                )
        table.notes.append(
            f"{built['jobs']:,} jobs on {SERVERS} x 8 GPUs whose throughput is not quite what was"
            f" believed; simulating them took {built['seconds']:.0f} CPU s"
        )
    yield table


def measure(task: Answer) -> Answer:
    """Build the log, or fold it."""
    return _build(task) if task["step"] == "build" else _fold(task)


class _LongEnough(Exception):  # noqa: N818 (it ends a run, it is no error)
    """The log has as many records as it was to have."""


def _build(task: Answer) -> Answer:
    """Simulate until the log is long enough; keep snapshots on the way and hashes at the end."""
    records = int(task["records"])
    world = generated_world(
        max(20, records // LEAST_RECORDS_A_JOB),
        SERVERS,
        load=0.9,
        mean_interarrival_seconds=1_800.0,
        throughput_noise=0.1,
    )
    began = time.process_time()
    with SqliteLog(Path(task["log"]), durable=False) as log:

        def watch(entry: LogEntry) -> None:
            if entry.offset + 1 == int(SNAPSHOT_SHARE * records):
                for leader in leaders:
                    payload = dump(leader.host.folded, leader.decider.state_type)
                    log.save(leader.host.service, Snapshot(entry.offset, payload))
            if entry.offset + 1 == records:
                raise _LongEnough

        simulation = Simulation(log, world.commands, world.physics, observe=watch)
        leaders = [instance for (instance,) in simulation.instances.values()]
        with suppress(_LongEnough):
            simulation.run()
        seconds = time.process_time() - began
        return {
            "records": log.end_offset() + 1,
            "jobs": leaders[0].host.folded.state.cell.submitted,
            "seconds": seconds,
            "hashes": {
                leader.host.service: _hash(leader.decider, leader.host) for leader in leaders
            },
        }


def _fold(task: Answer) -> Answer:
    """Do what instances that start do: load a snapshot, and fold what follows."""
    chosen = [decider for decider in deciders() if decider.service in task["services"]]
    began = time.process_time()
    with SqliteLog(Path(task["log"]), read_only=True) as log:
        hosts = [_started(log, decider, from_snapshot=task["snapshot"]) for decider in chosen]
        after = min((host.folded.offset for host in hosts), default=-1)
        folds = [host.fold for host in hosts]
        for entry in log.read(after):
            for fold in folds:
                fold(entry)
        records = log.end_offset() - after
        hashes = {
            host.service: _hash(decider, host) for decider, host in zip(chosen, hosts, strict=True)
        }
    return {"seconds": time.process_time() - began, "records": records, "hashes": hashes}


def _started(log: SqliteLog, decider: Decider[Any], *, from_snapshot: bool) -> ServiceHost[Any]:
    kept = log.load(decider.service) if from_snapshot else None
    folded = None if kept is None else load(kept.payload, decider.state_type)
    return ServiceHost(decider, cell=Simulation.cell, instance="replay", folded=folded)


def _hash(decider: Decider[Any], host: ServiceHost[Any]) -> str:
    return state_hash(host.folded.state, decider.state_type)


if __name__ == "__main__":
    answer_task(measure)
