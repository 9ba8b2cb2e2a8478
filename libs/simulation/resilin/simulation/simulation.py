"""The simulation runner: all seven services in one process under a virtual clock.

    until nothing is left to happen:
        take in what is due now: reports of the cluster, then commands
        let every service decide until none has anything to append
        jump to the next command, timer or thing that happens in the cluster

The services, the kernel and the log are the production ones; only the clock and the
cluster are not real.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from resilin.admission.decider import AdmissionDecider
from resilin.admission.intake import ReceivedCommand
from resilin.allocator.decider import AllocatorDecider
from resilin.contracts import events as ev
from resilin.contracts.commands import Command, ImportCurves, SubmitJob
from resilin.contracts.job_specification import TrainingSpecification
from resilin.contracts.record import LogEntry, Record
from resilin.contracts.telemetry import StepSample
from resilin.contracts.topics import JOBS_COMMANDS
from resilin.contracts.values import Curve, SourcePosition
from resilin.eventlog.port import EventLog
from resilin.executor.decider import ExecutorDecider, instructions, profiles_wanted, steered_jobs
from resilin.kernel.decider import Decider, Intake
from resilin.kernel.host import Folded, Role, ServiceHost
from resilin.loan_manager.decider import LoanManagerDecider
from resilin.metric_collector.decider import MetricCollectorDecider
from resilin.placement.decider import PlacementDecider
from resilin.simulation.cluster import Physics, Report, SimulatedCluster, World
from resilin.stability_detector.decider import StabilityDetectorDecider

__all__ = ["Chaos", "Instance", "Simulation", "TimedCommand", "deciders"]


@dataclass(frozen=True, slots=True)
class TimedCommand:
    """A command and when it is sent, in seconds of the virtual clock."""

    at_seconds: float
    command: Command


def deciders() -> tuple[Decider[Any], ...]:
    """Return the cores of the seven services, in the order in which they are polled."""
    return (
        AdmissionDecider(),
        AllocatorDecider(),
        PlacementDecider(),
        LoanManagerDecider(),
        MetricCollectorDecider(),
        StabilityDetectorDecider(),
        ExecutorDecider(),
    )


class _Truth:
    """What is true of the jobs: their work as submitted, their curves as imported or given."""

    def __init__(self, commands: Iterable[TimedCommand], unknown_curves: Sequence[Curve]) -> None:
        self._curves: dict[tuple[str, int], dict[int, float]] = {}
        for curve in unknown_curves:
            self._learn(curve)
        self._jobs: dict[str, TrainingSpecification] = {}
        for timed in commands:
            match timed.command:
                case ImportCurves(curves=curves):
                    for curve in curves:
                        self._learn(curve)
                case SubmitJob(job_id=job_id, job=job):
                    self._jobs.setdefault(job_id, job.spec)

    def _learn(self, curve: Curve) -> None:
        rates = self._curves.setdefault((curve.model, curve.global_batch), {})
        rates.update(curve.iterations_per_second)

    def rate(self, job_id: str, workers: int, global_batch: int | None = None) -> float:
        spec = self._jobs[job_id]
        batch = spec.global_batch if global_batch is None else global_batch
        return self._curves[spec.model, batch][workers]

    def submitted(self, job_id: str) -> tuple[str, int]:
        spec = self._jobs[job_id]
        return spec.model, spec.global_batch

    def total_iterations(self, job_id: str) -> float:
        return self._jobs[job_id].total_iterations

    def curve(self, job_id: str) -> Curve | None:
        spec = self._jobs[job_id]
        known = self._curves.get((spec.model, spec.global_batch), {})
        rates = {count: rate for count, rate in known.items() if spec.elastic.allows(count)}
        if not rates:
            return None
        return Curve(model=spec.model, global_batch=spec.global_batch, iterations_per_second=rates)


class Instance:
    """One instance of one service in the simulated world.

    Attributes:
        host: Its kernel host.
        paused: Whether it stands still, as a process that was stopped by a signal.
    """

    def __init__(
        self, decider: Decider[Any], cell: str, number: int, folded: Folded[Any] | None
    ) -> None:
        self.decider = decider
        self.host: ServiceHost[Any] = ServiceHost(
            decider, cell=cell, instance=f"{decider.service}-{number}", folded=folded
        )
        self.paused = False

    def accept(self, item: object, now_seconds: float) -> Record | None:
        """Turn one input into the record of its facts; None for a repeat."""
        intake: Intake[Any, Any] = cast("Intake[Any, Any]", self.decider)
        facts = intake.accept(self.host.folded.state, item)
        return self.host.facts(facts, now_seconds)


class Chaos(Protocol):
    """What a fault simulation may do to a run."""

    def next_seconds(self) -> float:
        """Return when it wants to act next; infinite for never."""
        ...

    def act(self, simulation: Simulation) -> None:
        """Act, at the beginning of everything that happens at a moment."""
        ...

    def before_append(self, simulation: Simulation) -> None:
        """Let others be quicker: their records come between a record's basis and itself."""
        ...

    def after_append(self, simulation: Simulation, entry: LogEntry) -> None:
        """Kill, pause, resume or start instances, right after an entry was delivered."""
        ...

    def disturb(self, report: Report, now_seconds: float) -> Iterable[tuple[float, Report]]:
        """Return when a report arrives: late, twice, but never not at all."""
        ...


