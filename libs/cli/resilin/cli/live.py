"""A live cell as the command line sees it: its log to read, its commands to write.

A cell runs on Kafka or embedded in one process with its files in a folder, and every command
works the same on both. Nothing here talks to a service: what is asked is a message on
`jobs.commands`, and its answer is read from the log, whenever it comes.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click
from pydantic import TypeAdapter, ValidationError

from resilin.audit.replay import fold_log
from resilin.cell.state import CellState
from resilin.cli.errors import InputError
from resilin.cli.output import FIRST_WALL_CLOCK_SECONDS
from resilin.contracts import events as ev
from resilin.contracts.base import Identifier
from resilin.contracts.commands import (
    CancelJob,
    ChangeDeadline,
    Command,
    SubmitJob,
    command_adapter,
)
from resilin.contracts.dead_letter import DeadLetter
from resilin.contracts.record import LogEntry
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.eventlog.port import (
    EventLog,
    Message,
    MessageTooLargeError,
    MessageTopic,
    SnapshotStore,
)
from resilin.eventlog.sqlite import SqliteLog
from resilin.executor.decider import ExecutorDecider, ExecutorState
from resilin.kernel.decider import Decider
from resilin.kernel.fencing import Fence
from resilin.kernel.host import Folded
from resilin.kernel.snapshot import SnapshotError, load

if TYPE_CHECKING:
    from resilin.eventlog.kafka import KafkaConnection

__all__ = [
    "LOG_NAME",
    "CellFold",
    "LiveAddress",
    "LiveCell",
    "ReadableLog",
    "Reply",
    "ask",
    "default_home",
    "live_options",
    "now_seconds",
    "open_live",
    "read_dead_letter",
    "timeout_option",
    "wait_option",
]

LOG_NAME = "log.resilin"
TOPICS_NAME = "topics.sqlite"

POLL_SECONDS = 0.1
"""How often a log is looked at for what is new."""

DEAD_LETTER_POLL_SECONDS = 1.0

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])
State = TypeVar("State")

_identifier: TypeAdapter[str] = TypeAdapter(Identifier)


# --- where it is ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiveAddress:
    """Where a live cell is: on Kafka, or in a folder.

    Attributes:
        bootstrap: Kafka's first servers; None for an embedded cell.
        home: The folder of an embedded cell.
        cell: The cell's name.
        given: Whether it was named, on the command line or in the environment.
        typed: Whether it was named on the command line.
    """

    bootstrap: str | None
    home: Path
    cell: str = "main"
    given: bool = True
    typed: bool = False

    @property
    def name(self) -> str:
        """The cell in a message: where it is, and which."""
        place = str(self.home) if self.bootstrap is None else self.bootstrap
        return place if self.cell == "main" else f"{place} (cell {self.cell})"

    @property
    def exists(self) -> bool:
        """Whether there may be a cell: one in a folder has a log there."""
        return self.bootstrap is not None or (self.home / LOG_NAME).exists()


def live_options(command: AnyCommand) -> AnyCommand:
    """Give a command ``--bootstrap``, ``--home`` and ``--cell``, passed to it as ``address``."""

    @click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="RESILIN_BOOTSTRAP",
        help="Ask the live cell on this Kafka.  [env: RESILIN_BOOTSTRAP]",
    )
    @click.option(
        "--home",
        metavar="DIR",
        type=click.Path(path_type=Path),
        envvar="RESILIN_HOME",
        help="Ask the embedded cell in this folder.  [env: RESILIN_HOME; default: .resilin in"
        " the user's home]",
    )
    @click.option(
        "--cell",
        "cell_name",
        default="main",
        envvar="RESILIN_CELL",
        show_default=True,
        help="The cell's name.",
    )
    @wraps(command)
    def call(
        *arguments: object,
        bootstrap: str | None,
        home: Path | None,
        cell_name: str,
        **options: object,
    ) -> object:
        return command(*arguments, address=_address(bootstrap, home, cell_name), **options)

    return call  # type: ignore[return-value]  # what click sees is the same command


def _address(bootstrap: str | None, home: Path | None, cell: str) -> LiveAddress:
    context = click.get_current_context()
    typed = [
        name
        for name in ("bootstrap", "home")
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if bootstrap is not None and home is not None:
        # What is typed goes before what the environment says.
        if typed == ["bootstrap"]:
            home = None
        elif typed == ["home"]:
            bootstrap = None
        else:
            where = "the options" if typed else "RESILIN_BOOTSTRAP and RESILIN_HOME"
            raise click.UsageError(
                f"{where} name two cells, --bootstrap {bootstrap} and --home {home}: drop one"
            )
    if bootstrap is not None and not bootstrap.strip():
        raise click.BadParameter(
            "is empty; name a broker such as localhost:9092", param_hint="'--bootstrap'"
        )
    try:
        _identifier.validate_python(cell)
    except ValidationError:
        raise click.BadParameter(
            f"{cell!r} is no name of a cell: letters, digits and _ . : / - only",
            param_hint="'--cell'",
        ) from None
    given = bootstrap is not None or home is not None
    home = default_home() if home is None else home
    return LiveAddress(bootstrap, home, cell, given, bool(typed))


def default_home() -> Path:
    """Return the folder of the cell that is meant where none is named."""
    try:
        return Path.home() / ".resilin"
    except RuntimeError:
        raise InputError("there is no home folder: name the cell's folder with --home") from None


def timeout_option(default: float | None, help_text: str) -> Callable[[AnyCommand], AnyCommand]:
    """Give a command ``--timeout SECONDS``, passed to it as ``timeout_seconds``."""
    return click.option(
        "--timeout",
        "timeout_seconds",
        metavar="SECONDS",
        type=click.FloatRange(0, 1e9),
        callback=_finite,
        default=default,
        show_default=default is not None,
        help=help_text,
    )


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value != value:
        raise click.BadParameter("nan is no number of seconds", ctx, param)
    return value


def wait_option(command: AnyCommand) -> AnyCommand:
    """Give a command ``--wait/--no-wait``, passed to it as ``waits``."""
    return click.option(
        "--wait/--no-wait",
        "waits",
        default=True,
        help="Wait for the answer, or only send.  [default: wait]",
    )(command)


# --- the cell ------------------------------------------------------------------------------


class ReadableLog(EventLog, SnapshotStore, Protocol):
    """A log that a command reads: a file, or the one of a live cell."""

    def close(self) -> None:
        """Let go of it."""
        ...


class _Topic(MessageTopic, Protocol):
    def close(self) -> None: ...


@dataclass(slots=True)
class CellFold:
    """What a prefix of a log has come to: the cell, and which records count.

    Attributes:
        folded: The state, the fence and the last offset.
    """

    folded: Folded[ExecutorState] = field(default_factory=lambda: Folded(ExecutorState(), Fence()))

    @property
    def cell(self) -> CellState:
        """Jobs, servers and settings."""
        return self.folded.state.cell

    @property
    def offset(self) -> int:
        """The last offset folded."""
        return self.folded.offset

    def fold(self, entry: LogEntry) -> bool:
        """Fold the next entry; say whether it counts."""
        folded = self.folded
        folded.offset = entry.offset
        if not folded.fence.admit(entry):
            return False
        folded.timestamp = max(folded.timestamp, entry.record.timestamp)
        decider = ExecutorDecider()
        for event in entry.record.events:
            folded.state = decider.evolve(folded.state, event, entry)
        return True

    @property
    def now_seconds(self) -> float:
        """The cell's time now."""
        return now_seconds(self.cell)


