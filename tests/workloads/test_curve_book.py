from __future__ import annotations

import pytest

from resilin.planning.curves import ThroughputCurve
from resilin.workloads import PACKED, SPREAD, CurveBook

SLOW = ThroughputCurve((1, 2), (1.0, 1.5))
FAST = ThroughputCurve((1, 2, 4), (2.0, 3.0, 2.5))
CURVES = {
    ("vgg", 128, PACKED): FAST,
    ("bert", 64, SPREAD): SLOW,
    ("bert", 128, PACKED): SLOW,
    ("bert", 64, PACKED): FAST,
}


def test_it_maps_model_and_batch_to_the_packed_curve_in_a_fixed_order() -> None:
    book = CurveBook("here", CURVES)
    assert list(book) == [("bert", 64), ("bert", 128), ("vgg", 128)]
    assert list(CurveBook("here", dict(reversed(CURVES.items())))) == list(book)
    assert book["bert", 64] is FAST
    assert book.get(("bert", 32)) is None
    assert len(book) == 3
    assert book.source == "here"
    assert "bert, vgg" in repr(book)


def test_it_lists_models_batches_and_localities() -> None:
    book = CurveBook("here", CURVES)
    assert book.models == ("bert", "vgg")
    assert book.global_batches("bert") == (64, 128)
    assert book.global_batches("gpt") == ()
    assert book.localities("bert", 64) == (PACKED, SPREAD)
    assert book.localities("bert", 128) == (PACKED,)
    assert book.at_locality("bert", 64, SPREAD) is SLOW
    with pytest.raises(KeyError):
        book.at_locality("vgg", 128, SPREAD)


def test_it_can_be_restricted_to_some_models() -> None:
    book = CurveBook("here", CURVES).restricted_to(["bert", "unknown"])
    assert book.models == ("bert",)
    assert book.at_locality("bert", 64, SPREAD) is SLOW
    with pytest.raises(ValueError, match="no throughput curve"):
        book.restricted_to(["unknown"])


def test_an_entry_without_the_packed_locality_is_refused() -> None:
    with pytest.raises(ValueError, match="none for 'packed'"):
        CurveBook("here", {("bert", 64, SPREAD): SLOW})
