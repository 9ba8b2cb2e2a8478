"""Tiny jobs for the tests of the worker runtime; workers load this file by its path."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from resilin.elastic import ElasticJob, Loss, context

SAMPLES = 480


def data() -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 6, generator=chance, dtype=torch.float64)
    return inputs, inputs.sin().sum(1, keepdim=True)


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)).double()


def loss_of(batch: tuple[Tensor, Tensor], net: nn.Module) -> Tensor:
    inputs, targets = batch
    return ((net(inputs) - targets) ** 2).mean()


class Regression(ElasticJob):
    """A regression in float64; ``pause`` seconds a batch keep it from ending too soon."""

    def init_model(self) -> nn.Module:
        return model()

    def init_dataset(self) -> tuple[Tensor, Tensor]:
        return data()

    def init_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.hp.get("lr", 0.05), momentum=0.9)

    def init_schedule(self, optimizer: torch.optim.Optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=40, gamma=0.7)

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        time.sleep(self.hp.get("pause", 0.0))
        return Loss(loss_of(batch, model), len(batch[0]))


class AdamRegression(Regression):
    """The same with an optimizer that has more state."""

    def init_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def init_schedule(self, optimizer: torch.optim.Optimizer):
        return None


class Raises(Regression):
    """Raises once it has trained for a while."""

    calls = 0

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        self.calls += 1
        if self.calls > 20:
            raise ValueError("the labels are wrong")
        return super().train(batch, model)


class GoodEnough(Regression):
    """Ends by itself, once its metric is good enough."""

    def __init__(self) -> None:
        super().__init__()
        self.term_condition(metric="accuracy", at_least=0.5)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"accuracy": 1.0 - float(loss_of(data(), model))}


def loop() -> None:
    """The same training as a loop, as an existing script would have it."""
    ctx = context()
    net = model().to(ctx.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    ctx.prepare(net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.7))
    dataset = torch.utils.data.TensorDataset(*data())
    for batch in ctx.shards(dataset):
        optimizer.zero_grad(set_to_none=True)  # a habit of such scripts
        time.sleep(ctx.hp.get("pause", 0.0))
        ctx.backward(loss_of(batch, net), len(batch[0]))
        ctx.end_minibatch()
