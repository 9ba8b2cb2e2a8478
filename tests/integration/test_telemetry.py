"""Telemetry through a real broker: in order, and every sample taken in before it is let go."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from resilin.contracts.telemetry import StepSample, WorkerSample
from resilin.contracts.values import SourcePosition
from resilin.runtime.telemetry import TelemetryError, TelemetryWriter, telemetry_running

SECONDS = 90
"""Long enough for a slow machine; nothing here waits that long unless something hangs."""


def played(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(SECONDS):
            await story()

    asyncio.run(within())


async def new_topic(bootstrap: str, partitions: int = 3) -> str:
    name = f"telemetry-{uuid.uuid4().hex}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.close()
    return name


async def produced(bootstrap: str, topic: str, *values: bytes | None, key: bytes = b"c a") -> None:
    """Bytes that somebody wrote who is no writer of ours."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for value in values:
        await producer.send_and_wait(topic, value, key=key)
    await producer.stop()


def sample(sequence: int, job_id: str = "a") -> StepSample:
    worker = WorkerSample(server_id="s1", gpu_index=0, step_seconds=0.2, compute_seconds=0.1)
    return StepSample(
        job_id=job_id,
        generation=1,
        workers=1,
        iterations_per_second=2.5,
        sequence=sequence,
        ended_at_seconds=1000.5,
        seconds=1.0,
        worker_samples=(worker,),
    )


class Service:
    """What a service does with telemetry: takes samples in, and puts aside what is none."""

    def __init__(self, *, expects: int, breaks_at: int | None = None) -> None:
        self.taken: list[StepSample] = []
        self.refused: list[tuple[bytes, SourcePosition, str]] = []
        self._expects = expects
        self._breaks_at = breaks_at
        self._complete = asyncio.Event()

    async def deliver(self, item: StepSample) -> None:
        if item.sequence == self._breaks_at:
            raise RuntimeError("the service broke")
        self.taken.append(item)
        self._count()

    async def refuse(self, payload: bytes, source: SourcePosition, reason: str) -> None:
        self.refused.append((payload, source, reason))
        self._count()

    def _count(self) -> None:
        if len(self.taken) + len(self.refused) >= self._expects:
            self._complete.set()

    async def runs(self, bootstrap: str, topic: str, group: str) -> None:
        """Run until all that is expected has come; raise if telemetry fails before."""
        async with telemetry_running(
            bootstrap, group, self.deliver, self.refuse, cell="c", topic=topic
        ) as running:
            complete = asyncio.create_task(self._complete.wait())
            await asyncio.wait([complete, running.failed], return_when=asyncio.FIRST_COMPLETED)
            if running.failed.done():
                complete.cancel()
                await running.failed

    def sequences(self, job_id: str = "a") -> list[int | None]:
        return [item.sequence for item in self.taken if item.job_id == job_id]


def test_samples_arrive_whole_and_in_order_for_each_job(bootstrap: str) -> None:
    jobs = [f"job-{number}" for number in range(7)]

    async def story() -> None:
        topic, service = await new_topic(bootstrap), Service(expects=7 * 30)
        async with TelemetryWriter(bootstrap, "c", topic=topic) as writer:
            await asyncio.gather(
                *(writer.send(sample(number, job)) for number in range(30) for job in jobs)
            )
        await service.runs(bootstrap, topic, topic)
        for job in jobs:
            assert service.sequences(job) == list(range(30))
        assert service.taken[0].model_copy(update={"sequence": 0, "job_id": "a"}) == sample(0)
        assert service.refused == []

    played(story)


def test_samples_arrive_while_they_are_sent(bootstrap: str) -> None:
    async def story() -> None:
        topic, service = await new_topic(bootstrap), Service(expects=20)
        running = asyncio.create_task(service.runs(bootstrap, topic, topic))
        async with TelemetryWriter(bootstrap, "c", topic=topic) as writer:
            for number in range(20):
                await writer.send(sample(number))
        await running
        assert service.sequences() == list(range(20))

    played(story)


