"""An embedded cell as the command line finds one: a log and topics in a folder, and services.

The services are the real ones, on simulated workers, in a thread. Their clock stands still
until a test lets it run, so what a test looks at does not move.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from resilin.contracts.commands import AddServer, Command, ConfigureCell, ImportCurves
from resilin.contracts.record import LogEntry
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.contracts.values import CellConfiguration, Curve, Server
from resilin.embedded.cell import EmbeddedCell
from resilin.embedded.log import LocalLog
from resilin.embedded.topics import LocalTopicReader, LocalTopicWriter
from resilin.eventlog.sqlite import SqliteLog
from resilin.eventlog.sqlite_topic import SqliteTopic
from resilin.simulation.backend import SimulatedBackend
from resilin.simulation.cluster import Physics

CURVE = {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0}
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.01


class StandingClock:
    """Stands still, until it runs ``scale`` times as fast as the wall's."""

    def __init__(self) -> None:
        self._stood_at = float(int(time.time()))
        self._since: float | None = None
        self._scale = 0.0

    def run(self, scale: float) -> None:
        self._stood_at = self.now_seconds()
        self._scale, self._since = scale, time.monotonic()

    def now_seconds(self) -> float:
        if self._since is None:
            return self._stood_at
        return self._stood_at + (time.monotonic() - self._since) * self._scale

    def wall_seconds(self, seconds: float) -> float:
        return LOOK_SECONDS

    async def sleep_until(self, moment_seconds: float) -> None:
        while self.now_seconds() < moment_seconds:
            await asyncio.sleep(LOOK_SECONDS)


class HomeCell:
    """A cell in a folder; :meth:`start` runs its services until :meth:`stop`.

    Attributes:
        home: The folder.
        clock: Its time.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = StandingClock()
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None
        self._problem: BaseException | None = None
        home.mkdir(parents=True)
        with SqliteLog(home / "log.resilin"):
            pass

    # --- its files -------------------------------------------------------------------------

    def topic(self, name: str = JOBS_COMMANDS.name) -> SqliteTopic:
        return SqliteTopic(self.home / "topics.sqlite", name)

    def send(self, *commands: Command) -> None:
        self.send_bytes(*(command.model_dump_json().encode() for command in commands))

    def send_bytes(self, *values: bytes) -> list[int]:
        with self.topic() as topic:
            return [topic.produce(value, b"main") for value in values]

    def sent(self) -> list[bytes]:
        with self.topic() as topic:
            return [message.value for message in topic.read()]

    def letters(self) -> list[bytes]:
        with self.topic(DEADLETTER.name) as topic:
            return [message.value for message in topic.read()]

    def entries(self) -> list[LogEntry]:
        with SqliteLog(self.home / "log.resilin", read_only=True) as log:
            return list(log.read())

    def open_with(self, servers: int, gpus: int) -> None:
        """Set the cell up: settings, a curve, servers."""
        curve = Curve(model="resnet50", global_batch=256, iterations_per_second=CURVE)
        self.send(
            ConfigureCell(command_id="configure", configuration=CellConfiguration()),
            ImportCurves(command_id="curves", curves=(curve,)),
            *(
                AddServer(command_id=f"add-{n}", server=Server(server_id=f"server-{n}", gpus=gpus))
                for n in range(servers)
            ),
        )

    # --- its services ----------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._services())
        except BaseException as error:
            self._problem = error

    async def _services(self) -> None:
        with (
            SqliteLog(self.home / "log.resilin") as log,
            self.topic() as commands,
            self.topic(DEADLETTER.name) as letters,
        ):
            cell = EmbeddedCell(
                LocalLog(log).view,
                LocalTopicReader(commands),
                LocalTopicWriter(letters),
                SimulatedBackend(self.clock.now_seconds, self.clock.sleep_until, Physics()),
                clock=self.clock,
                snapshot_every_records=10,
            )
            loop = asyncio.get_running_loop()
            self._stop = lambda: loop.call_soon_threadsafe(cell.stop)
            await cell.run()

    def stop(self) -> None:
        """Stop the services; what went wrong in them is raised here."""
        self._stop()
        self._stop = lambda: None
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)
            self._thread = None
        if self._problem is not None:
            raise self._problem

    def wait_until(self, true: Callable[[Sequence[LogEntry]], object]) -> None:
        """Wait until a function of the log is true."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until and self._problem is None:
            if true(self.entries()):
                return
            time.sleep(LOOK_SECONDS)
        raise self._problem or AssertionError("what was waited for did not happen")

    def wait_for(self, event_type: str, count: int = 1) -> None:
        """Wait until the log holds so many events of a type."""
        self.wait_until(
            lambda entries: (
                sum(e.type == event_type for entry in entries for e in entry.record.events) >= count
            )
        )
