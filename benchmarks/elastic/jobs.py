"""The jobs that are trained: a small network, a large one, and one as small as can be."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.elastic.stopwatch import start_stopwatch
from resilin.elastic import ElasticJob, Loss

__all__ = [
    "REGRESSION_SAMPLES",
    "LargeMlp",
    "Loading",
    "Paced",
    "Regression",
    "SmallCnn",
    "cnn",
    "mlp",
    "regression",
    "regression_data",
    "regression_loss",
]

start_stopwatch()

CLASSES = 10
MLP_INPUTS = 1024
MLP_WIDTH = 4096
REGRESSION_SAMPLES = 480
FORK_EVERY = 20


def cnn() -> nn.Module:
    """Return a convolutional network of about 0.16 million parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.GroupNorm(8, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.GroupNorm(8, 64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1024, 136),
            nn.ReLU(),
            nn.Linear(136, CLASSES),
        )


def mlp(width: int = MLP_WIDTH) -> nn.Module:
    """Return a perceptron; of the default width it has about 22 million parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(MLP_INPUTS, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 200),
            nn.ReLU(),
            nn.Linear(200, CLASSES),
        )


def labelled(samples: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Return inputs of chance, and labels that follow from them."""
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, *shape, generator=chance)
    labels = (inputs.flatten(1)[:, :7].sum(1) * 3).long().remainder(CLASSES)
    return inputs, labels


class SmallCnn(ElasticJob):
    """The small network."""

    def init_model(self) -> nn.Module:
        """Return the network."""
        return cnn()

    def init_dataset(self) -> tuple[Tensor, Tensor]:
        """Return images."""
        return labelled(2048, 3, 16, 16)

    def init_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        """Return the mean cross-entropy of a batch."""
        inputs, labels = batch
        return Loss(nn.functional.cross_entropy(model(inputs), labels), len(labels))


class LargeMlp(SmallCnn):
    """The large network: what a change has to hand over is 175 MB with the momentum."""

    def init_model(self) -> nn.Module:
        """Return the network."""
        return mlp(self.hp.get("width", MLP_WIDTH))

    def init_dataset(self) -> tuple[Tensor, Tensor]:
        """Return vectors."""
        return labelled(2048, MLP_INPUTS)


class Loading(SmallCnn):
    """The small network beside a data loader: a forked child that holds every socket open."""

    calls = 0

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        """Return the mean cross-entropy of a batch; fork a loader anew from time to time.

        A child holds the connections that there were when it was forked.
        """
        self.calls += 1
        if self.calls % FORK_EVERY == 0:
            loader: DataLoader[Any] = DataLoader(torch.zeros(10_000), num_workers=1)  # type: ignore[arg-type]  # (a tensor is indexed as a dataset is)
            self.loaded = iter(loader)
        return super().train(batch, model)


# --- as small as can be, in float64 --------------------------------------------------------


def regression_data() -> tuple[Tensor, Tensor]:
    """Return the data of the regression."""
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(REGRESSION_SAMPLES, 6, generator=chance, dtype=torch.float64)
    return inputs, inputs.sin().sum(1, keepdim=True)


def regression() -> nn.Module:
    """Return the model of the regression."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)).double()


def regression_loss(batch: tuple[Tensor, Tensor], model: nn.Module) -> Tensor:
    """Return the mean square error of a batch."""
    inputs, targets = batch
    return ((model(inputs) - targets) ** 2).mean()


class Regression(ElasticJob):
    """A regression in float64; ``pause`` seconds a minibatch."""

    def init_model(self) -> nn.Module:
        """Return the model."""
        return regression()

    def init_dataset(self) -> tuple[Tensor, Tensor]:
        """Return the data."""
        return regression_data()

    def init_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def init_schedule(self, optimizer: torch.optim.Optimizer) -> Any:  # noqa: ANN401 (PyTorch's)
        """Return a rate that falls in steps."""
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=40, gamma=0.9)

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        """Return the mean square error of a batch."""
        time.sleep(self.hp.get("pause", 0.0))
        return Loss(regression_loss(batch, model), len(batch[0]))


class Paced(Regression):
    """The regression at a pace; the worker that claims the file ``slow`` first is slower."""

    def init_model(self) -> nn.Module:
        """Return the model; claim to be the slow one."""
        self.pace = self.hp.get("pause", 0.0)
        if claim := self.hp.get("slow"):
            try:
                Path(claim).open("x", encoding="utf-8").close()
            except FileExistsError:
                pass
            else:
                self.pace *= self.hp.get("slower")
        return super().init_model()

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        """Return the mean square error of a batch."""
        time.sleep(self.pace)
        return Loss(regression_loss(batch, model), len(batch[0]))
