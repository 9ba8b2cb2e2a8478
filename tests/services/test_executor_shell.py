"""The executor's shell: reports in, instructions and telemetry out; none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.events import (
    admitted,
    completed,
    joined,
    lost,
    placed,
    planned,
    profile_asked,
    progressed,
    released,
    server_added,
    submitted,
    switched,
)
from tests.support.live import until
from tests.support.log import HandMadeLog, a_cell, folded

from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample
from resilin.executor.backend import Report
from resilin.executor.decider import ExecutorDecider, ExecutorState, Instruction
from resilin.executor.shell import BackendInput


class Backend:
    """Reports what it is given, and keeps what it is told."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Sequence[Report] | Exception] = asyncio.Queue()
        self.told: list[str] = []
        self.instructions: list[Instruction] = []

    async def take_over(self, state: ExecutorState, now_seconds: float) -> None:
        self.told.append("take over")

    def carry_out(
        self, state: ExecutorState, instructions: Sequence[Instruction], now_seconds: float
    ) -> None:
        self.told.append("carry out")
        self.instructions += instructions

    async def reports(self) -> Sequence[Report]:
        reports = await self.queue.get()
        if isinstance(reports, Exception):
            raise reports
        return reports

    async def close(self, *, stop_workers: bool) -> None:
        self.told.append("close")


class Shell:
    """The input under test, its backend, and the telemetry that was sent."""

    def __init__(self) -> None:
        self.backend = Backend()
        self.sent: list[StepSample] = []
        self.sending = asyncio.Event()
        self.sending.set()
        self.input = BackendInput(self.backend, self._send)
        self.wakes = 0
        self.state = folded(a_cell(), ExecutorDecider())

    async def _send(self, sample: StepSample) -> None:
        await self.sending.wait()
        self.sent.append(sample)

    def _wake(self) -> None:
        self.wakes += 1

    async def __aenter__(self) -> Shell:
        self.running = asyncio.create_task(self.input.run(self._wake))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def report(self, *reports: Report) -> None:
        self.backend.queue.put_nowait(reports)
        await until(self.backend.queue.empty)
        await asyncio.sleep(0)

    async def lead(self) -> None:
        await self.input.lead(self.state, 0.0)

    async def batch(self) -> list[ev.Event]:
        batch = list(await self.input.next_batch(self.state, 0.0))
        self.input.taken()
        return batch


def sample(job_id: str = "a") -> StepSample:
    return StepSample(job_id=job_id, generation=1, workers=1, iterations_per_second=1.0)


# --- reports -------------------------------------------------------------------------------


def test_a_leader_takes_over_first_and_then_says_what_every_job_is_to_be() -> None:
    async def story() -> None:
        shell = Shell()
        log = a_cell().given(submitted("a"), admitted("a"), placed("a", 1, {"s1": (0,)}))
        shell.state = folded(log, ExecutorDecider())
        await shell.lead()
        assert shell.backend.told == ["take over", "carry out"]
        assert [each.job_id for each in shell.backend.instructions] == ["a"]

    asyncio.run(story())


def test_a_batch_has_one_report_of_each_job_in_order() -> None:
    async def story() -> None:
        async with Shell() as shell:
            await shell.lead()
            await shell.report(switched("a", 1, 1), switched("b", 1, 1), progressed("a", 1, 5.0))
            await shell.report(switched("c", 1, 1))
            assert shell.wakes == 2
            assert await shell.batch() == [switched("a", 1, 1), switched("b", 1, 1)]
            assert await shell.batch() == [progressed("a", 1, 5.0), switched("c", 1, 1)]
            assert await shell.batch() == []

    asyncio.run(story())


def test_what_is_said_of_a_node_goes_alone() -> None:
    async def story() -> None:
        async with Shell() as shell:
            await shell.lead()
            await shell.report(switched("a", 1, 1), joined("s1"), lost("s2"), switched("b", 1, 1))
            batches = [await shell.batch() for _ in range(4)]
            assert batches == [
                [switched("a", 1, 1)],
                [joined("s1")],
                [lost("s2")],
                [switched("b", 1, 1)],
            ]

    asyncio.run(story())


def test_a_batch_is_bounded() -> None:
    async def story() -> None:
        async with Shell() as shell:
            await shell.lead()
            await shell.report(*(switched(f"job-{number}", 1, 1) for number in range(250)))
            assert [len(await shell.batch()) for _ in range(2)] == [200, 50]

    asyncio.run(story())


def test_reports_are_dropped_while_another_leads() -> None:
    async def story() -> None:
        async with Shell() as shell:
            await shell.report(switched("a", 1, 1), sample())
            await until(lambda: shell.sent)
            await shell.lead()
            assert await shell.batch() == []
            await shell.report(switched("b", 1, 1))
            await shell.input.next_batch(shell.state, 0.0)
            await shell.input.follow()
            shell.input.taken()
            await shell.report(switched("c", 1, 1))
            assert await shell.batch() == []

    asyncio.run(story())


