"""Scenario files: which grid of runs answers which figure or table of which paper.

They are read as data only, and wholly checked before anything runs; an error names the file
and the field. docs/evaluation.md describes the format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from resilin.contracts.base import Identifier, UserModel
from resilin.contracts.values import StopCost
from resilin.evaluation.measures import MEASURES, JobClass
from resilin.workloads import TraceFormat

__all__ = [
    "Answers",
    "Chart",
    "Cluster",
    "Evaluation",
    "Generated",
    "Pick",
    "Published",
    "ResizeCost",
    "ScenarioError",
    "Single",
    "SizeClass",
    "Source",
    "Transient",
    "Workload",
    "load",
    "shipped",
]

MOST_BYTES = 1 << 20

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
PolicyName = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+/-]*$")
]
Along = Literal["policy", "cluster", "workload", "hours"]


class ScenarioError(ValueError):
    """A scenario that cannot be used; the message names the file and the field."""


class Generated(UserModel):
    """A generated trace (:func:`resilin.workloads.generate_trace`)."""

    jobs: Count
    mean_interarrival_seconds: Positive
    cluster_gpus: Count
    load: Positive | None = None
    best_effort_share: Annotated[float, Field(ge=0, le=1)] = 0.0


class Single(UserModel):
    """One job, of a model that is built in."""

    model: Identifier
    global_batch: Count
    iterations: Annotated[int, Field(ge=1, le=10**12)]
    workers: Count


class Source(UserModel):
    """Where jobs and curves come from: exactly one of a file, a generator and a single job.

    Attributes:
        file: A trace file, below the folder of traces.
        format: Its format.
        profiles: Throughput profiles, below the folder of traces; built-in curves without.
        pollux_models: Pollux's folder of models, below the folder of traces.
        generated: A generated trace.
        single: One job.
        jobs: Only the first so many jobs, after ``every_nth``.
        every_nth: Only every n-th job.
        original_profiles: Profiles of the models that the file names, below the folder of
            traces. Every job is then given a model and batch drawn from ``profiles`` instead,
            and keeps its requested workers, its duration on them and its deadline.
        deadline_durations: Set every deadline at so many durations after submission.
        sizes: The worker counts that jobs may have: powers of two, or all that are profiled.
    """

    file: Text | None = None
    format: TraceFormat | None = None
    profiles: Text | None = None
    pollux_models: Text | None = None
    generated: Generated | None = None
    single: Single | None = None
    jobs: Count | None = None
    every_nth: Count = 1
    original_profiles: Text | None = None
    deadline_durations: Positive | None = None
    sizes: Literal["powers-of-two", "profiled"] = "powers-of-two"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(part is not None for part in (self.file, self.generated, self.single)) != 1:
            raise ValueError("give exactly one of file, generated and single")
        if (self.file is None) != (self.format is None):
            raise ValueError("file and format go together")
        for path in self.paths:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"{path!r} must be a path below the folder of traces")
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """The files and folders that it needs, below the folder of traces."""
        return tuple(
            path
            for path in (self.file, self.profiles, self.original_profiles, self.pollux_models)
            if path is not None
        )


class Transient(UserModel):
    """A server that comes and goes: ``gpus`` of it, there and away by turns."""

    gpus: Annotated[int, Field(ge=1, le=1024)]
    present_seconds: Positive
    absent_seconds: Positive


class Cluster(UserModel):
    """The shape of a cluster."""

    servers: Annotated[int, Field(ge=1, le=10_000)]
    gpus_per_server: Annotated[int, Field(ge=1, le=1024)]
    transient: Transient | None = None

    @property
    def label(self) -> str:
        """What it is called in tables."""
        label = f"{self.servers} x {self.gpus_per_server}"
        if self.transient is not None:
            label += f" + {self.transient.gpus} for {self.transient.present_seconds:g} s"
        return label


class Workload(UserModel):
    """Jobs, and the clusters that they are sent to."""

    name: Identifier
    source: Source
    clusters: tuple[Cluster, ...] = Field(min_length=1, max_length=100)


class ResizeCost(UserModel):
    """What a change of a job's GPUs costs; ``none`` and ``modelled`` stand for themselves."""

    name: Identifier
    fixed_seconds: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    per_doubling_seconds: Annotated[float, Field(ge=0, le=1e6)] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: object) -> object:
        if given == "none":
            return {"name": "none"}
        if given == "modelled":
            return {"name": "modelled", **StopCost.modelled().model_dump(by_alias=True)}
        if isinstance(given, str):
            raise ValueError("is neither none nor modelled: give name and fixedSeconds")
        return given

    @property
    def stop_cost(self) -> StopCost:
        """The same as the cell is told it."""
        return StopCost(
            fixed_seconds=self.fixed_seconds, per_doubling_seconds=self.per_doubling_seconds
        )


