"""Simulated workers behind a live executor: they happen in time, and outlive who started them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from tests.support.events import (
    admitted,
    cancellation_asked,
    completed,
    placed,
    planned,
    profile_asked,
    server_added,
    submitted,
    suspended,
    switched,
)
from tests.support.log import HandMadeLog, a_cell, folded
from tests.support.stepped import SteppedClock

from resilin.contracts import events as ev
from resilin.contracts.values import StopCost
from resilin.executor.backend import Report
from resilin.executor.decider import ExecutorDecider, ExecutorState, instructions
from resilin.simulation.backend import SimulatedBackend
from resilin.simulation.cluster import Physics


class Cell:
    """A hand-made log, its executor's state, and the workers that it tells of."""

    def __init__(self, log: HandMadeLog, *, physics: Physics | None = None) -> None:
        self.log = log
        self.clock = SteppedClock(0.0)
        self.backend = SimulatedBackend(self.clock.now_seconds, self.clock.sleep_until, physics)

    @property
    def state(self) -> ExecutorState:
        return folded(self.log, ExecutorDecider())

    async def take_over(self) -> None:
        state = self.state
        await self.backend.take_over(state, self.clock.now_seconds())
        self.backend.carry_out(state, instructions(state), self.clock.now_seconds())

    def fold(self, *events: ev.Event) -> None:
        """Fold events and hand on what they change, as the executor's shell does."""
        self.log.at(self.clock.now_seconds()).given(*events)
        state = self.state
        self.backend.carry_out(state, instructions(state), self.clock.now_seconds())

    async def next_reports(self) -> Sequence[Report]:
        """Let time pass until something is reported."""
        async with asyncio.timeout(30):
            waiting = asyncio.ensure_future(self.backend.reports())
            while not waiting.done():
                moment = self.backend.next_seconds()
                if math.isfinite(moment):
                    self.clock.advance(moment)
                await asyncio.sleep(0.002)
            return waiting.result()


def a_job() -> HandMadeLog:
    """A job of 100 iterations on one of its server's GPUs."""
    return a_cell().given(
        submitted("a"), admitted("a"), planned({"a": 1}), placed("a", 1, {"s1": (0,)})
    )


def test_workers_switch_and_complete_when_their_time_has_come() -> None:
    async def story() -> None:
        cell = Cell(a_job(), physics=Physics(stop_cost=StopCost(fixed_seconds=5.0)))
        await cell.take_over()
        (switch,) = await cell.next_reports()
        assert isinstance(switch, ev.GenerationSwitched)
        assert cell.clock.now_seconds() == 5.0
        cell.fold(switch)
        done, release = await cell.next_reports()
        assert isinstance(done, ev.JobCompleted)
        assert isinstance(release, ev.WorkersReleased)
        assert cell.clock.now_seconds() == 105.0

    asyncio.run(story())


def test_a_later_executor_finds_the_workers_as_the_log_tells_of_them() -> None:
    async def story() -> None:
        cell = Cell(a_job().at(0.0).given(switched("a", 1, 1)))
        cell.clock.advance(40.0)
        await cell.take_over()  # another process, 40 s later
        done, _ = await cell.next_reports()
        assert isinstance(done, ev.JobCompleted)
        assert done.iterations_done == 100.0
        assert cell.clock.now_seconds() == 100.0

    asyncio.run(story())


def test_a_later_executor_does_not_let_nodes_join_again() -> None:
    async def story() -> None:
        cell = Cell(a_cell(servers=2))
        await cell.take_over()
        cell.fold(server_added("s3", 4))
        (joined,) = await cell.next_reports()
        assert isinstance(joined, ev.NodeJoined)
        assert (joined.server_id, joined.incarnation) == ("s3", 1)
        assert math.isinf(cell.backend.next_seconds())

    asyncio.run(story())


def test_who_waits_is_woken_by_an_instruction() -> None:
    async def story() -> None:
        cell = Cell(a_cell().given(submitted("a"), admitted("a"), planned({"a": 1})))
        await cell.take_over()
        waiting = asyncio.ensure_future(cell.backend.reports())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        cell.fold(placed("a", 1, {"s1": (0,)}))
        async with asyncio.timeout(30):
            (switch,) = await waiting
        assert isinstance(switch, ev.GenerationSwitched)

    asyncio.run(story())


def test_an_instruction_that_comes_twice_changes_nothing() -> None:
    async def story() -> None:
        cell = Cell(a_job())
        await cell.take_over()
        cell.fold()
        cell.fold()
        assert len(await cell.next_reports()) == 1

    asyncio.run(story())


def test_nothing_is_lost_when_waiting_is_given_up() -> None:
    async def story() -> None:
        cell = Cell(a_job(), physics=Physics(stop_cost=StopCost(fixed_seconds=5.0)))
        await cell.take_over()
        for _ in range(3):
            waiting = asyncio.ensure_future(cell.backend.reports())
            await asyncio.sleep(0.005)
            waiting.cancel()
        assert len(await cell.next_reports()) == 1

    asyncio.run(story())


def test_a_job_that_was_taken_off_its_gpus_gives_them_back_and_never_completes() -> None:
    async def story() -> None:
        cell = Cell(a_job())
        await cell.take_over()
        (switch,) = await cell.next_reports()
        assert isinstance(switch, ev.Event)
        cell.fold(switch, planned({"a": 0}), suspended("a", 2))
        (release,) = await cell.next_reports()
        assert isinstance(release, ev.WorkersReleased)
        cell.fold(release, cancellation_asked("a"), ev.JobCancelled(job_id="a"))
        cell.clock.advance(1_000.0)
        # What was begun for it comes to nothing, although the log has forgotten it.
        assert "a" not in cell.state.cell.jobs
        waiting = asyncio.ensure_future(cell.backend.reports())
        await asyncio.sleep(0.03)
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(story())


def test_a_job_without_a_curve_cannot_be_tried_out() -> None:
    async def story() -> None:
        cell = Cell(a_cell())
        await cell.take_over()
        cell.fold(submitted("a"), profile_asked("a"))
        (failed,) = await cell.next_reports()
        assert isinstance(failed, ev.ProfileFailed)

    asyncio.run(story())


def test_what_has_ended_before_a_takeover_stays_ended() -> None:
    async def story() -> None:
        cell = Cell(a_job().given(switched("a", 1, 1), completed("a", 1)))
        cell.clock.advance(10.0)
        await cell.take_over()
        (release,) = await cell.next_reports()
        assert isinstance(release, ev.WorkersReleased)
        assert math.isinf(cell.backend.next_seconds())

    asyncio.run(story())