def test_an_error_of_the_backend_ends_the_input() -> None:
    async def story() -> None:
        async with Shell() as shell:
            shell.backend.queue.put_nowait(OSError("no more processes"))
            with pytest.raises(ExceptionGroup) as raised:
                await shell.running
            assert raised.group_contains(OSError, match="no more processes")

    asyncio.run(story())


# --- telemetry -----------------------------------------------------------------------------


def test_facts_do_not_wait_for_telemetry_that_cannot_be_sent() -> None:
    async def story() -> None:
        async with Shell() as shell:
            await shell.lead()
            shell.sending.clear()
            await shell.report(sample("a"), switched("a", 1, 1))
            await shell.report(sample("b"), completed("a", 1))
            assert await shell.batch() == [switched("a", 1, 1)]
            assert await shell.batch() == [completed("a", 1)]
            assert shell.sent == []
            shell.sending.set()
            await until(lambda: len(shell.sent) == 2)
            assert [each.job_id for each in shell.sent] == ["a", "b"]

    asyncio.run(story())


def test_telemetry_that_waits_too_long_makes_room() -> None:
    async def story() -> None:
        async with Shell() as shell:
            shell.sending.clear()
            await shell.report(sample("first"))
            await until(lambda: not shell.input._samples)
            for number in range(12):
                await shell.report(*(sample(f"{number}-{each}") for each in range(1_000)))
            assert len(shell.input._samples) == 10_000
            shell.sending.set()
            await until(lambda: len(shell.sent) == 10_001)
            assert shell.sent[1].job_id == "2-0"

    asyncio.run(story())


def test_an_error_of_telemetry_ends_the_input() -> None:
    async def story() -> None:
        async def fails(sample: StepSample) -> None:
            raise OSError("no broker")

        backend = Backend()
        running = asyncio.create_task(BackendInput(backend, fails).run(lambda: None))
        backend.queue.put_nowait([sample()])
        with pytest.raises(ExceptionGroup) as raised:
            await running
        assert raised.group_contains(OSError, match="no broker")

    asyncio.run(story())


# --- instructions --------------------------------------------------------------------------


def told(log: HandMadeLog, *events: Any) -> tuple[Backend, list[Instruction]]:
    """What the backend is told when an entry is folded."""
    backend = Backend()
    offset = log.add(*events)
    shell = BackendInput(backend, lambda _: asyncio.sleep(0))
    entry: LogEntry = log.entries[offset]
    shell.folded(folded(log, ExecutorDecider()), entry, 0.0)
    return backend, backend.instructions


def a_running_job() -> HandMadeLog:
    return a_cell().given(
        submitted("a"),
        admitted("a"),
        planned({"a": 2}),
        placed("a", 1, {"s1": (0, 1)}),
        switched("a", 1, workers=2),
    )


def test_a_placement_is_handed_on() -> None:
    log = a_cell().given(submitted("a"), admitted("a"), planned({"a": 1}))
    _, (instruction,) = told(log, placed("a", 1, {"s1": (0,)}))
    assert (instruction.job_id, instruction.generation) == ("a", 1)
    assert instruction.gpus == {"s1": (0,)}


def test_another_batch_is_handed_on_without_a_placement() -> None:
    # Workers change it without a stop, so nothing else would tell them.
    log = a_running_job()
    plan = planned({"a": 2})
    (change,) = plan.changes
    allocation = change.allocation.model_copy(
        update={"global_batch": 512, "learning_rate_factor": 2.0}
    )
    changed = change.model_copy(update={"allocation": allocation})
    _, (instruction,) = told(log, plan.model_copy(update={"changes": (changed,)}))
    assert (instruction.generation, instruction.global_batch) == (1, 512)
    assert instruction.learning_rate_factor == 2.0


def test_the_end_of_a_job_is_handed_on() -> None:
    _, (instruction,) = told(a_running_job(), completed("a", 1))
    assert instruction.ended


@pytest.mark.parametrize("event", [profile_asked("a"), server_added("s9")])
def test_a_backend_is_told_of_profiles_and_servers(event: ev.Event) -> None:
    log = a_cell().given(submitted("a"))
    backend, instructions = told(log, event)
    assert backend.told == ["carry out"]
    assert instructions == []


def test_what_changes_no_workers_is_not_handed_on() -> None:
    backend, _ = told(a_running_job(), progressed("a", 1, 5.0))
    assert backend.told == []
    backend, _ = told(a_running_job(), released("a", 1, {"s1": (1,)}))
    assert backend.told == []
