"""Commands and telemetry on their way in: in order, each once, and never too many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.live import until

from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.telemetry import StepSample
from resilin.contracts.values import SourcePosition
from resilin.eventlog.port import Message
from resilin.runtime import inputs as module
from resilin.runtime.inputs import DeadLetters, SampleInput, TopicInput


class Topic:
    """A topic in memory, as its reader and as its writer."""

    def __init__(self, *values: bytes) -> None:
        self.values = list(values)
        self.starts: list[int] = []
        self.stopped = False
        self.error: Exception | None = None
        self.chunk = 100
        self._next = 0

    async def start(self, after: int) -> None:
        self.starts.append(after)
        self._next = after + 1

    async def read(self, timeout_seconds: float) -> Sequence[Message]:
        await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error
        first = self._next
        self._next = min(len(self.values), first + self.chunk)
        return [Message(at, None, self.values[at]) for at in range(first, self._next)]

    async def stop(self) -> None:
        self.stopped = True

    async def produce(self, value: bytes, key: bytes | None = None) -> int:
        if self.error is not None:
            raise self.error
        self.values.append(value)
        return len(self.values) - 1


@dataclass(frozen=True)
class Item:
    """``!text`` cannot be read, ``*text`` depends on everything, else on its own text."""

    text: str
    offset: int

    @property
    def unreadable(self) -> str | None:
        return "it says so" if self.text.startswith("!") else None

    @property
    def subjects(self) -> Sequence[str] | None:
        return None if self.text.startswith("*") else (self.text,)


class Fed:
    """A topic input, its topics, and what it has handed on."""

    def __init__(self, *texts: str, position: int = -1) -> None:
        self.topic = Topic(*(text.encode() for text in texts))
        self.letters = Topic()
        self.counted = 0
        self.position = position
        self.input = TopicInput(
            self.topic,
            topic="commands",
            partition=3,
            read=lambda value, source, at: Item(value.decode(), source.offset),
            position=lambda state, source: self.position,
            dead_letters=DeadLetters("admission", "main", self.letters, self._count),
        )
        self.wakes = 0

    def _count(self) -> None:
        self.counted += 1

    def wake(self) -> None:
        self.wakes += 1

    async def __aenter__(self) -> Fed:
        self.running = asyncio.create_task(self.input.run(self.wake))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        assert self.topic.stopped

    async def lead(self) -> None:
        await self.input.lead(None, 0.0)
        await until(lambda: self.input._buffer or self.topic._next == len(self.topic.values))

    async def batch(self) -> list[str]:
        return [item.text for item in await self.input.next_batch(None, 0.0)]

    async def batches(self) -> list[list[str]]:
        found = []
        while batch := await self.batch():
            found.append(batch)
            self.input.taken()
        return found


# --- commands ------------------------------------------------------------------------------


def test_messages_go_in_batches_that_do_not_depend_on_one_another() -> None:
    async def story() -> None:
        async with Fed("a", "b", "a", "*c", "d", "e", "*f", "*g") as fed:
            await fed.lead()
            assert fed.wakes
            assert await fed.batches() == [["a", "b"], ["a"], ["*c"], ["d", "e"], ["*f"], ["*g"]]

    asyncio.run(story())


def test_a_batch_that_was_not_taken_is_handed_on_again() -> None:
    async def story() -> None:
        async with Fed("a", "b") as fed:
            await fed.lead()
            assert await fed.batch() == ["a", "b"]
            assert await fed.batch() == ["a", "b"]
            fed.input.taken()
            assert await fed.batch() == []

    asyncio.run(story())


def test_reading_goes_on_where_the_log_says() -> None:
    async def story() -> None:
        async with Fed("a", "b", "c", position=1) as fed:
            await fed.lead()
            (item,) = await fed.input.next_batch(None, 0.0)
            assert (item.text, item.offset) == ("c", 2)
            assert fed.topic.starts == [1]

    asyncio.run(story())


def test_nothing_is_read_while_standing_by() -> None:
    async def story() -> None:
        async with Fed("a") as fed:
            await asyncio.sleep(0.02)
            assert fed.topic._next == 0
            assert await fed.batch() == []

    asyncio.run(story())


def test_a_leader_that_lost_the_lead_in_a_batch_begins_again_at_the_logs_position() -> None:
    async def story() -> None:
        async with Fed("a", "b", "c") as fed:
            await fed.lead()
            assert await fed.batch() == ["a", "b", "c"]
            await fed.input.follow()
            fed.input.taken()  # whatever was under way
            assert await fed.batch() == []
            fed.position = 0  # the other leader took one
            await fed.lead()
            assert await fed.batches() == [["b", "c"]]
            assert fed.topic.starts == [-1, 0]

    asyncio.run(story())


def test_what_was_being_read_when_the_lead_was_lost_is_not_handed_on() -> None:
    async def story() -> None:
        async with Fed() as fed:
            await fed.lead()
            fed.topic.values.append(b"a")
            await fed.input.follow()
            await asyncio.sleep(0.01)
            fed.position = 0
            fed.topic.values.append(b"b")
            await fed.lead()
            assert await fed.batches() == [["b"]]

    asyncio.run(story())


def test_what_cannot_be_read_is_put_aside_before_its_fact_is_recorded() -> None:
    async def story() -> None:
        async with Fed("a", "!b", "c") as fed:
            await fed.lead()
            assert await fed.batch() == ["a", "!b", "c"]
            (value,) = fed.letters.values
            letter = DeadLetter.model_validate_json(value)
            assert letter.source == SourcePosition(topic="commands", partition=3, offset=1)
            assert (letter.service, letter.payload) == ("admission", b"!b")
            assert fed.counted == 1

    asyncio.run(story())


def test_a_crash_between_the_dead_letter_and_its_fact_repeats_the_letter_with_its_place() -> None:
    async def story() -> None:
        letters = []
        for _ in range(2):  # the log never took the fact, so the next process reads it again
            async with Fed("!a") as fed:
                await fed.lead()
                await fed.batch()
                letters += fed.letters.values
        assert len(letters) == 2
        assert letters[0] == letters[1]

    asyncio.run(story())


def test_any_bytes_can_be_put_aside() -> None:
    async def story() -> None:
        topic = Topic()
        letters = DeadLetters("admission", "main", topic, lambda: None)
        source = SourcePosition(topic="commands", offset=0)
        payload = bytes(range(256)) * 4_096
        await letters.put(payload, source, "x" * 500)
        assert DeadLetter.model_validate_json(topic.values[0]).payload == payload

    asyncio.run(story())


def test_an_error_of_the_dead_letters_is_not_swallowed() -> None:
    async def story() -> None:
        async with Fed("!a") as fed:
            await fed.lead()
            fed.letters.error = OSError("full")
            with pytest.raises(OSError, match="full"):
                await fed.batch()

    asyncio.run(story())


def test_an_error_of_the_topic_ends_the_input() -> None:
    async def story() -> None:
        async with Fed("a") as fed:
            await fed.lead()
            fed.topic.error = OSError("gone")
            with pytest.raises(OSError, match="gone"):
                await fed.running

    asyncio.run(story())


def test_the_buffer_is_bounded_and_empties_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFERED_MESSAGES", 50)
    texts = [str(number) for number in range(300)]

    async def story() -> None:
        async with Fed(*texts) as fed:
            fed.topic.chunk = 20
            await fed.lead()
            found = []
            while len(found) < len(texts):
                await asyncio.sleep(0.005)
                assert len(fed.input._buffer) < 50 + 20
                found += await fed.batch()
                fed.input.taken()
            assert found == texts

    asyncio.run(story())


def test_the_buffer_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFERED_BYTES", 1_000)

    async def story() -> None:
        async with Fed(*("x" * 400 for _ in range(30))) as fed:
            fed.topic.chunk = 1
            await fed.lead()
            await asyncio.sleep(0.05)
            assert len(fed.input._buffer) == 3

    asyncio.run(story())


def test_a_record_of_large_commands_stays_below_what_the_log_takes() -> None:
    # Forty commands of half a megabyte each are more than any record may hold.
    texts = [f"{number:02}".ljust(500_000, "x") for number in range(40)]

    async def story() -> None:
        async with Fed(*texts, "!" * 900_000, "z" * 1_000_000) as fed:
            await fed.lead()
            batches = await fed.batches()
            assert [text for batch in batches for text in batch][:40] == texts
            assert max(sum(map(len, batch)) for batch in batches) <= module.BATCH_BYTES
            assert max(map(len, batches)) == 4

    asyncio.run(story())


def test_a_message_that_is_larger_than_a_batch_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 10)

    async def story() -> None:
        async with Fed("a", "b" * 50, "c") as fed:
            await fed.lead()
            assert await fed.batches() == [["a"], ["b" * 50], ["c"]]

    asyncio.run(story())


def test_a_record_holds_no_more_items_than_it_should() -> None:
    async def story() -> None:
        async with Fed(*(str(number) for number in range(300))) as fed:
            fed.topic.chunk = 300
            await fed.lead()
            assert [len(batch) for batch in await fed.batches()] == [module.BATCH_ITEMS, 100]

    asyncio.run(story())


# --- telemetry -----------------------------------------------------------------------------


def sample(job_id: str, rate: float = 1.0) -> StepSample:
    return StepSample(job_id=job_id, generation=1, workers=1, iterations_per_second=rate)


class Sampled:
    """A sample input that runs."""

    def __init__(self) -> None:
        self.observed: list[StepSample] = []
        self.input = SampleInput(self.observed.append)
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    async def __aenter__(self) -> Sampled:
        self.running = asyncio.create_task(self.input.run(self.wake))
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


async def delivering(fed: Sampled, *samples: StepSample) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(fed.input.deliver(each)) for each in samples]
    await asyncio.sleep(0.01)
    return tasks


def test_a_standby_keeps_its_windows_warm_and_holds_nobody_up() -> None:
    async def story() -> None:
        async with Sampled() as fed:
            await fed.input.deliver(sample("a"))
            assert fed.observed == [sample("a")]
            assert await fed.input.next_batch(None, 0.0) == []

    asyncio.run(story())


def test_a_delivery_returns_once_its_facts_are_in_the_log() -> None:
    async def story() -> None:
        async with Sampled() as fed:
            await fed.input.lead(None, 0.0)
            one, two, three = await delivering(fed, sample("a"), sample("b"), sample("a", 2.0))
            assert fed.wakes == 3
            assert list(await fed.input.next_batch(None, 0.0)) == [sample("a"), sample("b")]
            assert not one.done()
            fed.input.taken()
            await asyncio.gather(one, two)
            assert not three.done()
            assert list(await fed.input.next_batch(None, 0.0)) == [sample("a", 2.0)]
            fed.input.taken()
            await three
            assert fed.observed == []

    asyncio.run(story())


def test_who_waits_is_let_go_when_another_leads() -> None:
    async def story() -> None:
        async with Sampled() as fed:
            await fed.input.lead(None, 0.0)
            tasks = await delivering(fed, sample("a"), sample("a"), sample("b"))
            await fed.input.next_batch(None, 0.0)
            tasks[0].cancel()  # its reader has gone meanwhile
            await asyncio.sleep(0)
            await fed.input.follow()
            await asyncio.gather(*tasks[1:])
            assert await fed.input.next_batch(None, 0.0) == []
            fed.input.taken()

    asyncio.run(story())


def test_a_delivery_waits_until_the_service_has_folded_the_log() -> None:
    # Before that its windows would not know the job.
    async def story() -> None:
        fed = Sampled()
        (early,) = await delivering(fed, sample("a"))
        assert fed.observed == []
        async with fed:
            await early
            assert fed.observed == [sample("a")]

    asyncio.run(story())


def test_a_batch_of_samples_is_bounded() -> None:
    async def story() -> None:
        async with Sampled() as fed:
            await fed.input.lead(None, 0.0)
            many: list[Any] = [sample(f"job-{number}") for number in range(module.BATCH_ITEMS + 5)]
            tasks = await delivering(fed, *many)
            assert len(await fed.input.next_batch(None, 0.0)) == module.BATCH_ITEMS
            fed.input.taken()
            await fed.input.follow()
            await asyncio.gather(*tasks)

    asyncio.run(story())
