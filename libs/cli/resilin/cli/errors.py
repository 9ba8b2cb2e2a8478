"""Exit codes, and how everything that can go wrong becomes one line on stderr.

A command raises :class:`InputError` where it knows what is wrong with what it was given. The
errors of the libraries that read files say as much themselves: they are taken as they are.
Anything else is a bug of ours and says so.
"""

from __future__ import annotations

import os
import sys
from enum import IntEnum

import click

from resilin.cli.output import safe_text

__all__ = ["ExitCode", "InputError", "explained", "one_line"]

DEBUG_VARIABLE = "RESILIN_DEBUG"


class ExitCode(IntEnum):
    """What `resilin` exits with."""

    OK = 0
    """The command did what it was asked; where it answers a question, the answer is yes."""
    NO = 1
    """The answer is no: a log is not sound, a job was refused or did not complete."""
    BAD_INPUT = 2
    """A file, an option or the state of things does not allow it; nothing was written."""
    BUG = 3
    """Something that must not happen did."""
    NO_ANSWER = 4
    """The live cell has not answered in time; what was sent to it is kept."""
    INTERRUPTED = 130
    """Ended from the keyboard."""


class InputError(click.ClickException):
    """Input that cannot be used; the message names the file, line and field and what to do."""

    exit_code = ExitCode.BAD_INPUT


def one_line(message: str) -> str:
    """Return a message without line breaks or what could steer a terminal."""
    return safe_text(" ".join(message.split()))


def explained(error: Exception) -> tuple[str, ExitCode]:
    """Return what to say about an error, and what to exit with."""
    if isinstance(error, click.UsageError):
        hint = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
        return one_line(error.format_message()) + hint, ExitCode.BAD_INPUT
    if isinstance(error, click.Abort):
        return "interrupted", ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        return one_line(error.format_message()), ExitCode.BAD_INPUT
    if isinstance(error, _input_errors()):
        return one_line(str(error)), ExitCode.BAD_INPUT
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return one_line(f"{place}{error.strerror or error}"), ExitCode.BAD_INPUT
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    kind = type(error).__name__
    return (
        one_line(
            f"this is a bug in resilin: {kind}: {error}"
            f" (set {DEBUG_VARIABLE}=1 to see where, and please report it)"
        ),
        ExitCode.BUG,
    )


def _input_errors() -> tuple[type[Exception], ...]:
    # Imported only once something went wrong: `resilin version` needs none of it.
    from resilin.contracts.record import CorruptRecordError
    from resilin.eventlog.sqlite import LogFileError
    from resilin.workloads import WorkloadError

    known: tuple[type[Exception], ...] = (CorruptRecordError, LogFileError, WorkloadError)
    # Those of a live cell are there only if one was asked; without Kafka's client its own
    # could not even be imported.
    if "resilin.eventlog.sqlite_topic" in sys.modules:
        from resilin.eventlog.sqlite_topic import TopicFileError

        known = (*known, TopicFileError)
    if "resilin.eventlog.kafka" in sys.modules:
        from resilin.eventlog.kafka import FatalLogError

        known = (*known, FatalLogError)
    return known
