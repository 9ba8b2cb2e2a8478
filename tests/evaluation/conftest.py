"""A small scenario of its own, as a file that a test may change, and a command line to call."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from resilin.cli.main import cli
from resilin.evaluation.scenario import Evaluation, load

ROOT = Path(__file__).parents[2]

TINY: dict[str, Any] = {
    "apiVersion": "resilin.dev/v1alpha1",
    "kind": "Evaluation",
    "metadata": {"name": "tiny"},
    "spec": {
        "title": "a few jobs",
        "answers": {"paper": "None", "item": "no figure", "question": "Does it work?"},
        "policies": ["elasticflow", "edf"],
        "resizeCosts": ["none", "modelled"],
        "workloads": [
            {
                "name": "made",
                "source": {
                    "generated": {
                        "jobs": 8,
                        "meanInterarrivalSeconds": 600,
                        "clusterGpus": 16,
                        "load": 1.5,
                        "bestEffortShare": 0.2,
                    }
                },
                "clusters": [{"servers": 2, "gpusPerServer": 8}],
            }
        ],
        "classes": [{"name": "small", "belowGpuSeconds": 10000}, {"name": "large"}],
        "measures": ["met", "met_share", "mean_completion_seconds", "gpu_hours", "cpu_seconds"],
        "charts": [
            {"measure": "met"},
            {"measure": "met_share", "along": "workload"},
            {"measure": "cluster_efficiency", "along": "hours"},
        ],
        "published": [
            {
                "measure": "met",
                "of": {"policy": "elasticflow"},
                "over": {"policy": "edf"},
                "value": 7.65,
                "source": "a paper | its table",
            }
        ],
        "claims": ["It is <fast>."],
    },
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write the tiny scenario into a file, with changes: a dotted path, and the new value."""

    def written(**changes: Any) -> Path:
        content = copy.deepcopy(TINY)
        for place, value in changes.items():
            *outer, last = place.split("__")
            part: Any = content
            for name in outer:
                part = part[int(name)] if name.isdigit() else part[name]
            if value is None:
                del part[last]
            else:
                part[last] = value
        path = tmp_path / "tiny.yaml"
        # JSON is YAML, and has no aliases for what occurs twice.
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
        return path

    return written


@pytest.fixture
def tiny(write: Callable[..., Path]) -> Evaluation:
    return load(write())


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        answer = json.loads(self.stdout)
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def resilin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`resilin`, called in this process, without traces unless they are named."""
    monkeypatch.delenv("RESILIN_TRACES", raising=False)

    def call(*arguments: object) -> Outcome:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes import ``tests.support``."""
    monkeypatch.syspath_prepend(str(ROOT))
