"""The live cell on a real Kafka: latency, sustained commands, takeover, cold start.

One broker and the seven service processes on this machine, simulated workers. Every figure
stands beside what the broker itself takes in the same run: the floor is a bare aiokafka
produce-to-consume round trip. A submission's answer needs three of them (the command, the
fact, the decision), its placement five.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import LiveServices, services_running

from benchmarks.harness import BenchmarkError, Options, Table, fresh, percentile
from resilin.contracts import events as ev
from resilin.contracts.commands import Command, SubmitJob
from resilin.contracts.job_specification import (
    Elastic,
    JobSpecification,
    Metadata,
    TrainingSpecification,
    Workload,
)
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.contracts.values import StopCost
from resilin.eventlog.kafka import (
    AsyncTopicReader,
    AsyncTopicWriter,
    KafkaConnection,
    KafkaLogReader,
    KafkaLogWriter,
)
from resilin.eventlog.sqlite import SqliteLog
from resilin.planning.curves import ThroughputCurve
from resilin.runtime.create_topics import create_topics
from resilin.runtime.local_broker import LocalBroker
from resilin.simulation.scenario import Cluster, configuration, opening_commands

__all__ = ["tables"]

CELL = "main"
ROUND_TRIPS = 300
SUBMISSIONS = 200
BURST = 5_000
WAIT_SECONDS = 600.0
HOPS = {"JobAdmitted": 3, "JobPlaced": 5}


def tables(options: Options) -> Iterator[Table]:
    """Measure a live cell; one run, since its parts are compared with one another."""
    with tempfile.TemporaryDirectory() as folder, _cell(Path(folder), 1) as (connection, _):
        yield asyncio.run(_latency(connection))
        yield asyncio.run(_burst(connection))
    with tempfile.TemporaryDirectory() as folder, _cell(Path(folder), 2) as (_, services):
        yield _takeover(services)
    with tempfile.TemporaryDirectory() as folder:
        yield _cold_start(Path(folder), options.records)


@contextmanager
def _cell(folder: Path, instances: int) -> Iterator[tuple[KafkaConnection, LiveServices]]:
    """A broker and a cell with room for every job, so many instances of each service."""
    with LocalBroker(folder) as broker:
        connection = KafkaConnection(broker.bootstrap)
        asyncio.run(create_topics(connection, cells=1))
        with services_running(
            broker.bootstrap, folder, cell=CELL, partition=0, instances=instances
        ) as services:
            services.wait_for_leaders()
            asyncio.run(_open(connection))
            yield connection, services


async def _open(connection: KafkaConnection) -> None:
    curve = ThroughputCurve.from_mapping({1: 1.0, 2: 1.9, 4: 3.5})
    settings = configuration("elasticflow", StopCost(fixed_seconds=0.1))
    writer = AsyncTopicWriter(connection, JOBS_COMMANDS.name)
    await writer.start()
    for each in opening_commands(0.0, Cluster(50, 8), settings, {("model", 64): curve}):
        await writer.produce(each.command.model_dump_json().encode())
    await writer.stop()
    await asyncio.sleep(3.0)


_ids = itertools.count()


def _submission(*, deadline: str | None, workers: int) -> SubmitJob:
    number = next(_ids)
    return SubmitJob(
        command_id=f"submit-{number}",
        job_id=f"job-{number}",
        job=JobSpecification(
            metadata=Metadata(name=f"job-{number}"),
            spec=TrainingSpecification(
                model="model",
                global_batch=64,
                workload=Workload(total_iterations=100_000),
                deadline=deadline,
                elastic=Elastic(max_replicas=workers),
            ),
        ),
    )


# --- latency -------------------------------------------------------------------------------


@dataclass
class _Seen:
    """When what was said of each job could be read."""

    admitted: dict[str, float]
    placed: dict[str, float]
    answered: dict[str, float]


async def _follow(connection: KafkaConnection, seen: _Seen, ready: asyncio.Event) -> None:
    reader = KafkaLogReader(connection, CELL)
    await reader.start(-1)
    end = await reader.end_offset()
    try:
        while True:
            entries = await reader.read(0.5)
            now = time.perf_counter()
            for _, record in entries:
                for event in record.events:
                    if isinstance(event, ev.JobAdmitted):
                        seen.admitted.setdefault(event.job_id, now)
                        seen.answered.setdefault(event.job_id, now)
                    elif isinstance(event, ev.JobRejected):
                        seen.answered.setdefault(event.job_id, now)
                    elif isinstance(event, ev.JobPlaced):
                        seen.placed.setdefault(event.job_id, now)
            if reader.position() >= end:
                ready.set()
    finally:
        await reader.stop()


async def _floor(connection: KafkaConnection) -> list[float]:
    """Time bare round trips: produced, acknowledged or not, until it was consumed."""
    writer = AsyncTopicWriter(connection, DEADLETTER.name)
    reader = AsyncTopicReader(connection, DEADLETTER.name)
    await writer.start()
    await reader.start(-1)
    times: list[float] = []
    for number in range(ROUND_TRIPS):
        started = time.perf_counter()
        sending = asyncio.ensure_future(writer.produce(b"x" * 350))
        while not await reader.read(1.0):
            pass
        if number >= ROUND_TRIPS // 10:
            times.append(time.perf_counter() - started)
        await sending
    await writer.stop()
    await reader.stop()
    return times


async def _latency(connection: KafkaConnection) -> Table:
    floor = await _floor(connection)
    seen = _Seen({}, {}, {})
    ready = asyncio.Event()
    following = asyncio.ensure_future(_follow(connection, seen, ready))
    await ready.wait()
    writer = AsyncTopicWriter(connection, JOBS_COMMANDS.name)
    await writer.start()
    sent: dict[str, float] = {}
    for _ in range(SUBMISSIONS):
        command = _submission(deadline="30h", workers=1)
        sent[command.job_id] = time.perf_counter()
        await writer.produce(command.model_dump_json().encode())
        await _until(lambda job_id=command.job_id: job_id in seen.placed)
    await writer.stop()
    following.cancel()
    floor_median, floor_p99 = statistics.median(floor), percentile(floor, 0.99)
    table = Table(
        f"Live latency, {SUBMISSIONS} submissions in turn; all processes share this machine",
        ["from the command to", "hops", "median, ms", "p99, ms", "median / (hops x floor)"],
        [["a bare round trip: the floor", 1, floor_median * 1e3, floor_p99 * 1e3, 1.0]],
    )
    for name, times in (("JobAdmitted", seen.admitted), ("JobPlaced", seen.placed)):
        taken = [times[job_id] - moment for job_id, moment in sent.items()]
        median = statistics.median(taken)
        table.rows.append(
            [
                f"{name} readable",
                HOPS[name],
                median * 1e3,
                percentile(taken, 0.99) * 1e3,
                median / (HOPS[name] * floor_median),
            ]
        )
    return table


async def _until(done: Any) -> None:  # noqa: ANN401 (a function without arguments)
    until = time.perf_counter() + WAIT_SECONDS
    while not done():
        if time.perf_counter() > until:
            raise BenchmarkError("the live cell did not answer")
        await asyncio.sleep(0.001)


# --- load ----------------------------------------------------------------------------------


async def _burst(connection: KafkaConnection) -> Table:
    seen = _Seen({}, {}, {})
    ready = asyncio.Event()
    following = asyncio.ensure_future(_follow(connection, seen, ready))
    await ready.wait()
    commands = [_submission(deadline="1h", workers=4) for _ in range(BURST)]
    started = time.perf_counter()
    await _send(connection, commands)
    sent = time.perf_counter() - started
    await _until(lambda: all(command.job_id in seen.answered for command in commands))
    recovered = time.perf_counter() - started
    following.cancel()
    return Table(
        "A burst of submissions at once, each refused with its counter-offer or admitted",
        ["commands", "sent in, s", "all answered after, s", "answers/s"],
        [[BURST, sent, recovered, BURST / recovered]],
    )


async def _send(connection: KafkaConnection, commands: Sequence[Command]) -> None:
    writer = AsyncTopicWriter(connection, JOBS_COMMANDS.name)
    await writer.start()
    await asyncio.gather(
        *(writer.produce(command.model_dump_json().encode()) for command in commands)
    )
    await writer.stop()


# --- takeover and cold start ---------------------------------------------------------------


def _takeover(services: LiveServices) -> Table:
    table = Table(
        "Takeover: from SIGKILL of a leader to the standby's claim that counts",
        ["service", "session timeout, s", "taken over after, s"],
    )
    for service in ("admission", "allocator", "placement", "executor"):
        leader = services.leader(service)
        if leader is None:
            raise BenchmarkError(f"{service} has no leader")
        started = time.perf_counter()
        leader.signal(signal.SIGKILL)
        while services.leader(service) in (None, leader):
            if time.perf_counter() - started > WAIT_SECONDS:
                raise BenchmarkError(f"nobody took {service} over")
            time.sleep(0.01)
        table.rows.append([service, 2.0, time.perf_counter() - started])
        leader.start()
    services.wait_for_leaders()
    return table


def _cold_start(folder: Path, records: int) -> Table:
    """A cell's log of so many records: how long until an allocator has folded it."""
    built = fresh(
        "replay", {"step": "build", "log": str(folder / "log.resilin"), "records": records}
    )
    with LocalBroker(folder / "kafka") as broker:
        connection = KafkaConnection(broker.bootstrap)
        asyncio.run(create_topics(connection, cells=1))
        asyncio.run(_copy(folder / "log.resilin", connection))
        table = Table(
            "Cold start: from the start of a service process to its claim, imports included",
            ["service", "records", "from", "leads after, s"],
        )
        for origin in ("the first record", "the snapshot of the run before"):
            started = time.perf_counter()
            with services_running(
                broker.bootstrap, folder, cell=CELL, partition=0, only=("allocator",)
            ) as services:
                services.wait_for_leaders(seconds=WAIT_SECONDS * 4)
                seconds = time.perf_counter() - started
            table.rows.append(["allocator", built["records"], origin, seconds])
        return table


async def _copy(path: Path, connection: KafkaConnection) -> None:
    """Put a log's records on Kafka, in their order."""
    writer = KafkaLogWriter(connection, CELL)
    await writer.start()
    with SqliteLog(path, read_only=True) as log:
        entries = log.read()
        while chunk := list(itertools.islice(entries, 500)):
            await asyncio.gather(*(writer.append(entry.record) for entry in chunk))
    await writer.stop()
