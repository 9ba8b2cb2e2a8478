"""Wall-clock times of job logs, turned into seconds since the first job."""

from __future__ import annotations

from datetime import UTC, datetime

from resilin.workloads.csv_table import Row

__all__ = ["seconds_since_epoch"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds_since_epoch(row: Row, column: str) -> float:
    """Return a time such as ``2017-10-03 04:05:06``, read as UTC unless it names an offset.

    A log's own zone does not matter: only differences between its times are used.

    Raises:
        WorkloadError: If the cell is no such time.
    """
    text = row.text(column)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise row.error(
            column,
            f"{text[:40]!r} is no time; write it as YYYY-MM-DD HH:MM:SS",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds()
