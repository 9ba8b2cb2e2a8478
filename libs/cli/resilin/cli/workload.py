"""What a simulation runs: the options that name it, and the commands they come to.

Everything is read and checked here, before anything runs or is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from pydantic import ValidationError

from resilin.cli.errors import InputError
from resilin.contracts.values import StopCost
from resilin.planning.policies.registry import POLICIES
from resilin.simulation.cluster import FailureModel, Physics
from resilin.simulation.scenario import Cluster, configuration, opening_commands, submissions
from resilin.simulation.simulation import TimedCommand
from resilin.workloads import (
    PRESETS,
    TRACE_FORMATS,
    CurveBook,
    Trace,
    TraceFormat,
    TraceJob,
    WorkloadError,
    built_in_curves,
    generate_trace,
    read_gradient_noise,
    read_profiles,
    read_trace,
)
from resilin.workloads.csv_table import read_table

__all__ = [
    "PATH",
    "POLICY_NAMES",
    "CellOptions",
    "Workload",
    "WorkloadOptions",
    "cell_options",
    "stop_cost",
    "workload_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])

POLICY_NAMES = tuple(POLICIES)

# Files are opened by the readers, which say more about what is wrong than an option could.
PATH = click.Path(path_type=Path)

MOST_GPUS = 1_000_000
SECONDS_PER_HOUR = 3_600.0
DEFAULT_PRESET = "one-day-128-gpus"


def stop_cost(name: str) -> StopCost:
    """Return the stop cost that ``--resize-cost`` names."""
    return StopCost.modelled() if name == "modelled" else StopCost()


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse ``nan``, which click's own ranges let through."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no finite number", ctx, param)
    return value


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


cell_options = _together(
    click.option(
        "--profiles",
        type=PATH,
        help="Folder or file of throughput profiles.  [default: built-in curves]",
    ),
    click.option(
        "--servers",
        type=click.IntRange(1, 10_000),
        default=16,
        show_default=True,
        help="Servers of the cluster.",
    ),
    click.option(
        "--gpus-per-server",
        type=click.IntRange(1, 1024),
        default=8,
        show_default=True,
        help="GPUs in each.",
    ),
    click.option(
        "--servers-per-rack",
        type=click.IntRange(0, 10_000),
        default=0,
        show_default=True,
        help="Servers in each rack; 0 puts all into one.",
    ),
    click.option(
        "--reserve-servers",
        type=click.IntRange(0, 10_000),
        default=0,
        show_default=True,
        help="Servers that may fail at once without breaking a promise.",
    ),
    click.option(
        "--resize-cost",
        type=click.Choice(["none", "modelled"]),
        default="modelled",
        show_default=True,
        help="Seconds a job stands still when its GPUs change: none, or 2 + 2 (log2(n) + 1).",
    ),
)
"""The options that describe an empty cell, passed on as :class:`CellOptions`."""

workload_options = _together(
    click.option(
        "--trace",
        type=PATH,
        help="Job trace, plain or gzip.  [default: a generated one]",
    ),
    click.option(
        "--trace-format", type=click.Choice(TRACE_FORMATS), help="Its format.  [default: csv]"
    ),
    click.option(
        "--pollux-models", type=PATH, help="Pollux's folder of models, for that trace format."
    ),
    click.option(
        "--preset",
        type=click.Choice(list(PRESETS)),
        help=f"Which trace to generate where none is given.  [default: {DEFAULT_PRESET}]",
    ),
    click.option(
        "--jobs",
        type=click.IntRange(1, 1_000_000),
        help="Run only the first so many jobs of the trace; generate so many.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**63 - 1),
        default=0,
        show_default=True,
        help="Seed of everything random.",
    ),
    click.option(
        "--throughput-noise",
        type=click.FloatRange(0, 2),
        callback=_finite,
        default=0.0,
        show_default=True,
        help="Standard deviation of the logarithm of true over believed throughput.",
    ),
    click.option(
        # A node that fails more often than it can checkpoint would never finish anything.
        "--node-mtbf-hours",
        type=click.FloatRange(1, 1e6),
        callback=_finite,
        help="Mean time between failures of one node.  [default: nodes do not fail]",
    ),
)
"""The options that describe jobs and a world to run them in, as :class:`WorkloadOptions`."""


@dataclass(frozen=True, slots=True)
class CellOptions:
    """A cell's shape and settings, as the options give them."""

    profiles: Path | None
    servers: int
    gpus_per_server: int
    servers_per_rack: int
    reserve_servers: int
    resize_cost: str

    @classmethod
    def take(cls, options: dict[str, Any]) -> CellOptions:
        """Take these options out of a command's, and check what no option can by itself."""
        taken = cls(**{name: options.pop(name) for name in cls.__dataclass_fields__})
        if taken.servers * taken.gpus_per_server > MOST_GPUS:
            raise click.BadParameter(
                f"{taken.servers} x {taken.gpus_per_server} GPUs are more than {MOST_GPUS}",
                param_hint="'--servers'",
            )
        if taken.reserve_servers >= taken.servers:
            raise click.BadParameter(
                f"a reserve of {taken.reserve_servers} of {taken.servers} servers leaves nothing"
                " to promise",
                param_hint="'--reserve-servers'",
            )
        return taken

    @property
    def cluster(self) -> Cluster:
        """The cluster's shape."""
        return Cluster(self.servers, self.gpus_per_server, self.servers_per_rack)

    def curves(self) -> CurveBook:
        """Read the profiles, or predict them.

        Raises:
            WorkloadError: If a profile cannot be used.
        """
        if self.profiles is None:
            return built_in_curves(gpus_per_server=self.gpus_per_server)
        return read_profiles(self.profiles)

    def opening(self, policy: str, curves: CurveBook, at_seconds: float) -> list[TimedCommand]:
        """Return the commands that set the cell up.

        Raises:
            InputError: If a model has a name that no command may carry.
        """
        settings = configuration(
            policy, stop_cost(self.resize_cost), reserve_servers=self.reserve_servers
        )
        try:
            return opening_commands(at_seconds, self.cluster, settings, curves)
        except ValidationError as error:
            raise InputError(f"{curves.source}: {_first(error)}") from None

    def described(self) -> dict[str, Any]:
        """Return the options for an answer."""
        return {
            "servers": self.servers,
            "gpus_per_server": self.gpus_per_server,
            "servers_per_rack": self.servers_per_rack,
            "reserve_servers": self.reserve_servers,
            "resize_cost": self.resize_cost,
        }


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Jobs and the world they run in, as the options give them."""

    trace: Path | None
    trace_format: TraceFormat | None
    pollux_models: Path | None
    preset: str | None
    jobs: int | None
    seed: int
    throughput_noise: float
    node_mtbf_hours: float | None

    @classmethod
    def take(cls, options: dict[str, Any]) -> WorkloadOptions:
        """Take these options out of a command's, and check what no option can by itself."""
        taken = cls(**{name: options.pop(name) for name in cls.__dataclass_fields__})
        if taken.trace is None and taken.trace_format is not None:
            raise click.UsageError("--trace-format goes with --trace, which is missing")
        if taken.trace is not None and taken.preset is not None:
            raise click.UsageError("--preset generates a trace: leave it or --trace out")
        if taken.pollux_models is not None and taken.trace_format != "pollux":
            raise click.UsageError("--pollux-models goes with --trace-format pollux only")
        return taken

    def read(self, curves: CurveBook) -> Trace:
        """Read or generate the trace; it has at least one job.

        Raises:
            WorkloadError: If the trace cannot be used.
        """
        if self.trace is None:
            return self._generated(curves)
        return read_trace(
            self.trace,
            self.trace_format or "csv",
            curves=curves,
            seed=self.seed,
            pollux_models=self.pollux_models,
            limit=self.jobs,
        )

    def _generated(self, curves: CurveBook) -> Trace:
        name = self.preset or DEFAULT_PRESET
        preset = PRESETS[name]
        trace = generate_trace(
            jobs=self.jobs or preset.jobs,
            seed=self.seed,
            curves=curves,
            mean_interarrival_seconds=preset.mean_interarrival_seconds,
            cluster_gpus=preset.cluster_gpus,
            load=preset.load,
        )
        return replace(trace, name=f"{name}-seed-{self.seed}")

    def physics(self, cost: StopCost) -> Physics:
        """Return how the simulated world behaves."""
        failures = None
        if self.node_mtbf_hours is not None:
            failures = FailureModel(self.node_mtbf_hours * SECONDS_PER_HOUR)
        return Physics(
            stop_cost=cost,
            throughput_noise=self.throughput_noise,
            failures=failures,
            seed=self.seed,
            gradient_noise=(
                {} if self.pollux_models is None else read_gradient_noise(self.pollux_models)
            ),
        )

    def described(self) -> dict[str, Any]:
        """Return the options for an answer."""
        return {
            "seed": self.seed,
            "throughput_noise": self.throughput_noise,
            "node_mtbf_hours": self.node_mtbf_hours,
        }


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace, the cell it is sent to and the world they live in.

    Attributes:
        trace: The jobs.
        curves: Their throughput.
        cell: The cell's shape and settings.
        options: The world, and where the jobs came from.
        submissions: A command for each job.
    """

    trace: Trace
    curves: CurveBook
    cell: CellOptions
    options: WorkloadOptions
    submissions: Sequence[TimedCommand]

    @classmethod
    def of(cls, options: dict[str, Any]) -> Workload:
        """Take a command's options and read everything that they name.

        Raises:
            click.UsageError: If options contradict each other.
            InputError: If a job or model has a name that no command may carry.
            WorkloadError: If a file cannot be used.
        """
        cell, world = CellOptions.take(options), WorkloadOptions.take(options)
        curves = cell.curves()
        trace = world.read(curves)
        commands = [_submission(job, world.trace) for job in trace.jobs]
        return cls(trace, curves, cell, world, commands)

    @property
    def physics(self) -> Physics:
        """How the simulated world behaves."""
        return self.options.physics(stop_cost(self.cell.resize_cost))

    def commands(self, policy: str) -> list[TimedCommand]:
        """Return all commands of a run, in order of time."""
        opening = self.cell.opening(policy, self.curves, self.submissions[0].at_seconds)
        return [*opening, *self.submissions]

    @property
    def title(self) -> str:
        """What runs where, in a few words."""
        cell = self.cell
        return f"{self.trace.name} on {cell.servers} x {cell.gpus_per_server} GPUs"

    def described(self) -> dict[str, Any]:
        """Return what was run, for an answer."""
        return {
            "trace": self.trace.name,
            "jobs": len(self.trace.jobs),
            "curves": self.curves.source,
            **self.cell.described(),
            **self.options.described(),
            "left_out": [
                {"reason": skip.reason, "count": skip.count} for skip in self.trace.skipped
            ],
        }


def _submission(job: TraceJob, file: Path | None) -> TimedCommand:
    try:
        return submissions([job])[0]
    except ValidationError as error:
        line = None if file is None else _line_of(file, job.job_id)
        what = f"job {job.job_id!r}: {_first(error)}"
        raise WorkloadError(str(file), what, line=line) from None


def _line_of(file: Path, job_id: str) -> int | None:
    """Find the line of a job again: a trace's jobs do not remember theirs."""
    table = read_table(file)
    for row in table.rows:
        if any(row.text(column) == job_id for column in table.columns):
            return row.line
    return None


def _first(error: ValidationError) -> str:
    first = cast("Mapping[str, Any]", error.errors(include_url=False)[0])
    field = ".".join(str(part) for part in first["loc"])
    shown = repr(first["input"])
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return f"field {field!r}: {first['msg']}, got {shown}"
