"""Every sample of an epoch exactly once, whatever happens to workers and leaders."""

from __future__ import annotations

import pytest
from tests.elastic.world import World

from resilin.elastic.control import TakeCheckpoint

EPOCHS = 50
SEEDS = range(24)  # 1,200 epochs
CALM = (0.004, 0.01, 0.02)
"""Disturbances a turn; an epoch takes about a hundred turns."""


def disturb(world: World) -> None:
    """One of the things that happen to a job in a cluster."""
    kind = world.chance.random()
    alive = world.alive()
    trainers = world.trainers()
    if kind < 0.30:
        world.resize(world.chance.randint(1, 4))
    elif kind < 0.40 and trainers:
        world.resize(max(1, len(trainers) - 1), remove=trainers[0].worker_id)
    elif kind < 0.55 and len(alive) > 1:
        world.kill(world.chance.choice(alive))
    elif kind < 0.70 and len(trainers) > 1:
        world.die_in_collective(world.chance.choice(trainers))
    elif kind < 0.78:
        world.lose_leader()
    elif kind < 0.86:
        world.tell_leader(TakeCheckpoint())
    elif kind < 0.88:
        for worker in alive:
            world.kill(worker)
    elif kind < 0.90:
        world.stop()
    elif kind < 0.94 and trainers:
        world.break_one(world.chance.choice(trainers))
    else:
        world.tick(1.5)


def play(seed: int, epochs: int) -> World:
    """Let a job live through an eventful time."""
    world = World(seed, samples=30 + seed % 50, batch=7 + seed % 9)
    world.resize(1 + seed % 4)
    done = world.lives_through(disturb, often=CALM[seed % len(CALM)], epochs=epochs)
    assert done, f"only {world.epochs_done} epochs:\n{world.describe()}"
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_random_joins_leaves_deaths_and_leader_losses(seed: int) -> None:
    """The world itself asserts that no sample is used twice and no epoch misses one."""
    assert play(seed, EPOCHS).epochs_done >= EPOCHS


def test_a_plan_that_only_the_lost_leader_knew_is_known_to_its_successor() -> None:
    """Workers committed it while nobody led; then all who had trained before died."""
    assert play(1031, 15).epochs_done >= 15


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_finer_cuts_keep_short_minibatches_few(workers: int) -> None:
    """At most one more minibatch an epoch than the dataset needs, and one a worker."""
    world = World(workers, samples=203, batch=12)
    world.resize(workers)
    world.run_until(lambda: world.epochs_done >= 10, turns=100_000)
    ideal = -(-203 // 12)
    assert max(world.epoch_steps) <= ideal + workers


def test_newcomers_share_what_the_others_had_in_stock() -> None:
    """A change in the middle of an epoch costs it few short minibatches as well."""
    world = World(11, samples=240, batch=12)
    world.resize(1)
    for epoch in range(1, 9):
        world.run_until(lambda epoch=epoch: world.epochs_done >= epoch, turns=100_000)
        world.run_until(lambda: world.steps_in_epoch >= 5, turns=100_000)
        world.resize(4 if epoch % 2 else 1)
    assert max(world.epoch_steps) <= 240 // 12 + 4 + 1
