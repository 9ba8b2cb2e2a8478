"""A worker's whole training state: described in words, sent as tensors, kept in checkpoints.

The description (JSON) names everything that is no tensor, and every tensor of the optimizer
with its shape; so a receiver takes on exactly the sender's state, whatever its own optimizer
held before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from pydantic import BaseModel, JsonValue
from torch import Tensor, nn
from torch.optim import Optimizer

from resilin.elastic import messages as msg
from resilin.elastic.groups import Group, Work

__all__ = ["Progress", "Schedule", "TrainingState"]

SMALL_BYTES = 1 << 16
"""Tensors below this size travel together."""


class Schedule(Protocol):
    """A learning-rate schedule as PyTorch has them."""

    def step(self) -> None:
        """Go on by one iteration."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take on a state."""
        ...


class Progress(BaseModel):
    """What is neither model nor optimizer, and the same on every worker."""

    position: msg.Position = msg.Position()
    learning_rate: float | None = None
    finished: bool = False
    loss: float | None = None


class _OptimizerTensor(BaseModel):
    """One tensor of the optimizer's state."""

    parameter: int
    key: str
    dtype: str
    shape: tuple[int, ...]
    on_cpu: bool


class _Description(BaseModel):
    """All that is no tensor."""

    progress: Progress
    groups: list[dict[str, JsonValue]]
    tensors: list[_OptimizerTensor]
    scalars: list[tuple[int, str, JsonValue]]
    schedule: dict[str, JsonValue] | None


