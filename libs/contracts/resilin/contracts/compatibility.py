"""Compatibility: does this version of the contracts still read what a released one wrote?

A change is compatible if everything that the released JSON Schema accepts is still
accepted and still means the same: fields and types may be added, never taken away or
narrowed. An event type may change freely under a higher version, once upcasters lead from
the released version to it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from resilin.contracts.upcasters import UPCASTERS

__all__ = ["Schema", "breaking_changes"]

Schema = dict[str, Any]
"""A JSON Schema document, or a part of one."""

# Lower bounds may only sink and upper bounds only rise.
_SIZES_AT_LEAST = ("minLength", "minItems", "minProperties")
_SIZES_AT_MOST = ("maxLength", "maxItems", "maxProperties")
# Compared as they stand: whether one pattern contains another is not for us to decide.
_UNCHANGEABLE = ("pattern", "format", "contentEncoding")


def breaking_changes(
    released: Schema, current: Schema, upcasters: Container[tuple[str, int]] = UPCASTERS
) -> list[str]:
    """Return what breaks between two documents of :mod:`resilin.contracts.schemas`.

    Args:
        released: A document as a released version generated it.
        current: The same document as it is generated now.
        upcasters: The (type, version) pairs from which an upcaster leads on.

    Returns:
        One sentence for each break, starting with its place; empty if all is compatible.
    """
    comparison = _Comparison(released, current)
    new_messages = dict(_messages(current))
    problems = list(comparison.narrowed(released, current, "document"))
    for name, old in _messages(released):
        new = new_messages.get(name)
        if new is None:
            problems.append(f"{name}: the type is gone")
            continue
        gap = _version_gap(name, old, new, upcasters)
        if gap is None:
            continue
        problems.extend(gap)
        problems.extend(
            f"{name}: {mark} was {old.get(mark)}, is {new.get(mark)}"
            for mark in ("x-writer", "x-nature")
            if old.get(mark) != new.get(mark)
        )
        problems.extend(comparison.narrowed(old, new, name))
    return problems


def _messages(document: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the commands or events of a document: what is told apart by its type."""
    for definition in document.get("$defs", {}).values():
        name = _message_name(definition)
        if name is not None:
            yield name, definition


def _message_name(schema: Schema) -> str | None:
    properties = schema.get("properties", {})
    name = properties.get("type", {}).get("const")
    return name if isinstance(name, str) and "version" in properties else None


def _version_gap(
    name: str, old: Schema, new: Schema, upcasters: Container[tuple[str, int]]
) -> list[str] | None:
    """Say what is wrong with a type's version; None if it grew and upcasters lead to it."""
    released, current = (schema["properties"]["version"].get("default", 1) for schema in (old, new))
    if current == released:
        return []
    if current < released:
        return [f"{name}: version {released} went back to {current}"]
    missing = [step for step in range(released, current) if (name, step) not in upcasters]
    if missing:
        return [f"{name}: no upcaster from version {step} to {step + 1}" for step in missing]
    return None


