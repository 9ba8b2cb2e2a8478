"""The node agent: jobs grow, shrink, end and fail in real processes; training is pretended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.agent.harness import (
    QUICK,
    Node,
    environment_of,
    leader_pid,
    run,
    worker,
)
from tests.support.events import cancellation_asked

from resilin.agent.backend import LocalBackend
from resilin.agent.job_directory import JobDirectory
from resilin.agent.registry import HomeInUseError
from resilin.contracts import events as ev

pytestmark = pytest.mark.xdist_group("agent")


# --- the ordinary life of a job --------------------------------------------------------------


def test_a_job_trains_and_completes_and_its_slots_are_free(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            assert (await node.until(ev.NodeJoined)).incarnation == 1
            node.submit("a", iterations=200)
            node.place("a", 1, 0, 1)
            await node.until(ev.WorkersReady)
            switched = await node.until(ev.GenerationSwitched)
            assert (switched.workers, switched.stopped_seconds) == (2, 0.125)
            await node.until(ev.ProgressReported)
            done = await node.until(ev.JobCompleted)
            assert done.iterations_done == 200
            await node.until(ev.WorkersReleased)
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            node.assert_sound()
            sample = node.samples[0]
            assert (sample.job_id, sample.generation, sample.workers) == ("a", 1, 2)
            places = {(each.server_id, each.gpu_index) for each in sample.worker_samples}
            assert places == {("s1", 0), ("s1", 1)}

    run(story)


def test_a_job_grows_and_shrinks_without_its_workers_being_started_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0)
            await node.until(ev.GenerationSwitched)
            (first,) = node.alive()
            node.place("a", 2, 0, 1, 2, 3)
            grown = await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 2)
            assert grown.workers == 4
            assert first in node.alive()
            node.place("a", 3, 0, 3)
            await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 3)
            released = await node.until(ev.WorkersReleased)
            await node.when(lambda: node.held() == {"s1": (0, 3)})
            assert set(released.gpus["s1"]) <= {1, 2}
            assert first in node.alive()
            assert len(node.alive()) == 2
            node.assert_sound()

    run(story)


def test_a_suspended_job_keeps_its_progress_and_goes_on_from_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0, 1)
            await node.until(ev.ProgressReported)
            node.place("a", 2)
            released = await node.until(ev.WorkersReleased)
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            assert released.iterations_done > 0
            node.place("a", 3, 2)
            again = await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 3)
            assert again.iterations_done >= released.iterations_done - 2
            assert not any(isinstance(report, ev.WorkerLost) for report in node.reports)
            node.assert_sound()

    run(story)


def test_a_cancelled_job_leaves_at_once_and_others_train_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            for name, slot in (("a", 0), ("b", 1)):
                node.submit(name)
                node.place(name, 1, slot)
                await node.until(ev.GenerationSwitched, name)
            node.given(cancellation_asked("a"), ev.JobCancelled(job_id="a"))
            await node.until(ev.WorkersReleased)
            await node.when(lambda: node.held("a") == {})
            assert node.alive("a") == []
            assert len(node.alive("b")) == 1
            node.assert_sound()

    run(story)


def test_repeated_and_outdated_instructions_change_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0)
            await node.until(ev.GenerationSwitched)
            older = node.log.entries[:]
            node.place("a", 2, 0, 1)
            await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 2)
            there = sorted(node.alive())
            for _ in range(3):
                node.carry_out()
            newer, node.log.entries = node.log.entries, older
            node.carry_out()
            node.log.entries = newer
            await node.during(0.5)
            assert sorted(node.alive()) == there
            assert sum(isinstance(e, ev.GenerationSwitched) for e in node.reports) == 2
            node.assert_sound()

    run(story)


def test_one_agent_may_stand_for_several_servers(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home", servers={"s1": 2, "s2": 2}) as node:
            node.submit()
            node.given(ev.JobPlaced(job_id="a", generation=1, gpus={"s1": (1,), "s2": (0,)}))
            switched = await node.until(ev.GenerationSwitched)
            assert switched.workers == 2
            node.assert_sound()

    run(story)


# --- what jobs get up to ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["and tells", "silently"])
def test_a_job_whose_code_raises_fails_with_its_traceback(tmp_path: Path, how: str) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("b")
            node.place("b", 1, 3)
            await node.until(ev.GenerationSwitched, "b")
            node.submit("a", worker(raises=how))
            node.place("a", 1, 0, 1)
            failed = await node.until(ev.JobFailed)
            assert failed.reason == ev.FailureReason.USER_CODE_FAILED
            assert "ValueError: the loss is no number" in failed.message
            await node.until(ev.WorkersReleased)
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            assert len(node.alive("b")) == 1
            node.assert_sound()

    run(story)


def test_a_worker_that_dies_is_replaced_where_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0, 1)
            await node.until(ev.ProgressReported)
            victim, other = node.alive()
            os.kill(victim, signal.SIGKILL)
            replaced = await node.until(ev.WorkerReplaced)
            assert (replaced.generation, replaced.failures) == (1, 1)
            assert "signal 9" in replaced.message
            assert other in node.alive()
            assert len(node.alive()) == 2
            assert node.held() == {"s1": (0, 1)}
            node.assert_sound()

    run(story)


def test_without_survivors_a_job_falls_back_to_its_checkpoint(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("a", worker(checkpoint_every=20))
            node.place("a", 1, 0)
            await node.until(ev.ProgressReported, where=lambda e: e.iterations_done > 50)
            os.kill(node.alive()[0], signal.SIGKILL)
            lost = await node.until(ev.WorkerLost)
            assert lost.failures == 1
            assert lost.iterations_done >= 20
            await node.until(ev.WorkersReleased)
            await node.when(lambda: node.held() == {})
            node.place("a", 2, 1)
            again = await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 2)
            assert again.iterations_done >= lost.iterations_done
            node.assert_sound()

    run(story)


def test_more_failures_than_allowed_end_a_job(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0, 1)
            for failures in range(1, 4):
                await node.until(ev.GenerationSwitched)
                os.kill(node.alive()[0], signal.SIGKILL)
                await node.until(ev.WorkerReplaced, where=lambda e, n=failures: e.failures == n)
            os.kill(node.alive()[0], signal.SIGKILL)
            failed = await node.until(ev.JobFailed)
            assert failed.reason == ev.FailureReason.TOO_MANY_FAILURES
            assert "is here" in failed.message, "the last lines of its output"
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            node.assert_sound()

    run(story)


@pytest.mark.parametrize("wish", ["dies_at_start", "never_joins"])
def test_a_job_that_never_comes_to_train_cannot_start(tmp_path: Path, wish: str) -> None:
    async def story() -> None:
        limits = QUICK.__class__(
            graceful_stop_seconds=0.5, kill_after_seconds=0.5, start_seconds=0.5, word_seconds=0.2
        )
        async with Node(tmp_path / "home", limits=limits) as node:
            node.submit("a", worker(**{wish: True}))
            for generation in range(1, 4):
                node.place("a", generation, 0)
                lost = await node.until(
                    ev.WorkerLost, where=lambda e, g=generation: e.generation == g
                )
                assert lost.failures == generation
                await node.when(lambda: node.held() == {})
            node.place("a", 4, 0)
            failed = await node.until(ev.JobFailed)
            assert failed.reason == ev.FailureReason.CANNOT_START
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            node.assert_sound()

    run(story)


def test_a_directory_that_does_not_exist_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            spec = worker().model_copy(update={"directory": "nowhere"})
            node.submit("a", spec)
            node.place("a", 1, 0, 1, 2, 3)
            failed = await node.until(ev.JobFailed)
            assert failed.reason == ev.FailureReason.CANNOT_START
            assert "nowhere" in failed.message
            await node.when(lambda: node.held() == {})
            node.assert_sound()

    run(story)


def test_a_job_that_hangs_is_started_again_and_fails_in_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            spec = worker(hang=5)
            node.submit("a", spec)
            for generation in range(1, 5):
                node.place("a", generation, 0, 1)
                if generation < 4:
                    lost = await node.until(
                        ev.WorkerLost, where=lambda e, g=generation: e.generation == g
                    )
                    assert "no step" in lost.message
                    await node.until(
                        ev.WorkersReleased, where=lambda e, g=generation: e.generation == g
                    )
            failed = await node.until(ev.JobFailed)
            assert failed.reason == ev.FailureReason.HUNG
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            node.assert_sound()

    run(story)


def test_a_job_that_takes_too_much_memory_fails_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("a", worker(memory=200 << 20, eats_memory=True))
            node.place("a", 1, 0)
            failed = await node.until(ev.JobFailed)
            assert failed.reason == ev.FailureReason.OUT_OF_MEMORY
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            node.assert_sound()

    run(story)


def test_children_of_a_worker_go_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("a", worker(forks=True))
            node.place("a", 1, 0)
            await node.until(ev.GenerationSwitched)
            assert len(node.alive()) == 4
            node.place("a", 2)
            await node.until(ev.WorkersReleased)
            assert node.alive() == [], "a slot is free only when nobody is left in it"

    run(story)


def test_a_job_that_prints_megabytes_keeps_only_the_last_of_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("a", worker(prints_megabytes=20))
            node.place("a", 1, 0)
            await node.until(ev.GenerationSwitched)
            directory = JobDirectory(node.folder())
            size = sum(path.stat().st_size for path in directory.logs.iterdir())
            assert size <= 9 << 20
            (log,) = [path for path in directory.log_files() if path.name.startswith("worker-")]
            assert log.read_text().splitlines()[-1] == "printed it all"

    run(story)


def test_who_ignores_every_request_to_leave_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("a", worker(graceful=0.5, ignores_signals=True))
            node.place("a", 1, 0, 1)
            await node.until(ev.GenerationSwitched)
            node.place("a", 2, 0)
            released = await node.until(ev.WorkersReleased)
            assert released.gpus == {"s1": (1,)}
            node.place("a", 3)
            await node.until(ev.WorkersReleased, where=lambda e: e.generation == 3)
            await node.when(lambda: node.held() == {})
            assert node.alive() == []

    run(story)


def test_progress_that_could_not_be_kept_is_owned_up_to(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("a", worker(graceful=0.5))
            node.place("a", 1, 0)
            await node.until(ev.ProgressReported)
            os.kill(leader_pid(node.folder()), signal.SIGSTOP)
            node.place("a", 2)
            lost = await node.until(ev.WorkerLost)
            assert (lost.generation, lost.iterations_done, lost.failures) == (2, 0, 0)
            await node.when(lambda: node.held() == {})
            assert node.alive() == []
            node.assert_sound()

    run(story)


def test_a_leader_that_dies_is_succeeded_and_its_workers_train_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0, 1)
            await node.until(ev.GenerationSwitched)
            there, before = sorted(node.alive()), leader_pid(node.folder())
            os.kill(before, signal.SIGKILL)
            node.place("a", 2, 0, 1, 2, 3)
            await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 2)
            assert leader_pid(node.folder()) != before
            assert set(there) <= set(node.alive())

    run(story)


# --- what jobs get to see --------------------------------------------------------------------


def test_a_worker_sees_its_own_environment_and_none_of_the_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESILIN_POSTGRES_PASSWORD", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter3")

    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            spec = worker().model_copy(update={"env": {"DATA": "here"}})
            node.submit("a", spec)
            node.place("a", 1, 2)
            await node.until(ev.GenerationSwitched)
            seen = environment_of(node.alive()[0])
            assert seen["DATA"] == "here"
            assert "PATH" in seen
            assert "hunter" not in str(seen)
            assert seen["CUDA_VISIBLE_DEVICES"] == ""

    run(story)


def test_a_gpu_has_the_index_of_its_slot(tmp_path: Path) -> None:
    backend = LocalBackend({"s1": 2, "s2": 2}, tmp_path, device="cuda")
    from resilin.agent.agent_messages import Slot

    seat = backend._seat(Slot("s2", 1))
    assert seat.devices == {"CUDA_VISIBLE_DEVICES": "1"}
    assert set(seat.cpus) <= os.sched_getaffinity(0)


# --- jobs that cannot be run here ------------------------------------------------------------


def test_a_job_without_code_fails_and_its_slots_are_free(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            from tests.support.events import admitted, submitted

            node.given(submitted("a"), admitted("a"))
            node.place("a", 1, 0)
            failed = await node.until(ev.JobFailed)
            assert (failed.reason, "spec.worker" in failed.message) == ("CannotStart", True)
            await node.until(ev.WorkersReleased)
            assert node.held() == {}
            node.assert_sound()

    run(story)


def test_a_job_that_begins_finds_nothing_of_an_earlier_one_with_its_id(tmp_path: Path) -> None:
    async def story() -> None:
        for _ in range(2):
            async with Node(tmp_path / "home") as node:
                node.submit("a", worker(checkpoint_every=10))
                node.place("a", 1, 0)
                switched = await node.until(ev.GenerationSwitched)
                assert switched.iterations_done == 0
                await node.until(ev.ProgressReported, where=lambda e: e.iterations_done > 30)

    run(story)


# --- the agent itself ------------------------------------------------------------------------


def test_an_agent_that_begins_anew_says_what_was_lost_and_the_job_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("a", worker(checkpoint_every=20))
            node.place("a", 1, 0, 1)
            await node.until(ev.ProgressReported, where=lambda e: e.iterations_done > 50)
        assert node.alive() == [], "its processes ended with it"
        async with Node(tmp_path / "home", log=node.log) as again:
            assert (await again.until(ev.NodeLost)).incarnation == 1
            lost = await again.until(ev.WorkerLost)
            assert lost.iterations_done >= 20
            await again.until(ev.NodeJoined, where=lambda e: e.incarnation == 2)
            assert again.held() == {}
            again.place("a", 2, 3)
            switched = await again.until(ev.GenerationSwitched, where=lambda e: e.generation == 2)
            assert switched.iterations_done >= lost.iterations_done
            again.assert_sound()

    run(story)


def test_an_executor_that_leads_again_finds_everything_running(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0)
            # What the agent says now, the log does not get to know.
            while not any(isinstance(r, ev.GenerationSwitched) for r in node.reports):
                node.reports += [r for r in await node.backend.reports() if isinstance(r, ev.Event)]
            there = node.alive()
            await node.lead()
            await node.until(ev.GenerationSwitched)
            await node.until(ev.ProgressReported)
            assert node.alive() == there
            assert not any(isinstance(report, ev.WorkerLost) for report in node.reports)
            node.assert_sound()

    run(story)


def test_an_agent_that_is_closed_lets_its_jobs_keep_their_progress(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit()
            node.place("a", 1, 0)
            reported = await node.until(ev.ProgressReported)
            await node.backend.close(stop_workers=True)
            assert node.alive() == []
        async with Node(tmp_path / "home", log=node.log) as again:
            lost = await again.until(ev.WorkerLost)
            assert lost.iterations_done >= reported.iterations_done

    run(story)


def test_two_agents_cannot_share_a_home(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            with pytest.raises(HomeInUseError, match="another agent"):
                await Node(tmp_path / "home", log=node.log).lead()

    run(story)


def test_what_an_agent_does_not_expect_reaches_the_executor(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            await node.until(ev.NodeJoined)

            def broken() -> None:
                raise RuntimeError("broken")

            node.backend._see_to_profiles = broken  # type: ignore[method-assign]  # a test's way in
            with pytest.raises(RuntimeError, match="broken"):
                await node.during(30.0)

    run(story)
