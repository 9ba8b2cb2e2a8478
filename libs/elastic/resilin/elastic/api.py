"""What a user writes: a job for one device that knows nothing of workers.

The names are those of ElasticFlow (§5, Table 1)::

    class Digits(ElasticJob):
        def init_model(self): return Net()
        def init_dataset(self): return images, labels
        def init_optimizer(self, model): return SGD(model.parameters(), lr=self.hp.lr)
        def train(self, batch, model):
            images, labels = batch
            return Loss(cross_entropy(model(images), labels), len(labels))

The runtime owns the rest: ``backward``, the reduction, ``step``, ``zero_grad``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from resilin.elastic.sync import Schedule

__all__ = ["ElasticJob", "EndCondition", "Hyperparameters", "Loss"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Loss:
    """What one call of :meth:`ElasticJob.train` found.

    Attributes:
        mean: The mean loss, to be differentiated.
        count: Over how many samples (or tokens) it is a mean: its weight.
    """

    mean: Tensor
    count: int


class Hyperparameters:
    """Named values: ``hp.bs``, ``hp.lr`` and whatever else the job was given."""

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 (the user's values)
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (the user's values)
        raise AttributeError(f"the job has no hyperparameter {name!r}: set_hyperparameter({name}=)")

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 (the user's values)
        """Return a value, or a default if it was not set."""
        return self.__dict__.get(name, default)


@dataclass(slots=True)
class EndCondition:
    """When a job has done its work: whatever is met first.

    Attributes:
        max_iterations: After so many iterations.
        max_epochs: After so many epochs.
        loss_at_most: Once the mean loss of a global batch is this small.
        metric: A name that ``evaluate`` returns, asked after each epoch.
        at_least: The value of the metric that is enough.
    """

    max_iterations: int | None = None
    max_epochs: int | None = None
    loss_at_most: float | None = None
    metric: str | None = None
    at_least: float | None = None

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return any(
            value is not None
            for value in (self.max_iterations, self.max_epochs, self.loss_at_most, self.metric)
        )


@dataclass(slots=True)
class _Settings:
    """What the fluent setters have set."""

    hyperparameters: dict[str, Any] = field(default_factory=dict)
    end: EndCondition = field(default_factory=EndCondition)
    deadline_seconds: float | None = None


class ElasticJob:
    """A training job: subclass it, and name the class as the job's entry point."""

    def __init__(self) -> None:
        self.settings = _Settings()

    @property
    def hp(self) -> Hyperparameters:
        """The hyperparameters."""
        return Hyperparameters(**self.settings.hyperparameters)

    # --- what a job defines ----------------------------------------------------------------

    def init_model(self) -> nn.Module:
        """Return the model to train."""
        raise NotImplementedError("define init_model()")

    def init_dataset(self) -> Any:  # noqa: ANN401 (tensors, tuples of tensors, or map-style)
        """Return the dataset: a tensor, a tuple of tensors, or an object with a length and
        samples by index."""  # noqa: D205,D209 (one sentence)
        raise NotImplementedError("define init_dataset()")

    def init_optimizer(self, model: nn.Module) -> Optimizer:
        """Return the optimizer."""
        raise NotImplementedError("define init_optimizer(model)")

    def train(self, batch: Any, model: nn.Module) -> Loss:  # noqa: ANN401 (the dataset's)
        """Return the loss of a batch: of any size, as it comes."""
        raise NotImplementedError("define train(batch, model)")

    def init_schedule(self, optimizer: Optimizer) -> Schedule | None:  # noqa: ARG002 (to override)
        """Return a learning-rate schedule that goes on once an iteration, if there is one."""
        return None

    def evaluate(self, model: nn.Module) -> dict[str, float]:  # noqa: ARG002 (to override)
        """Return metrics, after each epoch, on one of the workers."""
        return {}

    collate: Any = None
    """Makes a batch of a list of samples; by default as PyTorch does."""

    # --- how a job is set up ---------------------------------------------------------------

    def set_hyperparameter(
        self,
        bs: int | None = None,
        lr: float | None = None,
        **others: Any,  # noqa: ANN401 (the user's values)
    ) -> Self:
        """Set the global batch, the learning rate and others; what a job file says goes first."""
        named = {"bs": bs, "lr": lr} | others
        self.settings.hyperparameters |= {k: v for k, v in named.items() if v is not None}
        return self

    def term_condition(
        self,
        max_iterations: int | None = None,
        max_epochs: int | None = None,
        *,
        loss_at_most: float | None = None,
        metric: str | None = None,
        at_least: float | None = None,
    ) -> Self:
        """Set when the job has done its work."""
        if (metric is None) != (at_least is None):
            raise ValueError("metric= and at_least= belong together")
        self.settings.end = EndCondition(max_iterations, max_epochs, loss_at_most, metric, at_least)
        return self

    def set_deadline(self, deadline: str | float) -> Self:
        """Set by when the job is wanted: seconds, or such as ``"90s"``, ``"10m"``, ``"2h"``."""
        if isinstance(deadline, str):
            match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", deadline.strip())
            if match is None:
                raise ValueError(f"not a deadline: {deadline!r}; write 90s, 10m, 2h or 1d")
            deadline = float(match[1]) * _UNITS[match[2]]
        if deadline <= 0:
            raise ValueError("a deadline is in the future")
        self.settings.deadline_seconds = float(deadline)
        return self