class Simulation:
    """One run of a cell.

    Args:
        log: Where the records go; empty.
        commands: What clients send, in order of time.
        world: How the simulated world behaves; or another world, in which nothing is simulated
            (:class:`~resilin.simulation.recorded.RecordedWorld`).
        unknown_curves: Throughput that is true of the simulated world, and known to the cell
            only once it has tried a job out.
        chaos: Faults to inject; None for none.
        observe: Called with every entry, after all services have folded it.
        make_deciders: The services' cores; a test may put a double in.
    """

    cell = "main"

    def __init__(
        self,
        log: EventLog,
        commands: Sequence[TimedCommand],
        world: Physics | World,
        *,
        unknown_curves: Sequence[Curve] = (),
        chaos: Chaos | None = None,
        observe: Callable[[LogEntry], None] | None = None,
        make_deciders: Callable[[], tuple[Decider[Any], ...]] = deciders,
    ) -> None:
        self._log = log
        self._commands = commands
        self._chaos = chaos
        self._observe = observe
        self._make_deciders = make_deciders
        self._started = 0
        self._runs = False
        self._inbox: deque[Report] = deque()
        self._late: list[tuple[float, int, Report]] = []
        self.now_seconds = commands[0].at_seconds if commands else 0.0
        self.world: World = (
            SimulatedCluster(world, _Truth(commands, unknown_curves))
            if isinstance(world, Physics)
            else world
        )
        self.instances: dict[str, list[Instance]] = {}
        for decider in make_deciders():
            self.instances[decider.service] = []
            self.start(decider.service)

    # --- instances -------------------------------------------------------------------------

    def start(self, service: str, folded: Folded[Any] | None = None) -> Instance:
        """Start an instance: it folds the log to its end and claims the service.

        Args:
            service: Which service.
            folded: A snapshot to start from; None to fold from the first entry.
        """
        decider = next(d for d in self._make_deciders() if d.service == service)
        self._started += 1
        instance = Instance(decider, self.cell, self._started, folded)
        self.instances[service].append(instance)
        self._catch_up(instance)
        self.append(instance, instance.host.claim(self.now_seconds))
        return instance

    def kill(self, instance: Instance) -> None:
        """End an instance at once; everything it had in memory is gone."""
        self.instances[instance.host.service].remove(instance)

    def resume(self, instance: Instance) -> None:
        """Let a paused instance go on: it acts on what it knew, then catches up."""
        instance.paused = False
        record = instance.host.poll(self.now_seconds) or instance.host.tick(self.now_seconds)
        if record is None and self._inbox and instance.host.service == ExecutorDecider.service:
            record = instance.accept(self._inbox[0], self.now_seconds)
        if record is None:
            self._catch_up(instance)
        else:
            self.append(instance, record)

    def repeat(self, entry: LogEntry) -> None:
        """Append an entry's record once more, as a producer that saw no acknowledgement."""
        self._deliver(LogEntry(self._log.append(entry.record), entry.record))

    def leader(self, service: str) -> Instance | None:
        """Return the running instance that leads a service."""
        for instance in self.instances[service]:
            if not instance.paused and instance.host.role is Role.LEADING:
                return instance
        return None

    def append(self, instance: Instance, record: Record) -> None:
        """Append an instance's record and let everyone fold it."""
        if self._chaos is not None and self._runs:
            self._chaos.before_append(self)
        offset = self._log.append(record)
        instance.host.appended(offset)
        self._deliver(LogEntry(offset, record))

    def _deliver(self, entry: LogEntry) -> None:
        for others in self.instances.values():
            for other in others:
                if not other.paused:
                    self._fold(other, entry)
        if self._observe is not None:
            self._observe(entry)
        if self._chaos is not None:
            self._chaos.after_append(self, entry)

    def _fold(self, instance: Instance, entry: LogEntry) -> None:
        if entry.offset == instance.host.folded.offset + 1:
            counted = instance.host.fold(entry)
            if counted and instance.host.service == ExecutorDecider.service:
                self._carry_out(instance, entry)
        else:
            self._catch_up(instance)

    def _catch_up(self, instance: Instance) -> None:
        for entry in self._log.read(instance.host.folded.offset):
            instance.host.fold(entry)
        if instance.host.service == ExecutorDecider.service:
            self._carry_out(instance, None)

    def _carry_out(self, instance: Instance, entry: LogEntry | None) -> None:
        """Have the cluster do what the executor wants: all of it, or what an entry changed."""
        state = instance.host.folded.state
        jobs: list[str] | None = None
        profiles: list[str] = []
        if entry is None:
            profiles = profiles_wanted(state)
            for server in state.cell.servers:
                self.world.add_node(server, self.now_seconds)
        else:
            jobs = steered_jobs(entry)
            for event in entry.record.events:
                if isinstance(event, ev.ProfileRequested):
                    profiles.append(event.job_id)
                elif isinstance(event, ev.ServerAdded):
                    self.world.add_node(event.server.server_id, self.now_seconds)
        for instruction in instructions(state, jobs):
            self.world.carry_out(instruction, self.now_seconds)
        for job_id in profiles:
            self.world.profile(job_id, self.now_seconds)

    # --- the loop --------------------------------------------------------------------------

    def run(self, until_seconds: float = math.inf) -> None:
        """Run until every job has ended and every command was sent, or until a time."""
        self._runs = True
        self._settle()
        while not self._over():
            moment = self._next_moment()
            if moment > until_seconds or math.isinf(moment):
                break
            self.now_seconds = max(self.now_seconds, moment)
            self._settle()

    def _over(self) -> bool:
        leader = self.leader(AdmissionDecider.service)
        if leader is None or self._inbox or self._late:
            return False
        state = leader.host.folded.state
        return self._next_command(leader) is None and not state.cell.jobs

    def _next_moment(self) -> float:
        moments = [self.world.next_seconds()]
        if self._chaos is not None:
            moments.append(self._chaos.next_seconds())
        if self._late:
            moments.append(self._late[0][0])
        for service in self.instances:
            leader = self.leader(service)
            timer = None if leader is None else leader.host.next_timer()
            if timer is not None:
                moments.append(timer)
        admission = self.leader(AdmissionDecider.service)
        command = None if admission is None else self._next_command(admission)
        if command is not None:
            moments.append(command.at_seconds)
        return min(moments)

    def _settle(self) -> None:
        """Do everything that is to be done at this moment."""
        if self._chaos is not None:
            self._chaos.act(self)
        while self.act_once():
            pass

    def act_once(self) -> bool:
        """Do one of the things that are to be done at this moment; say whether one was."""
        return self._take_in() or self._decide() or self._tick()

    def _take_in(self) -> bool:
        self._collect_reports()
        return self._take_report() or self._take_command()

    def _collect_reports(self) -> None:
        now = self.now_seconds
        for report in self.world.reports(now):
            if isinstance(report, StepSample):
                self._take_sample(report)
            elif self._chaos is None:
                self._inbox.append(report)
            else:
                for moment, copy in self._chaos.disturb(report, now):
                    self._started += 1
                    heapq.heappush(self._late, (moment, self._started, copy))
        while self._late and self._late[0][0] <= now:
            self._inbox.append(heapq.heappop(self._late)[2])

    def _take_report(self) -> bool:
        leader = self.leader(ExecutorDecider.service)
        while leader is not None and leader.host.may_append and self._inbox:
            report = self._inbox.popleft()
            record = leader.accept(report, self.now_seconds)
            if record is not None:
                self.append(leader, record)
                return True
        return False

    def _take_sample(self, sample: StepSample) -> None:
        # Telemetry may be lost; a service without a leader just misses it.
        for service in (MetricCollectorDecider.service, StabilityDetectorDecider.service):
            leader = self.leader(service)
            if leader is not None and leader.host.may_append:
                record = leader.accept(sample, self.now_seconds)
                if record is not None:
                    self.append(leader, record)

    def _next_command(self, admission: Instance) -> TimedCommand | None:
        """Return the command after the last one that the log says was taken."""
        position = admission.host.folded.state.positions.get(f"{JOBS_COMMANDS.name}/0", -1)
        return self._commands[position + 1] if position + 1 < len(self._commands) else None

    def _take_command(self) -> bool:
        leader = self.leader(AdmissionDecider.service)
        command = None if leader is None else self._next_command(leader)
        if leader is None or command is None or command.at_seconds > self.now_seconds:
            return False
        if not leader.host.may_append:
            return False
        position = leader.host.folded.state.positions.get(f"{JOBS_COMMANDS.name}/0", -1) + 1
        source = SourcePosition(topic=JOBS_COMMANDS.name, offset=position)
        received = ReceivedCommand(command.command, source, self.now_seconds)
        record = leader.accept(received, self.now_seconds)
        assert record is not None, "a command that was not taken yet adds a fact"  # noqa: S101 (invariant)
        self.append(leader, record)
        return True

    def _decide(self) -> bool:
        for service in self.instances:
            leader = self.leader(service)
            record = None if leader is None else leader.host.poll(self.now_seconds)
            if leader is not None and record is not None:
                self.append(leader, record)
                return True
        return False

    def _tick(self) -> bool:
        for service in self.instances:
            leader = self.leader(service)
            record = None if leader is None else leader.host.tick(self.now_seconds)
            if leader is not None and record is not None:
                self.append(leader, record)
                return True
        return False
