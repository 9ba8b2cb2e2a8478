from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from resilin.planning.throughput_model import (
    A100_SERVERS,
    MODEL_COSTS,
    Interconnect,
    iteration_seconds,
    predicted_curve,
)
from resilin.workloads import PACKED, SINGLE_SERVER, SPREAD, CurveBook, built_in_curves

PAIRS = [(model, batch) for model, costs in MODEL_COSTS.items() for batch in costs.global_batches]


def seconds(model: str, batch: int, workers: int, workers_per_server: int = 8) -> float:
    return iteration_seconds(
        MODEL_COSTS[model],
        A100_SERVERS,
        global_batch=batch,
        workers=workers,
        workers_per_server=workers_per_server,
    )


def test_the_formula_by_hand() -> None:
    costs = replace(
        MODEL_COSTS["bert"],
        parameters=1e9,
        fixed_seconds=0.5,
        seconds_per_sample=0.25,
        synchronisation_seconds=0.125,
    )
    network = Interconnect(4, 16e9, 2e9, 1e9)

    def time(workers: int, workers_per_server: int) -> float:
        return iteration_seconds(
            costs,
            network,
            global_batch=8,
            workers=workers,
            workers_per_server=workers_per_server,
        )

    assert time(1, 4) == pytest.approx(0.5 + 8 * 0.25)
    # On one server 4e9 bytes take 2 x 3/4 x 4e9 / 16e9 = 0.375 s, half of it hidden.
    assert time(4, 4) == pytest.approx(0.5 + 2 * 0.25 + 0.375 / 2 + 2 * 0.125)
    # Two full servers: 2 x 7/8 x 4e9 / 2e9 = 3.5 s, and only 2/3 x 0.25 s to hide behind.
    assert time(8, 4) == pytest.approx(0.5 + 0.25 + 3.5 - 0.25 * 2 / 3 + 3 * 0.125)
    # One worker a server: twice as long.
    assert time(8, 1) == pytest.approx(0.5 + 0.25 + 7.0 - 0.25 * 2 / 3 + 3 * 0.125)
    # Two of four a server: half way between 1e9 and 2e9, geometrically.
    assert network.bytes_per_second(8, 2) == pytest.approx(2**0.5 * 1e9)
    # A last server with fewer workers is the slowest link.
    assert network.bytes_per_second(5, 4) == 1e9
    assert network.bytes_per_second(6, 4) == pytest.approx(2**0.5 * 1e9)


@pytest.mark.parametrize(("model", "batch"), PAIRS)
def test_it_behaves_as_hardware_does(model: str, batch: int) -> None:
    assert seconds(model, batch, 1, 1) == seconds(model, batch, 1, 8)
    for workers in (2, 4, 8, 16, 32):
        packed, halves = seconds(model, batch, workers, 8), seconds(model, batch, workers, 4)
        assert packed < halves if workers > 4 else packed == halves
        assert seconds(model, batch, workers, 4) < seconds(model, batch, workers, 1)
        # Never faster than linear, never faster than without any communication.
        assert seconds(model, batch, workers) > seconds(model, batch, 1) / workers
        assert seconds(model, batch, workers) > MODEL_COSTS[model].fixed_seconds
    assert seconds(model, 2 * batch, 8) > seconds(model, batch, 8)


def test_two_published_points() -> None:
    # ElasticFlow §3.2, figure 2: efficiency 76.07 % of VGG16, batch 256, on 8 GPUs.
    efficiency = seconds("vgg16", 256, 1) / seconds("vgg16", 256, 8) / 8
    assert efficiency == pytest.approx(0.7607, rel=0.05)
    # ... and ResNet50, batch 256: one server 2.17 times as fast as 8 servers.
    penalty = seconds("resnet50", 256, 8, 1) / seconds("resnet50", 256, 8)
    assert penalty == pytest.approx(2.17, rel=0.01)


def test_the_model_is_near_the_a100_profiles(a100_curves: CurveBook) -> None:
    predicted = built_in_curves()
    errors = [
        abs(curve.rate(workers) / rate - 1)
        for key, curve in predicted.items()
        for workers, rate in zip(
            a100_curves[key].workers, a100_curves[key].iterations_per_second, strict=True
        )
    ]
    print(  # noqa: T201  the figure is the point of this test
        f"{len(errors)} points, median error {statistics.median(errors):.4f}, "
        f"largest {max(errors):.4f}"
    )
    assert len(errors) == 97
    assert statistics.median(errors) < 0.025
    assert max(errors) < 0.13


@pytest.mark.parametrize("workers", [0, -1, 65])
def test_a_worker_needs_a_sample(workers: int) -> None:
    with pytest.raises(ValueError, match="between 1 and the global batch of 64"):
        seconds("bert", 64, workers)


@pytest.mark.parametrize("workers_per_server", [0, 9])
def test_a_packing_must_fit_a_server(workers_per_server: int) -> None:
    with pytest.raises(ValueError, match="between 1 and the 8 GPUs"):
        seconds("bert", 64, 2, workers_per_server)


def test_a_network_needs_bandwidth() -> None:
    for change in (
        {"gpus_per_server": 0},
        {"intra_server_bytes_per_second": 0.0},
        {"inter_server_bytes_per_second": float("inf")},
        {"lone_worker_bytes_per_second": float("nan")},
    ):
        with pytest.raises(ValueError, match="above 0"):
            replace(A100_SERVERS, **change)


def test_counts_above_the_batch_are_left_out() -> None:
    curve = predicted_curve(
        MODEL_COSTS["deepspeech2"],
        A100_SERVERS,
        global_batch=32,
        worker_counts=(1, 64, 32),
        workers_per_server=8,
    )
    assert curve.workers == (1, 32)
    with pytest.raises(ValueError, match="throughput curve"):
        predicted_curve(
            MODEL_COSTS["bert"],
            A100_SERVERS,
            global_batch=32,
            worker_counts=(64,),
            workers_per_server=8,
        )


def test_the_built_in_book() -> None:
    book = built_in_curves()
    assert list(book) == sorted(PAIRS)
    assert book["bert", 64].workers == (1, 2, 4, 8, 16, 32, 64)
    assert book["deepspeech2", 32].workers == (1, 2, 4, 8, 16, 32)
    for model, batch in book:
        assert book.localities(model, batch) == (PACKED, SINGLE_SERVER, SPREAD)
        single = book.at_locality(model, batch, SINGLE_SERVER)
        packed, spread = book[model, batch], book.at_locality(model, batch, SPREAD)
        assert single.workers == (1, 2, 4, 8)
        assert all(single.rate(workers) == packed.rate(workers) for workers in single.workers)
        assert spread.rate(1) == packed.rate(1)
        assert all(spread.rate(count) < packed.rate(count) for count in packed.workers[1:])


def test_the_built_in_book_follows_its_arguments() -> None:
    book = built_in_curves(most_workers=12, gpus_per_server=4)
    assert book["bert", 64].workers == (1, 2, 4, 8)
    assert book.at_locality("bert", 64, SINGLE_SERVER).workers == (1, 2, 4)
    assert book["bert", 64].rate(4) == built_in_curves()["bert", 64].rate(4)
    assert book["bert", 64].rate(8) < built_in_curves()["bert", 64].rate(8)
    alone = built_in_curves(gpus_per_server=1)
    assert alone["bert", 64].rate(8) == alone.at_locality("bert", 64, SPREAD).rate(8)
    for wrong in ((0, 8), (64, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            built_in_curves(*wrong)
