"""Profiles: a job is tried out at every size that it may have here, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.harness import Node, run, worker
from tests.support.events import cancellation_asked, profile_asked, submitted

from resilin.agent.job_directory import JobDirectory
from resilin.agent.profiling import ProfileCourse, sizes_to_try
from resilin.contracts import events as ev
from resilin.contracts.job_specification import Elastic, WorkerSpecification
from resilin.elastic import control as ctl

processes = pytest.mark.xdist_group("agent")


# --- which sizes, and what is measured -------------------------------------------------------


@pytest.mark.parametrize(
    ("elastic", "slots", "sizes"),
    [
        (Elastic(), 8, (1, 2, 4, 8)),
        (Elastic(), 7, (1, 2, 4)),
        (Elastic(max_replicas=2), 8, (1, 2)),
        (Elastic(min_replicas=2), 4, (2, 4)),
        (Elastic(allowed_replicas=(3, 6)), 4, (3,)),
        (Elastic(min_replicas=8), 4, ()),
    ],
)
def test_every_size_is_tried_that_the_job_allows_and_the_node_has(
    elastic: Elastic, slots: int, sizes: tuple[int, ...]
) -> None:
    assert sizes_to_try(elastic, slots) == sizes


def switched(generation: int, done: float = 0.0) -> ctl.GenerationSwitched:
    return ctl.GenerationSwitched(
        generation=generation, workers=1, stopped_seconds=0.0, iterations_done=done
    )


def progress(generation: int, done: float) -> ctl.Progress:
    return ctl.Progress(
        generation=generation,
        workers=1,
        iterations_done=done,
        iterations_per_second=0.0,
        checkpoint_iterations=0,
    )


def test_only_what_comes_after_the_warm_up_counts() -> None:
    course = ProfileCourse((1, 2), warm_up_seconds=2.0, seconds=4.0)
    assert not course.take(progress(1, 50.0), 0.0), "it has not begun"
    course.take(switched(1), 10.0)
    assert not course.take(progress(1, 100.0), 11.0)
    assert not course.take(progress(1, 110.0), 12.0)
    assert not course.take(progress(1, 120.0), 14.0)
    assert course.take(progress(1, 150.0), 16.0)
    assert course.rates == {1: 10.0}
    assert (course.size, course.generation) == (2, 2)
    assert not course.take(progress(1, 900.0), 30.0), "of the size before"
    course.take(switched(2), 30.0)
    for moment, done in ((31.0, 900.0), (32.0, 1000.0), (36.0, 1080.0)):
        over = course.take(progress(2, done), moment)
    assert over
    assert course.rates == {1: 10.0, 2: 20.0}
    assert course.size is None


def test_slow_steps_get_more_time_but_not_any() -> None:
    course = ProfileCourse((1,), warm_up_seconds=1.0, seconds=4.0)
    course.take(switched(1), 0.0)
    course.take(progress(1, 1.0), 1.0)
    assert not course.take(progress(1, 2.0), 6.0)
    assert not course.take(progress(1, 3.0), 20.0)
    assert course.take(progress(1, 3.0), 25.0)
    assert course.rates == {1: pytest.approx(2 / 24)}


def test_a_job_that_is_done_early_tells_what_it_can() -> None:
    course = ProfileCourse((1, 2), warm_up_seconds=2.0, seconds=4.0)
    course.take(switched(1, 10.0), 0.0)
    assert course.take(ctl.Completed(generation=1, iterations_done=40.0), 1.5)
    assert course.rates == {1: 20.0}
    assert course.size is None


# --- with processes --------------------------------------------------------------------------


def ask(node: Node, job_id: str = "a", spec: WorkerSpecification | None = None, **job: Any) -> None:
    """Submit a job that nobody knows, and have it tried out."""
    node.given(submitted(job_id, model="new", worker=spec or worker(), **job))
    node.given(profile_asked(job_id))


def folder(node: Node, job_id: str = "a") -> Path:
    return JobDirectory.of_profile(node.home, job_id).path


@processes
def test_a_job_is_tried_out_at_every_size(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            ask(node)
            answer = await node.until(ev.CurveProfiled)
            assert (answer.curve.model, answer.curve.global_batch) == ("new", 64)
            rates = answer.curve.iterations_per_second
            assert list(rates) == [1, 2, 4]
            assert rates[1] < rates[2] < rates[4]
            await node.when(lambda: not folder(node).exists())
            assert not any(isinstance(e, ev.GenerationSwitched) for e in node.reports)
            assert node.samples == []
            node.assert_sound()

    run(story)


@processes
def test_a_profile_that_fails_tells_why(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            ask(node, "a", worker(raises="silently"))
            failed = await node.until(ev.ProfileFailed)
            assert failed.reason == ev.FailureReason.USER_CODE_FAILED
            assert "the loss is no number" in failed.message
            ask(node, "b", worker(dies_at_start=True))
            assert (await node.until(ev.ProfileFailed, "b")).reason == "CannotStart"
            await node.when(lambda: not folder(node, "b").exists())

    run(story)


@processes
def test_no_size_that_fits_is_told_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            ask(node, sizes=(64,))
            failed = await node.until(ev.ProfileFailed)
            assert (failed.reason, "64" in failed.message) == ("CannotStart", False)
            assert "4 slots" in failed.message

    run(story)


@processes
def test_profiles_come_one_after_the_other_and_end_with_their_job(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            ask(node, "a", worker(hang=0))
            ask(node, "b")
            started = folder(node) / "started"
            await node.when(lambda: started.exists() and any(started.iterdir()))
            assert not folder(node, "b").exists()
            node.given(cancellation_asked("a"), ev.JobCancelled(job_id="a"))
            await node.until(ev.CurveProfiled, "b")
            assert not folder(node).exists()
            assert not any(getattr(e, "job_id", "") == "a" for e in node.reports)

    run(story)


@processes
def test_a_profile_waits_for_room_but_not_for_ever(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            node.submit("busy")
            node.place("busy", 1, 0, 1)
            await node.until(ev.GenerationSwitched, "busy")
            ask(node, sizes=(1, 2, 4))
            answer = await node.until(ev.CurveProfiled)
            assert list(answer.curve.iterations_per_second) == [1, 2, 4]
            assert len(node.alive("busy")) == 2, "the other job trains on"

    run(story)


@processes
def test_an_executor_that_leads_again_hears_of_a_profile_once_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path / "home") as node:
            ask(node, sizes=(1,))
            while not any(isinstance(r, ev.CurveProfiled) for r in await node.backend.reports()):
                pass  # what the agent says here, the log does not get to know
            await node.lead()
            await node.until(ev.CurveProfiled)

    run(story)
