"""Structured logs: one JSON object a line on standard output."""

from __future__ import annotations

import logging
import sys

import structlog

__all__ = ["bind_service", "configure_logs", "logger"]

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
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def bind_service(service: str, instance: str) -> None:
    """Have every line of the running task, and of tasks it starts, name this service."""
    structlog.contextvars.bind_contextvars(service=service, instance=instance)


def logger() -> structlog.typing.FilteringBoundLogger:
    """Return the logger; what it says is bound to this process's service."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return bound
