"""The curve book that needs no download: predicted by the built-in throughput model."""

from __future__ import annotations

from dataclasses import replace

from resilin.planning.curves import powers_of_two
from resilin.planning.throughput_model import A100_SERVERS, MODEL_COSTS, predicted_curve
from resilin.workloads.curve_book import PACKED, SINGLE_SERVER, SPREAD, CurveBook

__all__ = ["built_in_curves"]


def built_in_curves(most_workers: int = 64, gpus_per_server: int = 8) -> CurveBook:
    """Return curves for the models and batches of ElasticFlow's evaluation (table 2).

    Each has three localities: packed, single-server (counts up to a server's GPUs; the same
    rates) and spread (one worker a server), at powers of two up to ``most_workers`` and the
    global batch. Servers are those of :data:`resilin.planning.throughput_model.A100_SERVERS`,
    with as many GPUs as named but the same network.

    Raises:
        ValueError: If a number is below 1.
    """
    if most_workers < 1 or gpus_per_server < 1:
        raise ValueError(
            f"most workers and GPUs per server must be at least 1, got {most_workers} and "
            f"{gpus_per_server}"
        )
    interconnect = replace(A100_SERVERS, gpus_per_server=gpus_per_server)
    filled = {
        PACKED: (most_workers, gpus_per_server),
        SINGLE_SERVER: (min(most_workers, gpus_per_server), gpus_per_server),
        SPREAD: (most_workers, 1),
    }
    return CurveBook(
        f"built-in model of A100 servers with {gpus_per_server} GPUs",
        {
            (model, batch, locality): predicted_curve(
                costs,
                interconnect,
                global_batch=batch,
                worker_counts=powers_of_two(most),
                workers_per_server=workers_per_server,
            )
            for model, costs in MODEL_COSTS.items()
            for batch in costs.global_batches
            for locality, (most, workers_per_server) in filled.items()
        },
    )
