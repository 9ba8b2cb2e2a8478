"""Brings a database to the tables that this code knows: numbered SQL files, each once.

All that is pending runs in one transaction under an advisory lock, so that of several
processes that start at once one migrates and the others find it done; a failure leaves the
database as it was.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

__all__ = ["Migration", "MigrationError", "migrate", "migrations", "pending"]

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
# Any number that nobody else in the database locks: the first bytes of "resilin archive".
_LOCK = int.from_bytes(hashlib.sha256(b"resilin archive").digest()[:7])

_TABLE = """
CREATE TABLE IF NOT EXISTS archive_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    digest text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class MigrationError(RuntimeError):
    """The database is not one that this code can bring up to date; the message says why."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step.

    Attributes:
        version: Its number; they count from 1.
        name: What it does, in a word or two.
        sql: Its statements.
    """

    version: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """A fingerprint: a step that was applied somewhere must never change."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations() -> list[Migration]:
    """Return this package's steps in order."""
    folder = resources.files("resilin.archive") / "migrations"
    return numbered(
        {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.is_file()}
    )


def numbered(files: Mapping[str, str]) -> list[Migration]:
    """Read steps from files by name.

    Raises:
        MigrationError: If a name is not like ``0001_tables.sql``, or a number is missing.
    """
    steps = []
    for expected, (name, sql) in enumerate(sorted(files.items()), start=1):
        match = _FILE_NAME.fullmatch(name)
        if match is None or int(match[1]) != expected:
            raise MigrationError(
                f"{name}: migration {expected:04d}_<what it does>.sql should follow"
            )
        steps.append(Migration(expected, match[2], sql))
    return steps


def pending(steps: Iterable[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """Return the steps to apply to a database.

    Args:
        steps: All steps, in order.
        applied: The digests of those applied, by version.

    Raises:
        MigrationError: If the database has a step that these are not the continuation of.
    """
    known = {step.version: step for step in steps}
    for version, digest in applied.items():
        if version not in known:
            raise MigrationError(
                f"the archive is at version {version}, this code knows {len(known)}:"
                " update the code"
            )
        if known[version].digest != digest:
            raise MigrationError(
                f"migration {version} was applied with other content than this code's"
            )
    return [step for version, step in known.items() if version not in applied]


async def migrate(connection: Connection) -> list[Migration]:
    """Apply what is pending, and return it.

    Raises:
        MigrationError: If the database is of a later version, or was migrated otherwise.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_TABLE)
        rows = await connection.fetch("SELECT version, digest FROM archive_migrations")
        steps = pending(migrations(), {row["version"]: row["digest"] for row in rows})
        for step in steps:
            await connection.execute(step.sql)
            await connection.execute(
                "INSERT INTO archive_migrations (version, name, digest) VALUES ($1, $2, $3)",
                step.version,
                step.name,
                step.digest,
            )
    return steps