class SizeClass(UserModel):
    """Jobs below so many GPU-seconds that belong to no class before; the last has no bound."""

    name: Identifier
    below_gpu_seconds: Positive | None = None


class Pick(UserModel):
    """Some runs of the grid: all that have the named values."""

    policy: PolicyName | None = None
    workload: Identifier | None = None
    cluster: Text | None = None
    resize_cost: Identifier | None = None


class Published(UserModel):
    """A number that was published, and which of ours stands beside it.

    Attributes:
        measure: The measure.
        job_class: The class of jobs; all jobs without.
        of: The runs that are compared; what is not named is every value that there is.
        over: The runs that they are divided by, as ``of`` but for what is named.
        what: What is compared, where the policies alone do not say it.
        mean_over_workloads: Compare the mean over all workloads that fit, not each.
        as_change: Write the quotient as a change in percent.
        value: The published number.
        least: The least of a published range.
        most: The most of a published range.
        source: Where it was published.
    """

    measure: str
    job_class: Identifier | None = None
    of: Pick
    over: Pick | None = None
    what: Text | None = None
    mean_over_workloads: bool = False
    as_change: bool = False
    value: float | None = None
    least: float | None = None
    most: float | None = None
    source: Text

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        if self.measure not in MEASURES:
            raise ValueError(f"there is no measure {self.measure!r}")
        bounded = self.least is not None or self.most is not None
        if bounded == (self.value is not None):
            raise ValueError("give a value, or least or most or both")
        if self.as_change and self.over is None:
            raise ValueError("asChange needs over")
        if self.over is not None and self.over.policy is None and self.what is None:
            raise ValueError("what is compared? Give over.policy or what")
        return self


class Chart(UserModel):
    """A measure drawn along policies (bars), clusters, workloads or hours (lines)."""

    measure: str
    along: Along = "policy"
    series: Literal["policy", "resizeCost"] = "policy"

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.along == "hours" and self.measure != "cluster_efficiency":
            raise ValueError("only cluster_efficiency is drawn along hours")
        return self


class Answers(UserModel):
    """What is asked: a figure or table of a paper."""

    paper: Text
    item: Text
    question: Text


