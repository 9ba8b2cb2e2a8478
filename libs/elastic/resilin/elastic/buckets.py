"""Gradients in buckets: summed over the workers while the backward pass goes on.

Parameters are put into buckets from the last to the first, about as the backward pass finishes
their gradients; a parameter's gradient is a view into its bucket. When a bucket is full its
sum over the workers begins, in the same order everywhere: a bucket waits for those before it,
so workers that use other parameters still match.

Exact for local batches of any size. A worker's loss is a mean over its own samples; before the
backward pass it is weighted with its count over the global batch B, so that the sum over the
workers is the gradient of the mean over B; where fewer than B samples were there, the sum is
corrected with their real count. A worker without samples contributes zeros.

The last bucket ends with a table of one row a worker, zeros but for its own row: its sum gives
every worker all rows. It carries the counts, the losses and the readiness to switch, for the
price of a few numbers: whoever agrees on the gradients has agreed on the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from resilin.elastic.groups import Group, GroupBroken, Work

__all__ = ["COLUMNS", "GradientBuckets"]

COLUMNS = 5
"""Of the table: samples, their weight, weighted sum of losses, distance to the plan that the
worker is ready for, wish to finish."""
ROWS = 16
"""For how many workers the table has room before it must be made anew."""
EXACT = (torch.float32, torch.float64)
"""Types in which the table's counts are exact."""


class _Bucket:
    """Some parameters' gradients in one piece of memory."""

    def __init__(self, parameters: Sequence[nn.Parameter], table_size: int) -> None:
        self.parameters = parameters
        self.gradient_size = sum(parameter.numel() for parameter in parameters)
        self.table_size = table_size
        self.like = parameters[0]
        self.arrived = 0
        self.allocate()

    def allocate(self) -> None:
        """Take new memory: in the old a collective may still write."""
        size = self.gradient_size + self.table_size
        self.memory = torch.zeros(size, dtype=self.like.dtype, device=self.like.device)
        self.views: list[Tensor] = []
        start = 0
        for parameter in self.parameters:
            stop = start + parameter.numel()
            self.views.append(self.memory[start:stop].view_as(parameter))
            start = stop

    @property
    def gradients(self) -> Tensor:
        return self.memory[: self.gradient_size]


