"""Gradient noise scales out of Pollux's model profiles: how they grow as a model trains.

Each row of a ``validation-<batch>.csv`` holds, at an epoch's end, the squared length of the
gradient and its variance, both for the model's smallest batch. The gradient noise scale is
that batch times the variance over the squared length. It differs little between the batches
that a model was trained with, compared with how much it grows, so the geometric mean over
them is taken at equal shares of the work.
"""

from __future__ import annotations

import math
from pathlib import Path

from resilin.workloads.csv_table import FilePath, read_table
from resilin.workloads.pollux_models import validated_batches

__all__ = ["read_gradient_noise"]

SHARES = 16
"""At so many shares of the work, equally far apart, the gradient noise scale is told."""

LEAST_SAMPLES, MOST_SAMPLES = 1e-3, 1e12


def read_gradient_noise(directory: FilePath) -> dict[str, tuple[tuple[float, float], ...]]:
    """Read (share of the work done, gradient noise scale in samples) for each model.

    Raises:
        WorkloadError: If a file cannot be used.
    """
    smallest: dict[str, int] = {}
    sums: dict[str, list[list[float]]] = {}
    for (model, batch), file in sorted(validated_batches(directory).items()):
        own = smallest.setdefault(model, batch)
        logarithms = sums.setdefault(model, [[] for _ in range(SHARES)])
        for position, noise in enumerate(_noise_of(file, own)):
            if noise is not None:
                logarithms[position].append(math.log(noise))
    found = {}
    for model, logarithms in sums.items():
        steps = [
            (position / SHARES, math.exp(sum(values) / len(values)))
            for position, values in enumerate(logarithms)
            if values
        ]
        if steps:
            # What the first epochs do not tell is taken to be as when it first is told.
            found[model] = ((0.0, steps[0][1]), *steps[1:])
    return found


def _noise_of(file: Path, batch: int) -> list[float | None]:
    """Return the noise scale at each share; None where there is none to tell."""
    table = read_table(file)
    table.require(("iteration",), layout="Pollux validation profile")
    if "grad_sqr" not in table.columns or "grad_var" not in table.columns:
        return [None] * SHARES  # the gradient was not watched in this training
    rows = [(row.whole("iteration"), row) for row in table.rows]
    total = rows[-1][0]
    noises: list[float | None] = []
    position = 0
    for number in range(SHARES):
        while rows[position][0] < total * number / SHARES:
            position += 1
        row = rows[position][1]
        squared, variance = row.number("grad_sqr"), row.number("grad_var")
        noise = batch * variance / squared if squared > 0 else math.inf
        noises.append(noise if LEAST_SAMPLES <= noise <= MOST_SAMPLES else None)
    return noises
