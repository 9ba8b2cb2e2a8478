"""CSV files, plain or gzip, read into rows whose cells are checked one by one.

Every way in which such a file can be wrong ends in one :class:`WorkloadError` that names the
file, the line and the column. Files are read whole, so that a wrong byte can be placed.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resilin.workloads.trace import WorkloadError

__all__ = ["MOST_SECONDS", "MOST_WHOLE", "FilePath", "Row", "Table", "plain_stem", "read_table"]

FilePath = str | os.PathLike[str]

MOST_BYTES = 1 << 30
"""Largest file that is read, unpacked. The longest public job log is below 200 MB."""

MOST_SECONDS = 1e12
"""Largest time that is accepted: over 30,000 years, and far from where floats lose seconds."""

MOST_WHOLE = 10**15
"""Largest whole number that is accepted: every one up to it is exact as a float, too."""

RATE_RANGE = (1e-9, 1e9)
"""Iterations per second that are accepted: from one in 30 years to one in a nanosecond."""

LONGEST_NAME = 256
LONGEST_SHOWN = 40

_GZIP_MAGIC = b"\x1f\x8b"


def plain_stem(path: FilePath) -> str:
    """Return a file's name without its folder, ``.gz`` and ``.csv``."""
    return Path(path).name.removesuffix(".gz").removesuffix(".csv")


class Row:
    """One line of a table, with a method for each kind of cell.

    Attributes:
        line: The line in the file on which the row begins, from 1.
    """

    __slots__ = ("_cells", "_table", "line")

    def __init__(self, table: Table, line: int, cells: Sequence[str]) -> None:
        self._table = table
        self.line = line
        self._cells = cells

    @property
    def place(self) -> str:
        """Return the file and line, to point to this row from the error of another."""
        return f"{self._table.file}:{self.line}"

    def error(self, column: str | None, message: str) -> WorkloadError:
        """Return the error for this line and column, to be raised by the caller."""
        return WorkloadError(self._table.file, message, line=self.line, field=column)

    def text(self, column: str) -> str:
        """Return a cell without the blanks around it. The table must have the column."""
        return self._cells[self._table.columns[column]].strip()

    def name(self, column: str) -> str:
        """Return a cell that names something: not empty, printable, of at most 256 characters."""
        text = self.text(column)
        if not text:
            raise self.error(column, "is empty; give it a name")
        if len(text) > LONGEST_NAME or not text.isprintable():
            raise self.error(
                column,
                f"{_shown(text)} is no name; use at most {LONGEST_NAME} printable characters",
            )
        return text

    def whole(self, column: str, *, least: int = 1) -> int:
        """Return a cell that is a whole number of at least ``least``."""
        text = self.text(column)
        # int() alone would take underscores, digits of any script and 5,000 digits.
        if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_WHOLE)):
            value = int(text)
            if least <= value <= MOST_WHOLE:
                return value
        raise self.error(
            column,
            f"{_shown(text)} is not a whole number from {least} to {MOST_WHOLE}; "
            "write it in digits, without sign, point or unit",
        )

    def seconds(self, column: str) -> float:
        """Return a cell that is a time in seconds, at least 0."""
        value = _number(self.text(column))
        if not 0 <= value <= MOST_SECONDS:
            raise self.error(
                column,
                f"{_shown(self.text(column))} is not a time from 0 to {MOST_SECONDS:g} seconds; "
                "write seconds as a plain number",
            )
        return value

    def positive_seconds(self, column: str) -> float:
        """Return a cell that is a time in seconds, above 0."""
        value = self.seconds(column)
        if value == 0:
            raise self.error(column, "is 0 but must be above 0; leave out a job that never ran")
        return value

    def number(self, column: str) -> float:
        """Return a cell that is a finite number."""
        value = _number(self.text(column))
        if not math.isfinite(value):
            raise self.error(
                column, f"{_shown(self.text(column))} is not a number; write it in digits"
            )
        return value

    def rate(self, column: str) -> float:
        """Return a cell that is a rate in iterations per second."""
        least, most = RATE_RANGE
        value = _number(self.text(column))
        if not least <= value <= most:
            raise self.error(
                column,
                f"{_shown(self.text(column))} is not a rate from {least:g} to {most:g} iterations "
                "per second; write it as a plain number",
            )
        return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "...")