def now_seconds(cell: CellState) -> float:
    """Return the cell's time: today's, unless its clock counts from elsewhere or is ahead."""
    newest = cell.now_seconds
    if 0 < newest < FIRST_WALL_CLOCK_SECONDS:
        return newest
    return max(newest, time.time())


class LiveCell:
    """A live cell: its log, its commands and its dead letters, each opened when it is used.

    Attributes:
        name: How messages call it.
        cell: Its own name, as records and commands carry it.
        log: Its log, to read.
        home: The folder of an embedded cell; None on Kafka.
    """

    def __init__(
        self,
        address: LiveAddress,
        log: ReadableLog,
        open_topic: Callable[[str], _Topic],
    ) -> None:
        self.name = address.name
        self.cell = address.cell
        self.home = address.home if address.bootstrap is None else None
        self.log = log
        self._open_topic = open_topic
        self._topics: dict[str, _Topic] = {}

    @property
    def commands(self) -> MessageTopic:
        """The cell's part of `jobs.commands`."""
        return self.topic(JOBS_COMMANDS.name)

    @property
    def dead_letters(self) -> MessageTopic:
        """The cell's part of `deadletter`."""
        return self.topic(DEADLETTER.name)

    def topic(self, name: str) -> MessageTopic:
        """Return the cell's part of a topic."""
        if name not in self._topics:
            self._topics[name] = self._open_topic(name)
        return self._topics[name]

    def fold(self) -> CellFold:
        """Fold the log up to its end as of now."""
        return CellFold(self.fold_service(ExecutorDecider()))

    def fold_service(
        self, decider: Decider[State], *, through_offset: int | None = None
    ) -> Folded[State]:
        """Fold the log for a service, from its newest snapshot if there is one of use."""
        start: Folded[State] | None = None
        snapshot = self.log.load(decider.service)
        end = self.log.end_offset() if through_offset is None else through_offset
        if snapshot is not None and snapshot.offset <= end:
            # One of another version, or damaged: a snapshot is only a shorter way.
            with suppress(SnapshotError):
                start = load(snapshot.payload, decider.state_type)
        after = -1 if start is None else start.offset
        return fold_log(self.log.read(after), decider, folded=start, through_offset=end)

    def follow(
        self, after: int = -1, timeout_seconds: float | None = None
    ) -> Iterator[LogEntry | None]:
        """Yield what the log holds and what is added to it, and None after each look.

        Args:
            after: The last offset that is known.
            timeout_seconds: End after this time, and one look more; None for never.
        """
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            over = until is not None and time.monotonic() >= until
            for entry in self.log.read(after):
                after = entry.offset
                yield entry
            yield None
            if over:
                return
            left = POLL_SECONDS if until is None else until - time.monotonic()
            time.sleep(max(0.0, min(POLL_SECONDS, left)))

    def jobs_sent(self) -> list[str]:
        """Return the ids of the jobs in `jobs.commands`, taken in already or not."""
        sent: dict[str, None] = {}
        for message in self.commands.read():
            with suppress(ValidationError):
                command = command_adapter.validate_json(message.value)
                if isinstance(command, SubmitJob) and command.cell == self.cell:
                    sent[command.job_id] = None
        return list(sent)

    def close(self) -> None:
        """Let go of everything."""
        for topic in self._topics.values():
            topic.close()
        self.log.close()


