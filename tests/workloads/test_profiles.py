from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from resilin.workloads import CurveBook, read_profiles


def test_elasticflow_layout(tmp_path: Path) -> None:
    (tmp_path / "bert.csv").write_text(
        "global_batch_size,1,2,4,8\n128,1.5,2.5,2.0,nan\n64,NaN,3.5,0,\n"
    )
    (tmp_path / "README.md").write_text("not a profile")
    (tmp_path / "vgg.csv.gz").write_bytes(gzip.compress(b"global_batch_size,4,1\r\n32,8,3\r\n"))
    book = read_profiles(tmp_path)
    assert list(book) == [("bert", 64), ("bert", 128), ("vgg", 32)]
    # Raw: the fall after the peak stays in.
    assert book["bert", 128].workers == (1, 2, 4)
    assert book["bert", 128].iterations_per_second == (1.5, 2.5, 2.0)
    assert book["bert", 64].workers == (2,)
    assert book["vgg", 32].workers == (1, 4)
    assert book["vgg", 32].rate(4) == 8.0
    assert book.source == str(tmp_path)


def test_plain_layout_with_and_without_locality(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text(
        "model,global_batch,workers,iterations_per_second\nnet,64,2,1.5\nnet,64,1,1\n"
    )
    with_locality = tmp_path / "local.csv"
    with_locality.write_text(
        "locality,model,global_batch,workers,iterations_per_second\n"
        ",other,32,1,4\npacked,other,32,2,6\nspread,other,32,2,3\n"
    )
    book = read_profiles(tmp_path)
    assert book["net", 64].iterations_per_second == (1.0, 1.5)
    assert book["other", 32].workers == (1, 2)
    assert book.at_locality("other", 32, "spread").rate(2) == 3.0
    assert book.localities("other", 32) == ("packed", "spread")
    assert read_profiles(with_locality).models == ("other",)


def test_pollux_models_are_told_by_their_folders(pollux_models: Path) -> None:
    book = read_profiles(pollux_models)
    assert list(book) == [("cifar10", 128), ("cifar10", 256)]


def rates(book: CurveBook, batch: int) -> dict[int, float]:
    curve = book["cifar10", batch]
    return dict(zip(curve.workers, curve.iterations_per_second, strict=True))


def test_pollux_rates_by_hand(pollux_models: Path) -> None:
    book = read_profiles(pollux_models)
    # 128 samples: 4 workers train on 32 each, 2 on 64, 1 on two accumulated parts of 64.
    # 8 and 24 workers would have 16 and 6, below all that was measured; so would 6.
    assert rates(book, 128) == pytest.approx({1: 1 / (0.19 + 0.20), 2: 1 / 0.22, 4: 1 / 0.14})
    # 256 samples: 8 workers have 32 (the placement 44 goes before the other file's two servers),
    # 6 have 43, in two parts of 22: too few for one measured local batch.
    assert rates(book, 256) == pytest.approx(
        {1: 1 / (3 * 0.19 + 0.20), 2: 1 / (0.20 + 0.22), 4: 1 / 0.24, 8: 1 / 0.20}
    )


def test_pollux_interpolates_and_takes_the_tightest_packing_only(
    tmp_path: Path,
) -> None:
    model = tmp_path / "net"
    model.mkdir()
    (model / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n2,40,0.4,0\n2,60,0.8,0\n11,50,9,0\n"
    )
    (model / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n5,20,5,0.5,0\n6,20,5,0.9,0\n"
    )
    (model / "validation-100.csv.gz").write_bytes(gzip.compress(b"iteration\n5\n"))
    curve = read_profiles(tmp_path)["net", 100]
    assert curve.workers == (2, 20)
    assert curve.iterations_per_second == pytest.approx((1 / 0.6, 1 / 0.5))