def _number(text: str) -> float:
    """Return the number that a text is, or NaN, which fails every comparison."""
    # float() alone would take underscores and digits of any script.
    if not text.isascii() or "_" in text:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return float("nan")


@dataclass(frozen=True, slots=True)
class Table:
    """A header and the rows below it.

    Attributes:
        file: The file, as the caller named it.
        columns: Position of each column by name.
        header_line: The line of the header, from 1.
        rows: The rows, in the file's order; each has one cell for each column.
    """

    file: str
    columns: dict[str, int]
    header_line: int
    rows: list[Row]

    def error(self, message: str) -> WorkloadError:
        """Return the error for the whole file, to be raised by the caller."""
        return WorkloadError(self.file, message)

    def require(self, columns: Iterable[str], *, layout: str) -> None:
        """Check that columns and at least one row are there.

        Args:
            columns: Names of the columns that are needed.
            layout: What the file was taken for, to put into the message.

        Raises:
            WorkloadError: If a column is missing or there is no row.
        """
        for column in columns:
            if column not in self.columns:
                raise WorkloadError(
                    self.file,
                    f"is missing from the header, which has {_listed(self.columns)}; add the "
                    f"column, or name another format, if this is no {layout}",
                    line=self.header_line,
                    field=column,
                )
        if not self.rows:
            raise self.error("has a header but no row below it; add the data, or drop the file")


def _listed(names: Iterable[str]) -> str:
    shown = [_shown(name) for name in names]
    if len(shown) > 12:
        shown[12:] = ["..."]
    return ", ".join(shown)


def read_table(path: FilePath) -> Table:
    """Read a CSV file in UTF-8, plain or gzip (told by its first bytes, not by its name).

    Blank lines are passed over. Quoting is as in RFC 4180.

    Raises:
        WorkloadError: If the file cannot be read, is empty, too large, damaged or not text,
            or has a header with a column twice, or a row of another length than the header.
    """
    file = os.fspath(path)
    text = _decoded(file, _unpacked(file))
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    table: Table | None = None
    begins = 1
    try:
        for cells in lines:
            if cells:
                if table is None:
                    table = Table(file, _columns(file, begins, cells), begins, [])
                elif len(cells) == len(table.columns):
                    table.rows.append(Row(table, begins, cells))
                elif any(cell.strip() for cell in cells):
                    raise _wrong_length(table, begins, cells)
            begins = lines.line_num + 1
    except csv.Error as error:
        raise WorkloadError(
            file, f"is no valid CSV ({error}); look for a quote that is not closed", line=begins
        ) from None
    if table is None:
        raise WorkloadError(file, "is empty; it needs a header line and a line for each entry")
    return table


def _unpacked(file: str) -> bytes:
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        if data.startswith(_GZIP_MAGIC):
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(MOST_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise WorkloadError(
            file, f"is a damaged or cut off gzip file ({error}); fetch it again"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise WorkloadError(file, f"cannot be read ({reason}); check the path") from None
    if len(data) > MOST_BYTES:
        raise WorkloadError(
            file, f"is larger than {MOST_BYTES} bytes; split it and read the parts one by one"
        )
    return data


def _decoded(file: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(
            file,
            f"is not text in UTF-8 (byte {data[error.start]:#04x}); save it as CSV in UTF-8",
            line=data.count(b"\n", 0, error.start) + 1,
        ) from None


def _columns(file: str, line: int, header: Sequence[str]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for position, cell in enumerate(header):
        name = cell.strip()
        if name in columns:
            raise WorkloadError(
                file, "is twice in the header; keep one of them", line=line, field=name
            )
        columns[name] = position
    return columns


def _wrong_length(table: Table, line: int, cells: Sequence[str]) -> WorkloadError:
    names = list(table.columns)
    return WorkloadError(
        table.file,
        f"the line has {len(cells)} cells, the header {len(names)}; put the missing cell in, "
        "or the extra one out, or a cell with a comma in quotes",
        line=line,
        field=names[len(cells)] if len(cells) < len(names) else None,
    )
