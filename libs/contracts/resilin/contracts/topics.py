"""The topic catalogue: what crosses process boundaries, as data.

Whoever creates, reads, documents or monitors topics takes them from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CELL_EVENTS",
    "DEADLETTER",
    "JOBS_COMMANDS",
    "SERVICES",
    "SNAPSHOTS",
    "TELEMETRY_STEPS",
    "TOPICS",
    "Topic",
    "message_bytes_max",
]

SERVICES = (
    "admission",
    "allocator",
    "placement",
    "loan-manager",
    "metric-collector",
    "stability-detector",
    "executor",
)
"""The seven services, in the order in which a job meets them."""

_HOUR = 3_600
_DAY = 24 * _HOUR
_MEBIBYTE = 1_048_576


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic.

    Attributes:
        name: The topic's name.
        key: What a message is keyed by; equal keys keep their order.
        partitioning: How many partitions, and why.
        one_a_cell: Whether each cell has one partition; else the operator says how many.
        writers: The services that write it, or ``any client``.
        readers: The services that read it; empty if people do.
        carries: What a message is.
        cleanup: ``delete`` drops what is older than the retention, ``compact`` keeps the
            newest message of each key.
        retention_seconds: How long messages are kept; None is for ever.
        message_bytes_max: The largest message.
        note: Why it is kept as it is.
        segment_seconds: How often brokers begin a new file, where what is to go must not wait
            for a file to be full; None leaves it to them.
    """

    name: str
    key: str
    partitioning: str
    one_a_cell: bool
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    carries: str
    cleanup: Literal["delete", "compact"]
    retention_seconds: int | None
    message_bytes_max: int
    note: str
    segment_seconds: int | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Kafka's settings of the topic, by their names there."""
        kept = self.retention_seconds
        settings = {
            "cleanup.policy": self.cleanup,
            "max.message.bytes": str(self.message_bytes_max),
            # Said even where it is Kafka's own default: a broker's default may be another.
            "retention.bytes": "-1",
            "retention.ms": "-1" if kept is None else str(kept * 1_000),
            "unclean.leader.election.enable": "false",
        }
        if self.segment_seconds is not None:
            settings["segment.ms"] = str(self.segment_seconds * 1_000)
        if self.cleanup == "compact":
            settings["min.cleanable.dirty.ratio"] = "0.1"
            settings["segment.bytes"] = str(2 * self.message_bytes_max)
        return dict(sorted(settings.items()))

    def partitions(self, cells: int, otherwise: int) -> int:
        """Return the number of partitions: one a cell, or what the operator says."""
        return cells if self.one_a_cell else otherwise


JOBS_COMMANDS = Topic(
    name="jobs.commands",
    key="cell",
    partitioning="one a cell",
    one_a_cell=True,
    writers=("any client",),
    readers=("admission",),
    carries="commands: submit, cancel, change a deadline; servers, settings, curves",
    cleanup="delete",
    retention_seconds=7 * _DAY,
    message_bytes_max=_MEBIBYTE,
    note=(
        "What was taken lives on in the log as facts, so the retention only has to outlast"
        " the longest time that admission may be down."
    ),
)

CELL_EVENTS = Topic(
    name="cell.events",
    key="cell",
    partitioning="one a cell: its order is the cell's total order",
    one_a_cell=True,
    writers=SERVICES,
    readers=SERVICES,
    carries="records: the facts and decisions of a cell, the log",
    cleanup="delete",
    retention_seconds=None,
    message_bytes_max=16 * _MEBIBYTE,
    note=(
        "The only truth: never compacted and never expired. A message may be larger than any"
        " command, so that whatever can be asked can also be logged."
    ),
)

TELEMETRY_STEPS = Topic(
    name="telemetry.steps",
    key="cell and job",
    partitioning="by the rate of samples",
    one_a_cell=False,
    writers=("executor",),
    readers=("metric-collector", "stability-detector"),
    carries="throughput samples of running jobs",
    cleanup="delete",
    retention_seconds=6 * _HOUR,
    message_bytes_max=_MEBIBYTE,
    note=(
        "High rate, and never the basis of truth: only conclusions drawn from samples become"
        " events, and losing samples only delays them."
    ),
    segment_seconds=_HOUR,
)

DEADLETTER = Topic(
    name="deadletter",
    key="cell",
    partitioning="one a cell",
    one_a_cell=True,
    writers=SERVICES,
    readers=(),
    carries="input that could not be read, with its place and the reason",
    cleanup="delete",
    retention_seconds=28 * _DAY,
    message_bytes_max=2 * _MEBIBYTE,
    note="For people to look at, within weeks. Large enough for the largest command in base64.",
)

SNAPSHOTS = Topic(
    name="snapshots",
    key="service/cell",
    partitioning="one a cell",
    one_a_cell=True,
    writers=SERVICES,
    readers=SERVICES,
    carries="a service's folded state at an offset of the log",
    cleanup="compact",
    retention_seconds=None,
    message_bytes_max=64 * _MEBIBYTE,
    note="A cache: deleting it costs a longer restart and nothing else.",
    segment_seconds=_HOUR,
)

TOPICS = (JOBS_COMMANDS, CELL_EVENTS, TELEMETRY_STEPS, DEADLETTER, SNAPSHOTS)
"""Every topic of a cell."""


def message_bytes_max(name: str) -> int:
    """Return the largest message of a topic; 1 MiB, Kafka's own limit, for a foreign one."""
    return next((topic.message_bytes_max for topic in TOPICS if topic.name == name), _MEBIBYTE)
