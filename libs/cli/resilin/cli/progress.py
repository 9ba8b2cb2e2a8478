"""A progress bar on stderr, where there is a terminal to show it on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["progress", "watched"]

Item = TypeVar("Item")


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None] | None]:
    """Show how much of ``total`` is done; yields what to call once a step.

    Yields None where there is no terminal, so that nothing need be counted for nobody.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def watched(items: Iterable[Item], advance: Callable[[], None] | None) -> Iterable[Item]:
    """Return the items, each counted as it is taken."""
    if advance is None:
        return items
    return _counted(items, advance)


def _counted(items: Iterable[Item], advance: Callable[[], None]) -> Iterator[Item]:
    for item in items:
        yield item
        advance()
