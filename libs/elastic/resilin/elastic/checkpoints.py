"""Which checkpoints a job has: readable without PyTorch.

A checkpoint is two files: ``step-N.pt``, the state, and ``step-N.json``, which is written after
it and says how long it is and what its digest is. One without the other, or one that does not
match, is torn: it is passed over for the one before.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from resilin.elastic.files import read_bytes, write_atomically

__all__ = ["Manifest", "discard_older", "intact", "manifests", "newest_step", "seal"]

_CHUNK = 1 << 20


class Manifest(BaseModel):
    """What is known of a checkpoint without reading it."""

    model_config = ConfigDict(frozen=True)

    step: int
    bytes: int
    sha256: str


def state_path(folder: Path, step: int) -> Path:
    """Return where the state of a step is."""
    return folder / f"step-{step:012d}.pt"


def manifest_path(folder: Path, step: int) -> Path:
    """Return where the manifest of a step is."""
    return folder / f"step-{step:012d}.json"


def manifests(folder: Path) -> list[Manifest]:
    """Return what claims to be a checkpoint, newest first."""
    found = []
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        payload = read_bytes(path)
        try:
            manifest = Manifest.model_validate_json(payload or b"")
        except ValueError:
            continue
        if manifest_path(folder, manifest.step) == path:
            found.append(manifest)
    return found


def newest_step(folder: Path) -> int | None:
    """Return the step of the newest checkpoint that is there as a whole; None without one."""
    return next((each.step for each in manifests(folder) if intact(folder, each)), None)


def intact(folder: Path, manifest: Manifest) -> bool:
    """Whether a checkpoint's state is what its manifest says."""
    path = state_path(folder, manifest.step)
    try:
        return path.stat().st_size == manifest.bytes and _digest(path) == manifest.sha256
    except OSError:
        return False


def seal(folder: Path, step: int) -> None:
    """Write the manifest of a state that is on disk."""
    path = state_path(folder, step)
    manifest = Manifest(step=step, bytes=path.stat().st_size, sha256=_digest(path))
    write_atomically(manifest_path(folder, step), manifest.model_dump_json().encode())


def discard_older(folder: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what torn ones have left."""
    kept = {manifest.step for manifest in manifests(folder)[:keep]}
    newest = max(kept, default=-1)
    for path in folder.glob("step-*"):
        digits = path.stem.removeprefix("step-")
        if digits.isdigit() and int(digits) not in kept and int(digits) < newest:
            path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
