"""The log on Kafka: what services, tools and the command line use of it."""

from __future__ import annotations

from resilin.eventlog.kafka_async import (
    AsyncTopicReader,
    AsyncTopicWriter,
    KafkaLogReader,
    KafkaLogWriter,
    KafkaSnapshots,
)
from resilin.eventlog.kafka_blocking import KafkaLog, KafkaTopic
from resilin.eventlog.kafka_partition import (
    FatalLogError,
    KafkaConnection,
    LogTruncatedError,
    LogUnavailableError,
    LogWriteError,
)

__all__ = [
    "AsyncTopicReader",
    "AsyncTopicWriter",
    "FatalLogError",
    "KafkaConnection",
    "KafkaLog",
    "KafkaLogReader",
    "KafkaLogWriter",
    "KafkaSnapshots",
    "KafkaTopic",
    "LogTruncatedError",
    "LogUnavailableError",
    "LogWriteError",
]
