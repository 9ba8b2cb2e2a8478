"""What every topic beside the log must do, as a test class; see :mod:`.contract`."""

from __future__ import annotations

from typing import Protocol

import pytest

from resilin.eventlog.port import Message, MessageTooLargeError, MessageTopic


class TopicHarness(Protocol):
    """How the suite gets at the topic under test."""

    def topic(self) -> MessageTopic:
        """The topic, opened anew by each call, as another process would."""
        ...

    def other_topic(self) -> MessageTopic:
        """Another topic in the same place."""
        ...


class TopicContract:
    """What every topic must do; its messages may have up to 1 MiB."""

    def test_an_empty_topic_holds_nothing(self, topic_harness: TopicHarness) -> None:
        topic = topic_harness.topic()
        assert topic.end_offset() == -1
        assert list(topic.read()) == []
        assert list(topic.read(7)) == []

    def test_messages_are_read_as_they_were_sent_and_in_order(
        self, topic_harness: TopicHarness
    ) -> None:
        topic = topic_harness.topic()
        sent = [
            Message(topic.produce(value, key), key, value)
            for key, value in [
                (None, b"{}"),
                (b"main", b""),
                (b"", bytes(range(256)) * 100),
                (b"\xff\x00", b"\xff not text"),
                (b"main", b"{}"),
            ]
        ]
        assert list(topic.read()) == sent
        assert list(topic_harness.topic().read()) == sent, "another process sees the same"
        assert topic.end_offset() == sent[-1].offset

    def test_reading_starts_after_an_offset(self, topic_harness: TopicHarness) -> None:
        topic = topic_harness.topic()
        offsets = [topic.produce(b"%d" % number) for number in range(450)]
        assert offsets == sorted(set(offsets))
        for place in (0, 1, 199, 200, 201, 448, 449):
            found = [message.offset for message in topic.read(offsets[place])]
            assert found == offsets[place + 1 :]

    def test_reading_ends_where_the_topic_ended_when_it_began(
        self, topic_harness: TopicHarness
    ) -> None:
        topic, producer = topic_harness.topic(), topic_harness.topic()
        first = producer.produce(b"first")
        reading = topic.read()
        second = producer.produce(b"second")
        assert [message.offset for message in reading] == [first]
        assert [message.offset for message in topic.read(first)] == [second]

    def test_a_reading_that_is_given_up_holds_nothing_up(self, topic_harness: TopicHarness) -> None:
        topic = topic_harness.topic()
        for number in range(3):
            topic.produce(b"%d" % number)
        reading = topic.read()
        next(reading)
        topic_harness.topic().produce(b"more")
        other = topic.read()
        assert [message.value for message in other] == [b"0", b"1", b"2", b"more"]
        assert [message.value for message in reading] == [b"1", b"2"]

    def test_several_produce_at_once(self, topic_harness: TopicHarness) -> None:
        one, two = topic_harness.topic(), topic_harness.topic()
        offsets = [topic.produce(b"x") for _ in range(10) for topic in (one, two)]
        assert len(set(offsets)) == 20
        assert [message.offset for message in one.read()] == offsets

    def test_topics_do_not_mix(self, topic_harness: TopicHarness) -> None:
        topic, other = topic_harness.topic(), topic_harness.other_topic()
        topic.produce(b"mine")
        assert other.end_offset() == -1
        other.produce(b"yours")
        assert [message.value for message in topic.read()] == [b"mine"]
        assert [message.value for message in other.read()] == [b"yours"]

    def test_a_message_too_large_is_refused_and_nothing_else(
        self, topic_harness: TopicHarness
    ) -> None:
        topic = topic_harness.topic()
        large = b"x" * (2**20 - 200)
        first = topic.produce(large)
        with pytest.raises(MessageTooLargeError, match=r"1048577 bytes.*at most\s*1048576"):
            topic.produce(b"x" * (2**20 + 1))
        second = topic.produce(b"after")
        assert list(topic.read()) == [Message(first, None, large), Message(second, None, b"after")]
