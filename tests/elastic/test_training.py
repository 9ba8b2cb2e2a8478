"""Real workers: elastic training is the same training, whatever happens on the way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic import jobs
from tests.elastic.conftest import BATCH, Steps

from resilin.elastic.checkpoint_io import load_newest
from resilin.elastic.checkpoints import manifests, newest_step, state_path
from resilin.elastic.control import (
    Completed,
    Failed,
    GenerationSwitched,
    Progress,
    TakeCheckpoint,
)
from resilin.elastic.local import LocalRun
from resilin.elastic.program import EXIT_FENCED, EXIT_USER_CODE, checkpoints_path

pytestmark = pytest.mark.xdist_group("elastic")

SECONDS_MAX = 300.0


def play(story: Coroutine[Any, Any, None]) -> None:
    """Run a story; one that hangs is a failure."""
    asyncio.run(asyncio.wait_for(story, SECONDS_MAX))


def reference(steps: int, *, seed: int = 0, job: type = jobs.Regression) -> tuple[Any, list[float]]:
    """Train on one device in a plain loop: what every elastic run must equal."""
    net = jobs.model()
    fixed = job()
    optimizer = fixed.init_optimizer(net)
    schedule = fixed.init_schedule(optimizer)
    inputs, targets = jobs.data()
    losses: list[float] = []
    epoch = 0
    while len(losses) < steps:
        chance = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        order = torch.randperm(jobs.SAMPLES, generator=chance)
        for picked in order.split(BATCH)[: steps - len(losses)]:
            optimizer.zero_grad()
            loss = jobs.loss_of((inputs[picked], targets[picked]), net)
            loss.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            losses.append(loss.item())
        epoch += 1
    return net, losses


async def steps_beyond(run: LocalRun, count: int) -> float:
    """Wait until so many more steps are done than were when this was asked."""
    seen = [said.iterations_done for said in run.reports if isinstance(said, Progress)]
    goal = max(seen, default=0.0) + count
    said = await run.wait_for(Progress, lambda said: said.iterations_done >= goal)
    return said.iterations_done


async def stop(run: LocalRun) -> None:
    run.stop()
    for worker_id in run.wanted:
        assert await run.exit_code(worker_id) == 0


def assert_equals_reference(
    tmp_path: Path, run_directory: Path, *, job: type = jobs.Regression, steps_min: int = 60
) -> None:
    """Every loss, and the model at the end, as on one device: to rounding in float64."""
    recorded = Steps(tmp_path / "steps").losses()
    done = max(recorded)
    assert done >= steps_min
    assert sorted(recorded) == list(range(1, done + 1)), "no step is lost"
    net, losses = reference(done, job=job)
    for step, loss in recorded.items():
        assert loss == pytest.approx(losses[step - 1], rel=1e-10, abs=1e-12)
    saved = load_newest(checkpoints_path(run_directory))
    assert saved is not None
    assert saved["progress"]["position"]["step"] == done
    for name, tensor in net.state_dict().items():
        torch.testing.assert_close(saved["model"][name], tensor, rtol=1e-10, atol=1e-12)


def test_growing_shrinking_and_losing_its_first_worker_changes_nothing(
    program: Any, tmp_path: Path
) -> None:
    """2, 3, 2 without rank 0, 4 workers; batches that do not divide; 7 samples at a time."""

    async def story() -> None:
        async with LocalRun(program(micro_batch_max=7), tmp_path / "job") as run:
            first = await run.switched(await run.resize(2))
            assert (first.workers, first.iterations_done) == (2, 0)
            await steps_beyond(run, 20)
            await run.switched(await run.resize(3))
            await steps_beyond(run, 20)
            shrunk = await run.switched(await run.resize(2, remove=["w1"]))
            assert await run.exit_code("w1") == 0
            assert (await run.left("w1")).iterations_done <= shrunk.iterations_done
            await steps_beyond(run, 20)
            grown = await run.switched(await run.resize(4))
            assert grown.workers == 4
            await steps_beyond(run, 20)
            await stop(run)

    play(story())
    assert_equals_reference(tmp_path, tmp_path / "job")
    assert set(Steps(tmp_path / "steps").workers().values()) >= {2, 3, 4}


def test_a_lost_leader_costs_no_step_and_its_successor_can_resize(
    program: Any, tmp_path: Path
) -> None:
    async def story() -> None:
        job = program("AdamRegression", leader_lease_seconds=1.0)
        async with LocalRun(job, tmp_path / "job") as run:
            await run.switched(await run.resize(2))
            await steps_beyond(run, 20)
            run.kill_leader()
            await run.leaders[-1].wait()
            await run.start_leader()
            before = len(run.reports)
            back = await run.wait_for(GenerationSwitched, since=before)
            assert (back.generation, back.workers) == (1, 2)
            await steps_beyond(run, 20)
            assert (await run.switched(await run.resize(1, remove=["w2"]))).workers == 1
            await steps_beyond(run, 20)
            await stop(run)

    play(story())
    assert_equals_reference(tmp_path, tmp_path / "job", job=jobs.AdamRegression)


def test_survivors_go_on_whoever_is_killed_and_data_is_used_once(
    program: Any, tmp_path: Path
) -> None:
    """On-demand data; kill -9 of rank 0, of its replacement's neighbour, of a middle one."""

    async def story() -> None:
        async with LocalRun(program(data_mode="on-demand"), tmp_path / "job") as run:
            await run.switched(await run.resize(3))
            for dead in ("w1", "w3"):
                await steps_beyond(run, 20)
                run.kill(dead)
                failed = await run.failed(dead)
                assert failed.survivors >= 1
            await steps_beyond(run, 20)
            before = len(run.reports)
            await run.replace("w1")
            await run.replace("w3")
            again = await run.wait_for(
                GenerationSwitched, lambda said: said.workers == 3, since=before
            )
            assert again.generation == 1
            await steps_beyond(run, 20)
            run.kill("w2")
            assert (await run.failed("w2")).survivors == 2
            await steps_beyond(run, 20)
            run.stop()
            for worker_id in ("w4", "w5"):
                assert await run.exit_code(worker_id) == 0

    play(story())
    used = Steps(tmp_path / "steps").samples()
    assert sorted(used) == list(range(len(used)))
    assert len(used) > 3
    assert all(len(set(epoch)) == len(epoch) for epoch in used.values()), "used twice"
    missing = [jobs.SAMPLES - len(used[epoch]) for epoch in range(len(used) - 1)]
    # A worker that was killed between the sum of a step and its line in the record took part
    # in it unseen: at most its share, once a death.
    assert all(count <= -(-BATCH // 2) for count in missing)
    assert sum(count > 0 for count in missing) <= 3


def test_when_all_are_killed_the_job_resumes_from_the_last_whole_checkpoint(
    program: Any, tmp_path: Path
) -> None:
    async def story() -> None:
        folder = checkpoints_path(tmp_path / "job")
        job = program(checkpoint_interval_seconds=1e6)
        async with LocalRun(job, tmp_path / "job") as run:
            await run.switched(await run.resize(1))
            steps = []
            for _ in range(2):
                await steps_beyond(run, 10)
                seen = newest_step(folder) or 0
                run.say(TakeCheckpoint())
                said = await run.wait_for(
                    Progress, lambda said, seen=seen: said.checkpoint_iterations > seen
                )
                steps.append(said.checkpoint_iterations)
            assert [manifest.step for manifest in manifests(folder)] == [steps[1], steps[0]]
            run.kill("w1")
            failed = await run.failed("w1")
            assert (failed.survivors, failed.iterations_done) == (0, steps[1])
            with state_path(folder, int(steps[1])).open("r+b") as file:
                file.truncate(100)  # torn, as by a crash of the machine
            again = await run.switched(await run.resize(["w2"]))
            assert again.iterations_done == steps[0]
            await steps_beyond(run, 30)
            await stop(run)
            assert "torn" in run.log("w2")

    play(story())
    _net, losses = reference(max(Steps(tmp_path / "steps").losses()))
    for line in Steps(tmp_path / "steps").lines:
        assert line["loss"] == pytest.approx(losses[line["step"] - 1], rel=1e-10)


def test_an_error_in_the_users_code_ends_the_job_with_its_last_lines(
    program: Any, tmp_path: Path
) -> None:
    async def story() -> None:
        async with LocalRun(program("Raises"), tmp_path / "job") as run:
            await run.resize(1)
            failed = await run.wait_for(Failed)
            assert failed.reason == "UserCodeFailed"
            assert failed.message.endswith("ValueError: the labels are wrong")
            assert "in train" in failed.message
            assert await run.exit_code("w1") == EXIT_USER_CODE
            assert "ValueError: the labels are wrong" in run.log("w1")

    play(story())


def test_a_stopped_process_loses_its_lease_and_is_fenced_when_it_wakes(
    program: Any, tmp_path: Path
) -> None:
    async def story() -> None:
        async with LocalRun(program(lease_seconds=4.0), tmp_path / "job") as run:
            await run.switched(await run.resize(2))
            await steps_beyond(run, 10)
            run.kill("w1", signal.SIGSTOP)
            failed = await run.failed("w1")
            assert (failed.message, failed.survivors) == ("its lease ran out", 1)
            await steps_beyond(run, 20)
            run.kill("w1", signal.SIGCONT)
            assert await run.exit_code("w1") == EXIT_FENCED
            await steps_beyond(run, 20)
            run.stop()
            assert await run.exit_code("w2") == 0

    play(story())
    assert_equals_reference(tmp_path, tmp_path / "job", steps_min=40)


def test_a_loop_style_script_trains_the_same_to_its_last_iteration(
    program: Any, tmp_path: Path
) -> None:
    async def story() -> None:
        job = program("loop", total_iterations=60, hyperparameters={})
        async with LocalRun(job, tmp_path / "job") as run:
            await run.resize(1)
            completed = await run.wait_for(Completed)
            assert completed.iterations_done == 60
            assert await run.exit_code("w1") == 0

    play(story())
    assert_equals_reference(tmp_path, tmp_path / "job")


def test_a_job_may_end_by_its_own_metric(program: Any, tmp_path: Path) -> None:
    async def story() -> None:
        job = program("GoodEnough", hyperparameters={}, data_mode="on-demand")
        async with LocalRun(job, tmp_path / "job") as run:
            await run.resize(1)
            completed = await run.wait_for(Completed)
            # Asked at the end of an epoch of ten minibatches, agreed on in the next step.
            assert completed.iterations_done % 10 == 1
            assert completed.loss is not None

    play(story())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_the_same(program: Any, tmp_path: Path) -> None:
    async def story() -> None:
        job = program(device="cuda", total_iterations=60, hyperparameters={})
        async with LocalRun(job, tmp_path / "job") as run:
            await run.resize(1)
            assert (await run.wait_for(Completed)).iterations_done == 60

    play(story())
    assert_equals_reference(tmp_path, tmp_path / "job")
