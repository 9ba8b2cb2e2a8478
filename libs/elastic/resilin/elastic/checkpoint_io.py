"""Writing and reading the state of a checkpoint; :mod:`.checkpoints` says which there are."""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from resilin.elastic import messages as msg
from resilin.elastic.checkpoints import discard_older, intact, manifests, seal, state_path
from resilin.elastic.files import write_atomically
from resilin.elastic.link import Link
from resilin.elastic.program import JobProgram
from resilin.elastic.sync import TrainingState

__all__ = ["CheckpointWriter", "load_newest"]


class CheckpointWriter:
    """Writes a worker's state: copied between two steps, written beside the next ones."""

    def __init__(self, program: JobProgram, folder: Path, link: Link) -> None:
        self._interval_seconds = program.checkpoint_interval_seconds
        self._keep = program.checkpoints_kept
        self._on_demand = program.data_mode == "on-demand"
        self._folder = folder
        self._link = link
        self._began_at = time.monotonic()
        self._thread: threading.Thread | None = None
        self.written_step = 0

    @property
    def due(self) -> bool:
        """Whether it is time for the next one."""
        return time.monotonic() - self._began_at >= self._interval_seconds

    def begin(self, state: TrainingState) -> bool:
        """Copy the state and write it in the background; False while one is being written."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._began_at = time.monotonic()
        if state.progress.position.step == self.written_step:
            self._say()
            return True
        snapshot = state.snapshot()
        position = state.progress.position
        self._thread = threading.Thread(
            target=self._write, args=(snapshot, position), name="checkpoint", daemon=True
        )
        self._thread.start()
        return True

    def write_now(self, state: TrainingState) -> None:
        """Write the state and wait for it."""
        self.finish()
        self.begin(state)
        self.finish()

    def finish(self) -> None:
        """Wait for what is being written."""
        if self._thread is not None:
            self._thread.join()

    def _write(self, snapshot: dict[str, Any], position: msg.Position) -> None:
        try:
            if self._on_demand and not self._settle_data(snapshot, position):
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            payload = io.BytesIO()
            torch.save(snapshot, payload)
            write_atomically(state_path(self._folder, position.step), payload.getvalue())
            seal(self._folder, position.step)
            discard_older(self._folder, self._keep)
        except OSError as error:
            sys.stderr.write(f"no checkpoint of step {position.step}: {error}\n")
            return
        self.written_step = position.step
        self._say()

    def _settle_data(self, snapshot: dict[str, Any], position: msg.Position) -> bool:
        """Put the samples themselves in place of counts that only this run's leader can read."""
        reply = self._link.ask(lambda request: msg.RangesWanted(request=request, position=position))
        if not isinstance(reply, msg.Ranges):
            return False  # without a leader there is no checkpoint; the next one is soon due
        settled = position.model_copy(update={"taken": {}, "inherited": reply.ranges})
        snapshot["progress"]["position"] = settled.model_dump(mode="json")
        return True

    def _say(self) -> None:
        self._link.say(msg.Checkpointed(step=self.written_step))


def load_newest(folder: Path) -> dict[str, Any] | None:
    """Return the state of the newest checkpoint that is whole; None without one."""
    for manifest in manifests(folder):
        if not intact(folder, manifest):
            sys.stderr.write(f"the checkpoint of step {manifest.step} is torn: passed over\n")
            continue
        state: dict[str, Any] = torch.load(
            state_path(folder, manifest.step), map_location="cpu", weights_only=True
        )
        return state
    return None
