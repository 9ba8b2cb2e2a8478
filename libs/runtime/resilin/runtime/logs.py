"""Structured logs: one JSON object a line on standard output."""

from __future__ import annotations

import logging
import sys
import time

import structlog

__all__ = ["bind_service", "configure_logs", "logger"]

_REPEAT_SECONDS = 10.0
_KINDS_MAX = 1_000

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logs(level: str, *, service: str, instance: str, cell: str) -> None:
    """Set up logging for this process; every line names the service, its instance and cell."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stdout),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service, instance=instance, cell=cell)
    # The clients' own loggers: warnings and worse, in the same shape.
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.addFilter(_Seldom())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


class _Seldom(logging.Filter):
    """Lets one kind of message through once in a while: a client without brokers is loud.

    It says the same thing a hundred times a second, for as long as they are away.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[tuple[str, str], int] = {}
        self._until: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether this one is let through, and in it how many like it were not."""
        kind, now = (record.name, str(record.msg)), time.monotonic()
        if now < self._until.get(kind, now):
            self._held[kind] = self._held.get(kind, 0) + 1
            return False
        if len(self._until) >= _KINDS_MAX:
            self._until.clear()
            self._held.clear()
        self._until[kind] = now + _REPEAT_SECONDS
        if held := self._held.pop(kind, 0):
            record.msg = f"{record.msg} (and {held} more like it)"
        return True


def bind_service(service: str, instance: str) -> None:
    """Have every line of the running task, and of tasks it starts, name this service."""
    structlog.contextvars.bind_contextvars(service=service, instance=instance)


def logger() -> structlog.typing.FilteringBoundLogger:
    """Return the logger; what it says is bound to this process's service."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return bound