class Specification(UserModel):
    """The body of a scenario file."""

    title: Text
    answers: Answers
    policies: tuple[PolicyName, ...] = Field(min_length=1, max_length=100)
    workloads: tuple[Workload, ...] = Field(min_length=1, max_length=100)
    seeds: tuple[Annotated[int, Field(ge=0, le=2**63 - 1)], ...] = Field((0,), min_length=1)
    resize_costs: tuple[ResizeCost, ...] = Field((ResizeCost(name="none"),), min_length=1)
    classes: tuple[SizeClass, ...] = ()
    measures: tuple[str, ...] = Field(min_length=1)
    charts: tuple[Chart, ...] = ()
    published: tuple[Published, ...] = ()
    claims: tuple[Text, ...] = ()
    differs: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in (*self.measures, *(chart.measure for chart in self.charts)):
            if name not in MEASURES:
                raise ValueError(f"there is no measure {name!r}; there are {', '.join(MEASURES)}")
        named: dict[str, tuple[str, ...]] = {
            "policies": self.policies,
            "workloads": tuple(workload.name for workload in self.workloads),
            "resizeCosts": tuple(cost.name for cost in self.resize_costs),
            "classes": tuple(each.name for each in self.classes),
            "seeds": tuple(map(str, self.seeds)),
        }
        for field, names in named.items():
            if len(dict.fromkeys(names)) != len(names):
                raise ValueError(f"{field} names one thing twice")
        self._check_classes()
        named["clusters"] = tuple(c.label for w in self.workloads for c in w.clusters)
        for number, entry in enumerate(self.published):
            picks = [("classes", entry.job_class)]
            for pick in (entry.of, entry.over or Pick()):
                picks += [("policies", pick.policy), ("workloads", pick.workload)]
                picks += [("clusters", pick.cluster), ("resizeCosts", pick.resize_cost)]
            for field, wanted in picks:
                if wanted is not None and wanted not in named[field]:
                    raise ValueError(
                        f"published.{number} names {wanted!r}, which is not among the {field}"
                    )
            if entry.job_class is not None and not MEASURES[entry.measure].of_jobs:
                raise ValueError(f"published.{number}: {entry.measure} is not by class")
        return self

    def _check_classes(self) -> None:
        bounds = [each.below_gpu_seconds for each in self.classes]
        if any(bound is None for bound in bounds[:-1]) or (bounds and bounds[-1] is not None):
            raise ValueError("classes: all but the last need belowGpuSeconds, the last has none")
        limits = [bound for bound in bounds if bound is not None]
        if limits != sorted(limits):
            raise ValueError("classes: belowGpuSeconds must increase")

    @property
    def job_classes(self) -> tuple[JobClass, ...]:
        """The classes with both their bounds."""
        found, least = [], 0.0
        for each in self.classes:
            most = math.inf if each.below_gpu_seconds is None else each.below_gpu_seconds
            found.append(JobClass(each.name, least, most))
            least = most
        return tuple(found)


class Metadata(UserModel):
    """What the scenario is called."""

    name: Identifier


class Evaluation(UserModel):
    """A scenario file."""

    api_version: Literal["resilin.dev/v1alpha1"]
    kind: Literal["Evaluation"]
    metadata: Metadata
    spec: Specification

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name


class _Loader(yaml.SafeLoader):
    """The safe loader, without aliases and without keys that occur twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # yaml's stubs
            raise yaml.composer.ComposerError(None, None, "aliases are not read", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 (yaml's signature)
        seen: list[object] = []
        for key, _ in node.value:
            name = key.value
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name!r} occurs twice", key.start_mark
                )
            seen.append(name)
        return super().construct_mapping(node, deep)


def shipped() -> Mapping[str, Path]:
    """Return the scenario files that come with Resilin, by name, in order."""
    folder = resources.files("resilin.evaluation") / "scenarios"
    with resources.as_file(folder) as place:
        return {path.stem: path for path in sorted(place.glob("*.yaml"), key=_natural)}


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort figure 9 before figure 10."""
    parts = re.split(r"(\d+)", path.stem)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def load(path: Path) -> Evaluation:
    """Read and check a scenario file.

    Raises:
        ScenarioError: If it cannot be used.
    """
    try:
        return Evaluation.model_validate(_content(path))
    except ValidationError as error:
        raise ScenarioError(f"{path}: {_first(error)}") from None


def _content(path: Path) -> object:
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    if len(data) > MOST_BYTES:
        raise ScenarioError(f"{path}: is larger than {MOST_BYTES} bytes, too large for a scenario")
    try:
        loader = _Loader(data.decode("utf-8"))
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: is not text in UTF-8; save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = str(path) if mark is None else f"{path}:{mark.line + 1}"
        raise ScenarioError(f"{place}: is no valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ScenarioError(f"{path}: is no valid YAML: {error}") from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "(the whole file)"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("missing", "extra_forbidden", "value_error"):
        return f"field {field!r}: {message}"
    shown = repr(first["input"])
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return f"field {field!r}: {message}, got {shown}"
