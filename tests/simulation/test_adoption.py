"""An executor that takes over finds jobs as the log tells of them, training or not."""

from __future__ import annotations

import asyncio

from tests.support.events import admitted, placed, released, submitted, switched
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.contracts import events as ev
from resilin.executor.decider import ExecutorDecider, instructions
from resilin.simulation.backend import SimulatedBackend


def reports_after_takeover(log: HandMadeLog, now: float) -> list[ev.Event]:
    state = folded(log, ExecutorDecider())

    async def take_over() -> list[ev.Event]:
        async def at_once(moment: float) -> None:
            await asyncio.sleep(0)

        backend = SimulatedBackend(lambda: now, at_once)
        await backend.take_over(state, now)
        backend.carry_out(state, instructions(state), now)
        return [each for each in await backend.reports() if isinstance(each, ev.Event)]

    return asyncio.run(take_over())


def test_a_job_between_two_generations_keeps_its_progress() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0, 1)}))
    log.at(10.0).given(switched("a", 1, 2))
    log.at(60.0).given(placed("a", 2, {"s1": (0,)}), released("a", 2, {"s1": (1,)}, 100.0))
    report = reports_after_takeover(log, 70.0)[0]
    assert isinstance(report, ev.GenerationSwitched)
    assert (report.generation, report.iterations_done) == (2, 100.0)


def test_a_job_that_trains_goes_on_where_the_log_says_it_must_be() -> None:
    log = a_cell().given(submitted("a", iterations=100), admitted("a"))
    log.given(placed("a", 1, {"s1": (0,)})).at(10.0).given(switched("a", 1, 1))
    completed = reports_after_takeover(log, 10_000.0)[0]
    assert isinstance(completed, ev.JobCompleted)
    assert completed.iterations_done == 100
