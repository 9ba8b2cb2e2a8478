"""The live shell: claims, folds, decides, stands by; whatever goes wrong, it does not hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.kernel.counter import Added, Counter, CounterState, Reported, claim_of, record_of
from tests.support.live import ByHand, Listed, Seen, SharedLog, View, counted, running, until

from resilin.contracts.events import ClockTicked, Event
from resilin.contracts.record import LogEntry, Record
from resilin.eventlog.port import Snapshot
from resilin.kernel import host as kernel_host
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Role
from resilin.kernel.snapshot import SnapshotError, state_hash
from resilin.runtime import service as shell
from resilin.runtime.clock import WallClock
from resilin.runtime.service import LiveService


def a_service(
    log: SharedLog,
    *inputs: Listed,
    name: str = "one",
    view: View | None = None,
    election: ByHand | None = None,
    decider: Counter | None = None,
    **more: Any,
) -> LiveService[CounterState]:
    return LiveService(
        decider or Counter(),
        cell="main",
        instance=name,
        log=view or log.view(),
        election=election or ByHand(),
        clock=more.pop("clock", WallClock()),
        inputs=inputs,
        **more,
    )


def added(log: SharedLog) -> list[int]:
    """The numbers of the items taken, of the facts that count."""
    return [
        event.number
        for entry in counted(log.entries)
        for event in entry.record.events
        if isinstance(event, Added)
    ]


def claims(log: SharedLog) -> list[str]:
    """Who claimed the service, one after the other, whether it counted or not."""
    return [
        event.instance
        for entry in log.entries
        if entry.record.nature == "claim"
        for event in entry.record.events
    ]


def replayed(log: SharedLog) -> str:
    """What a fresh fold of the log comes to."""
    counter, state, fence = Counter(), CounterState(), Fence()
    for entry in log.entries:
        if fence.admit(entry):
            for event in entry.record.events:
                state = counter.evolve(state, event, entry)
    return state_hash(state, CounterState)


def ends_with(service: LiveService[Any]) -> BaseException:
    """Run a service that must end by an error, and return it."""

    async def run() -> None:
        async with asyncio.timeout(30):
            await service.run()

    with pytest.raises(BaseException) as raised:  # noqa: PT011 (the caller looks at it)
        asyncio.run(run())
    return raised.value


# --- leading -------------------------------------------------------------------------------


def test_a_leader_takes_input_in_and_answers_it() -> None:
    async def story() -> None:
        log, items = SharedLog(), Listed((0, 4), (1, 1), (2, 3))
        service = a_service(log, items)
        async with running(service):
            await until(lambda: len(log.entries) == 6)
            assert state_hash(service.host.folded.state, CounterState) == replayed(log)
        natures = [entry.record.nature for entry in log.entries]
        assert natures == ["claim", "facts", "decision", "facts", "facts", "decision"]
        assert added(log) == [0, 1, 2]

    asyncio.run(story())


def test_a_flood_of_input_does_not_put_decisions_off() -> None:
    async def story() -> None:
        log, items = SharedLog(), Listed(*((number, 4) for number in range(50)))
        async with running(a_service(log, items)):
            await until(lambda: len(added(log)) == 50 and len(log.entries) == 101)
        natures = [entry.record.nature for entry in log.entries[1:]]
        assert natures == ["facts", "decision"] * 50

    asyncio.run(story())


def test_repeats_that_add_no_facts_do_not_put_decisions_off() -> None:
    class Endless(Listed):
        def taken(self) -> None:
            self.calls.append("taken")

    async def story() -> None:
        log = SharedLog()
        log.append(claim_of(1))
        log.append(record_of(Added(number=0, amount=4), basis=0))
        repeats = Endless((0, 4))
        async with running(a_service(log, repeats)):
            await until(lambda: any(entry.record.nature == "decision" for entry in log.entries))
            await until(lambda: len(repeats.calls) > 10)
            repeats.items.clear()

    asyncio.run(story())


def test_others_have_their_turn_while_a_leader_has_much_to_do() -> None:
    # A log in a file never makes its writer wait: nothing else would give way.
    async def story() -> None:
        log, items = SharedLog(), Listed()
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async with running(a_service(log, items)):
            beside = asyncio.create_task(other())
            before = turns
            items.put(*((number, 0) for number in range(100)))
            await until(lambda: len(added(log)) == 100)
            assert turns - before >= 100
            beside.cancel()

    asyncio.run(story())


def test_a_core_is_asked_once_for_each_state() -> None:
    async def story() -> None:
        log, items, seen = SharedLog(), Listed((0, 1)), Seen()
        service = a_service(log, items, observers=[seen])
        async with running(service):
            await until(lambda: added(log) == [0] and seen.decisions)
            for _ in range(5):
                items.put()  # wakes it for nothing
                await asyncio.sleep(0.01)
            assert seen.decisions == 1

    asyncio.run(story())


def test_timers_fire_by_the_clock_of_the_cell() -> None:
    async def story() -> None:
        log, items = SharedLog(), Listed((0, 1))
        clock = WallClock(scale=1_000.0, origin_seconds=1e9)
        async with running(a_service(log, items, clock=clock)):
            await until(lambda: len(log.entries) == 3)
        fact, tick = log.entries[1].record, log.entries[2].record
        (event,) = tick.events
        assert isinstance(event, ClockTicked)
        assert event.due_seconds == fact.timestamp + 10.0
        assert tick.timestamp >= event.due_seconds

    asyncio.run(story())


# --- what was appended ---------------------------------------------------------------------


class Crowded(View):
    """Another service appends just before each append through this view."""

    turns_before_answer = 0

    async def append(self, record: Record) -> int:
        self._shared.append(
            record_of(ClockTicked(due_seconds=0.0), service="other", basis=len(log_of(self)))
        )
        offset = await super().append(record)
        for _ in range(self.turns_before_answer):
            await asyncio.sleep(0)
        return offset


class CrowdedAndSlow(Crowded):
    """The same, where what the log holds is read before the append is acknowledged."""

    turns_before_answer = 20


class Twice(View):
    """Everything is delivered twice."""

    async def read(self, timeout_seconds: float) -> Sequence[LogEntry]:
        entries = await super().read(timeout_seconds)
        return [*entries, *entries]


def log_of(view: View) -> list[LogEntry]:
    return list(view._shared.log.read())


@pytest.mark.parametrize("view", [View, Crowded, CrowdedAndSlow, Twice])
def test_every_record_is_folded_once_and_in_order(view: type[View]) -> None:
    async def story() -> None:
        log, items = SharedLog(), Listed(*((number, 2) for number in range(10)))
        log.append(claim_of(1, service="other"))
        service = a_service(log, items, view=view(log))
        async with running(service):
            await until(lambda: added(log) == [*range(10)])
            await until(lambda: service.host.may_append)
            await until(lambda: service.host.folded.offset == log.entries[-1].offset)
            assert state_hash(service.host.folded.state, CounterState) == replayed(log)
        assert len(counted(log.entries)) == len(log.entries)

    asyncio.run(story())


# --- standing by ---------------------------------------------------------------------------


def test_a_standby_folds_along_and_takes_over_without_replay() -> None:
    async def story() -> None:
        log = SharedLog()
        first = Listed(*((number, 1) for number in range(5)))
        second, view, election = Listed(), log.view(), ByHand(elected=False)
        standby = a_service(log, second, name="two", view=view, election=election)
        async with running(standby):
            async with running(a_service(log, first)):
                await until(lambda: added(log) == [*range(5)])
            await until(lambda: standby.host.folded.offset == log.entries[-1].offset)
            assert standby.host.role is Role.STANDBY
            assert second.calls == []
            election.elect()
            second.put((5, 1))
            await until(lambda: added(log) == [*range(6)])
            assert claims(log) == ["one", "two"]
            assert view.starts == [-1]
            assert second.calls == ["lead"]
            assert election.stood_back is False
        assert election.stood_back

    asyncio.run(story())


class Liar(Counter):
    def decide(self, state: CounterState) -> Sequence[Event]:
        return [
            event.model_copy(update={"total": 99}) if isinstance(event, Reported) else event
            for event in super().decide(state)
        ]


@pytest.mark.parametrize(("leads", "mismatches"), [(Counter, 0), (Liar, 1)])
def test_a_standby_checks_what_its_leader_decides(leads: type[Counter], mismatches: int) -> None:
    async def story() -> None:
        log, seen = SharedLog(), Seen()
        standby = a_service(
            log, Listed(), name="two", election=ByHand(elected=False), observers=[seen]
        )
        async with running(standby, a_service(log, Listed((0, 4)), decider=leads())):
            await until(lambda: standby.host.folded.offset == 2)
            assert seen.mismatches == mismatches

    asyncio.run(story())


def test_a_leader_of_another_version_may_decide_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        log, seen = SharedLog(), Seen()
        standby = a_service(
            log, Listed(), name="two", election=ByHand(elected=False), observers=[seen]
        )
        monkeypatch.setattr(kernel_host, "SOFTWARE", "0.0")  # what its claim says
        async with running(standby, a_service(log, Listed((0, 4)), decider=Liar())):
            await until(lambda: standby.host.folded.offset == 2)
            assert seen.mismatches == 0

    asyncio.run(story())


def test_of_two_that_believe_to_lead_the_log_chooses_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell, "_RECLAIM_SECONDS", 0.02)
    monkeypatch.setattr(shell, "_WAIT_SECONDS", 0.02)

    async def story() -> None:
        log = SharedLog()
        items = [(number, 1) for number in range(40)]
        one = a_service(log, Listed(*items), name="one")
        two = a_service(log, Listed(*items), name="two")
        async with running(one, two):
            await until(lambda: len(added(log)) == 40)
            # Each stands by when it was followed, and claims again after its pause.
            await until(lambda: len(claims(log)) >= 4)
        assert added(log) == [*range(40)]
        assert {*claims(log)} == {"one", "two"}

    asyncio.run(story())


def test_whoever_was_followed_waits_before_it_claims_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        log, election = SharedLog(), ByHand(elected=False)
        one, two = a_service(log, Listed()), a_service(log, Listed(), name="two", election=election)
        monkeypatch.setattr(shell, "_RECLAIM_SECONDS", 0.0)
        async with running(one, two):
            await until(lambda: one.host.role is Role.LEADING)
            # Its claim was long ago; what counts is that it was followed just now.
            monkeypatch.setattr(shell, "_RECLAIM_SECONDS", 3_600.0)
            election.elect()
            await until(lambda: one.host.role is Role.STANDBY)
            for _ in range(20):
                one._wake.set()
                await asyncio.sleep(0.002)
            assert claims(log) == ["one", "two"]
            assert two.host.role is Role.LEADING

    asyncio.run(story())


def test_a_frozen_leader_wakes_and_stands_by() -> None:
    async def story() -> None:
        log, items = SharedLog(), Listed()
        view = log.view()
        frozen = a_service(log, items, view=view)
        async with running(frozen):
            await until(lambda: frozen.host.role is Role.LEADING)
            view.reads.clear()
            frozen._election.elect(elected=False)  # type: ignore[attr-defined]  # by hand
            successor = a_service(log, Listed((0, 1)), name="two")
            async with running(successor):
                await until(lambda: added(log) == [0])
                before = len(log.entries)
                items.put((0, 7))  # what it believes to be its to record
                await until(lambda: len(log.entries) > before)
                view.reads.set()
                await until(lambda: "follow" in items.calls)
                await until(lambda: frozen.host.quiescent)
            assert frozen.host.role is Role.STANDBY
            assert frozen.host.folded.state.total == 1
        zombie = log.entries[before]
        assert zombie not in counted(log.entries)
        assert zombie.record.epoch == 1
        # It acts on nothing that came after it was followed.
        (claim,) = [each.offset for each in log.entries if each.record.nature == "claim"][1:]
        assert [offset for offset in items.folds if offset >= claim] == []

    asyncio.run(story())


def test_nobody_claims_before_it_has_read_what_there_was() -> None:
    async def story() -> None:
        log, election = SharedLog(), ByHand(elected=False)
        view = log.view()
        service = a_service(log, view=view, election=election)
        async with running(service):
            view.reads.clear()
            log.append(claim_of(1))
            election.elect()
            await until(lambda: service._claim_from == 0)
            await asyncio.sleep(0.02)
            assert len(log.entries) == 1
            view.reads.set()
            await until(lambda: service.host.role is Role.LEADING)
        assert [entry.record.epoch for entry in log.entries] == [1, 2]

    asyncio.run(story())


def test_a_log_that_grows_all_the_time_can_be_claimed() -> None:
    class Growing(View):
        async def end_offset(self) -> int:
            return self._shared.append(record_of(service="other"))

    async def story() -> None:
        log = SharedLog()
        service = a_service(log, view=Growing(log))
        async with running(service):
            await until(lambda: service.host.role is Role.LEADING)

    asyncio.run(story())


def test_a_log_need_not_end_with_a_record() -> None:
    class Marked(View):
        """Two offsets at its end are not records, as a broker's own marks."""

        async def end_offset(self) -> int:
            return await super().end_offset() + 2

        def position(self) -> int:
            return super().position() + 2

    async def story() -> None:
        log = SharedLog()
        log.append(claim_of(1))
        service = a_service(log, view=Marked(log))
        async with running(service):
            await until(lambda: service.host.role is Role.LEADING)

    asyncio.run(story())


