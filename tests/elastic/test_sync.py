"""The training state: sent to a worker that has none, and back from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic.test_buckets import never, together
from torch import nn

from resilin.elastic.api import ElasticJob, Hyperparameters
from resilin.elastic.checkpoint_io import load_newest
from resilin.elastic.checkpoints import seal, state_path
from resilin.elastic.data import BatchReader
from resilin.elastic.groups import Group
from resilin.elastic.messages import Position
from resilin.elastic.sync import TrainingState

OPTIMIZERS: dict[str, Any] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
}


def state_of(seed: int, optimizer: str, steps: int) -> TrainingState:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(200, 100), nn.BatchNorm1d(100), nn.Linear(100, 1))
    made = OPTIMIZERS[optimizer](net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(made, step_size=2, gamma=0.5)
    for _ in range(steps):
        net(torch.randn(8, 200)).square().mean().backward()
        made.step()
        schedule.step()
    state = TrainingState(net, made, schedule)
    state.progress.position = Position(step=steps, taken={"a": 3})
    return state


def assert_same(one: TrainingState, other: TrainingState) -> None:
    left, right = one.snapshot(), other.snapshot()
    assert left["progress"] == right["progress"]
    assert left["schedule"] == right["schedule"]
    assert left["optimizer"]["param_groups"] == right["optimizer"]["param_groups"]
    torch.testing.assert_close(left["model"], right["model"], rtol=0, atol=0)
    torch.testing.assert_close(
        left["optimizer"]["state"], right["optimizer"]["state"], rtol=0, atol=0
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("warm", [0, 1])
def test_a_newcomer_takes_on_the_whole_state(optimizer: str, warm: int) -> None:
    """Whether its optimizer has taken a step before or not."""
    states = [state_of(rank, optimizer, steps=3 if rank == 1 else warm) for rank in range(3)]

    def story(rank: int, group: Group) -> None:
        if rank == 1:
            states[1].send(group, 1, never)
        else:
            length, work = states[rank].await_description(group, 1)
            group.wait(work, never)
            states[rank].receive(group, 1, length, never)

    together(3, story)
    assert_same(states[0], states[1])
    assert_same(states[2], states[1])
    assert states[0].progress.position.taken == {"a": 3}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_checkpoint_holds_all_of_one_step_and_is_safe_to_load(
    optimizer: str, tmp_path: Path
) -> None:
    state = state_of(1, optimizer, steps=3)
    torch.save(state.snapshot(), state_path(tmp_path, 3))
    seal(tmp_path, 3)
    loaded = load_newest(tmp_path)
    assert loaded is not None
    other = state_of(2, optimizer, steps=0)
    other.restore(loaded)
    assert_same(other, state)


def test_a_snapshot_does_not_change_with_the_model() -> None:
    state = state_of(1, "adam", steps=1)
    snapshot = state.snapshot()
    kept = snapshot["model"]["0.weight"].clone()
    with torch.no_grad():
        next(state.model.parameters()).add_(1.0)
    torch.testing.assert_close(snapshot["model"]["0.weight"], kept)


# --- what users hand over ------------------------------------------------------------------


def test_batches_of_tensors_pairs_and_single_samples() -> None:
    cpu = torch.device("cpu")
    numbers = torch.arange(10)
    torch.testing.assert_close(BatchReader(numbers, None, cpu).batch([3, 1]), numbers[[3, 1]])
    pair = BatchReader((numbers, numbers * 2), None, cpu).batch([4])
    assert [part.tolist() for part in pair] == [[4], [8]]
    samples = BatchReader([{"x": float(n)} for n in range(5)], None, cpu)
    assert samples.reads_ahead
    assert samples.batch([2, 4])["x"].tolist() == [2.0, 4.0]
    joined = BatchReader(["a", "b", "c"], "".join, cpu)
    assert joined.batch([2, 0]) == "ca"
    with pytest.raises(TypeError, match="a dataset has a length"):
        BatchReader(iter([1]), None, cpu)
    with pytest.raises(ValueError, match="empty"):
        BatchReader([], None, cpu)


def test_a_job_is_set_up_fluently() -> None:
    job = (
        ElasticJob()
        .set_hyperparameter(bs=64, lr=0.1, width=32)
        .term_condition(max_epochs=3)
        .set_deadline("10m")
    )
    assert (job.hp.bs, job.hp.lr, job.hp.width, job.hp.get("depth", 2)) == (64, 0.1, 32, 2)
    assert job.settings.deadline_seconds == 600
    assert job.settings.end.max_epochs == 3
    assert job.settings.end.given
    with pytest.raises(AttributeError, match="set_hyperparameter"):
        _ = Hyperparameters().depth
    with pytest.raises(ValueError, match="not a deadline"):
        job.set_deadline("soon")
    with pytest.raises(ValueError, match="belong together"):
        job.term_condition(metric="accuracy")
    for missing in (job.init_model, job.init_dataset):
        with pytest.raises(NotImplementedError):
            missing()