def test_cells_on_one_broker_may_have_jobs_of_the_same_name(bootstrap: str) -> None:
    async def story() -> None:
        topic, service = await new_topic(bootstrap, partitions=1), Service(expects=4)
        for number in range(2):
            for cell in ("b", "c", "cc"):
                async with TelemetryWriter(bootstrap, cell, topic=topic) as writer:
                    await writer.send(sample(10 * len(cell) + number, f"of-{cell}"))
        # Whoever names no cell is refused, not passed over.
        for key in (b"", b"of-c"):
            await produced(bootstrap, topic, sample(0).model_dump_json().encode(), key=key)
        await service.runs(bootstrap, topic, topic)
        assert [item.job_id for item in service.taken] == ["of-c", "of-c"]
        assert len(service.refused) == 2
        assert all("names no cell" in reason for _, _, reason in service.refused)

    played(story)


NO_SAMPLES: dict[bytes | None, str] = {
    b"{": "Invalid JSON",
    b"\xff\xfe": "Invalid JSON",
    b"": "Invalid JSON",
    None: "Invalid JSON",
    b"[" * 100_000: "Invalid JSON",
    b"[]": "Input should be an object",
    b'{"job_id": "a", "generation": 0}': "field 'generation'",
}


def test_what_is_no_sample_is_put_aside_and_the_next_still_arrives(bootstrap: str) -> None:
    async def story() -> None:
        topic = await new_topic(bootstrap, partitions=1)
        service = Service(expects=2 * len(NO_SAMPLES))
        for number, bad in enumerate(NO_SAMPLES):
            await produced(bootstrap, topic, bad, sample(number).model_dump_json().encode())
        await service.runs(bootstrap, topic, topic)
        assert service.sequences() == list(range(len(NO_SAMPLES)))
        assert [payload for payload, _, _ in service.refused] == [bad or b"" for bad in NO_SAMPLES]
        for number, (_, source, reason) in enumerate(service.refused):
            assert source == SourcePosition(topic=topic, partition=0, offset=2 * number)
            assert reason.startswith(list(NO_SAMPLES.values())[number])

    played(story)


def test_an_error_of_the_service_is_told_and_the_sample_comes_again(bootstrap: str) -> None:
    async def story() -> None:
        topic = await new_topic(bootstrap)
        async with TelemetryWriter(bootstrap, "c", topic=topic) as writer:
            for number in range(6):
                await writer.send(sample(number))
        broken = Service(expects=6, breaks_at=3)
        with pytest.raises(TelemetryError, match="the service broke") as caught:
            await broken.runs(bootstrap, topic, topic)
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert broken.sequences() == [0, 1, 2]
        mended = Service(expects=3)
        await mended.runs(bootstrap, topic, topic)
        assert mended.sequences() == [3, 4, 5]

    played(story)


def test_what_cannot_be_put_aside_is_not_skipped(bootstrap: str) -> None:
    class WithoutDeadLetters(Service):
        async def refuse(self, payload: bytes, source: SourcePosition, reason: str) -> None:
            raise OSError("dead letters are full")

    async def story() -> None:
        topic = await new_topic(bootstrap, partitions=1)
        await produced(bootstrap, topic, b"bad")
        with pytest.raises(TelemetryError, match="dead letters are full"):
            await WithoutDeadLetters(expects=1).runs(bootstrap, topic, topic)
        service = Service(expects=1)
        await service.runs(bootstrap, topic, topic)
        assert [source.offset for _, source, _ in service.refused] == [0]

    played(story)


