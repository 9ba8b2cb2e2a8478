"""The architecture as tests: who may import whom, and what no core may touch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from resilin.contracts.events import EVENT_TYPES
from resilin.contracts.topics import SERVICES
from resilin.simulation.simulation import deciders

ROOT = Path(__file__).parents[1]

# What each package of `resilin` may import of `resilin` beside itself. Arrows point down:
# whoever stands above may import from below, never the other way round.
MAY_IMPORT: dict[str, set[str]] = {
    # Events, commands and records: what crosses process boundaries. Everybody's common ground.
    "contracts": set(),
    # The papers' algorithms: numbers in, numbers out. They know of no event and no log.
    "planning": set(),
    # Deciders, fencing and hosts: what a service is, whatever it decides.
    "kernel": {"contracts"},
    # The port of the log and the logs behind it: where records go, whatever they mean.
    "eventlog": {"contracts"},
    # Traces and throughput curves from files: they become commands only in a scenario.
    "workloads": {"planning"},
    # The fold that services share. It translates between events and planning's numbers, and
    # its invariants read the log as the kernel's fence does.
    "cell": {"contracts", "kernel", "planning"},
    # The seven services: cores between the cell and planning. Never one another: the log is
    # their only wire.
    "admission": {"contracts", "kernel", "cell", "planning"},
    "allocator": {"contracts", "kernel", "cell", "planning"},
    "placement": {"contracts", "kernel", "cell", "planning"},
    "loan_manager": {"contracts", "kernel", "cell", "planning"},
    "metric_collector": {"contracts", "kernel", "cell", "planning"},
    "stability_detector": {"contracts", "kernel", "cell", "planning"},
    "executor": {"contracts", "kernel", "cell", "planning"},
    # Reads logs. Of the services it knows the two that a dry run asks; verify is handed cores.
    "audit": {"contracts", "kernel", "cell", "admission", "allocator"},
    # Folds a log into figures and pages; knows no service.
    "report": {"contracts", "kernel", "cell"},
    # A runner: the one place where all services come together. Its faults are checked by the
    # audit, and its scenarios are made of workloads.
    "simulation": {
        "contracts",
        "kernel",
        "eventlog",
        "cell",
        "planning",
        "workloads",
        "audit",
        "admission",
        "allocator",
        "placement",
        "loan_manager",
        "metric_collector",
        "stability_detector",
        "executor",
    },
    # A grid of simulations beside the papers' figures.
    "evaluation": {"contracts", "eventlog", "planning", "workloads", "simulation", "report"},
    # Runs one service instance, whichever it is handed: it knows no service. Its metrics are a
    # fold of the cell.
    "runtime": {"contracts", "kernel", "eventlog", "cell", "planning"},
    # Rows for people and dashboards, from the log.
    "archive": {"contracts", "kernel", "cell", "runtime"},
    # What trains: the leader and the workers of one job. It knows no service and no log.
    "elastic": {"contracts"},
    # Starts and watches what trains on one node, as the executor says.
    "agent": {"contracts", "cell", "elastic", "executor"},
    # A runner: all services in one process.
    "embedded": {
        "contracts",
        "eventlog",
        "kernel",
        "runtime",
        "agent",
        "simulation",
        "admission",
        "allocator",
        "placement",
        "loan_manager",
        "metric_collector",
        "stability_detector",
        "executor",
    },
    # The command line stands above everything but the services it has no command for.
    "cli": {
        "contracts",
        "kernel",
        "eventlog",
        "cell",
        "planning",
        "workloads",
        "audit",
        "report",
        "simulation",
        "admission",
        "allocator",
        "executor",
        "agent",
        "elastic",
        "embedded",
        "evaluation",
    },
}

# A service's shell hands its core to a runner: it may import what the core must not.
SHELLS = {"__main__", "shell"}
SHELLS_MAY_IMPORT = {"eventlog", "runtime", "archive", "simulation", "agent"}

# What each package may import from outside the standard library. Others: nothing.
THIRD_PARTY: dict[str, set[str]] = {
    "contracts": {"pydantic", "pydantic_core"},  # the models are the schema
    "kernel": {"pydantic"},  # writes and reads snapshots of any state
    "eventlog": {"aiokafka"},  # the log on Kafka, an optional extra
    "admission": {"pydantic"},  # says what is wrong with a message that is no command
    "planning": {"numpy", "scipy"},  # the linear program of the bound, an optional extra
    "report": {"matplotlib"},  # PNG plots, an optional extra
    "archive": {"asyncpg"},  # rows in PostgreSQL, an optional extra
    "runtime": {
        "aiohttp",
        "aiokafka",
        "faust",  # telemetry only
        "prometheus_client",
        "pydantic",
        "pydantic_settings",
        "structlog",
    },
    "embedded": {"prometheus_client"},
    "evaluation": {"matplotlib", "pydantic", "yaml"},  # scenario files; PNG plots, an extra
    "elastic": {"numpy", "pydantic", "torch"},  # only its worker side imports torch
    "cli": {"click", "pydantic", "rich", "yaml"},
}

SERVICE_PACKAGES = {service.replace("-", "_") for service in SERVICES}

# Packages whose every module is a pure function of what it is given.
CORES = SERVICE_PACKAGES | {"contracts", "kernel", "planning", "cell"}

# Modules through which the world would come in: clocks, chance, files, processes, the net.
OUTSIDE_WORLD = {
    "asyncio",
    "concurrent",
    "ctypes",
    "glob",
    "http",
    "io",
    "locale",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "platform",
    "queue",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}

# The modules that are no cores although their package is: they write published schemas and
# the topic catalogue's files when a developer runs them.
WRITES_FILES = {
    ("contracts", "schemas"): {"pathlib", "sys"},
    ("contracts", "topic_files"): {"pathlib", "sys"},
}

# The clock, asked through the types that a core does need.
CLOCK_METHODS = {"now", "utcnow", "today"}

# Built-ins that differ from process to process, or that run what they are given.
FORBIDDEN_IN_CORES = {"hash", "input", "open", "print", "globals", "locals"}
FORBIDDEN_EVERYWHERE = {"eval", "exec", "compile", "__import__", "breakpoint"}

UNSAFE_MODULES = {"cPickle", "dill", "marshal", "pickle", "shelve"}
UNSAFE_YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}


class Module:
    """One source file: its package, its name in it, and its syntax tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        inside = path.parts[path.parts.index("resilin") + 1 :]
        self.package = inside[0]
        self.name = ".".join(inside[1:]).removesuffix(".py")
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    def imports(self) -> Iterator[tuple[int, str]]:
        """Yield the line and the full name of everything imported, wherever it stands."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=names):
                    yield from ((node.lineno, alias.name) for alias in names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield node.lineno, module
                case ast.ImportFrom():
                    yield node.lineno, f"resilin.{self.package}"  # relative: its own package
                case ast.Call(args=[ast.Constant(value=str(name))]) if _is_import(node):
                    yield node.lineno, name

    def calls(self) -> Iterator[tuple[int, str, str]]:
        """Yield the line, the owner (or nothing) and the name of everything called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                match node.func:
                    case ast.Name(id=name):
                        yield node.lineno, "", name
                    case ast.Attribute(value=ast.Name(id=owner), attr=name):
                        yield node.lineno, owner, name
                    case ast.Attribute(attr=name):
                        yield node.lineno, "?", name