@contextmanager
def open_live(address: LiveAddress) -> Iterator[LiveCell]:
    """Reach a live cell.

    Raises:
        InputError: If there is none.
    """
    live = _embedded(address) if address.bootstrap is None else _on_kafka(address)
    try:
        yield live
    finally:
        live.close()


def _embedded(address: LiveAddress) -> LiveCell:
    from resilin.eventlog.sqlite_topic import SqliteTopic

    file = address.home / LOG_NAME
    if not file.is_file():
        raise InputError(
            f"{address.home}: there is no cell (no {LOG_NAME} in it); start one with"
            " `resilin up`, or name one with --home DIR, --bootstrap HOST:PORT or, for commands"
            " that only read, a LOG file"
        )
    return LiveCell(
        address,
        SqliteLog(file, read_only=True),
        lambda name: SqliteTopic(address.home / TOPICS_NAME, name),
    )


def _on_kafka(address: LiveAddress) -> LiveCell:
    try:
        from resilin.eventlog.kafka import KafkaLog, KafkaTopic, LogUnavailableError
    except ImportError as error:
        raise InputError(
            f"a cell on Kafka needs {error.name or 'aiokafka'}, which is not installed:"
            " pip install 'resilin[live]'"
        ) from None
    # What its client has to say is in the errors that it raises.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    connection, partition = _connection(address.bootstrap or ""), _partition()
    log = KafkaLog(connection, address.cell, partition)
    try:
        log.end_offset()
    except LogUnavailableError as error:
        log.close()
        raise InputError(
            f"{address.bootstrap}: no Kafka with the topics of a cell answers there ({error});"
            " check --bootstrap"
        ) from None
    except BaseException:
        log.close()
        raise
    return LiveCell(
        address,
        log,
        lambda name: KafkaTopic(connection, name, partition),
    )


