"""The cells of a scenario's grid, and the digest of everything that a cell's result hangs on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path

from resilin.contracts.topics import SERVICES
from resilin.evaluation.scenario import Cluster, Evaluation, ResizeCost, ScenarioError, Source
from resilin.planning.policies.registry import POLICIES

__all__ = ["Cell", "cells", "check_policies", "check_traces", "digest", "missing_policies"]

# The packages whose code decides what a run comes to, beside the services; and the module of
# this one that does: how results are shown is no reason to run anything again.
_DECISIVE = ("cell", "contracts", "kernel", "planning", "simulation", "workloads")
_DECISIVE_HERE = ("cell.py",)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a grid.

    Attributes:
        workload: The name of its workload.
        source: Its jobs and curves.
        cluster: The shape of the cluster.
        resize_cost: What a change of GPUs costs.
        seed: Seed of everything random.
        policy: The policy.
    """

    workload: str
    source: Source
    cluster: Cluster
    resize_cost: ResizeCost
    seed: int
    policy: str

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return (
            f"{self.policy} on {self.workload}, {self.cluster.label} GPUs, "
            f"resize cost {self.resize_cost.name}, seed {self.seed}"
        )


def cells(scenario: Evaluation, policies: tuple[str, ...] = ()) -> Iterator[Cell]:
    """Yield a grid's cells in order: by workload, cluster, resize cost, seed and policy.

    Args:
        scenario: The scenario.
        policies: Only these policies of it; all without.
    """
    spec = scenario.spec
    for workload in spec.workloads:
        for cluster in workload.clusters:
            for cost in spec.resize_costs:
                for seed in spec.seeds:
                    for policy in spec.policies:
                        if not policies or policy in policies:
                            yield Cell(workload.name, workload.source, cluster, cost, seed, policy)


def missing_policies(scenario: Evaluation) -> tuple[str, ...]:
    """Return the policies that a scenario names and that do not exist."""
    return tuple(policy for policy in scenario.spec.policies if policy not in POLICIES)


def check_policies(scenario: Evaluation, policies: tuple[str, ...] = ()) -> None:
    """Check that every policy of a grid exists.

    Raises:
        ScenarioError: If one does not.
    """
    asked = {cell.policy for cell in cells(scenario, policies)}
    missing = [policy for policy in missing_policies(scenario) if policy in asked]
    if missing:
        raise ScenarioError(
            f"scenario {scenario.name}: field 'spec.policies': no policy is called "
            f"{missing[0]!r}; there are {', '.join(POLICIES)}"
        )


def check_traces(scenario: Evaluation, traces: Path | None) -> None:
    """Check that every file that a scenario reads is there.

    Raises:
        ScenarioError: If one is not.
    """
    for number, workload in enumerate(scenario.spec.workloads):
        for path in workload.source.paths:
            field = f"scenario {scenario.name}: field 'spec.workloads.{number}.source'"
            if traces is None:
                raise ScenarioError(
                    f"{field}: {path} is a public trace; name the folder of traces "
                    "(docs/traces.md says what is in it)"
                )
            if not (traces / path).exists():
                raise ScenarioError(f"{field}: there is no {traces / path}; check the folder")


def digest(cell: Cell, traces: Path | None) -> str:
    """Digest what a cell's result hangs on: its inputs, the files it reads, the code.

    Names of workloads and costs are left out, so scenarios share what they have in common.

    Raises:
        OSError: If a file cannot be read.
    """
    inputs = {
        "source": cell.source.model_dump(mode="json"),
        "cluster": cell.cluster.model_dump(mode="json"),
        "stop_cost": cell.resize_cost.stop_cost.model_dump(mode="json"),
        "seed": cell.seed,
        "policy": cell.policy,
        "files": [] if traces is None else [_file_digest(traces / p) for p in cell.source.paths],
        "version": metadata.version("resilin"),
        "code": _code_digest(),
    }
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1024)
def _file_digest(path: Path) -> str:
    files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
    found = hashlib.sha256()
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else ""
        found.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Digest the modules that decide: a version number does not change with every edit."""
    found = hashlib.sha256()
    for package in sorted((*_DECISIVE, *(service.replace("-", "_") for service in SERVICES))):
        for folder in import_module(f"resilin.{package}").__path__:
            for file in sorted(Path(folder).rglob("*.py")):
                name = f"{package}/{file.relative_to(folder).as_posix()}"
                found.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    for module in _DECISIVE_HERE:
        found.update(Path(__file__).with_name(module).read_bytes() + b"\0")
    return found.hexdigest()
