"""Kills the services of a live cell under a stream of submissions, and holds it to account.

``python -m tests.integration.chaos --kills 100`` kills (SIGKILL) or freezes past its session
timeout (SIGSTOP, later SIGCONT: a zombie) a random process so often, restarts the broker in the
middle, and then checks that

- every acknowledged command left exactly one fact, and every job one answer and one end,
- the invariants hold over the whole log and every decision follows from its basis,
- what every service saved at its end equals a fresh replay of the log.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.partitions import own_partition
from tests.support.processes import LiveServices, ServiceInstance, services_running
from tests.support.servers import local_broker_running

from resilin.audit.verify import verify
from resilin.contracts import events as ev
from resilin.contracts.commands import CancelJob, Command, SubmitJob
from resilin.contracts.job_specification import (
    JobSpecification,
    Metadata,
    TrainingSpecification,
    Workload,
)
from resilin.contracts.record import LogEntry
from resilin.contracts.topics import JOBS_COMMANDS
from resilin.contracts.values import StopCost
from resilin.eventlog.kafka import KafkaConnection, KafkaLog, KafkaTopic
from resilin.kernel.decider import Decider
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded
from resilin.kernel.snapshot import load, state_hash
from resilin.planning.curves import ThroughputCurve
from resilin.runtime.local_broker import LocalBroker
from resilin.simulation.scenario import Cluster, configuration, opening_commands
from resilin.simulation.simulation import deciders

TIME_SCALE = 10.0
SESSION_SECONDS = 2.0
MARGIN_SECONDS = 6_000.0
"""Spared of every promise: ten minutes on the wall without the one service that it takes."""
END_SECONDS = 240.0


@dataclass
class Outcome:
    """What a run came to."""

    kills: int = 0
    zombies: int = 0
    broker_restarts: int = 0
    commands: int = 0
    records: int = 0
    ignored: int = 0
    epochs: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.zombies} zombies, {self.broker_restarts} broker restarts,"
            f" {self.commands} commands, {self.records} records of which {self.ignored} did not"
            f" count, {self.epochs} epochs, {self.seconds:.0f} s: "
            + ("; ".join(self.problems) if self.problems else "sound")
        )


def opening(cell: str) -> list[Command]:
    """A cell whose promises have time to spare: its services are away most of the time."""
    curve = ThroughputCurve.from_mapping({1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0})
    settings = configuration(
        "elasticflow", StopCost(fixed_seconds=1.0), promise_margin_seconds=MARGIN_SECONDS
    )
    commands = opening_commands(0.0, Cluster(4, 4), settings, {("model", 64): curve})
    return [each.command.model_copy(update={"cell": cell}) for each in commands]


def submission(number: int, cell: str, rng: random.Random) -> SubmitJob:
    """A job of some minutes with many hours to do it in, or without a deadline."""
    iterations = rng.randrange(20, 300)
    deadline = f"{iterations + rng.randrange(20_000, 60_000)}s" if rng.random() < 0.7 else None
    return SubmitJob(
        cell=cell,
        command_id=f"submit-{number}",
        job_id=f"job-{number}",
        job=JobSpecification(
            metadata=Metadata(name=f"job-{number}"),
            spec=TrainingSpecification(
                model="model",
                global_batch=64,
                workload=Workload(total_iterations=iterations),
                deadline=deadline,
            ),
        ),
    )


class Chaos:
    """One run."""

    def __init__(
        self, broker: LocalBroker, services: LiveServices, cell: str, partition: int, seed: int
    ) -> None:
        self.broker = broker
        self.services = services
        self.cell = cell
        self.partition = partition
        self.rng = random.Random(seed)
        self.connection = KafkaConnection(broker.bootstrap)
        self.outcome = Outcome()
        self.frozen: list[tuple[float, ServiceInstance]] = []
        self.sent: list[Command] = []
        self.jobs = 0

    def send(self, topic: KafkaTopic, command: Command) -> None:
        """Send one command; it counts once the broker has acknowledged it."""
        topic.produce(command.model_dump_json().encode())
        self.sent.append(command)
        self.outcome.commands += 1

    def stir(self, topic: KafkaTopic) -> None:
        """Submit something, at times cancel something, at times repeat something."""
        chance = self.rng.random()
        if self.jobs and chance < 0.1:
            target = f"job-{self.rng.randrange(self.jobs)}"
            command: Command = CancelJob(
                cell=self.cell, command_id=f"cancel-{self.outcome.commands}", job_id=target
            )
        elif self.sent and chance < 0.15:
            command = self.rng.choice(self.sent)
        else:
            command = submission(self.jobs, self.cell, self.rng)
            self.jobs += 1
        self.send(topic, command)

    def harm(self) -> None:
        """Kill or freeze one process that runs; wake who was frozen long enough."""
        now = time.monotonic()
        for due, instance in [each for each in self.frozen if each[0] <= now]:
            self.frozen.remove((due, instance))
            instance.signal(signal.SIGCONT)
        asleep = [instance for _, instance in self.frozen]
        awake = [each for each in self.services.instances if each.running and each not in asleep]
        self.rng.shuffle(awake)
        # One that stands by or leads: to kill what is only starting harms nobody.
        victim = next((each for each in awake if each.ready()), None)
        if victim is None:
            return
        if self.rng.random() < 0.2 and len(asleep) < 2:
            victim.signal(signal.SIGSTOP)
            self.frozen.append((now + SESSION_SECONDS * self.rng.uniform(1.5, 3.0), victim))
            self.outcome.zombies += 1
        else:
            victim.kill()
            self.outcome.kills += 1

    def supervise(self) -> None:
        """Start again what has ended, as an orchestrator would."""
        for instance in self.services.instances:
            if not instance.running:
                instance.start()

    def run(self, kills: int) -> Outcome:
        """Do as much harm as was asked for, then let the cell come to its end and check it."""
        started = time.monotonic()
        restart_at = kills // 2
        with KafkaTopic(self.connection, JOBS_COMMANDS.name, self.partition) as topic:
            for command in opening(self.cell):
                self.send(topic, command)
            while self.outcome.kills + self.outcome.zombies < kills:
                self.stir(topic)
                self.harm()
                self.supervise()
                if self.outcome.kills + self.outcome.zombies >= restart_at and restart_at:
                    restart_at = 0
                    self.broker.restart()
                    self.outcome.broker_restarts += 1
                time.sleep(self.rng.uniform(0.2, 1.2))
        for _, instance in self.frozen:
            instance.signal(signal.SIGCONT)
        self._wait_for_the_end()
        # Each service has to have a leader, or there is nobody to save what it knows.
        self.services.wait_for_leaders()
        self.services.stop()
        self._check()
        self.outcome.seconds = time.monotonic() - started
        return self.outcome

    def _wait_for_the_end(self) -> None:
        """Until every job that was submitted has ended."""
        until = time.monotonic() + END_SECONDS
        while time.monotonic() < until:
            self.supervise()
            with KafkaLog(self.connection, self.cell, self.partition) as log:
                entries = list(log.read())
            facts, live = _facts(entries)
            if len(facts) == len(self.sent) and not live:
                return
            time.sleep(2.0)
        self.outcome.problems.append(f"{len(facts)} of {len(self.sent)} commands were taken")
        self.outcome.problems.append(f"jobs that never ended: {sorted(live)[:5]}")

    def _check(self) -> None:
        problems = self.outcome.problems
        with KafkaLog(self.connection, self.cell, self.partition) as log:
            entries = list(log.read())
            verification = verify(entries, deciders())
            self.outcome.records = verification.records
            self.outcome.ignored = verification.ignored
            self.outcome.epochs = sum(entry.record.nature == "claim" for entry in entries)
            problems += [str(each) for each in verification.mismatches]
            problems += [str(each) for each in verification.violations]
            problems += _accounts(entries, self.sent)
            for decider in deciders():
                problems += _replay_differs(log, decider, entries)


def _counted(entries: Sequence[LogEntry]) -> list[ev.Event | ev.UnknownEvent]:
    fence = Fence()
    return [event for entry in entries if fence.admit(entry) for event in entry.record.events]


def _facts(entries: Sequence[LogEntry]) -> tuple[list[int], set[str]]:
    """The offsets of the commands taken, and the jobs that are live or unanswered."""
    offsets: list[int] = []
    live: set[str] = set()
    for event in _counted(entries):
        if isinstance(event, ev.FactFromCommand):
            offsets.append(event.source.offset)
        if isinstance(event, ev.JobSubmitted):
            live.add(event.job_id)
        elif isinstance(event, ev.JobRejected | ev.JobCancelled | ev.JobCompleted | ev.JobFailed):
            live.discard(event.job_id)
    return offsets, live


def _accounts(entries: Sequence[LogEntry], sent: Sequence[Command]) -> list[str]:
    """Hold the log against what was sent: exactly one fact a command, one answer a job."""
    problems: list[str] = []
    offsets, _ = _facts(entries)
    repeated = [offset for offset, times in Counter(offsets).items() if times > 1]
    if repeated:
        problems.append(f"taken more than once: commands at {repeated[:5]}")
    missing = sorted(set(range(len(sent))) - set(offsets))
    if missing:
        problems.append(f"never taken: commands at {missing[:5]}")
    events = _counted(entries)
    answered = Counter(
        event.job_id for event in events if isinstance(event, ev.JobAdmitted | ev.JobRejected)
    )
    wrong = [job_id for job_id, times in answered.items() if times != 1]
    submitted = {event.job_id for event in events if isinstance(event, ev.JobSubmitted)}
    cancelled = {event.job_id for event in events if isinstance(event, ev.JobCancelled)}
    silent = submitted - set(answered) - cancelled
    if wrong or silent:
        problems.append(
            f"answers are wrong: {wrong[:5]} more than once, {sorted(silent)[:5]} never"
        )
    return problems


def _replay_differs(
    log: KafkaLog, decider: Decider[object], entries: Sequence[LogEntry]
) -> list[str]:
    """Compare what a service's last leader saved as it stopped with a fresh fold."""
    snapshot = log.load(decider.service)
    if snapshot is None:
        return [f"{decider.service} saved no snapshot as it stopped"]
    saved: Folded[object] = load(snapshot.payload, decider.state_type)
    fresh: Folded[object] = Folded(decider.initial_state(), Fence())
    for entry in entries:
        if entry.offset > saved.offset:
            break
        if fresh.fence.admit(entry):
            for event in entry.record.events:
                fresh.state = decider.evolve(fresh.state, event, entry)
    kept = state_hash(saved.state, decider.state_type)
    if kept != state_hash(fresh.state, decider.state_type) or saved.fence != fresh.fence:
        return [f"{decider.service} at offset {saved.offset} is not what a replay gives"]
    return []


def run(kills: int, seed: int, directory: Path, instances: int = 2) -> Outcome:
    """Run one chaos on a broker of its own."""
    with local_broker_running(directory) as broker:
        cell, partition = own_partition(broker.bootstrap)
        with services_running(
            broker.bootstrap,
            directory,
            cell=cell,
            partition=partition,
            instances=instances,
            time_scale=TIME_SCALE,
            time_origin_seconds=time.time(),
            session_timeout_seconds=SESSION_SECONDS,
            snapshot_every_records=100,
        ) as services:
            services.wait_for_leaders()
            return Chaos(broker, services, cell, partition, seed).run(kills)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="keep the output of all processes here")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True)
        outcome = run(options.kills, options.seed, options.keep.absolute())
    else:
        with tempfile.TemporaryDirectory() as directory:
            outcome = run(options.kills, options.seed, Path(directory))
    sys.stdout.write(f"{outcome}\n")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
