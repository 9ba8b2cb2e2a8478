"""Tables that more than one command prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resilin.cli.output import Table

__all__ = ["summary_table"]


def summary_table(
    title: str,
    summaries: Sequence[Mapping[str, Any]],
    names: Sequence[str] = (),
    *more: Sequence[str],
) -> Table:
    """Set summaries of runs side by side, a column each.

    Args:
        title: What was run.
        summaries: The runs.
        names: A heading for each; the policies if there is none.
        more: Further rows: a label, then a cell for each run.
    """
    from resilin.report.comparison import comparison_table

    heading, *rows = comparison_table(summaries)
    columns = ["", *names] if names else heading
    return Table(columns, [*rows, *more], title, right=range(1, len(columns)))
