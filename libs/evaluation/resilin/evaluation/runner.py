"""Running a grid over processes, one file a result, so that an interrupted run goes on.

A result lies in the folder of cells under the digest of everything it hangs on
(:func:`resilin.evaluation.grid.digest`): whatever has changed is run again, and nothing else.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resilin.evaluation.cell import run_cell
from resilin.evaluation.grid import Cell, digest
from resilin.evaluation.measures import Run

__all__ = ["CELLS_FOLDER", "Failure", "Outcome", "run_cells"]

CELLS_FOLDER = "cells"

DIED = "its process died: killed, or out of memory"


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell without a result.

    Attributes:
        cell: The cell.
        message: Why.
    """

    cell: Cell
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a grid came to.

    Attributes:
        runs: The result of each cell that has one, in the order of the cells.
        failures: The cells that have none, in the same order.
        reused: How many results were there already.
    """

    runs: Mapping[Cell, Run]
    failures: tuple[Failure, ...]
    reused: int


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    *,
    traces: Path | None = None,
    jobs: int = 1,
    done: Callable[[], None] = lambda: None,
    run: Callable[[Cell, Path | None], Mapping[str, Any]] = run_cell,
) -> Outcome:
    """Run the cells that have no result yet; a cell that fails does not end the others.

    Args:
        cells: The cells; one that occurs twice, or differs in names only, is run once.
        out: The folder that gets the results.
        traces: The folder of traces.
        jobs: How many processes.
        done: Called once for every cell that has a result or has failed.
        run: Runs one cell in another process; a function of a module.

    Raises:
        OSError: If a trace cannot be read or a result cannot be written.
    """
    folder = out / CELLS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    digests = {cell: digest(cell, traces) for cell in cells}
    found: dict[str, Run] = {}
    failed: dict[str, str] = {}
    left: dict[str, Cell] = {}
    for cell, key in digests.items():
        if key in found or key in left:
            continue
        stored = _stored(folder / f"{key}.json")
        if stored is None:
            left[key] = cell
        else:
            found[key] = stored
    alike = Counter(digests.values())
    reused = sum(alike[key] for key in found)
    for _ in range(reused):
        done()
    for key, result in _results(left, traces, jobs, run):
        if isinstance(result, str):
            failed[key] = result
        else:
            _store(folder / f"{key}.json", left[key], result)
            found[key] = Run.from_json(result)
        for _ in range(alike[key]):
            done()
    return Outcome(
        runs={cell: found[digests[cell]] for cell in cells if digests[cell] in found},
        failures=tuple(
            Failure(cell, failed[digests[cell]]) for cell in cells if digests[cell] in failed
        ),
        reused=reused,
    )


Result = Mapping[str, Any] | str
"""What a cell came to, or why it failed."""


def _results(
    left: Mapping[str, Cell],
    traces: Path | None,
    jobs: int,
    run: Callable[[Cell, Path | None], Mapping[str, Any]],
) -> Iterator[tuple[str, Result]]:
    """Yield results as they come; where a process dies, find out by whose fault."""
    waiting = dict(left)
    for key, result in _pooled(waiting, traces, jobs, run):
        del waiting[key]
        yield key, result
    # A dead process takes all that were under way with it: each of them alone tells who did it.
    for key, cell in waiting.items():
        alone = list(_pooled({key: cell}, traces, 1, run))
        yield key, alone[0][1] if alone else DIED


def _pooled(
    cells: Mapping[str, Cell],
    traces: Path | None,
    jobs: int,
    run: Callable[[Cell, Path | None], Mapping[str, Any]],
) -> Iterator[tuple[str, Result]]:
    """Yield results until all are there, or a process has died."""
    if not cells:
        return
    # A fresh interpreter for each process: no state of the caller's slips in.
    spawn = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(min(jobs, len(cells)), spawn, _end_with_the_caller) as pool:
        # The keys are copied: the caller may take out what it has got.
        futures = {
            pool.submit(_guarded, run, cell, traces): key for key, cell in list(cells.items())
        }
        try:
            yield from _as_completed(futures)
        except BrokenProcessPool:
            return
        except BaseException:
            # Interrupted: what has not begun never will; what has is not waited for.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise


def _as_completed(futures: Mapping[Future[Result], str]) -> Iterator[tuple[str, Result]]:
    pending = set(futures)
    while pending:
        finished, pending = wait(pending, return_when=FIRST_COMPLETED)
        broken = None
        for future in sorted(finished, key=lambda each: futures[each]):
            try:
                result = future.result()
            except BrokenProcessPool as error:
                broken = error
            else:
                yield futures[future], result
        if broken is not None:
            raise broken


def _end_with_the_caller() -> None:
    """Have a process end when the one that started it was killed and could not end it."""
    caller = multiprocessing.parent_process()
    assert caller is not None, "only started by a pool"  # noqa: S101 (invariant)

    def watch() -> None:
        caller.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _guarded(
    run: Callable[[Cell, Path | None], Mapping[str, Any]], cell: Cell, traces: Path | None
) -> Result:
    """Run a cell in its process; an error becomes its result."""
    try:
        return run(cell, traces)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _stored(path: Path) -> Run | None:
    """Read a result that is there and whole; anything else is run again."""
    try:
        return Run.from_json(json.loads(path.read_bytes())["result"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _store(path: Path, cell: Cell, result: Mapping[str, Any]) -> None:
    """Write a result so that it is there as a whole or not at all."""
    text = json.dumps({"cell": cell.label, "result": result}, separators=(",", ":"))
    unfinished = path.with_suffix(".part")
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.replace(path)
