"""What a worker tells of its steps: to the leader in batches, to a file when measured."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import IO

from resilin.elastic import messages as msg
from resilin.elastic.link import Link
from resilin.elastic.program import JobProgram

__all__ = ["StepReports"]

REPORT_SECONDS = 0.1


class StepReports:
    """Collects steps; says their means ten times a second at most."""

    def __init__(self, program: JobProgram, worker_id: str, link: Link) -> None:
        self._link = link
        self._samples = program.record_samples
        self._file: IO[str] | None = None
        folder = os.environ.get("RESILIN_ELASTIC_STEPS") or program.record_steps
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            path = Path(folder) / f"{worker_id}.jsonl"
            self._file = path.open("a", buffering=1, encoding="utf-8")
        self._count = 0
        self._step_seconds = 0.0
        self._compute_seconds = 0.0
        self._newest: tuple[msg.Position, int, float | None] | None = None
        self._said_at = 0.0

    def step(
        self,
        position: msg.Position,
        number: int,
        times: tuple[float, float, float],
        loss: float | None,
        indexes: list[int],
    ) -> None:
        """Take a step that is done.

        Args:
            position: Where training stands after it.
            number: The plan under which it was done.
            times: When it began, when the backward pass was done, when it ended; seconds of
                the machine's monotonic clock, which all its processes share.
            loss: The mean loss over the global batch.
            indexes: The samples that this worker trained on.
        """
        began, computed, ended = times
        self._count += 1
        self._step_seconds += ended - began
        self._compute_seconds += computed - began
        self._newest = (position, number, loss)
        if self._file is not None:
            line: dict[str, object] = {
                "step": position.step,
                # The last step of an epoch leads to the beginning of the next.
                "epoch": position.epoch - (position.consumed == 0),
                "plan": number,
                "start": began,
                "end": ended,
                "compute_seconds": computed - began,
                "loss": loss,
                "count": len(indexes),
            }
            if self._samples:
                line["samples"] = indexes
            self._file.write(json.dumps(line) + "\n")
        if ended - self._said_at >= REPORT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Say what was not yet said."""
        if self._newest is None or not self._count:
            return
        position, number, loss = self._newest
        self._link.say(
            msg.Steps.model_construct(
                number=number,
                position=position,
                count=self._count,
                step_seconds=self._step_seconds / self._count,
                compute_seconds=self._compute_seconds / self._count,
                loss=loss,
            )
        )
        self._count, self._step_seconds, self._compute_seconds = 0, 0.0, 0.0
        self._said_at = time.monotonic()
