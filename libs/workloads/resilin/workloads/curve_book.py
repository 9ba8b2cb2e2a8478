"""A book of throughput curves: what is known about each model, global batch and locality."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from resilin.planning.curves import ThroughputCurve

__all__ = ["PACKED", "SINGLE_SERVER", "SPREAD", "CurveBook"]

PACKED = "packed"
"""Workers on as few servers as possible: the locality meant where none is named."""

SINGLE_SERVER = "single-server"
"""All workers on one server."""

SPREAD = "spread"
"""Every worker alone on its server."""


class CurveBook(Mapping[tuple[str, int], ThroughputCurve]):
    """Throughput curves by model and global batch, and for some by locality.

    As a mapping it gives the curve of the packed locality, the one that every entry has:
    ``book["resnet50", 256]``. Iteration is in order of model, then global batch, whatever
    order the curves came in. Curves are as measured or predicted: a planner cuts them at
    their peak itself.

    Attributes:
        source: Where the curves come from, for reports: a path, or the name of a model.

    Raises:
        ValueError: If there is no curve, or a model and batch lack the packed locality.
    """

    __slots__ = ("_by_locality", "_packed", "source")

    def __init__(self, source: str, curves: Mapping[tuple[str, int, str], ThroughputCurve]) -> None:
        if not curves:
            raise ValueError(f"{source} has no throughput curve")
        self.source = source
        self._by_locality = {key: curves[key] for key in sorted(curves)}
        self._packed = {
            (model, batch): curve
            for (model, batch, locality), curve in self._by_locality.items()
            if locality == PACKED
        }
        for model, batch, locality in self._by_locality:
            if (model, batch) not in self._packed:
                raise ValueError(
                    f"{source} has a curve of {model!r} with global batch {batch} for locality "
                    f"{locality!r} but none for {PACKED!r}"
                )

    def __getitem__(self, key: tuple[str, int]) -> ThroughputCurve:
        return self._packed[key]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __repr__(self) -> str:
        return f"CurveBook({self.source!r}, {len(self)} curves of {', '.join(self.models)})"

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of all models, sorted."""
        return tuple(dict.fromkeys(model for model, _ in self._packed))

    def global_batches(self, model: str) -> tuple[int, ...]:
        """Return the global batches known for a model, increasing; empty if there is none."""
        return tuple(batch for known, batch in self._packed if known == model)

    def localities(self, model: str, global_batch: int) -> tuple[str, ...]:
        """Return the localities with a curve of their own, sorted; empty if there is none."""
        return tuple(
            locality
            for known, batch, locality in self._by_locality
            if (known, batch) == (model, global_batch)
        )

    def at_locality(self, model: str, global_batch: int, locality: str) -> ThroughputCurve:
        """Return the curve for a locality.

        Raises:
            KeyError: If there is none.
        """
        return self._by_locality[model, global_batch, locality]

    def restricted_to(self, models: Collection[str]) -> CurveBook:
        """Return a book of the named models only, with the same source.

        Raises:
            ValueError: If none of them is in the book.
        """
        return CurveBook(
            self.source,
            {key: curve for key, curve in self._by_locality.items() if key[0] in models},
        )