# --- snapshots and companions --------------------------------------------------------------


class Beside:
    """A companion: how often it was restored, and from what."""

    def __init__(self, *, useless: bool = False) -> None:
        self.restored: list[bytes] = []
        self.useless = useless

    def dump(self) -> bytes:
        return b"beside"

    def restore(self, payload: bytes) -> None:
        if self.useless:
            raise SnapshotError("of another version")
        self.restored.append(payload)


async def a_log_with_a_snapshot() -> SharedLog:
    log = SharedLog()
    items = Listed(*((number, 1) for number in range(6)))
    async with running(a_service(log, items, companions={"beside": Beside()})):
        await until(lambda: len(added(log)) == 6 and not items.items)
    return log


def test_a_service_that_ends_in_good_order_goes_on_from_its_snapshot() -> None:
    async def story() -> None:
        log, seen, beside = await a_log_with_a_snapshot(), Seen(), Beside()
        end = len(log.entries) - 1
        later = a_service(log, Listed((6, 1)), observers=[seen], companions={"beside": beside})
        async with running(later):
            await until(lambda: len(added(log)) == 7)
            assert state_hash(later.host.folded.state, CounterState) == replayed(log)
        assert seen.replays == [0]
        assert beside.restored == [b"beside"]
        assert later._log.starts == [end]  # type: ignore[attr-defined]  # the test's view

    asyncio.run(story())


