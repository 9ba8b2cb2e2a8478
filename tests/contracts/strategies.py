"""Hypothesis strategies for every model of the contracts, read off the models' fields."""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from resilin.contracts.commands import COMMAND_TYPES
from resilin.contracts.events import EVENT_TYPES, UnknownEvent
from resilin.contracts.job_specification import (
    DeadlinePolicy,
    Elastic,
    TrainingSpecification,
    WorkerSpecification,
    Workload,
)
from resilin.contracts.record import Record
from resilin.contracts.values import CellConfiguration

identifiers = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,12}", fullmatch=True)
deadlines = st.sampled_from(["90m", "1d12h", "0.5s", "2026-01-31T18:00:00Z", "2026-01-31T18:00+01"])


@st.composite
def elastics(draw: st.DrawFn) -> Elastic:
    if draw(st.booleans()):
        listed = draw(st.sets(st.integers(1, 1_000_000), min_size=1, max_size=5))
        return Elastic(allowed_replicas=tuple(sorted(listed)))
    fewest = draw(st.integers(1, 500_000))
    most = draw(st.none() | st.integers(2 * fewest, 1_000_000))
    return Elastic(min_replicas=fewest, max_replicas=most)


@st.composite
def trainings(draw: st.DrawFn) -> TrainingSpecification:
    deadline = draw(st.none() | deadlines)
    policies = (
        [None, DeadlinePolicy.BEST_EFFORT]
        if deadline is None
        else [None, DeadlinePolicy.GUARANTEED, DeadlinePolicy.SOFT]
    )
    return TrainingSpecification(
        model=draw(identifiers),
        global_batch=draw(st.integers(1, 10**9)),
        workload=draw(
            st.builds(Workload, total_iterations=st.integers(1, 10**15))
            | st.builds(Workload, total_samples=st.integers(1, 10**18))
        ),
        deadline=deadline,
        deadline_policy=draw(st.sampled_from(policies)),
        elastic=draw(elastics()),
        migratable=draw(st.booleans()),
        worker=draw(st.none() | models(WorkerSpecification)),
        max_failures=draw(st.integers(0, 1_000_000)),
    )


def models(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Any valid object of a model; some models have rules between their fields."""
    if model is Elastic:
        return elastics()
    if model is TrainingSpecification:
        return trainings()
    fields = {name: _values(info.annotation, info.metadata) for name, info in _fields(model)}
    if model is CellConfiguration:
        fields["virtual_clusters"] = st.lists(
            _values(get_args(CellConfiguration.model_fields["virtual_clusters"].annotation)[0], []),
            max_size=3,
            unique_by=lambda cluster: cluster.name,
        ).map(tuple)
    # Not `builds`: it would guess the fields' aliases as well.
    return st.fixed_dictionaries(fields).map(lambda values: model(**values))


def _fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    # The version says which code wrote an object; it is not free.
    return [(name, info) for name, info in model.model_fields.items() if name != "version"]


def _values(kind: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _values(arguments[0], [*metadata, *_flat(arguments[1:])])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([_values(argument, metadata) for argument in arguments])
    if origin is tuple:
        return _tuples(arguments, _limits(metadata))
    if origin is dict:
        limits = _limits(metadata)
        return st.dictionaries(
            _values(arguments[0], []),
            _values(arguments[1], []),
            min_size=limits.get("min_length", 0),
            max_size=limits.get("min_length", 0) + 2,
        )
    return _scalars(kind, _limits(metadata))


def _tuples(arguments: tuple[Any, ...], limits: dict[str, Any]) -> st.SearchStrategy[Any]:
    if arguments[-1] is Ellipsis:
        fewest = limits.get("min_length", 0)
        return st.lists(_values(arguments[0], []), min_size=fewest, max_size=fewest + 2).map(tuple)
    return st.tuples(*[_values(argument, []) for argument in arguments])


def _scalars(kind: Any, limits: dict[str, Any]) -> st.SearchStrategy[Any]:
    if kind is NoneType:
        return st.none()
    if kind is bool:
        return st.booleans()
    if kind is int:
        lowest = limits.get("ge", -(2**70))
        return st.integers(lowest, limits.get("le", 2**70))
    if kind is float:
        return st.floats(
            min_value=limits.get("ge", limits.get("gt")),
            max_value=limits.get("le"),
            exclude_min="gt" in limits,
            allow_nan=False,
            allow_infinity=False,
        )
    if kind is str:
        return _texts(limits)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return models(kind)
    raise TypeError(f"no strategy for {kind!r}: teach it to this module")


def _texts(limits: dict[str, Any]) -> st.SearchStrategy[str]:
    if "pattern" not in limits:
        return st.text(
            min_size=limits.get("min_length", 0), max_size=min(20, limits.get("max_length", 20))
        )
    pattern = limits["pattern"].removeprefix("^").removesuffix("$")
    return st.from_regex(pattern, fullmatch=True).filter(
        lambda text: len(text) <= limits.get("max_length", 200)
    )


def _flat(metadata: tuple[Any, ...]) -> list[Any]:
    return [
        part
        for item in metadata
        for part in (item.metadata if isinstance(item, FieldInfo) else [item])
    ]


def _limits(metadata: list[Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern"):
            value = getattr(item, name, None)
            if value is not None:
                limits[name] = value
    return limits


commands = st.one_of([models(kind) for kind in COMMAND_TYPES])
events = st.one_of([models(kind) for kind in EVENT_TYPES])

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def unknown_events(draw: st.DrawFn) -> UnknownEvent:
    name = "Future" + draw(identifiers)
    version = draw(st.integers(1, 9))
    extra = draw(st.dictionaries(st.text(max_size=8), plain_values, max_size=4))
    content = {**extra, "type": name, "version": version}
    return UnknownEvent(type=name, version=version, content=content)


records = st.builds(
    Record,
    service=identifiers,
    cell=identifiers,
    epoch=st.integers(0, 2**63),
    basis=st.integers(-1, 2**63),
    nature=st.sampled_from(["facts", "decision", "claim"]),
    timestamp=st.floats(allow_nan=False, allow_infinity=False),
    events=st.lists(events | unknown_events(), min_size=1, max_size=3).map(tuple),
)