def test_a_sample_that_was_not_taken_in_at_the_end_comes_again(bootstrap: str) -> None:
    """The service stops while a sample waits to be taken in."""

    async def story() -> None:
        topic = await new_topic(bootstrap, partitions=1)
        async with TelemetryWriter(bootstrap, "c", topic=topic) as writer:
            for number in range(3):
                await writer.send(sample(number))
        seen: list[int | None] = []
        waits = asyncio.Event()

        async def hold_second(item: StepSample) -> None:
            seen.append(item.sequence)
            if item.sequence == 1:
                waits.set()
                await asyncio.Event().wait()

        async def refuse(*_: Any) -> None:
            raise AssertionError("every message is a sample")

        async with telemetry_running(bootstrap, topic, hold_second, refuse, cell="c", topic=topic):
            await waits.wait()
        assert seen == [0, 1]
        service = Service(expects=2)
        await service.runs(bootstrap, topic, topic)
        assert service.sequences() == [1, 2]

    played(story)


def test_every_group_sees_every_sample_and_goes_on_where_it_was(bootstrap: str) -> None:
    """A leader and its standby; and each of them after a restart."""

    async def story() -> None:
        topic = await new_topic(bootstrap)
        groups = [f"{topic}-{instance}" for instance in (1, 2)]
        async with TelemetryWriter(bootstrap, "c", topic=topic) as writer:
            for start in (0, 5):
                services = [Service(expects=5) for _ in groups]
                async with asyncio.TaskGroup() as tasks:
                    for service, group in zip(services, groups, strict=True):
                        tasks.create_task(service.runs(bootstrap, topic, group))
                    for number in range(start, start + 5):
                        await writer.send(sample(number))
                for service in services:
                    assert service.sequences() == list(range(start, start + 5))

    played(story)


def test_an_app_that_crashes_is_told_and_can_be_left(bootstrap: str) -> None:
    """Faust takes a cancellation that it did not ask for as a crash of all that it runs."""

    async def cancelled(_: StepSample) -> None:
        raise asyncio.CancelledError

    async def story() -> None:
        topic = await new_topic(bootstrap, partitions=1)
        await produced(bootstrap, topic, sample(0).model_dump_json().encode())
        async with telemetry_running(
            bootstrap, topic, cancelled, ignored, cell="c", topic=topic
        ) as running:
            with pytest.raises(TelemetryError, match="CancelledError"):
                await running.failed
        service = Service(expects=1)
        await service.runs(bootstrap, topic, topic)
        assert service.sequences() == [0]

    played(story)


async def ignored(*_: Any) -> None:
    """Take anything in."""


def test_a_topic_that_is_not_there_is_an_error(bootstrap: str) -> None:
    async def story() -> None:
        with pytest.raises(TelemetryError, match="there is no topic nowhere"):
            async with telemetry_running(
                bootstrap, "g", ignored, ignored, cell="c", topic="nowhere"
            ):
                pass

    played(story)


def test_a_broker_that_is_not_there_is_an_error() -> None:
    async def story() -> None:
        with pytest.raises(TelemetryError, match=r"127\.0\.0\.1:1"):
            async with telemetry_running("127.0.0.1:1", "g", ignored, ignored, cell="c"):
                pass

    played(story)


def test_a_sample_that_the_broker_does_not_take_is_an_error(bootstrap: str) -> None:
    async def story() -> None:
        topic = await new_topic(bootstrap)
        crowd = tuple(
            WorkerSample(server_id="s" * 200, gpu_index=n, step_seconds=1.0, compute_seconds=1.0)
            for n in range(5_000)
        )
        too_large = sample(0).model_copy(update={"worker_samples": crowd})
        async with TelemetryWriter(bootstrap, "c", topic=topic) as writer:
            with pytest.raises(TelemetryError, match="MessageSizeTooLarge"):
                await writer.send(too_large)
            await writer.send(sample(1))

    played(story)


def test_a_caller_that_ends_by_itself_leaves_nothing_behind(bootstrap: str) -> None:
    """Its own error is what it sees, not one of the telemetry that it leaves."""

    async def story() -> None:
        topic = await new_topic(bootstrap)
        with pytest.raises(ZeroDivisionError):
            async with telemetry_running(bootstrap, topic, ignored, ignored, cell="c", topic=topic):
                raise ZeroDivisionError
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert [task for task in others if "telemetry" in repr(task.get_coro())] == []

    played(story)
