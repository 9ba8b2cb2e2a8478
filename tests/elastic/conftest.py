"""Shared by the tests of the worker runtime."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resilin.elastic.program import JobProgram

JOBS = Path(__file__).parent / "jobs.py"
BATCH = 50  # 480 samples: nine whole minibatches and a short one of 30


class Steps:
    """What the workers of a run wrote of their steps."""

    def __init__(self, folder: Path) -> None:
        lines: list[dict[str, Any]] = []
        for path in sorted(folder.glob("*.jsonl")):
            written = path.read_text().splitlines()
            lines += [json.loads(line) | {"worker": path.stem} for line in written]
        self.lines = lines

    def losses(self) -> dict[int, float]:
        """The loss of each step; every worker has seen the same."""
        found: dict[int, float] = {}
        for line in self.lines:
            assert found.setdefault(line["step"], line["loss"]) == line["loss"]
        return found

    def samples(self) -> dict[int, list[int]]:
        """The samples of each epoch, from the plan under which each step counted."""
        plans: dict[int, int] = {}
        for line in self.lines:
            plans[line["step"]] = max(line["plan"], plans.get(line["step"], 0))
        assert sorted(plans) == list(range(1, max(plans) + 1)), "no step is lost"
        found: dict[int, list[int]] = {}
        for line in self.lines:
            if line["plan"] == plans[line["step"]]:
                found.setdefault(line["epoch"], []).extend(line["samples"])
        return found

    def workers(self) -> dict[int, int]:
        """How many workers took part in each step."""
        found: dict[int, int] = {}
        for line in self.lines:
            found[line["step"]] = found.get(line["step"], 0) + 1
        return found


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Any]:
    """Make a program; what it is not told is small and quick."""

    def make(name: str = "Regression", **fields: Any) -> JobProgram:
        given: dict[str, Any] = {
            "job_id": "job",
            "entrypoint": f"{JOBS.name}:{name}",
            "directory": str(JOBS.parent),
            "global_batch": BATCH,
            "hyperparameters": {"pause": 0.003},
            "lease_seconds": 30.0,
            "record_steps": str(tmp_path / "steps"),
            "record_samples": True,
        }
        return JobProgram(**(given | fields))

    return make