class TrainingState:
    """Model, optimizer, schedule and progress of one worker."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, schedule: Schedule | None) -> None:
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.progress = Progress()

    # --- over a group ----------------------------------------------------------------------

    def send(self, group: Group, root: int, given_up: Callable[[], bool]) -> None:
        """Give this state to the other members.

        Raises:
            GroupBroken: If the group breaks.
        """
        device = self._device
        description = self._describe().model_dump_json().encode()
        words = torch.frombuffer(bytearray(description), dtype=torch.uint8).to(device)
        length = torch.tensor([len(words)], dtype=torch.int64, device=device)
        works = [group.broadcast(length, root), group.broadcast(words, root)]
        works += self._broadcast(group, root)[0]
        for work in works:
            group.wait(work, given_up)

    def receive(
        self, group: Group, root: int, length: Tensor, given_up: Callable[[], bool]
    ) -> None:
        """Take on the state of ``root``, whose description has this length.

        Raises:
            GroupBroken: If the group breaks.
        """
        words = torch.empty(int(length.item()), dtype=torch.uint8, device=self._device)
        group.wait(group.broadcast(words, root), given_up)
        self._take_on(_Description.model_validate_json(bytes(words.cpu().tolist())))
        works, finish = self._broadcast(group, root)
        for work in works:
            group.wait(work, given_up)
        finish()

    def await_description(self, group: Group, root: int) -> tuple[Tensor, Work]:
        """Begin to receive; return where the length will be, and when."""
        length = torch.zeros(1, dtype=torch.int64, device=self._device)
        return length, group.broadcast(length, root)

    def _broadcast(self, group: Group, root: int) -> tuple[list[Work], Callable[[], None]]:
        """Begin to copy every tensor: large ones in place, small ones packed by type."""
        works: list[Work] = []
        packs: dict[torch.dtype, list[Tensor]] = {}
        copies: list[tuple[Tensor, list[Tensor]]] = []
        device = self._device
        for tensor in self._tensors():
            large = tensor.numel() * tensor.element_size() >= SMALL_BYTES
            if large and tensor.is_contiguous() and tensor.device == device:
                works.append(group.broadcast(tensor, root))
            else:
                packs.setdefault(tensor.dtype, []).append(tensor)
        for tensors in packs.values():
            flat = torch.cat([tensor.reshape(-1).to(device) for tensor in tensors])
            works.append(group.broadcast(flat, root))
            copies.append((flat, tensors))

        def finish() -> None:
            for flat, tensors in copies:
                pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
                for tensor, piece in zip(tensors, pieces, strict=True):
                    tensor.copy_(piece.view(tensor.shape))

        return works, finish

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _tensors(self) -> Iterator[Tensor]:
        """Yield the state's tensors in an order that follows from the description."""
        for value in self.model.state_dict().values():
            if isinstance(value, Tensor):
                yield value.detach()
        for _, _, value in self._optimizer_state():
            if isinstance(value, Tensor):
                yield value.detach()

    def _optimizer_state(self) -> Iterator[tuple[int, str, Any]]:
        for index, parameter in enumerate(self._optimized()):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                yield index, key, value

    def _optimized(self) -> list[Tensor]:
        return [each for group in self.optimizer.param_groups for each in group["params"]]

    def _describe(self) -> _Description:
        tensors, scalars = [], []
        for index, key, value in self._optimizer_state():
            if isinstance(value, Tensor):
                name = str(value.dtype).removeprefix("torch.")
                shape = tuple(value.shape)
                on_cpu = value.device.type == "cpu"
                tensors.append(
                    _OptimizerTensor(
                        parameter=index, key=key, dtype=name, shape=shape, on_cpu=on_cpu
                    )
                )
            else:
                scalars += [(index, key, plain) for plain in _plain({key: value}).values()]
        groups = [
            _plain({k: v for k, v in group.items() if k != "params"})
            for group in self.optimizer.param_groups
        ]
        return _Description(
            progress=self.progress,
            groups=groups,
            tensors=tensors,
            scalars=scalars,
            schedule=None if self.schedule is None else _plain(self.schedule.state_dict()),
        )

    def _take_on(self, description: _Description) -> None:
        """Become as described, with the tensors' places made but not yet filled."""
        self.progress = description.progress
        for group, described in zip(self.optimizer.param_groups, description.groups, strict=True):
            for key, value in described.items():
                was = group.get(key)
                group[key] = tuple(value) if isinstance(was, tuple) else value  # type: ignore[arg-type]  # (a tuple comes back as a list)
        optimized = self._optimized()
        before = {
            (index, key): value
            for index, key, value in self._optimizer_state()
            if isinstance(value, Tensor)
        }
        self.optimizer.state.clear()
        for each in description.tensors:
            parameter = optimized[each.parameter]
            dtype = getattr(torch, each.dtype)
            old = before.get((each.parameter, each.key))
            if old is None or old.dtype != dtype or tuple(old.shape) != each.shape:
                device = torch.device("cpu") if each.on_cpu else parameter.device
                old = torch.empty(each.shape, dtype=dtype, device=device)
            self.optimizer.state.setdefault(parameter, {})[each.key] = old
        for index, key, plain in description.scalars:
            self.optimizer.state.setdefault(optimized[index], {})[key] = plain
        if self.schedule is not None and description.schedule is not None:
            self.schedule.load_state_dict(dict(description.schedule))

    # --- as a whole ------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return a copy that later steps do not change, of plain types and tensors on the CPU."""
        return {
            "model": _copied(self.model.state_dict()),
            "optimizer": _copied(self.optimizer.state_dict()),
            "schedule": None if self.schedule is None else _plain(self.schedule.state_dict()),
            "progress": self.progress.model_dump(mode="json"),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take on what :meth:`snapshot` returned."""
        self.model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        if self.schedule is not None and snapshot["schedule"] is not None:
            self.schedule.load_state_dict(snapshot["schedule"])
        self.progress = Progress.model_validate(snapshot["progress"])


def _copied(value: Any) -> Any:  # noqa: ANN401 (state dictionaries hold anything)
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(each) for each in value)
    return value


def _plain(state: dict[str, Any]) -> dict[str, JsonValue]:
    """Return what can be written down, tuples as lists; functions and tensors cannot."""
    plain: dict[str, JsonValue] = {}
    for key, value in state.items():
        try:
            plain[key] = json.loads(json.dumps(value))
        except TypeError:
            continue
    return plain
