"""A multi-layer perceptron that learns a smooth function of eight variables.

The smallest example: a few seconds on one CPU core.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from resilin.elastic import ElasticJob, Loss

SAMPLES = 8_192
FEATURES = 8


def surface(inputs: Tensor) -> Tensor:
    """Return the function to learn: Friedman's first, and two variables that do not matter."""
    first, second, third, fourth, fifth = inputs.T[:5]
    wave = 10 * torch.sin(torch.pi * first * second)
    return (wave + 20 * (third - 0.5) ** 2 + 10 * fourth + 5 * fifth)[:, None] / 10


class Regression(ElasticJob):
    """Learns :func:`surface` from noisy samples."""

    def init_model(self) -> nn.Module:
        """Return three layers."""
        width = self.hp.get("width", 64)
        torch.manual_seed(self.hp.get("seed", 0))
        return nn.Sequential(
            nn.Linear(FEATURES, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def init_dataset(self) -> tuple[Tensor, Tensor]:
        """Return inputs in the unit cube and their noisy values."""
        chance = torch.Generator().manual_seed(7)
        inputs = torch.rand(SAMPLES, FEATURES, generator=chance)
        noise = 0.02 * torch.randn(SAMPLES, 1, generator=chance)
        return inputs, surface(inputs) + noise

    def init_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(model.parameters(), lr=self.hp.get("lr", 3e-3))

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        """Return the mean squared error of a batch."""
        inputs, targets = batch
        return Loss(nn.functional.mse_loss(model(inputs), targets), len(inputs))