def missing(log: SharedLog) -> None:
    log.log.snapshots._snapshots.pop("counter.beside")  # type: ignore[attr-defined]  # the store


def older(log: SharedLog) -> None:
    log.log.save("counter.beside", Snapshot(2, b"beside"))


def damaged(log: SharedLog) -> None:
    kept = log.log.load("counter")
    assert kept is not None
    log.log.save("counter", Snapshot(kept.offset, kept.payload[:-9]))


def newer(log: SharedLog) -> None:
    log.log.save("counter.beside", Snapshot(1_000, b"ahead"))


@pytest.mark.parametrize(
    ("harm", "from_the_start"), [(missing, True), (older, True), (damaged, True), (newer, False)]
)
def test_a_snapshot_of_no_use_costs_a_longer_start(
    harm: Callable[[SharedLog], None], from_the_start: bool
) -> None:
    async def story() -> None:
        log, seen = await a_log_with_a_snapshot(), Seen()
        harm(log)
        before = len(log.entries)
        service = a_service(log, observers=[seen], companions={"beside": Beside()})
        async with running(service):
            assert state_hash(service.host.folded.state, CounterState) == replayed(log) or (
                len(log.entries) > before
            )
        assert seen.replays == [before if from_the_start else 0]

    asyncio.run(story())


