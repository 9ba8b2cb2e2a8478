"""Tables that more than one command prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resilin.cli.output import Table, duration_text, number_text

__all__ = ["summary_table"]


def summary_table(
    title: str, summaries: Sequence[Mapping[str, Any]], names: Sequence[str] = ()
) -> Table:
    """Set summaries of runs side by side, a column each; seconds also as durations."""
    rows = [
        [name, *(_figure(name, summary[name]) for summary in summaries)] for name in summaries[0]
    ]
    columns = ["", *names] if names else ["", summaries[0]["policy"]]
    if not names:
        rows = [row for row in rows if row[0] != "policy"]
    return Table(columns, rows, title, right=range(1, len(summaries) + 1))


def _figure(name: str, value: object) -> str:
    if name.endswith("_seconds") and isinstance(value, float) and value >= 60:  # noqa: PLR2004
        return f"{number_text(value)} ({duration_text(value)})"
    return number_text(value)
