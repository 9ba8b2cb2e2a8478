"""Replay: folding a long log to the live state's hash, with and without a snapshot."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Answer, Options, Table, answer_task, fresh, repeated, spread_of
from benchmarks.worlds import generated_world
from resilin.audit.replay import fold_log
from resilin.eventlog.port import Snapshot
from resilin.eventlog.sqlite import SqliteLog
from resilin.kernel.snapshot import dump, load, state_hash
from resilin.simulation.simulation import Simulation, deciders

__all__ = ["measure", "tables"]

# What a job leaves in the log of a busy cell with noise, about; the log is cut to measure.
RECORDS_A_JOB = 20
SNAPSHOT_SHARE = 0.9
SERVICES = ("allocator", "executor", "loan-manager")


def tables(options: Options) -> Iterator[Table]:
    """Build one log by the production services, then fold it in fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        task = {"log": str(Path(folder) / "log.resilin"), "records": options.records}
        built = fresh("replay", {**task, "step": "build"})
        table = Table(
            f"Replay of {built['records']:,} records from disk, decoding included",
            ("service", "from", "records folded", "CPU s", "records per CPU s", "hash is live's"),
        )
        for service in SERVICES:
            for snapshot in (False, True):
                step = {**task, "step": "fold", "service": service, "snapshot": snapshot}
                answers = repeated("replay", step, options.repetitions)
                same = all(answer["hash"] == built["hashes"][service] for answer in answers)
                seconds = spread_of(answer["seconds"] for answer in answers)
                rate = spread_of(answer["records"] / answer["seconds"] for answer in answers)
                table.rows.append(
                    (
                        service,
                        "a snapshot at 90 %" if snapshot else "the first record",
                        answers[0]["records"],
                        seconds,
                        rate,
                        "yes" if same else "NO",
                    )
                )
    yield table


def measure(task: Answer) -> Answer:
    """Build the log, or fold it for one service."""
    return _build(task) if task["step"] == "build" else _fold(task)


def _build(task: Answer) -> Answer:
    """Simulate until the log is long enough; keep live hashes and snapshots."""
    records = int(task["records"])
    world = generated_world(
        max(20, records // RECORDS_A_JOB),
        16,
        load=0.9,
        mean_interarrival_seconds=900.0,
        throughput_noise=0.1,
    )
    hashes: dict[str, str] = {}
    with SqliteLog(Path(task["log"]), durable=False) as log:
        simulation = Simulation(log, world.commands, world.physics)
        commands = world.commands
        step = max(1, len(commands) // 200)
        snapped = False
        for command in commands[::step]:
            simulation.run(until_seconds=command.at_seconds)
            length = log.end_offset() + 1
            if not snapped and length >= SNAPSHOT_SHARE * records:
                for service in SERVICES:
                    _save(log, simulation, service)
                snapped = True
            if length >= records:
                break
        else:
            simulation.run()
        for service in SERVICES:
            leader = simulation.leader(service)
            assert leader is not None, "nothing kills a service here"  # noqa: S101 (invariant)
            hashes[service] = state_hash(leader.host.folded.state, leader.decider.state_type)
        return {"records": log.end_offset() + 1, "hashes": hashes}


def _save(log: SqliteLog, simulation: Simulation, service: str) -> None:
    leader = simulation.leader(service)
    assert leader is not None, "nothing kills a service here"  # noqa: S101 (invariant)
    folded = leader.host.folded
    log.save(service, Snapshot(folded.offset, dump(folded, leader.decider.state_type)))


def _fold(task: Answer) -> Answer:
    decider = next(each for each in deciders() if each.service == task["service"])
    with SqliteLog(Path(task["log"]), read_only=True) as log:
        started = time.process_time()
        folded, after = None, -1
        if task["snapshot"]:
            kept = log.load(decider.service)
            if kept is not None:
                folded, after = load(kept.payload, decider.state_type), kept.offset
        result = fold_log(log.read(after), decider, folded=folded)
        digest = state_hash(result.state, decider.state_type)
        seconds = time.process_time() - started
        return {"seconds": seconds, "records": result.offset - after, "hash": digest}


if __name__ == "__main__":
    answer_task(measure)