def _is_import(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("import_module", "__import__")


@cache
def modules() -> tuple[Module, ...]:
    sources = [*ROOT.glob("libs/*/resilin/*/**/*.py"), *ROOT.glob("services/*/resilin/*/**/*.py")]
    return tuple(Module(path) for path in sorted(sources))


def is_shell(module: Module) -> bool:
    return module.package in SERVICE_PACKAGES and module.name in SHELLS


def in_cores() -> Iterator[Module]:
    return (module for module in modules() if module.package in CORES and not is_shell(module))


def may_import(module: Module) -> set[str]:
    extra = SHELLS_MAY_IMPORT if is_shell(module) else set()
    return MAY_IMPORT[module.package] | {module.package} | extra


# --- who imports whom ----------------------------------------------------------------------


def test_every_package_is_in_the_table() -> None:
    assert {module.package for module in modules()} == set(MAY_IMPORT)


def test_the_table_has_no_circle() -> None:
    left = {package: set(below) for package, below in MAY_IMPORT.items()}
    while left:
        lowest = {package for package, below in left.items() if not below & left.keys()}
        assert lowest, f"these import each other in a circle: {sorted(left)}"
        for package in lowest:
            del left[package]


def test_packages_import_only_what_lies_below_them() -> None:
    wrong = [
        f"{module}:{line}: {module.package} must not import {name}"
        for module in modules()
        for line, name in module.imports()
        if name.split(".")[0] == "resilin" and name.split(".")[1] not in may_import(module)
    ]
    assert wrong == []


def test_nothing_is_allowed_that_nobody_does() -> None:
    """An arrow in the table that no import needs is an invitation; the services' are alike."""
    used: dict[str, set[str]] = {package: set() for package in MAY_IMPORT}
    for module in modules():
        for _, name in module.imports():
            if name.startswith("resilin."):
                used[module.package].add(name.split(".")[1])
    for package, below in MAY_IMPORT.items():
        if package not in SERVICE_PACKAGES:
            assert below <= used[package], f"{package} does not need {below - used[package]}"


def test_services_never_import_one_another() -> None:
    for package in SERVICE_PACKAGES:
        assert not MAY_IMPORT[package] & SERVICE_PACKAGES


def test_third_party_packages_stay_where_they_belong() -> None:
    wrong = [
        f"{module}:{line}: {module.package} must not import {name}"
        for module in modules()
        for line, name in module.imports()
        if (root := name.split(".")[0]) != "resilin"
        and root not in sys.stdlib_module_names
        and root not in THIRD_PARTY.get(module.package, set())
    ]
    assert wrong == []


def test_nothing_that_is_shipped_imports_tests_or_benchmarks() -> None:
    for module in modules():
        for line, name in module.imports():
            assert name.split(".")[0] not in ("tests", "benchmarks"), f"{module}:{line}"


# --- what no core may touch ----------------------------------------------------------------


def test_cores_do_not_touch_the_outside_world() -> None:
    wrong = [
        f"{module}:{line}: a core must not import {name}"
        for module in in_cores()
        for line, name in module.imports()
        if (root := name.split(".")[0]) in OUTSIDE_WORLD
        and root not in WRITES_FILES.get((module.package, module.name), set())
    ]
    assert wrong == []


def test_cores_never_ask_the_clock() -> None:
    wrong = [
        f"{module}:{line}: a core must not call {owner}.{name}()"
        for module in in_cores()
        for line, owner, name in module.calls()
        if owner and name in CLOCK_METHODS
    ]
    assert wrong == []


def test_cores_call_nothing_that_differs_from_process_to_process() -> None:
    wrong = [
        f"{module}:{line}: a core must not call {name}()"
        for module in in_cores()
        for line, owner, name in module.calls()
        if not owner and name in FORBIDDEN_IN_CORES
    ]
    assert wrong == []


def test_nobody_runs_what_is_given_as_data() -> None:
    wrong = [
        f"{module}:{line}: {name}() runs what it is given"
        for module in modules()
        for line, owner, name in module.calls()
        if not owner and name in FORBIDDEN_EVERYWHERE
    ]
    wrong += [
        f"{module}:{line}: {name} runs what it reads"
        for module in modules()
        for line, name in module.imports()
        if name.split(".")[0] in UNSAFE_MODULES
    ]
    wrong += [
        f"{module}:{line}: yaml.{name} may build any object: use a safe loader"
        for module in modules()
        for line, owner, name in module.calls()
        if owner == "yaml" and name in UNSAFE_YAML
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time", "time"),
        ("from resilin.placement.decider import x", "resilin.placement.decider"),
        ("def f():\n    import os.path", "os.path"),
        ("importlib.import_module('pickle')", "pickle"),
        ("if TYPE_CHECKING:\n    from asyncio import Task", "asyncio"),
    ],
)
def test_imports_are_found_wherever_they_stand(code: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "resilin" / "cell" / "sub" / "m.py"
    path.parent.mkdir(parents=True)
    path.write_text(code)
    module = Module(path)
    assert (module.package, module.name) == ("cell", "sub.m")
    assert [name for _, name in module.imports()] == [found]


# --- what there must be --------------------------------------------------------------------


def test_every_service_has_a_folder_a_package_and_a_core() -> None:
    assert set(SERVICES) == {
        "admission",
        "allocator",
        "placement",
        "loan-manager",
        "metric-collector",
        "stability-detector",
        "executor",
    }
    folders = {path.name for path in (ROOT / "services").iterdir() if (path / "resilin").is_dir()}
    assert folders == set(SERVICES)
    for service in SERVICES:
        package = ROOT / "services" / service / "resilin" / service.replace("-", "_")
        assert (package / "decider.py").is_file()
    assert {core.service for core in deciders()} == set(SERVICES)


def test_every_service_writes_events_and_every_event_has_a_service() -> None:
    writers = {event.writer for event in EVENT_TYPES}
    assert writers == {*SERVICES, "*"}


def test_every_package_says_what_it_is_for() -> None:
    packages = [module for module in modules() if module.path.name == "__init__.py"]
    for module in packages:
        said = ast.get_docstring(module.tree)
        assert said, f"{module} has no docstring"
    assert {module.package for module in packages} == set(MAY_IMPORT)


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(module) for module in modules() if not ast.get_docstring(module.tree)]
    assert silent == []


def test_the_namespace_belongs_to_nobody() -> None:
    """``resilin`` is spread over several roots: a file in it would hide all but one."""
    assert [*ROOT.glob("*/*/resilin/*.py")] == []


def test_every_root_is_built_and_importable() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for root in [*(ROOT / "libs").iterdir(), *(ROOT / "services").iterdir()]:
        if (root / "resilin").is_dir():
            name = root.relative_to(ROOT).as_posix()
            assert settings.count(f'"{name}/resilin"') == 1, f"{name} is not in the wheel"
            assert settings.count(f'"{name}"') >= 2, f"{name} is not on the paths"
