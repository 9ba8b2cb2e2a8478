"""Fault simulation: seeded runs in which everything that may go wrong does.

A seed determines a small cell, its jobs and every fault:

- any service is killed after any record and starts again, from the log or a snapshot;
- any service is paused while another instance takes over; the zombie wakes up later, acts
  on what it knew and finds itself fenced;
- a record is appended twice;
- reports of the executors come late, out of order and twice;
- curves are known, or have to be found out by profiles;
- nodes fail and come back; servers are cordoned, removed and added; jobs are cancelled and
  their deadlines moved.

After every record every invariant is checked; at the end every decision is recomputed,
every job has exactly one outcome, and every service's state equals a fresh replay.
``python -m resilin.simulation.faults --seed 7`` reproduces one run.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from resilin.audit.replay import fold_log
from resilin.audit.verify import verify
from resilin.cell.invariants import InvariantChecker
from resilin.contracts.commands import (
    AddServer,
    CancelJob,
    ChangeDeadline,
    Command,
    CordonServer,
    ImportCurves,
    RemoveServer,
    SubmitJob,
)
from resilin.contracts.events import CurveProfiled
from resilin.contracts.job_specification import WorkerSpecification
from resilin.contracts.record import LogEntry
from resilin.contracts.values import Curve, StopCost
from resilin.eventlog.memory import MemoryLog
from resilin.kernel.decider import Decider
from resilin.kernel.snapshot import dump, load, state_hash
from resilin.simulation.cluster import FailureModel, Physics, Report
from resilin.simulation.scenario import (
    Cluster,
    configuration,
    opening_commands,
    submissions,
)
from resilin.simulation.simulation import Instance, Simulation, TimedCommand, deciders
from resilin.workloads import built_in_curves, generate_trace

__all__ = ["FaultRun", "Faults", "run_seed"]

# What one disturbance may cost a promise; the cell's promise margin covers many of them.
LATEST_SECONDS = 5.0
MARGIN_SECONDS = 600.0
# How many records others overtake, and by how many at most.
OVERTAKEN_SHARE = 0.2
MOST_OVERTAKING = 3
MOST_SECONDS = 60 * 86_400.0
# How many seeds have curves that nobody has imported, and jobs with code to try out.
PROFILED_SHARE = 0.25
CODE = WorkerSpecification(entrypoint="train.py:Job")


@dataclass(slots=True)
class FaultRun:
    """What one seed came to.

    Attributes:
        seed: The seed.
        records: Records in the log.
        ignored: Records that did not count.
        faults: How often each kind of fault was injected.
        profiles: How many jobs were tried out.
        findings: What was wrong, in words; empty for a sound run.
    """

    seed: int
    records: int = 0
    ignored: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    profiles: int = 0
    findings: list[str] = field(default_factory=list)


class Faults:
    """Injects faults by a seeded source of chance."""

    def __init__(self, chance: random.Random, share: float) -> None:
        """Inject a fault after about this share of all records."""
        self.counts: dict[str, int] = {}
        self._chance = chance
        self._share = share
        self._due: list[tuple[float, int, Callable[[Simulation], None]]] = []
        self._numbered = 0
        self._snapshots: dict[str, bytes] = {}
        self._said_until: dict[str, float] = {}
        self._busy = False
        self._overtaking = False

    def next_seconds(self) -> float:
        """Return when something that was broken is mended."""
        return self._due[0][0] if self._due else math.inf

    def mend(self, simulation: Simulation) -> None:
        """Mend everything that is still broken at the end of a run."""
        self._share = 0.0
        while self._due:
            heapq.heappop(self._due)[2](simulation)

    def act(self, simulation: Simulation) -> None:
        """Mend what is due."""
        while self._due and self._due[0][0] <= simulation.now_seconds:
            mend = heapq.heappop(self._due)[2]
            self._busy = True
            mend(simulation)
            self._busy = False

    def before_append(self, simulation: Simulation) -> None:
        """Perhaps let other services append first, as they do where all run at once."""
        if self._busy or self._overtaking or self._chance.random() >= OVERTAKEN_SHARE:
            return
        self._overtaking = True
        for _ in range(self._chance.randrange(1, MOST_OVERTAKING + 1)):
            if simulation.act_once():
                self._count("record overtaken")
        self._overtaking = False

    def after_append(self, simulation: Simulation, entry: LogEntry) -> None:
        """Perhaps break something, at this very record."""
        if self._busy or self._chance.random() >= self._share:
            return
        self._busy = True
        fault = self._chance.choice(
            (self._kill, self._kill, self._pause, self._repeat, self._keep_snapshot)
        )
        fault(simulation, entry)
        self._busy = False

    def disturb(self, report: Report, now_seconds: float) -> Iterable[tuple[float, Report]]:
        """Delay some reports, and deliver some twice.

        What one node agent says of one thing comes in order, as over one connection; only
        repeats come out of order.
        """
        about = str(getattr(report, "job_id", None) or getattr(report, "server_id", ""))
        moment = max(now_seconds, self._said_until.get(about, now_seconds))
        if self._chance.random() < self._share:
            moment += self._chance.uniform(0.0, LATEST_SECONDS)
            self._count("report delayed")
        self._said_until[about] = moment
        yield moment, report
        if self._chance.random() < self._share:
            self._count("report repeated")
            yield moment + self._chance.uniform(0.0, 600.0), report

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _later(self, simulation: Simulation, mend: Callable[[Simulation], None]) -> None:
        self._numbered += 1
        moment = simulation.now_seconds + self._chance.uniform(0.0, LATEST_SECONDS)
        heapq.heappush(self._due, (moment, self._numbered, mend))

    def _leader(self, simulation: Simulation) -> Instance | None:
        return simulation.leader(self._chance.choice(list(simulation.instances)))

    def _kill(self, simulation: Simulation, entry: LogEntry) -> None:  # noqa: ARG002 (the signature of a fault)
        victim = self._leader(simulation)
        if victim is None:
            return
        self._count("service killed")
        service = victim.host.service
        simulation.kill(victim)
        if self._chance.random() < 0.5:
            self._start(simulation, service)
        else:
            self._later(simulation, lambda sim: self._start(sim, service))

    def _start(self, simulation: Simulation, service: str) -> None:
        folded = None
        kept = self._snapshots.get(service)
        if kept is not None and self._chance.random() < 0.5:
            self._count("start from a snapshot")
            decider = next(d for d in deciders() if d.service == service)
            folded = load(kept, decider.state_type)
        simulation.start(service, folded)

    def _pause(self, simulation: Simulation, entry: LogEntry) -> None:  # noqa: ARG002 (the signature of a fault)
        victim = self._leader(simulation)
        if victim is None:
            return
        self._count("service paused")
        victim.paused = True
        self._start(simulation, victim.host.service)
        self._later(simulation, lambda sim: self._wake(sim, victim))

    def _wake(self, simulation: Simulation, zombie: Instance) -> None:
        simulation.resume(zombie)
        simulation.kill(zombie)

    def _repeat(self, simulation: Simulation, entry: LogEntry) -> None:
        self._count("record repeated")
        simulation.repeat(entry)

    def _keep_snapshot(self, simulation: Simulation, entry: LogEntry) -> None:  # noqa: ARG002 (the signature of a fault)
        leader = self._leader(simulation)
        if leader is not None:
            self._count("snapshot kept")
            payload = dump(leader.host.folded, leader.decider.state_type)
            self._snapshots[leader.host.service] = payload


def run_seed(
    seed: int, make_deciders: Callable[[], tuple[Decider[Any], ...]] = deciders
) -> FaultRun:
    """Run one seed and check everything.

    Args:
        seed: Determines the run entirely.
        make_deciders: The services' cores; a test may put a broken double in.
    """
    run = FaultRun(seed)
    chance = random.Random(f"faults/{seed}")  # noqa: S311 (a simulation)
    commands, physics = _scenario(chance)
    # A source of its own: the other seeds stay what they were before there were profiles.
    commands, unknown = _with_unknown_curves(random.Random(f"profiles/{seed}"), commands)  # noqa: S311 (a simulation)
    faults = Faults(chance, share=chance.choice((0.02, 0.05, 0.1)))
    checker = InvariantChecker()
    log = MemoryLog()

    def check(entry: LogEntry) -> None:
        run.profiles += sum(isinstance(event, CurveProfiled) for event in entry.record.events)
        run.findings.extend(str(violation) for violation in checker.fold(entry))
        if run.findings:
            raise _Broken

    try:
        simulation = Simulation(
            log,
            commands,
            physics,
            unknown_curves=unknown,
            chaos=faults,
            observe=check,
            make_deciders=make_deciders,
        )
        simulation.run(until_seconds=MOST_SECONDS)
        faults.mend(simulation)
    except _Broken:
        pass
    else:
        _check_end(run, log, simulation, make_deciders)
    run.records = log.end_offset() + 1
    run.faults = dict(sorted(faults.counts.items()))
    return run


class _Broken(Exception):  # noqa: N818 (it ends a run, it is no error)
    """An invariant was broken: what follows would only repeat it."""


def _check_end(
    run: FaultRun,
    log: MemoryLog,
    simulation: Simulation,
    make_deciders: Callable[[], tuple[Decider[Any], ...]],
) -> None:
    found = verify(log.read(), make_deciders())
    run.ignored = found.ignored
    run.findings += [str(item) for item in (*found.violations, *found.mismatches)]
    for decider in make_deciders():
        leader = simulation.leader(decider.service)
        if leader is None:
            run.findings.append(f"{decider.service} has no leader at the end")
            continue
        fresh = fold_log(log.read(), decider)
        ours = state_hash(leader.host.folded.state, decider.state_type)
        if ours != state_hash(fresh.state, decider.state_type):
            run.findings.append(f"the state of {decider.service} is not that of a fresh replay")
        if decider.service == "admission" and fresh.state.cell.jobs:
            left = ", ".join(fresh.state.cell.jobs)
            run.findings.append(f"jobs that never ended: {left}")


def _scenario(chance: random.Random) -> tuple[list[TimedCommand], Physics]:
    """Draw a small cell, its jobs, and what its operators and users do."""
    cluster = Cluster(
        servers=chance.randint(2, 7),
        gpus_per_server=chance.choice((2, 4, 8)),
        servers_per_rack=chance.choice((0, 2)),
    )
    curves = built_in_curves(most_workers=cluster.gpus, gpus_per_server=cluster.gpus_per_server)
    stop_cost = chance.choice((StopCost(), StopCost.modelled()))
    trace = generate_trace(
        jobs=chance.randint(6, 20),
        seed=chance.randrange(2**32),
        curves=curves,
        mean_interarrival_seconds=chance.choice((300.0, 1800.0)),
        cluster_gpus=cluster.gpus,
        best_effort_share=chance.choice((0.0, 0.3)),
    )
    settings = configuration(
        chance.choice(("elasticflow", "elasticflow", "elasticflow", "edf", "fifo")),
        stop_cost,
        reserve_servers=chance.choice((0, 1)),
        promise_margin_seconds=MARGIN_SECONDS,
    )
    start = trace.jobs[0].submitted_at_seconds
    jobs = submissions(trace.jobs)
    commands = [*opening_commands(start, cluster, settings, curves), *jobs]
    for number in range(chance.randint(0, 6)):
        moment = chance.choice(jobs).at_seconds + chance.uniform(0.0, 3600.0)
        command = _interference(chance, number, jobs, cluster, moment)
        commands.append(TimedCommand(moment, command))
    # At the end all servers are there again: only then must every job end.
    end = max(timed.at_seconds for timed in commands) + 3600.0
    for number in range(cluster.servers):
        server = cluster.server(number)
        commands += [
            TimedCommand(end, AddServer(command_id=f"return-{number}", server=server)),
            TimedCommand(
                end,
                CordonServer(
                    command_id=f"uncordon-{number}", server_id=server.server_id, cordoned=False
                ),
            ),
        ]
    commands.sort(key=lambda timed: timed.at_seconds)
    failures = FailureModel(mean_seconds_between=chance.choice((50_000.0, 500_000.0)))
    physics = Physics(
        stop_cost=stop_cost,
        throughput_noise=chance.choice((0.0, 0.05)),
        failures=chance.choice((None, failures)),
        seed=chance.randrange(2**32),
    )
    return commands, physics


def _with_unknown_curves(
    chance: random.Random, commands: list[TimedCommand]
) -> tuple[list[TimedCommand], tuple[Curve, ...]]:
    """Perhaps let half of the curves be found out by profiles only."""
    if chance.random() >= PROFILED_SHARE:
        return commands, ()
    unknown: list[Curve] = []
    changed: list[TimedCommand] = []
    for timed in commands:
        command = timed.command
        if isinstance(command, ImportCurves):
            unknown += [curve for curve in command.curves[1:] if chance.random() < 0.5]
            known = tuple(curve for curve in command.curves if curve not in unknown)
            command = command.model_copy(update={"curves": known})
        elif isinstance(command, SubmitJob):
            spec = command.job.spec.model_copy(update={"worker": CODE})
            job = command.job.model_copy(update={"spec": spec})
            command = command.model_copy(update={"job": job})
        changed.append(TimedCommand(timed.at_seconds, command))
    return changed, tuple(unknown)


def _interference(
    chance: random.Random,
    number: int,
    jobs: list[TimedCommand],
    cluster: Cluster,
    moment: float,
) -> Command:
    name = f"interference-{number}"
    submission = chance.choice(jobs).command
    assert isinstance(submission, SubmitJob), "jobs holds submissions only"  # noqa: S101 (invariant)
    server = cluster.server(chance.randrange(cluster.servers)).server_id
    match chance.randrange(4):
        case 0:
            return CancelJob(command_id=name, job_id=submission.job_id)
        case 1:
            deadline = moment + chance.uniform(60.0, 86_400.0)
            return ChangeDeadline(
                command_id=name, job_id=submission.job_id, deadline_seconds=deadline
            )
        case 2 if cluster.servers > 2 and server != cluster.server(0).server_id:
            return RemoveServer(command_id=name, server_id=server)
        case _:
            return CordonServer(command_id=name, server_id=server, cordoned=chance.random() < 0.5)


def main(arguments: list[str] | None = None) -> int:
    """Run one seed or many; print what was wrong; exit 1 if anything was."""
    parser = argparse.ArgumentParser(prog="resilin.simulation.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--seeds", type=int, default=200, help="run seeds 0 to SEEDS-1")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.seeds) if chosen.seed is None else (chosen.seed,)
    totals: dict[str, int] = {}
    records = broken = 0
    for seed in seeds:
        try:
            run = run_seed(seed)
        except Exception:
            _say(f"seed {seed}: stopped with the error below\n{_reproduce(seed)}")
            raise
        records += run.records
        for kind, count in run.faults.items():
            totals[kind] = totals.get(kind, 0) + count
        if run.findings:
            broken += 1
            _say(f"seed {seed}: {run.findings[0]} ({len(run.findings)} findings)")
            _say(_reproduce(seed))
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(totals.items()))
    _say(f"{len(seeds)} seeds, {records} records; {faults}")
    _say(f"{len(seeds) - broken} passed, {broken} failed")
    return 1 if broken else 0


def _reproduce(seed: int) -> str:
    return f"  reproduce with: make sim SEED={seed}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