def test_a_companion_of_another_version_costs_a_longer_start() -> None:
    async def story() -> None:
        log, seen = await a_log_with_a_snapshot(), Seen()
        before = len(log.entries)
        companions = {"beside": Beside(useless=True)}
        async with running(a_service(log, observers=[seen], companions=companions)):
            pass
        assert seen.replays == [before]

    asyncio.run(story())


def test_a_snapshot_beyond_the_end_of_the_log_is_loud() -> None:
    async def story() -> LiveService[CounterState]:
        log, shorter = await a_log_with_a_snapshot(), SharedLog()
        shorter.log.snapshots = log.log.snapshots  # type: ignore[attr-defined]  # the store
        return a_service(shorter)

    error = ends_with(asyncio.run(story()))
    assert isinstance(error, RuntimeError)
    assert "beyond the log's end" in str(error)


def test_snapshots_are_saved_now_and_then() -> None:
    async def story() -> None:
        log, seen = SharedLog(), Seen()
        items = Listed(*((number, 1) for number in range(20)))
        async with running(a_service(log, items, observers=[seen], snapshot_every_records=5)):
            await until(lambda: len(added(log)) == 20 and not items.items)
            assert seen.snapshots >= 3

    asyncio.run(story())


def test_it_can_be_stopped_while_it_replays() -> None:
    class Long(View):
        async def end_offset(self) -> int:
            return 10**9

    async def story() -> None:
        log = SharedLog()
        service = a_service(log, view=Long(log))
        task = asyncio.create_task(service.run())
        await asyncio.sleep(0.01)
        assert not service.ready.is_set()
        service.stop()
        async with asyncio.timeout(30):
            await task
        assert log.entries == []

    asyncio.run(story())


