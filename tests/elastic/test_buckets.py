"""Gradient buckets: over real groups of threads, equal to one device's gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore, ProcessGroupGloo

from resilin.elastic import messages as msg
from resilin.elastic.buckets import COLUMNS, GradientBuckets
from resilin.elastic.groups import Graveyard, Group, GroupBroken


def never() -> bool:
    return False


def together(size: int, story: Callable[[int, Group], Any]) -> list[Any]:
    """Run a story on every rank of a group, each in a thread."""
    store = HashStore()
    results: list[Any] = [None] * size
    failures: list[BaseException] = []
    members = tuple(f"w{rank}" for rank in range(size))
    plan = msg.Plan(number=1, kind="restart", generation=1, members=members, global_batch=8)

    def run(rank: int) -> None:
        try:
            backend = ProcessGroupGloo(store, rank, size)
            results[rank] = story(rank, Group(plan, rank, backend, (store,)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    if failures:
        raise failures[0]
    return results


class Net(nn.Module):
    """Two ways through, so that a batch may leave parameters unused."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Linear(4, 8)
            self.left = nn.Linear(8, 1)
            self.right = nn.Linear(8, 1)
        self.double()

    def forward(self, inputs: Tensor, *, left: bool) -> Tensor:
        hidden = self.body(inputs).tanh()
        return self.left(hidden) if left else self.right(hidden)


def gradients(net: nn.Module) -> list[Tensor]:
    return [each.grad.clone() for each in net.parameters() if each.grad is not None]


INPUTS = torch.arange(44, dtype=torch.float64).view(11, 4).sin()