def _connection(bootstrap: str) -> KafkaConnection:
    """Take what else is needed to connect from the variables that the services take it from."""
    from resilin.eventlog.kafka import KafkaConnection

    given = {
        name: value
        for name in ("security_protocol", "sasl_mechanism", *_SECRETS_AND_FILES)
        if (value := os.environ.get(f"RESILIN_{name.upper()}"))
    }
    for name, allowed in _CLOSED_LISTS.items():
        if name in given and given[name] not in allowed:
            raise InputError(
                f"RESILIN_{name.upper()}: {given[name]!r} is none of {', '.join(allowed)}"
            )
    return KafkaConnection(bootstrap, **cast("dict[str, Any]", given))


_SECRETS_AND_FILES = (
    "sasl_username",
    "sasl_password",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
)
_CLOSED_LISTS = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
}


def _partition() -> int:
    given = os.environ.get("RESILIN_PARTITION", "0")
    if re.fullmatch(r"[0-9]{1,6}", given) is None:
        raise InputError(f"RESILIN_PARTITION: {given!r} is no number of a partition")
    return int(given)


# --- asking it -----------------------------------------------------------------------------

Answer = (
    ev.JobAdmitted
    | ev.JobRejected
    | ev.JobCancelled
    | ev.JobCompleted
    | ev.JobFailed
    | ev.DeadlineChanged
    | ev.DeadlineChangeRejected
    | ev.DeadlineChangeRequested
)
_OfJob = SubmitJob | CancelJob | ChangeDeadline


@dataclass(slots=True)
class Reply:
    """A command that was sent, and what came back until now.

    Attributes:
        command: The command.
        position: Its offset in `jobs.commands`.
        fact: What the log holds of it: that it was taken, or why not.
        answer: What was decided about its job, or took its place before that.
        answered_at_seconds: When that was decided, on the cell's clock.
        dead_letter: What was said of it if it could not even be read.
        profiled: Whether its job is tried out before its answer.
        ended: Whether its job had ended when it was taken: nothing is decided then.
    """

    command: Command
    position: int
    fact: ev.FactFromCommand | None = None
    answer: Answer | None = None
    answered_at_seconds: float = 0.0
    dead_letter: DeadLetter | None = None
    profiled: bool = False
    ended: bool = False

    @property
    def open(self) -> bool:
        """Whether more is to come."""
        if self.ended or self.problem is not None:
            return False
        if isinstance(self.command, _OfJob):
            return self.answer is None
        return self.fact is None

    @property
    def problem(self) -> str | None:
        """Why the command was not taken, if so."""
        if self.dead_letter is not None:
            return f"the cell could not read it: {self.dead_letter.reason}"
        return self.fact.message if isinstance(self.fact, ev.CommandRejected) else None

    def note_answer(self, answer: ev.Event | ev.UnknownEvent, at_seconds: float) -> None:
        """Take in an event about its job, if that answers it."""
        expected = _ANSWERS.get(type(self.command), ())
        if self.fact is not None and self.answer is None and isinstance(answer, expected):
            self.answer, self.answered_at_seconds = answer, at_seconds


