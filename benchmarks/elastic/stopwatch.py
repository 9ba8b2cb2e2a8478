"""Marks that the workers of a benchmark leave beside their step records.

A worker's step records tell when it stood still, but not why. So the job of a benchmark puts a
stopwatch around the hand-over of the state, and notes when the worker is warm. The times are of
the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import json
import os
import time
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

    send, receive = TrainingState.send, TrainingState.receive
    describe = TrainingState.await_description
    awaited = 0.0

    def noted_await(state: TrainingState, *arguments: Any) -> Any:  # noqa: ANN401 (as it is called)
        nonlocal awaited
        awaited = time.monotonic()
        return describe(state, *arguments)

    def noted_send(state: TrainingState, *arguments: Any) -> None:  # noqa: ANN401 (as it is called)
        began = time.monotonic()
        send(state, *arguments)
        note("broadcast", began, time.monotonic())

    def noted_receive(state: TrainingState, *arguments: Any) -> None:  # noqa: ANN401 (as it is called)
        receive(state, *arguments)
        note("broadcast", awaited, time.monotonic())

    say = Link.say

    def noted_say(link: Link, message: msg.FromWorker) -> None:
        say(link, message)
        if isinstance(message, msg.Warm):
            note("warm", time.monotonic(), time.monotonic())

    patched: list[tuple[Any, str, Any]] = [
        (TrainingState, "await_description", noted_await),
        (TrainingState, "send", noted_send),
        (TrainingState, "receive", noted_receive),
        (Link, "say", noted_say),
    ]
    for owner, name, function in patched:
        setattr(owner, name, function)
