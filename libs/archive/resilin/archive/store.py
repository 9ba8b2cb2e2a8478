"""The archive in PostgreSQL: rows and the position they stand for, in one transaction.

The row of a cell in ``positions`` says up to which offset its log is in the tables. A batch
locks it, skips what is at or below it, and moves it together with the rows. So a repeat of
entries, a crash at any moment and several writers at once all leave the same rows.

A writer keeps the open rows that it needs to go on; they are valid as long as nobody else
has moved the position, and else read back from the tables.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import asyncpg

from resilin.archive.migrate import migrate
from resilin.archive.projection import (
    AllocationRow,
    Changes,
    JobRow,
    OpenRows,
    ServerRow,
    ThroughputRow,
    fold,
)
from resilin.contracts.record import LogEntry
from resilin.kernel.fencing import Fence, Lease

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

__all__ = ["Archive", "ArchiveUnavailableError", "ArchiveWriter"]

_CONNECT_SECONDS = 10.0
_COMMAND_SECONDS = 60.0
_CLOSE_SECONDS = 5.0


class ArchiveUnavailableError(RuntimeError):
    """The database cannot be reached, or ended what was going on: try again later."""


_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that was cut off a moment ago
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.InvalidAuthorizationSpecificationError,
)


@asynccontextmanager
async def _explained() -> AsyncIterator[None]:
    try:
        yield
    except _UNAVAILABLE as error:
        raise ArchiveUnavailableError(
            f"the archive's database: {str(error) or type(error).__name__}"
        ) from error


@dataclass(frozen=True, slots=True)
class _Table:
    """A table whose columns are a row's fields, and how to write one."""

    name: str
    row: type[Any]
    key: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return [field.name for field in fields(self.row)]

    @property
    def upsert(self) -> str:
        columns = ["cell", *self.columns]
        places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        kept = ("cell", *self.key)
        news = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in kept)
        return (
            f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608 (names of this module)
            f" ON CONFLICT ({', '.join(kept)}) DO UPDATE SET {news}"
        )

    @property
    def values(self) -> Callable[[Any], tuple[Any, ...]]:
        return attrgetter(*self.columns)


_JOBS = _Table("jobs", JobRow, ("job_id", "submitted_offset"))
_ALLOCATIONS = _Table("allocations", AllocationRow, ("job_id", "submitted_offset", "generation"))
_THROUGHPUT = _Table(
    "throughput",
    ThroughputRow,
    ("log_offset", "event_index", "model", "global_batch", "workers"),
)
_SERVERS = _Table("servers", ServerRow, ("server_id",))


class Archive:
    """An archive that is open and up to date."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect to a database and bring its tables up to date.

        Args:
            url: As in ``postgresql://user:password@host:port/database``.

        Raises:
            ArchiveUnavailableError: If it cannot be reached.
            MigrationError: If it is of a later version than this code.
        """
        async with _explained():
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=2,
                timeout=_CONNECT_SECONDS,
                command_timeout=_COMMAND_SECONDS,
                init=_prepare,
            )
            try:
                async with pool.acquire() as connection:
                    await migrate(connection)
            except BaseException:
                pool.terminate()
                raise
        return cls(pool)

    async def close(self) -> None:
        """Let go of every connection."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._pool.close()
        except _UNAVAILABLE:
            self._pool.terminate()

    async def __aenter__(self) -> Self:
        """Return the archive itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()

    def writer(self) -> ArchiveWriter:
        """Return a writer of one cell's log."""
        return ArchiveWriter(self._pool)


async def _prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )


class ArchiveWriter:
    """Writes the log of one cell into the archive.

    Whoever feeds it starts after :meth:`position`, leaves no entry out, and after an error
    starts there again; entries that come again change nothing. Any number of writers may
    feed the same log at once.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self._cell = ""
        self._rows: OpenRows | None = None

    async def position(self, cell: str) -> int:
        """Return the offset up to which a cell's log is in the archive, -1 for none of it.

        Raises:
            ArchiveUnavailableError: If the database cannot be reached.
        """
        async with _explained():
            offset: int | None = await self._pool.fetchval(
                "SELECT log_offset FROM positions WHERE cell = $1", cell
            )
        return -1 if offset is None else offset

    async def write(self, entries: Sequence[LogEntry]) -> None:
        """Bring the archive to the last of these entries, or leave it as it was.

        Args:
            entries: The next entries of the log, in order.

        Raises:
            ArchiveUnavailableError: If the database cannot be reached.
            ValueError: If the entries are of several cells.
        """
        cells = dict.fromkeys(entry.record.cell for entry in entries)
        if len(cells) > 1:
            raise ValueError(f"entries of several cells at once: {', '.join(cells)}")
        for cell in cells:
            async with _explained(), self._pool.acquire() as connection:
                async with connection.transaction():
                    rows = await self._write(connection, cell, entries)
                self._cell, self._rows = cell, rows

    async def _write(
        self, connection: Connection, cell: str, entries: Sequence[LogEntry]
    ) -> OpenRows:
        """Write what is new, and return the open rows at the position that it leads to."""
        rows, self._rows = self._rows, None  # not valid any more if this fails
        position = await _lock_position(connection, cell)
        if rows is None or cell != self._cell or rows.offset != position["log_offset"]:
            rows = await _load(connection, cell, position)
        new = [entry for entry in entries if entry.offset > position["log_offset"]]
        if new:
            await _save(connection, cell, fold(rows, new))
            await connection.execute(
                "UPDATE positions SET log_offset = $2, logged_at = $3, leases = $4 WHERE cell = $1",
                cell,
                rows.offset,
                rows.now,
                {service: asdict(lease) for service, lease in rows.fence.leases.items()},
            )
        return rows


async def _lock_position(connection: Connection, cell: str) -> asyncpg.Record:
    """Return a cell's position, which nobody else can move until this transaction is over."""
    await connection.execute(
        "INSERT INTO positions (cell, log_offset, leases) VALUES ($1, -1, '{}')"
        " ON CONFLICT (cell) DO NOTHING",
        cell,
    )
    position = await connection.fetchrow(
        "SELECT log_offset, logged_at, leases FROM positions WHERE cell = $1 FOR UPDATE", cell
    )
    assert position is not None, "it was inserted just now"  # noqa: S101 (invariant)
    return position


async def _load(connection: Connection, cell: str, position: asyncpg.Record) -> OpenRows:
    """Read back what the projection needs to go on; in the order in which it came to be."""
    jobs = await _read(connection, _JOBS, cell, "finished_at IS NULL ORDER BY submitted_offset")
    allocations = await _read(connection, _ALLOCATIONS, cell, "to_at IS NULL ORDER BY from_offset")
    servers = await _read(connection, _SERVERS, cell, "true ORDER BY server_id")
    return OpenRows(
        offset=position["log_offset"],
        now=position["logged_at"],
        fence=Fence({service: Lease(**lease) for service, lease in position["leases"].items()}),
        jobs={row.job_id: row for row in jobs},
        allocations={row.job_id: row for row in allocations},
        servers={row.server_id: row for row in servers},
    )


async def _read(connection: Connection, table: _Table, cell: str, where: str) -> list[Any]:
    columns = ", ".join(table.columns)
    query = f"SELECT {columns} FROM {table.name} WHERE cell = $1 AND {where}"  # noqa: S608 (names of this module)
    return [table.row(**record) for record in await connection.fetch(query, cell)]


async def _save(connection: Connection, cell: str, changes: Changes) -> None:
    # Jobs first: an allocation refers to its job.
    await _upsert(connection, _JOBS, cell, changes.jobs.values())
    await _upsert(connection, _ALLOCATIONS, cell, changes.allocations.values())
    await _upsert(connection, _THROUGHPUT, cell, changes.throughput.values())
    await _upsert(connection, _SERVERS, cell, changes.servers.values())


async def _upsert(connection: Connection, table: _Table, cell: str, rows: Iterable[Any]) -> None:
    values = table.values
    arguments = [(cell, *values(row)) for row in rows]
    if arguments:
        await connection.executemany(table.upsert, arguments)