# --- errors --------------------------------------------------------------------------------


class BrokenError(Exception):
    """What goes wrong."""


def test_an_error_of_the_reader_ends_the_service() -> None:
    log = SharedLog()
    view = log.view()
    view.read_error = BrokenError()
    assert isinstance(ends_with(a_service(log, view=view)), BrokenError)


def test_an_error_of_an_append_ends_the_service() -> None:
    log = SharedLog()
    view = log.view()
    view.append_error = BrokenError()
    assert isinstance(ends_with(a_service(log, view=view)), BrokenError)


def test_an_error_of_an_input_ends_the_service() -> None:
    items = Listed()
    items.error = BrokenError()
    assert isinstance(ends_with(a_service(SharedLog(), items)), BrokenError)


def test_an_error_of_the_election_ends_the_service() -> None:
    election = ByHand(elected=False)
    election.error = BrokenError()
    assert isinstance(ends_with(a_service(SharedLog(), election=election)), BrokenError)


def test_an_error_of_the_core_ends_the_service() -> None:
    class Fails(Counter):
        def decide(self, state: CounterState) -> Sequence[Event]:
            raise BrokenError

    assert isinstance(ends_with(a_service(SharedLog(), decider=Fails())), BrokenError)


def test_an_input_that_ends_by_itself_ends_the_service() -> None:
    items = Listed()
    items.returns = True
    assert "ended by itself" in str(ends_with(a_service(SharedLog(), items)))


def test_a_cancellation_from_within_a_client_ends_the_service() -> None:
    # aiokafka lets the end of its own tasks out of what awaits them: nobody would read on.
    log = SharedLog()
    view = log.view()
    view.read_error = asyncio.CancelledError()
    assert "ended by itself" in str(ends_with(a_service(log, view=view)))
