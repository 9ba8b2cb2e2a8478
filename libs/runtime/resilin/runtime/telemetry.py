"""Telemetry over Kafka: samples in through Faust, out through aiokafka.

Samples are keyed, come at a high rate and may come twice: what Faust is for. It is told as
little as possible to do by itself. Topics exist before it starts, there are no tables and no
web server, and offsets are committed only after the service took a sample in.

Faust commits past what its own codecs cannot decode, and past an event whose agent raised,
if it is then stopped in good order. So bytes come in raw and are decoded in the agent, which
acknowledges each event itself, once it is taken in or put aside, and never raises.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import faust
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # it ships no type marker
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]  # as above
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # as above
from faust.contrib.asgi import faust_app_running
from pydantic import ValidationError

from resilin.contracts.telemetry import StepSample
from resilin.contracts.topics import TELEMETRY_STEPS
from resilin.contracts.values import SourcePosition
from resilin.eventlog.kafka import KafkaConnection

__all__ = ["RunningTelemetry", "TelemetryError", "TelemetryWriter", "telemetry_running"]

_LINGER_MILLISECONDS = 20

Deliver = Callable[[StepSample], Awaitable[None]]
Refuse = Callable[[bytes, SourcePosition, str], Awaitable[None]]


class TelemetryError(RuntimeError):
    """Telemetry ended, or cannot begin: end the process, so that it starts again."""


@dataclass(frozen=True, slots=True)
class RunningTelemetry:
    """Telemetry that is being read.

    Attributes:
        failed: Never has a result; raises :class:`TelemetryError` once reading has ended by
            an error. Whoever runs telemetry awaits it beside what else it does.
    """

    failed: asyncio.Future[None]


@asynccontextmanager
async def telemetry_running(
    connection: KafkaConnection | str,
    group: str,
    deliver: Deliver,
    refuse: Refuse,
    *,
    cell: str,
    topic: str = TELEMETRY_STEPS.name,
) -> AsyncIterator[RunningTelemetry]:
    """Read the samples of all jobs of a cell on the running loop, in order for each job.

    Args:
        connection: The brokers.
        group: The consumer group. One for each instance of a service, so that every instance
            sees every sample, and a standby's windows are warm.
        deliver: Takes a sample in; it comes again if this raises, or the process ends first.
        refuse: Puts aside what is no sample: its bytes, where it came from, and why.
        cell: The cell; the samples of others, on the same brokers, are passed over.
        topic: The topic.

    Raises:
        TelemetryError: If there is no such topic, or nobody to ask.
    """
    connection = KafkaConnection(connection) if isinstance(connection, str) else connection
    await _must_exist(connection, topic)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(reason: BaseException | None) -> None:
        if not failed.done():
            error = TelemetryError(f"telemetry ended: {type(reason).__name__}: {reason}")
            error.__cause__ = reason
            failed.set_exception(error)

    with tempfile.TemporaryDirectory(prefix="resilin-telemetry-") as directory:
        app = _app(connection, group, directory)
        _take_in(app, topic, cell, deliver, refuse, fail)
        async with faust_app_running(app):
            watch = asyncio.create_task(_watch(app, fail))
            try:
                yield RunningTelemetry(failed)
            finally:
                watch.cancel()
                if not failed.cancel() and not failed.cancelled():
                    failed.exception()  # told to whoever asked; nobody may have


async def _must_exist(connection: KafkaConnection, topic: str) -> None:
    """Faust waits for ever, and in silence, for a topic that is not there."""
    admin = AIOKafkaAdminClient(**connection.client_options())
    try:
        await admin.start()
        topics = await admin.list_topics()
    except (KafkaError, OSError) as error:
        raise TelemetryError(f"{connection.bootstrap}: {type(error).__name__}: {error}") from error
    finally:
        await admin.close()
    if topic not in topics:
        raise TelemetryError(f"there is no topic {topic}")


def _app(connection: KafkaConnection, group: str, directory: str) -> faust.App:
    addresses = connection.bootstrap.split(",")
    return faust.App(
        group,
        broker=[f"kafka://{address}" for address in addresses],
        broker_credentials=_credentials(connection),
        processing_guarantee="at_least_once",
        consumer_auto_offset_reset="earliest",
        agent_supervisor="mode.CrashingSupervisor",
        topic_allow_declare=False,
        topic_disable_leader=True,
        stream_wait_empty=False,  # what was not taken in when it ends comes again
        web_enabled=False,
        store="memory://",
        datadir=directory,  # made even where nothing is kept
        autodiscover=False,
    )


def _credentials(connection: KafkaConnection) -> faust.auth.Credentials | None:
    ssl_context = connection.client_options().get("ssl_context")
    if connection.security_protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=connection.sasl_username,
            password=connection.sasl_password,
            ssl_context=ssl_context,
            mechanism=connection.sasl_mechanism,
        )
    return None if ssl_context is None else faust.SSLCredentials(context=ssl_context)


def _take_in(
    app: faust.App,
    topic: str,
    cell: str,
    deliver: Deliver,
    refuse: Refuse,
    fail: Callable[[BaseException], None],
) -> None:
    raw = app.topic(topic, key_type=bytes, value_type=bytes, value_serializer="raw")

    @app.agent(raw)
    async def samples(stream: Any) -> None:  # noqa: ANN401 (the type of a stream lacks `noack`)
        try:
            async for event in stream.noack().events():
                key, payload = event.key or b"", event.value or b""
                if b" " not in key:
                    reason = "the key names no cell: it is a cell's name, a space and a job's id"
                    await refuse(payload, _position(event.message), reason)
                elif key.startswith(_key(cell, "")):
                    try:
                        sample = StepSample.model_validate_json(payload)
                    except ValidationError as error:
                        await refuse(payload, _position(event.message), _problem(error))
                    else:
                        await deliver(sample)
                await stream.ack(event)
        except Exception as error:
            # Told and not raised: an app that has crashed cannot be stopped in good order.
            fail(error)


def _key(cell: str, job_id: str) -> bytes:
    """Two cells may each have a job of the same id; no name of either has a space in it."""
    return f"{cell} {job_id}".encode()


def _position(message: faust.types.Message) -> SourcePosition:
    return SourcePosition(topic=message.topic, partition=message.partition, offset=message.offset)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"field {field!r}: {first['msg']}" if field else first["msg"]


async def _watch(app: faust.App, fail: Callable[[BaseException | None], None]) -> None:
    """Tell when the app has ended by itself: a client of its own failed, not the agent."""
    await app.wait_until_stopped()
    fail(app.crash_reason)


class TelemetryWriter:
    """Sends the samples of a cell, in order for each job.

    Args:
        connection: The brokers.
        cell: The cell.
        topic: The topic.
    """

    def __init__(
        self, connection: KafkaConnection | str, cell: str, *, topic: str = TELEMETRY_STEPS.name
    ) -> None:
        connection = KafkaConnection(connection) if isinstance(connection, str) else connection
        self._topic = topic
        self._cell = cell
        # Samples of many jobs share a request; who waits for the answer waits this much longer.
        self._producer = AIOKafkaProducer(
            **connection.client_options(),
            acks="all",
            enable_idempotence=True,
            linger_ms=_LINGER_MILLISECONDS,
            max_request_size=TELEMETRY_STEPS.message_bytes_max,
        )

    async def __aenter__(self) -> Self:
        """Connect."""
        await self._producer.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send what was begun, and let go."""
        await self._producer.stop()

    async def send(self, sample: StepSample) -> None:
        """Return once the broker has a sample; several may be on their way at once.

        Raises:
            TelemetryError: If the broker did not take it.
        """
        try:
            await self._producer.send_and_wait(
                self._topic,
                sample.model_dump_json().encode(),
                key=_key(self._cell, sample.job_id),
            )
        except KafkaError as error:
            raise TelemetryError(f"{self._topic}: {type(error).__name__}: {error}") from error