# A job may end by itself before its cancellation is looked at.
_ENDS = (ev.JobRejected, ev.JobCancelled, ev.JobCompleted, ev.JobFailed)
_ANSWERS: dict[type, tuple[type[Any], ...]] = {
    SubmitJob: (ev.JobAdmitted, ev.JobRejected, ev.JobCancelled),
    CancelJob: _ENDS,
    # Of several requests for one job that are open at once, admission answers the newest.
    ChangeDeadline: (
        ev.DeadlineChanged,
        ev.DeadlineChangeRejected,
        ev.DeadlineChangeRequested,
        *_ENDS,
    ),
}


def ask(
    live: LiveCell, commands: Sequence[Command], *, timeout_seconds: float | None
) -> list[Reply]:
    """Send commands and wait for the answers.

    Args:
        live: The cell.
        commands: What to send, in order.
        timeout_seconds: How long to wait; None not at all. Replies may be open after it.

    Raises:
        InputError: If a command is larger than the cell takes; those before it were sent.
    """
    # Folded before anything is sent, so that no answer lies before what is read.
    fold = CellFold() if timeout_seconds is None else live.fold()
    letters_after = live.dead_letters.end_offset() if timeout_seconds is not None else -1
    replies = [Reply(command, _send(live, command)) for command in commands]
    if timeout_seconds is None:
        return replies
    notice = _Notice(replies)
    waiting = list(replies)
    looked_at = time.monotonic()
    for entry in live.follow(fold.offset, timeout_seconds):
        if entry is not None:
            if fold.fold(entry):
                notice.take(entry, fold.cell)
            continue
        waiting = [reply for reply in waiting if reply.open]
        if waiting and time.monotonic() - looked_at >= DEAD_LETTER_POLL_SECONDS:
            letters_after = _note_dead_letters(live, waiting, letters_after)
            waiting = [reply for reply in waiting if reply.open]
            looked_at = time.monotonic()
        if not waiting:
            break
    if waiting:
        _note_dead_letters(live, waiting, letters_after)
    return replies


class _Notice:
    """Finds the replies that an entry is about."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._by_position = {reply.position: reply for reply in replies}
        self._by_job: dict[str, list[Reply]] = {}
        for reply in replies:
            if isinstance(reply.command, _OfJob):
                self._by_job.setdefault(reply.command.job_id, []).append(reply)

    def take(self, entry: LogEntry, cell: CellState) -> None:
        """Take in an entry that counts, and what the cell has come to with it."""
        for event in entry.record.events:
            if isinstance(event, ev.ProfileRequested):
                for reply in self._by_job.get(event.job_id, ()):
                    reply.profiled = True
            elif isinstance(event, Answer):
                for reply in self._by_job.get(event.job_id, ()):
                    reply.note_answer(event, entry.record.timestamp)
            # Last: a request for a deadline settles those before it, not itself.
            if isinstance(event, ev.FactFromCommand):
                self._note_fact(event, cell)

    def _note_fact(self, fact: ev.FactFromCommand, cell: CellState) -> None:
        reply = self._by_position.get(fact.source.offset)
        if reply is None or fact.source.topic != JOBS_COMMANDS.name:
            return
        reply.fact = fact
        if isinstance(reply.command, _OfJob):
            job = cell.jobs.get(reply.command.job_id)
            reply.ended = job is None or job.phase.terminal


def _send(live: LiveCell, command: Command) -> int:
    value = command.model_dump_json(exclude_none=True).encode()
    try:
        return live.commands.produce(value, live.cell.encode())
    except MessageTooLargeError as error:
        raise InputError(f"command {command.command_id}: {error}; send less at once") from None


def _note_dead_letters(live: LiveCell, waiting: Sequence[Reply], after: int) -> int:
    positions = {reply.position: reply for reply in waiting}
    for message in live.dead_letters.read(after):
        after = message.offset
        letter = read_dead_letter(message)
        if letter is not None and letter.source.topic == JOBS_COMMANDS.name:
            reply = positions.get(letter.source.offset)
            if reply is not None:
                reply.dead_letter = letter
    return after


def read_dead_letter(message: Message) -> DeadLetter | None:
    """Read a message of `deadletter`; None if it is no dead letter itself."""
    try:
        return DeadLetter.model_validate_json(message.value)
    except ValidationError:
        return None
