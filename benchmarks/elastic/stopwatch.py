"""Marks that the workers of a benchmark leave beside their step records.

A worker's step records tell when it stood still, but not why. So the job of a benchmark puts a
stopwatch around the hand-over of the state, and notes when the worker is warm. The times are of
the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resilin.elastic import messages as msg
from resilin.elastic.link import Link
from resilin.elastic.sync import TrainingState

__all__ = ["FOLDER_VARIABLE", "start_stopwatch"]

FOLDER_VARIABLE = "RESILIN_BENCHMARK_MARKS"


def start_stopwatch() -> None:
    """Begin to note, in this worker, if a folder for it was named."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    file = (Path(folder) / f"{os.getpid()}.jsonl").open("a", buffering=1, encoding="utf-8")

    def note(mark: str, began: float, ended: float) -> None:
        file.write(json.dumps({"mark": mark, "start": began, "end": ended}) + "\n")

    def timed(mark: str, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **named: Any) -> None:  # noqa: ANN401 (whatever it is called with)
            began = time.monotonic()
            try:
                function(*arguments, **named)
            finally:
                note(mark, began, time.monotonic())

        return call

    say = Link.say

    def noted_say(link: Link, message: msg.FromWorker) -> None:
        say(link, message)
        if isinstance(message, msg.Warm):
            note("warm", time.monotonic(), time.monotonic())

    patched: list[tuple[Any, str, Any]] = [
        (TrainingState, "send", timed("broadcast", TrainingState.send)),
        (TrainingState, "receive", timed("broadcast", TrainingState.receive)),
        (Link, "say", noted_say),
    ]
    for owner, name, function in patched:
        setattr(owner, name, function)
