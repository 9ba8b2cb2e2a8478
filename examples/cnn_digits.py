"""A convolutional network that reads digits; the images are drawn, not downloaded.

Every image is a digit of seven segments, shifted, with strokes of varying strength and noise.
Well under a minute on one CPU core until it reads 98 of 100.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from resilin.elastic import ElasticJob, Loss

SIZE = 16
# Which of the segments (top, upper left, upper right, middle, lower left, lower right,
# bottom) each digit lights.
SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)
# Where the segments are in a box of 11 by 7: rows from, to; columns from, to.
STROKES = (
    (0, 1, 1, 6),
    (1, 5, 0, 1),
    (1, 5, 6, 7),
    (5, 6, 1, 6),
    (6, 10, 0, 1),
    (6, 10, 6, 7),
    (10, 11, 1, 6),
)


def draw(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images of digits (count, 1, 16, 16), and which digits they are."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=chance)
    images = 0.12 * torch.randn(count, 1, SIZE, SIZE, generator=chance)
    shifts = torch.randint(0, 5, (count, 2), generator=chance)
    strengths = 0.5 + 0.5 * torch.rand(count, len(STROKES), generator=chance)
    for image, label, shift, strength in zip(images, labels, shifts, strengths, strict=True):
        down, right = shift.tolist()
        for lit, stroke, value in zip(SEGMENTS[label], STROKES, strength, strict=True):
            if lit == "1":
                top, bottom, left, end = stroke
                image[0, down + top : down + bottom, right + left : right + end] += value
    return images, labels


class Digits(ElasticJob):
    """Reads drawn digits; ends early once it reads enough of unseen ones."""

    def __init__(self) -> None:
        super().__init__()
        self.set_hyperparameter(bs=128, lr=0.05)
        self.term_condition(max_epochs=20, metric="accuracy", at_least=0.98)
        self.set_deadline("10m")

    def init_model(self) -> nn.Module:
        """Return two convolutions with group normalisation, and a linear layer."""
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (SIZE // 4) ** 2, 10),
        )

    def init_dataset(self) -> tuple[Tensor, Tensor]:
        """Return the images to learn from."""
        self.unseen = draw(1_000, seed=1)
        return draw(12_000, seed=0)

    def init_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(model.parameters(), lr=self.hp.lr, momentum=0.9)

    def train(self, batch: tuple[Tensor, Tensor], model: nn.Module) -> Loss:
        """Return the mean cross-entropy of a batch."""
        images, labels = batch
        return Loss(nn.functional.cross_entropy(model(images), labels), len(labels))

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return how many unseen digits are read right."""
        images, labels = self.unseen
        device = next(model.parameters()).device
        read = model(images.to(device)).argmax(1).cpu()
        return {"accuracy": (read == labels).float().mean().item()}
