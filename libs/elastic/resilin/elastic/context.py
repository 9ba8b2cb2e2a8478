"""The loop-style interface: an existing training script with three calls changed.

Amoeba's Table 1 (``elastic_shard_generator`` and ``notify_end_of_minibatch``)::

    def main():
        ctx = context()
        model = Net().to(ctx.device)
        optimizer = SGD(model.parameters(), lr=0.1)
        ctx.prepare(model, optimizer)
        for images, labels in ctx.shards(dataset):
            loss = cross_entropy(model(images), labels)
            ctx.backward(loss, len(labels))
            ctx.end_minibatch()

Named as the entry point (``train.py:main``) it runs in every worker. The loop never ends for a
worker: its process ends inside it, when the job is done or the worker is to leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from resilin.elastic.api import EndCondition, Hyperparameters

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from resilin.elastic.runtime import Runtime
    from resilin.elastic.sync import Schedule

__all__ = ["Context", "context", "enter"]

_current: list[Context] = []


class Context:
    """What a training loop needs of the worker that it runs in."""

    def __init__(self, runtime: Runtime, hyperparameters: Hyperparameters) -> None:
        self._runtime = runtime
        self.hp = hyperparameters

    @property
    def device(self) -> torch.device:
        """Where the model and its batches are."""
        return self._runtime.device

    @property
    def step(self) -> int:
        """How many iterations are done."""
        return self._runtime.position.step

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return self._runtime.position.epoch

    def prepare(
        self, model: nn.Module, optimizer: Optimizer, schedule: Schedule | None = None
    ) -> None:
        """Hand over what is trained; the model is already on :attr:`device`."""
        self._runtime.prepare(model, optimizer, schedule)

    def term_condition(
        self,
        max_iterations: int | None = None,
        max_epochs: int | None = None,
        *,
        loss_at_most: float | None = None,
    ) -> None:
        """Set when the job has done its work, beside what its job file says."""
        self._runtime.end = EndCondition(max_iterations, max_epochs, loss_at_most)

    def shards(
        self,
        dataset: Any,  # noqa: ANN401 (tensors, tuples of tensors, or map-style)
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> Iterator[Any]:
        """Yield this worker's batches of the dataset, epoch after epoch.

        The first batch only warms up: what it does to model and optimizer is undone.
        """
        return self._runtime.batches(dataset, collate)

    def backward(self, loss: Tensor, count: int) -> None:
        """Differentiate the mean loss over ``count`` samples; once a batch."""
        self._runtime.backward(loss, count)

    def end_minibatch(self) -> None:
        """End a batch: the workers' gradients are summed, and the optimizer takes its step."""
        self._runtime.end_minibatch()


def context() -> Context:
    """Return the context of the worker that runs this code.

    Raises:
        RuntimeError: Outside a worker.
    """
    if not _current:
        raise RuntimeError("this is no worker: name this function as the entry point of a job")
    return _current[-1]


def enter(entered: Context) -> None:
    """Make a context the one of this process."""
    _current.append(entered)
