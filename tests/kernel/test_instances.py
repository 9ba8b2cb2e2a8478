"""Several instances of one service over one log, under any interleaving.

The machine starts, crashes and restarts instances, lets them lag, claim, decide and take
input, delivers their appends late, twice, or after their death, and holds every step
against an observer that folds the whole log from its start.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.memory import MemoryLog
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded, Role, ServiceHost
from resilin.kernel.snapshot import dump, load, state_hash

from .counter import Added, Counter, CounterState, claim_of, record_of

INSTANCES_MAX = 4


def amount_of(number: int) -> int:
    """The input of the service: item ``number`` is this amount."""
    return number % 3 + 1


@dataclass(slots=True)
class Instance:
    """A running instance, and the record that it has offered and not yet appended."""

    name: str
    host: ServiceHost[CounterState]
    clock_behind_seconds: float
    offered: Record | None = None


class Observer:
    """What is true at every offset, by the definitions and nothing else."""

    def __init__(self) -> None:
        self.fence = Fence()
        self.counted: list[bool] = []
        self.records: list[Record] = []
        self.states = [CounterState()]
        self.fences = [Fence()]

    def state_at(self, offset: int) -> CounterState:
        return self.states[offset + 1]

    def observe(self, entry: LogEntry) -> None:
        counted = self.fence.admit(entry)
        state = copy.deepcopy(self.states[-1])
        if counted:
            self._check(entry)
            for event in entry.record.events:
                state = Counter().evolve(state, event, entry)
        self.counted.append(counted)
        self.records.append(entry.record)
        self.states.append(state)
        self.fences.append(copy.deepcopy(self.fence))

    def _check(self, entry: LogEntry) -> None:
        """Hold a record of the service that counts against the rules of the log."""
        record = entry.record
        if record.service != Counter.service:
            return
        assert record.basis < entry.offset
        counting = [
            (offset, earlier)
            for offset, (earlier, counted) in enumerate(
                zip(self.records, self.counted, strict=True)
            )
            if counted
        ]
        known = [earlier.timestamp for offset, earlier in counting if offset <= record.basis]
        assert record.timestamp >= max(known, default=record.timestamp)
        if record.nature == "claim":
            return
        missed = [earlier for offset, earlier in counting if offset > record.basis]
        assert Counter.service not in [earlier.service for earlier in missed], "not quiescent"
        if record.nature == "decision":
            assert record.events == tuple(Counter().decide(self.state_at(record.basis)))
        for event in record.events:
            if isinstance(event, Added):
                assert event.number == self.states[-1].taken, "taken twice or skipped"


class Instances(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog()
        self.observer = Observer()
        self.instances: list[Instance] = []
        self.undelivered: list[Record] = []
        self.snapshots: list[bytes] = []
        self.leaders: dict[int, str] = {}
        self.started = 0
        self.now_seconds = 0.0
        self.append(claim_of(1, service="other"))
        self.start(from_snapshot=False, number=0)
        self.start(from_snapshot=False, number=0)

    def append(self, record: Record) -> int:
        offset = self.log.append(record)
        self.observer.observe(LogEntry(offset, record))
        return offset

    def clock(self, instance: Instance) -> float:
        return self.now_seconds - instance.clock_behind_seconds

    def pick(self, number: int) -> Instance:
        return self.instances[number % len(self.instances)]

    # --- the world -----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 1.0, 20.0]), behind_seconds=st.sampled_from([0.0, 9.0]))
    def another_service_appends(self, seconds: float, behind_seconds: float) -> None:
        self.now_seconds += seconds
        its_clock = self.now_seconds - behind_seconds
        self.append(record_of(service="other", basis=self.log.end_offset(), timestamp=its_clock))

    @precondition(lambda self: self.undelivered)
    @rule(number=st.integers(0, 5))
    def an_append_arrives_after_its_writers_death(self, number: int) -> None:
        self.append(self.undelivered.pop(number % len(self.undelivered)))

    # --- the life of an instance ---------------------------------------------------------

    @precondition(lambda self: len(self.instances) < INSTANCES_MAX)
    @rule(from_snapshot=st.booleans(), number=st.integers(0, 5))
    def start(self, from_snapshot: bool, number: int) -> None:
        self.started += 1
        name = f"counter-{self.started}"
        folded: Folded[CounterState] | None = None
        if from_snapshot and self.snapshots:
            folded = load(self.snapshots[number % len(self.snapshots)], CounterState)
        host = ServiceHost(Counter(), cell="main", instance=name, folded=folded)
        # Clocks differ: every second instance's is behind.
        self.instances.append(Instance(name, host, 9.0 * (self.started % 2)))

    @precondition(lambda self: len(self.instances) > 1)
    @rule(number=st.integers(0, 3), delivered=st.booleans())
    def crash(self, number: int, delivered: bool) -> None:
        instance = self.pick(number)
        self.instances.remove(instance)
        if instance.offered is not None:
            # The broker may have it already, may get it later, or never.
            if delivered:
                self.append(instance.offered)
            else:
                self.undelivered.append(instance.offered)

    @rule(number=st.integers(0, 3))
    def save_a_snapshot(self, number: int) -> None:
        folded = self.pick(number).host.folded
        self.snapshots = [*self.snapshots[-2:], dump(folded, CounterState)]

    # --- what an instance does -----------------------------------------------------------

    @rule(number=st.integers(0, 3), entries=st.sampled_from([1, 2, 1_000]))
    def fold(self, number: int, entries: int) -> None:
        self.fold_some(self.pick(number), entries)

    def fold_some(self, instance: Instance, entries: int) -> None:
        reading = self.log.read(instance.host.folded.offset)
        for entry, _ in zip(reading, range(entries), strict=False):
            counted = instance.host.fold(entry)
            assert counted == self.observer.counted[entry.offset]
            self.check(instance)

    def check(self, instance: Instance) -> None:
        host = instance.host
        if host.role is Role.LEADING:
            epoch = host.folded.fence.epoch(host.service)
            assert self.leaders.setdefault(epoch, instance.name) == instance.name
        assert host.may_append == (host.role is Role.LEADING and host.quiescent)

    @rule(number=st.integers(0, 3))
    def claim(self, number: int) -> None:
        instance = self.pick(number)
        if instance.host.quiescent:
            instance.offered = instance.host.claim(self.clock(instance))

    @rule(number=st.integers(0, 3))
    def decide(self, number: int) -> None:
        instance = self.pick(number)
        instance.offered = instance.host.poll(self.clock(instance)) or instance.offered

    @rule(number=st.integers(0, 3))
    def tick(self, number: int) -> None:
        instance = self.pick(number)
        instance.offered = instance.host.tick(self.clock(instance)) or instance.offered

    @rule(number=st.integers(0, 3))
    def take_input(self, number: int) -> None:
        instance = self.pick(number)
        if instance.host.may_append:
            state = instance.host.folded.state
            item = (state.taken, amount_of(state.taken))
            facts = Counter().accept(state, item)
            instance.offered = instance.host.facts(facts, self.clock(instance))

    @rule(number=st.integers(0, 3), copies=st.sampled_from([1, 1, 2]), told=st.booleans())
    def deliver(self, number: int, copies: int, told: bool) -> None:
        self.deliver_offered(self.pick(number), copies, told)

    def deliver_offered(self, instance: Instance, copies: int, told: bool) -> None:
        """Append what an instance offered; a retry appends it twice and may tell either place."""
        if instance.offered is not None:
            offsets = [self.append(instance.offered) for _ in range(copies)]
            instance.host.appended(offsets[0] if told else offsets[-1])
            instance.offered = None

    # --- longer stretches without a rival, so that histories get somewhere ----------------

    @rule(number=st.integers(0, 3))
    def take_over(self, number: int) -> None:
        instance = self.pick(number)
        self.deliver_offered(instance, 1, told=True)
        self.fold_some(instance, 1_000)
        self.claim(number)
        self.deliver_offered(instance, 1, told=True)
        self.fold_some(instance, 1_000)
        assert instance.host.role is Role.LEADING

    @rule(number=st.integers(0, 3), steps=st.integers(1, 6), offers=st.booleans())
    def work(self, number: int, steps: int, offers: bool) -> None:
        """Work on undisturbed; with ``offers``, something is left offered at the end."""
        instance = self.pick(number)
        for _ in range(steps):
            self.deliver_offered(instance, 1, told=True)
            self.fold_some(instance, 1_000)
            self.now_seconds += 1.0
            self.decide(number)
            if instance.offered is None:
                self.tick(number)
            if instance.offered is None:
                self.take_input(number)
        if not offers:
            self.deliver_offered(instance, 1, told=True)

    @rule(number=st.integers(0, 3), first=st.booleans())
    def two_claim_at_once(self, number: int, first: bool) -> None:
        """Two instances claim what both believe to be the next epoch."""
        rivals = [self.pick(number), self.pick(number + 1)]
        for rival in rivals:
            self.deliver_offered(rival, 1, told=True)
        for rival in rivals:
            self.fold_some(rival, 1_000)
        for rival in rivals[: len({rival.name for rival in rivals})]:
            rival.offered = rival.host.claim(self.clock(rival))
        for rival in rivals if first else reversed(rivals):
            self.deliver_offered(rival, 1, told=True)

    @rule(number=st.integers(0, 3))
    def lag(self, number: int) -> None:
        """Fold another service's record, and not yet the own one behind it."""
        instance = self.pick(number)
        self.fold_some(instance, 1_000)
        self.another_service_appends(seconds=0.0, behind_seconds=0.0)
        self.deliver_offered(instance, 1, told=True)
        self.fold_some(instance, 1)
        self.decide(number)
        self.take_input(number)

    # --- what always holds ---------------------------------------------------------------

    @invariant()
    def everyone_has_folded_the_same(self) -> None:
        for instance in self.instances:
            folded = instance.host.folded
            assert folded.state == self.observer.state_at(folded.offset)
            assert folded.fence == self.observer.fences[folded.offset + 1]

    @invariant()
    def every_item_of_the_input_counts_once(self) -> None:
        state = self.observer.states[-1]
        assert state.total == sum(amount_of(number) for number in range(state.taken))

    def teardown(self) -> None:
        """After any history, whoever claims when all is folded leads and can go on."""
        for instance in self.instances:
            self.deliver_offered(instance, 1, told=True)
        for instance in self.instances:
            self.fold_some(instance, 1_000_000)
            assert instance.host.quiescent
        leading = [one.name for one in self.instances if one.host.role is Role.LEADING]
        assert len(leading) <= 1
        self.start(from_snapshot=True, number=0)
        last = self.instances[-1]
        self.fold_some(last, 1_000_000)
        last.offered = last.host.claim(self.clock(last))
        self.deliver_offered(last, 1, told=True)
        for instance in self.instances:
            self.fold_some(instance, 1_000_000)
        assert [one.name for one in self.instances if one.host.role is Role.LEADING] == [last.name]

        replayed = ServiceHost(Counter(), cell="main", instance="replay")
        for entry in self.log.read():
            replayed.fold(entry)
        hashes = [state_hash(one.host.folded.state, CounterState) for one in self.instances]
        assert hashes == [state_hash(replayed.folded.state, CounterState)] * len(hashes)


TestInstances = Instances.TestCase
TestInstances.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, derandomize=True
)
