"""Who leads on a real broker: one at a time, whoever had it keeps it, and nobody waits in vain."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.partitions import own_partition
from tests.support.processes import services_running
from tests.support.servers import local_broker_running

from resilin.eventlog.kafka import KafkaConnection, KafkaLog, LogUnavailableError
from resilin.runtime.election import GroupElection

PATIENCE_SECONDS = 60.0
LONG_SECONDS = 45.0
"""A session timeout that no test waits for: whoever is followed before it has said so."""


class Member:
    """One member, and how often it was told something."""

    def __init__(
        self, bootstrap: str, cell: str, partition: int, session_seconds: float = LONG_SECONDS
    ) -> None:
        self.election = GroupElection(
            KafkaConnection(bootstrap).client_options(),
            service="admission",
            cell=cell,
            partition=partition,
            session_timeout_seconds=session_seconds,
        )
        self.told = 0

    def _wake(self) -> None:
        self.told += 1

    @asynccontextmanager
    async def standing(self) -> AsyncIterator[None]:
        """Stand for election meanwhile."""
        running = asyncio.create_task(self.election.run(self._wake))
        try:
            yield
        finally:
            running.cancel()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(running, return_exceptions=True)
            assert running.cancelled()


async def until(true: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)


def test_whoever_leads_keeps_the_lead_until_it_stops(bootstrap: str) -> None:
    async def story() -> None:
        cell, partition = await asyncio.to_thread(own_partition, bootstrap)
        one, two = Member(bootstrap, cell, partition), Member(bootstrap, cell, partition)
        async with one.standing():
            await until(lambda: one.election.elected)
            joining = two.standing()
            await joining.__aenter__()
            await until(lambda: two.told)
            assert one.election.elected
            assert not two.election.elected
        # It left in good order: nobody waits for its session to time out.
        await until(lambda: two.election.elected, LONG_SECONDS / 2)
        assert not one.election.elected
        await joining.__aexit__(None, None, None)
        assert not two.election.elected

    asyncio.run(story())


def test_a_group_that_the_broker_refuses_ends_the_election(bootstrap: str) -> None:
    # Nobody reads through its client, so nobody would hear of it: a cell without a leader.
    async def story() -> None:
        cell, partition = await asyncio.to_thread(own_partition, bootstrap)
        member = Member(bootstrap, cell, partition, session_seconds=0.01)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(LogUnavailableError, match="InvalidSessionTimeout"):
                await member.election.run(lambda: None)

    asyncio.run(story())


def test_a_broker_that_is_gone_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with local_broker_running(tmp_path) as broker:

        async def story() -> None:
            cell, partition = await asyncio.to_thread(own_partition, broker.bootstrap)
            member = Member(broker.bootstrap, cell, partition)
            async with member.standing():
                await until(lambda: member.election.elected)
                await asyncio.to_thread(broker.kill)
                await asyncio.sleep(0.5)

        asyncio.run(story())


def test_a_service_is_followed_when_it_is_killed_and_comes_back_as_a_standby(
    bootstrap: str, tmp_path: Path
) -> None:
    cell, partition = own_partition(bootstrap)
    with services_running(
        bootstrap, tmp_path, cell=cell, partition=partition, instances=2, only=("loan-manager",)
    ) as live:
        live.wait_for_leaders()
        first = live.leader("loan-manager")
        assert first is not None
        (second,) = [each for each in live.instances if each is not first]
        wait_for(lambda: (second.standing() or {}).get("ready"))
        first.kill()
        wait_for(lambda: live.leader("loan-manager") is second)
        first.start()
        wait_for(lambda: (first.standing() or {}).get("ready"))
        # It stops in good order, with a snapshot, from which it begins again.
        second.signal(signal.SIGTERM)
        assert second.process is not None
        assert second.process.wait(PATIENCE_SECONDS) == 0
        wait_for(lambda: live.leader("loan-manager") is first)
        second.start()
        wait_for(lambda: (second.standing() or {}).get("ready"))
        assert second.running, second.tail()
        assert live.leader("loan-manager") is first
    with KafkaLog(KafkaConnection(bootstrap), cell, partition) as log:
        claims = [entry.record.epoch for entry in log.read() if entry.record.nature == "claim"]
    assert claims == [1, 2, 3]


def wait_for(true: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)