@pytest.mark.parametrize("bucket_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("sizes", [(11,), (4, 7), (5, 6, 0), (3, 3, 5)])
def test_summed_gradients_are_those_of_one_device(sizes: tuple[int, ...], bucket_bytes) -> None:
    """Uneven shares, a share of none, a parameter that only rank 0 uses, micro-batches."""
    expected = Net()
    left, right = INPUTS[: sizes[0]], INPUTS[sizes[0] :]
    total = expected(left, left=True).square().sum()
    if len(right):
        total = total + expected(right, left=False).square().sum()
    (total / 11).backward()
    reference = [each.grad for each in expected.parameters()]

    nets = [Net() for _ in sizes]  # threads would disturb each other's random numbers

    def story(rank: int, group: Group) -> tuple[list[Tensor], list[list[float]]]:
        net = nets[rank]
        buckets = GradientBuckets(net.parameters(), bucket_bytes)
        buckets.use(group)
        start = sum(sizes[:rank])
        mine = INPUTS[start : start + sizes[rank]]
        parts = [part for part in mine.split(2) if len(part)]
        for number, part in enumerate(parts):
            if number == len(parts) - 1:
                buckets.expect_last_backward()
            (net(part, left=rank == 0).square().sum() / 8).backward()
        buckets.launch_rest((sizes[rank], float(sizes[rank]), 0.5, 3, 0))
        rows = buckets.collect(never)
        buckets.correct(8 / sum(row[1] for row in rows))
        return gradients(net), rows

    for found, rows in together(len(sizes), story):
        assert [row[0] for row in rows] == list(sizes)
        assert all(len(row) == COLUMNS and row[3] == 3 for row in rows)
        for gradient, wanted in zip(found, reference, strict=True):
            wanted = torch.zeros_like(gradient) if wanted is None else wanted
            torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("to_none", [True, False])
def test_a_script_that_zeroes_gradients_itself_does_no_harm(*, to_none: bool) -> None:
    def story(rank: int, group: Group) -> list[list[Tensor]]:
        net = Net()
        buckets = GradientBuckets(net.parameters(), 200)
        buckets.use(group)
        found = []
        for _ in range(2):
            net.zero_grad(set_to_none=to_none)
            buckets.expect_last_backward()
            net(INPUTS, left=True).square().mean().backward()
            buckets.launch_rest((11, 11.0, 0, 0, 0))
            buckets.collect(never)
            found.append(gradients(net))
            buckets.attach()
        return found

    first, second = together(2, story)[0]
    assert first[0].abs().sum() > 0
    for one, two in zip(first, second, strict=True):
        torch.testing.assert_close(one, two)


def test_types_too_small_for_counts_get_a_table_of_their_own() -> None:
    def story(rank: int, group: Group) -> list[list[float]]:
        net = nn.Linear(4, 1).bfloat16()
        buckets = GradientBuckets(net.parameters(), 1 << 20)
        buckets.use(group)
        net(INPUTS.bfloat16()).sum().backward()
        buckets.launch_rest((100_001 + rank, 1.0, 0, 0, 0))
        return buckets.collect(never)

    for rows in together(2, story):
        assert [row[0] for row in rows] == [100_001, 100_002]


def test_a_group_larger_than_the_table_makes_the_table_larger() -> None:
    net = Net()
    buckets = GradientBuckets(net.parameters(), 1 << 20)

    def story(rank: int, group: Group) -> None:
        group.size = 40
        buckets.use(group)
        net(INPUTS, left=True).sum().backward()
        buckets.launch_rest((11, 11.0, 0, 0, 0))
        assert len(buckets.collect(never)) == 40

    together(1, story)


@pytest.mark.parametrize("after", ["nothing", "a backward pass", "a failed step"])
def test_gradients_are_zero_in_a_new_group_whatever_was_before(after: str) -> None:
    """And they are not set to zero once more right after a step: that is part of a stop."""

    def story(rank: int, group: Group) -> None:
        net = Net()
        buckets = GradientBuckets(net.parameters(), 200)
        buckets.use(group)
        if after == "a backward pass":
            net(INPUTS, left=True).sum().backward()
        if after == "a failed step":
            buckets.launch_rest((11, 11.0, 0, 0, 0))
            buckets.collect(never)
            buckets.drop_group()
        zeroed = []
        attach = buckets.attach
        buckets.attach = lambda: zeroed.append(attach())
        buckets.use(group)
        assert len(zeroed) == (0 if after == "nothing" else 1)
        for bucket in buckets._buckets:
            assert not bucket.memory.any()
        for parameter in net.parameters():
            assert parameter.grad is not None

    together(2, story)


def test_a_peer_that_is_gone_breaks_the_group_and_leaves_the_model_alone() -> None:
    def story(rank: int, group: Group) -> None:
        if rank == 1:
            return  # its group is freed with it, and its connections close
        net = Net()
        buckets = GradientBuckets(net.parameters(), 200)
        buckets.use(group)
        before = [each.detach().clone() for each in net.parameters()]
        net(INPUTS, left=True).sum().backward()
        buckets.launch_rest((11, 11.0, 0, 0, 0))
        with pytest.raises(GroupBroken):
            buckets.collect(never)
        buckets.drop_group()
        for was, now in zip(before, net.parameters(), strict=True):
            torch.testing.assert_close(was, now.detach())

    together(2, story)


def test_what_waits_for_a_silent_peer_is_given_up_and_its_memory_left_behind() -> None:
    done = threading.Event()

    def story(rank: int, group: Group) -> None:
        if rank == 1:
            done.wait(60)
            return
        net = Net()
        buckets = GradientBuckets(net.parameters(), 1 << 20)
        buckets.use(group)
        net(INPUTS, left=True).sum().backward()
        buckets.launch_rest((11, 11.0, 0, 0, 0))
        old = buckets._buckets[0].memory
        with pytest.raises(GroupBroken, match="given up"):
            buckets.collect(lambda: True)
        graveyard = Graveyard()
        graveyard.bury(group, buckets.drop_group())
        assert buckets._buckets[0].memory.data_ptr() != old.data_ptr()
        graveyard.tidy(idle=True)
        assert len(graveyard) == 1, "it cannot be freed while a collective hangs in it"
        done.set()

    together(2, story)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    net = nn.Linear(2, 1)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter to train"):
        GradientBuckets(net.parameters(), 100)


class Overdue:
    """A collective that ends just after the slice of time that it was waited for."""

    def __init__(self, failure: str | None) -> None:
        self.failure = failure
        self.waits = 0

    def wait(self, timeout: Any = None) -> bool:
        self.waits += 1
        if self.waits == 1:
            raise RuntimeError("Operation timed out!")
        if self.failure is not None:
            raise RuntimeError(self.failure)
        return True

    def is_completed(self) -> bool:
        return True


def test_a_collective_that_ends_just_after_its_slice_has_not_failed() -> None:
    def story(rank: int, group: Group) -> None:
        group.wait(Overdue(None), never)
        assert group.arrived(Overdue(None))
        with pytest.raises(GroupBroken, match="reset by peer"):
            group.wait(Overdue("reset by peer"), never)

    together(1, story)