class GradientBuckets:
    """The gradients of one model, reduced over whichever group is current."""

    def __init__(self, parameters: Iterable[nn.Parameter], bucket_bytes: int) -> None:
        self._parameters = [each for each in parameters if each.requires_grad]
        if not self._parameters:
            raise ValueError("the model has no parameter to train")
        self._bucket_bytes = bucket_bytes
        self._group: Group | None = None
        self._works: list[Work] = []
        self._next = 0
        self._live = False
        self._attached = False
        self._broken: GroupBroken | None = None
        self._rows = ROWS
        self._place: dict[nn.Parameter, tuple[_Bucket, int]] = {}
        self._make_buckets()
        for parameter in self._parameters:
            hooked: Any = parameter  # PyTorch leaves the method untyped
            hooked.register_post_accumulate_grad_hook(self._arrived)

    def _make_buckets(self) -> None:
        groups: list[list[nn.Parameter]] = []
        filled = 0
        for parameter in reversed(self._parameters):
            size = parameter.numel() * parameter.element_size()
            fits = groups and filled + size <= self._bucket_bytes
            if fits and groups[-1][0].dtype == parameter.dtype:
                groups[-1].append(parameter)
                filled += size
            else:
                groups.append([parameter])
                filled = size
        self._buckets = [_Bucket(group, 0) for group in groups]
        last = groups[-1]
        self._table = _Bucket(last, self._rows * COLUMNS)
        if last[0].dtype in EXACT:
            self._buckets[-1] = self._table
        else:
            control = nn.Parameter(torch.zeros(1, device=last[0].device), requires_grad=False)
            self._table = _Bucket([control], self._rows * COLUMNS)
            self._buckets.append(self._table)
        self._place = {
            parameter: (bucket, position)
            for bucket in self._buckets
            for position, parameter in enumerate(bucket.parameters)
        }

    def use(self, group: Group) -> None:
        """Reduce over this group from the next step on."""
        self._group = group
        if group.size > self._rows:
            self._rows = group.size * 2
            self._make_buckets()
            self._attached = False
        if not self._attached:  # after a step it is: zeros twice would make a stop longer
            self.attach()

    def attach(self) -> None:
        """Set every gradient to zero, in the buckets' memory."""
        for bucket in self._buckets:
            bucket.memory.zero_()
            bucket.arrived = 0
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                if parameter.requires_grad:
                    parameter.grad = view
        self._next = 0
        self._works = []
        self._broken = None
        self._live = False
        self._attached = True

    def expect_last_backward(self) -> None:
        """The next backward pass completes the gradients: reduce them as they come."""
        self._live = True

    def _arrived(self, parameter: nn.Parameter) -> None:
        """A parameter's gradient was accumulated."""
        self._attached = False
        if self._group is None:
            return  # warming up: nobody to reduce with
        bucket, position = self._place[parameter]
        view = bucket.views[position]
        gradient = parameter.grad
        if gradient is not None and gradient.data_ptr() != view.data_ptr():
            # Somebody has set the gradient to None, and it came anew: bring it home.
            if gradient.is_sparse:
                raise TypeError("sparse gradients cannot be reduced: use sparse=False")
            view.add_(gradient)
            parameter.grad = view
        if self._live:
            bucket.arrived += 1
            self._launch_full()

    def _launch_full(self) -> None:
        """Begin to reduce what is full, in order; the last waits for the table."""
        while self._next < len(self._buckets) - 1:
            bucket = self._buckets[self._next]
            if bucket.arrived < len(bucket.parameters):
                return
            self._launch(bucket)

    def _launch(self, bucket: _Bucket) -> None:
        self._next += 1
        if self._broken is None and self._group is not None:
            try:
                memory = bucket.gradients
                if bucket is self._table:
                    memory = bucket.memory[: bucket.gradient_size + self._group.size * COLUMNS]
                self._works.append(self._group.all_reduce(memory))
            except GroupBroken as broken:  # told at the end: a hook must not raise
                self._broken = broken

    def launch_rest(self, row: Sequence[float]) -> None:
        """Begin to reduce all that is left, with this worker's row of the table."""
        group = self._require_group()
        self._attached = False
        table = self._table.memory[self._table.gradient_size :].view(self._rows, COLUMNS)
        table[group.rank] = torch.tensor(row, dtype=table.dtype)
        while self._next < len(self._buckets):
            self._launch(self._buckets[self._next])

    def collect(self, given_up: Callable[[], bool]) -> list[list[float]]:
        """Wait for the sums; return the table's rows.

        Raises:
            GroupBroken: If a collective failed or was given up: no gradient is to be used.
        """
        group = self._require_group()
        for work in self._works:
            group.wait(work, given_up)
        if self._broken is not None:
            raise self._broken
        self._works = []
        memory = self._table.memory[self._table.gradient_size :]
        rows: list[list[float]] = memory.view(self._rows, COLUMNS)[: group.size].tolist()
        return rows

    def correct(self, factor: float) -> None:
        """Scale the summed gradients."""
        if factor != 1.0:
            for bucket in self._buckets:
                bucket.gradients.mul_(factor)

    def drop_group(self) -> list[Work]:
        """Let the group go after a failure; return what may still be under way in it.

        The memory is replaced if so: a collective that ends later must not write into it.
        """
        works, self._works = self._works, []
        self._group = None
        if not all(work.is_completed() for work in works):
            for bucket in self._buckets:
                bucket.allocate()
            return works
        return []

    def _require_group(self) -> Group:
        if self._group is None:
            raise GroupBroken("there is no group")
        return self._group
