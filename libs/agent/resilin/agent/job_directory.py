"""Where a job keeps its things on a node, and the end of what it wrote.

<home>/jobs/<job>/program.json     what its processes run
checkpoints/     what it goes on from
logs/            leader.log, worker-<id>.log; the part before in *.log.1
<home>/profiles/<job>/             the same for a job that is tried out; removed afterwards
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

__all__ = ["LOG_BYTES_MAX", "JobDirectory", "LogFile", "folder_name", "jobs_folder", "tail"]

LOG_BYTES_MAX = 8 << 20
"""How long a log grows before its first half makes room."""

LOGS_KEPT = 64
"""How many logs a job keeps."""

_LONGEST_NAME = 120


def folder_name(job_id: str) -> str:
    """Return the name of a job's folder: its id, as far as that is a name of one file."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", job_id)
    if plain == job_id and len(plain) <= _LONGEST_NAME:
        return plain
    # Two ids must never share a folder, whatever was replaced in them.
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:12]
    return f"{plain[:_LONGEST_NAME]}.{digest}"


def jobs_folder(home: Path) -> Path:
    """Return where an agent keeps its jobs' folders."""
    return home / "jobs"


class JobDirectory:
    """The folder of one job.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_job(cls, home: Path, job_id: str) -> JobDirectory:
        """Return the folder of a job that trains."""
        return cls(jobs_folder(home) / folder_name(job_id))

    @classmethod
    def of_profile(cls, home: Path, job_id: str) -> JobDirectory:
        """Return the folder of a job that is tried out."""
        return cls(home / "profiles" / folder_name(job_id))

    @property
    def logs(self) -> Path:
        """The folder of what its processes write."""
        return self.path / "logs"

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / "checkpoints"

    @property
    def leader_log(self) -> Path:
        """What its leader writes."""
        return self.logs / "leader.log"

    def worker_log(self, worker_id: str) -> Path:
        """Return what a worker writes."""
        return self.logs / f"worker-{folder_name(worker_id)}.log"

    def log_files(self) -> list[Path]:
        """Return all of its logs, oldest first written to."""
        paths = self.logs.glob("*.log")
        return sorted(paths, key=lambda path: (path.stat().st_mtime, path.name))

    def discard_old_logs(self, keep: int = LOGS_KEPT) -> None:
        """Remove all but the newest logs: a job that changes its size often has many workers."""
        for path in self.log_files()[:-keep]:
            path.unlink(missing_ok=True)
            _before(path).unlink(missing_ok=True)

    def tail(self, lines: int = 50) -> list[str]:
        """Return the last lines of the log that was written to last."""
        files = self.log_files()
        return tail(files[-1], lines) if files else []


def tail(path: Path, lines: int = 50, *, bytes_max: int = 64 << 10) -> list[str]:
    """Return the last lines of a log, looking no further back than some bytes."""
    text = b"".join(_end_of(part, bytes_max) for part in (_before(path), path))
    return text.decode(errors="replace")[-bytes_max:].splitlines()[-lines:]


def _end_of(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - bytes_max))
            return file.read()
    except FileNotFoundError:
        return b""


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


class LogFile:
    """A log that never takes more than a bounded room: its newest part, and the one before."""

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._half = bytes_max // 2
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()

    def write(self, chunk: bytes) -> None:
        """Add to the log; a disk that is full must not end what writes."""
        with contextlib.suppress(OSError):
            self._write(chunk)

    def _write(self, chunk: bytes) -> None:
        if self._size and self._size + len(chunk) > self._half:
            self._file.close()
            self._path.replace(_before(self._path))
            self._file = self._path.open("ab", buffering=0)
            self._size = 0
        self._file.write(chunk)
        self._size += len(chunk)

    def tail(self, lines: int) -> str:
        """Return its last lines."""
        return "\n".join(tail(self._path, lines))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