class _Comparison:
    """Walks two documents side by side, each with its own references."""

    def __init__(self, released: Schema, current: Schema) -> None:
        self._released = released
        self._current = current
        self._compared: set[tuple[int, int]] = set()

    def narrowed(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        """Yield where ``new`` refuses what ``old`` accepts, or reads it differently."""
        if "default" in old and not path.endswith(".version"):
            was, now = old["default"], new.get("default")
            if not _still_says(was, now):
                yield f"{path}: its default was {was!r}, is {now!r}"
        old, new = _resolved(old, self._released), _resolved(new, self._current)
        if (id(old), id(new)) in self._compared:
            return
        self._compared.add((id(old), id(new)))
        old_choices, new_choices = _choices(old), _choices(new)
        if len(old_choices) == len(new_choices) == 1:
            yield from self._narrowed_one(old_choices[0], new_choices[0], path)
            return
        for old_choice in old_choices:
            if _message_name(_resolved(old_choice, self._released)) is not None:
                continue  # a command or event, compared under its own name
            if not any(self._accepts(old_choice, choice, path) for choice in new_choices):
                yield f"{path}: no longer takes {_brief(old_choice)}"

    def _accepts(self, old: Schema, new: Schema, path: str) -> bool:
        # A comparison of its own: what it visits in vain must not count as compared.
        trial = _Comparison(self._released, self._current)
        return not list(trial.narrowed(old, new, path))

    def _narrowed_one(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        yield from _narrowed_type(old, new, path)
        yield from _narrowed_bounds(old, new, path)
        yield from self._narrowed_object(old, new, path)
        yield from self._narrowed_array(old, new, path)

    def _narrowed_object(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
        for name, field in old_fields.items():
            if name in new_fields:
                yield from self.narrowed(field, new_fields[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}: the field was removed"
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                yield f"{path}.{name}: the field is now required"
        yield from self._narrowed_rest(old, new, "additionalProperties", f"{path}.*")
        yield from self._narrowed_rest(old, new, "propertyNames", f"{path}.(names)")

    def _narrowed_array(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        yield from self._narrowed_rest(old, new, "items", f"{path}[]")
        old_items, new_items = old.get("prefixItems", ()), new.get("prefixItems", ())
        if len(old_items) != len(new_items):
            yield f"{path}: had {len(old_items)} places, has {len(new_items)}"
        for place, (old_item, new_item) in enumerate(zip(old_items, new_items, strict=False)):
            yield from self.narrowed(old_item, new_item, f"{path}[{place}]")

    def _narrowed_rest(self, old: Schema, new: Schema, key: str, path: str) -> Iterator[str]:
        """Compare what holds for every further field or item: a schema, or yes or no."""
        old_rest, new_rest = old.get(key, True), new.get(key, True)
        if new_rest is True or old_rest is False:
            return
        if isinstance(old_rest, dict) and isinstance(new_rest, dict):
            yield from self.narrowed(old_rest, new_rest, path)
        else:
            yield f"{path}: {key} is now restricted"


def _still_says(old: object, new: object) -> bool:
    """Whether a default is what it was, but for fields that its object gained."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in new and _still_says(value, new[name]) for name, value in old.items())
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return all(_still_says(*pair) for pair in zip(old, new, strict=True))
    return old == new


def _resolved(schema: Schema, document: Schema) -> Schema:
    while "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    return schema


def _choices(schema: Schema) -> list[Schema]:
    choices: list[Schema] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return choices


def _brief(schema: Schema) -> str:
    return str(schema.get("$ref") or schema.get("const") or schema.get("type") or "a choice")


def _narrowed_type(old: Schema, new: Schema, path: str) -> Iterator[str]:
    if "type" in new and new["type"] != old.get("type"):
        widened = old.get("type") == "integer" and new["type"] == "number"
        if not widened:
            yield f"{path}: its type was {old.get('type', 'any')}, is {new['type']}"
    old_values, new_values = _values(old), _values(new)
    if new_values is not None:
        if old_values is None:
            yield f"{path}: is now one of {new_values}"
        else:
            for value in old_values:
                if value not in new_values:
                    yield f"{path}: the value {value!r} was removed"


def _values(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values: list[Any] | None = schema.get("enum")
    return values


def _narrowed_bounds(old: Schema, new: Schema, path: str) -> Iterator[str]:
    if _lower_bound(new) > _lower_bound(old):
        yield f"{path}: its lower bound rose"
    if _upper_bound(new) > _upper_bound(old):
        yield f"{path}: its upper bound sank"
    for size in _SIZES_AT_LEAST:
        if new.get(size, 0) > old.get(size, 0):
            yield f"{path}: {size} was {old.get(size, 0)}, is {new[size]}"
    for size in _SIZES_AT_MOST:
        if new.get(size, float("inf")) < old.get(size, float("inf")):
            yield f"{path}: {size} was {old.get(size, 'unlimited')}, is {new[size]}"
    for key in _UNCHANGEABLE:
        if key in new and new[key] != old.get(key):
            yield f"{path}: {key} was {old.get(key)!r}, is {new[key]!r}"


def _lower_bound(schema: Schema) -> tuple[float, bool]:
    """Return a lower bound and whether it is itself excluded; a larger pair is stricter."""
    inclusive = (schema.get("minimum", float("-inf")), False)
    exclusive = (schema.get("exclusiveMinimum", float("-inf")), True)
    return max(inclusive, exclusive) if "exclusiveMinimum" in schema else inclusive


def _upper_bound(schema: Schema) -> tuple[float, bool]:
    """Return an upper bound, negated, like :func:`_lower_bound`."""
    inclusive = (-schema.get("maximum", float("inf")), False)
    exclusive = (-schema.get("exclusiveMaximum", float("inf")), True)
    return max(inclusive, exclusive) if "exclusiveMaximum" in schema else inclusive
