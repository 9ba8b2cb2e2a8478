"""A tiny job that really trains; workers load this file by its path."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from resilin.elastic import ElasticJob, Loss


class Tiny(ElasticJob):
    """A regression; ``pause`` seconds a batch, shared by the workers, make size worth having."""

    def init_model(self) -> nn.Module:
        return nn.Linear(4, 1)

    def init_dataset(self) -> tuple[Tensor, Tensor]:
        chance = torch.Generator().manual_seed(1)
        inputs = torch.randn(256, 4, generator=chance)
        return inputs, inputs.sum(1, keepdim=True)

    def init_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.05)

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        inputs, targets = batch
        time.sleep(self.hp.get("pause", 0.0) * len(inputs) / 64)
        return Loss(((model(inputs) - targets) ** 2).mean(), len(inputs))


class Learned(Tiny):
    """Has learned enough after its first epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.term_condition(max_iterations=3, metric="fit", at_least=0.0)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"fit": 1.0}


class Raises(Tiny):
    """Finds out in its first batch that it is wrong."""

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        raise ValueError("the data has no label 7")
