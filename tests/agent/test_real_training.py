"""Jobs that really train: the node agent with the worker runtime, alone and in a whole cell."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.agent.harness import Node
from tests.support.events import BATCH, add_server, profile_asked, submit, submitted

from resilin.agent.agent_messages import Limits
from resilin.agent.backend import ELASTIC, LocalBackend, ProfileSettings
from resilin.agent.job_directory import JobDirectory
from resilin.audit.verify import verify
from resilin.contracts import events as ev
from resilin.contracts.commands import Command, ConfigureCell
from resilin.contracts.job_specification import WorkerSpecification
from resilin.contracts.topics import DEADLETTER, JOBS_COMMANDS
from resilin.contracts.values import CellConfiguration, StopCost
from resilin.embedded.cell import EmbeddedCell
from resilin.embedded.log import LocalLog
from resilin.embedded.topics import LocalTopicReader, LocalTopicWriter
from resilin.eventlog.sqlite import SqliteLog
from resilin.eventlog.sqlite_topic import SqliteTopic
from resilin.runtime.clock import WallClock
from resilin.simulation.simulation import deciders

pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("elastic")

LIMITS = Limits(graceful_stop_seconds=10.0, kill_after_seconds=2.0, progress_seconds=0.2)
PATIENCE_SECONDS = 150.0


def code(name: str = "Tiny", **hyperparameters: Any) -> WorkerSpecification:
    return WorkerSpecification(
        entrypoint=f"training_job.py:{name}",
        directory=str(Path(__file__).parent),
        hyperparameters=hyperparameters,
        checkpoint_interval_seconds=0.5,
        graceful_stop_seconds=10.0,
    )


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))


def test_a_job_grows_loses_a_worker_and_shrinks_without_losing_its_progress(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path / "home", servers={"s1": 2}, limits=LIMITS, commands=ELASTIC)
        async with node:
            node.submit("a", code(pause=0.02), iterations=10**9)
            node.place("a", 1, 0)
            first = await node.until(ev.GenerationSwitched)
            assert first.workers == 1
            await node.until(ev.ProgressReported)
            node.place("a", 2, 0, 1)
            grown = await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 2)
            assert grown.iterations_done > first.iterations_done
            await node.until(ev.ProgressReported, where=lambda e: e.generation == 2)
            victim = node.backend._jobs["a"]._workers
            os.kill(next(iter(victim.values())).pid, signal.SIGKILL)
            replaced = await node.until(ev.WorkerReplaced)
            assert "signal 9" in replaced.message
            node.place("a", 3, 1)
            await node.until(ev.GenerationSwitched, where=lambda e: e.generation == 3)
            await node.until(ev.WorkersReleased, where=lambda e: e.gpus == {"s1": (0,)})
            assert not any(isinstance(report, ev.WorkerLost) for report in node.reports)
            assert node.held() == {"s1": (1,)}
            node.assert_sound()

    run(story)


def test_a_job_that_would_end_at_once_is_tried_out_at_every_size(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path / "home", servers={"s1": 2}, limits=LIMITS, commands=ELASTIC)
        async with node:
            node.given(submitted("a", model="new", worker=code("Learned", pause=0.02)))
            node.given(profile_asked("a"))
            answer = await node.until(ev.CurveProfiled)
            assert list(answer.curve.iterations_per_second) == [1, 2]

    run(story)


def test_code_that_raises_fails_with_its_traceback(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path / "home", servers={"s1": 2}, limits=LIMITS, commands=ELASTIC)
        async with node:
            node.submit("a", code("Raises"))
            node.place("a", 1, 0, 1)
            failed = await node.until(ev.JobFailed)
            assert failed.reason == ev.FailureReason.USER_CODE_FAILED
            assert "the data has no label 7" in failed.message
            await node.when(lambda: node.held() == {})

    run(story)


def test_a_whole_cell_tries_a_new_job_out_promises_trains_and_completes_it(tmp_path: Path) -> None:
    # Workers take seconds to start, and here the machine may be busy with other tests.
    patient = CellConfiguration(stop_cost=StopCost.modelled(), promise_margin_seconds=120.0)
    commands: list[Command] = [
        ConfigureCell(command_id="configure", configuration=patient),
        add_server("s1", 2),
        submit(
            "a",
            model="new",
            iterations=300,
            within_seconds=600.0,
            worker=code(pause=0.02),
        ),
    ]
    with SqliteLog(tmp_path / "log.resilin", durable=False) as log:
        topic = SqliteTopic(tmp_path / "topics.sqlite", JOBS_COMMANDS.name)
        letters = SqliteTopic(tmp_path / "topics.sqlite", DEADLETTER.name)

        async def story() -> None:
            clock = WallClock()
            backend = LocalBackend(
                {"s1": 2},
                tmp_path,
                clock=clock.now_seconds,
                limits=LIMITS,
                profiles=ProfileSettings(warm_up_seconds=0.5, seconds=1.5, wait_seconds=5.0),
            )
            cell = EmbeddedCell(
                LocalLog(log).view,
                LocalTopicReader(topic),
                LocalTopicWriter(letters),
                backend,
                clock=clock,
            )
            for command in commands:
                topic.produce(command.model_dump_json().encode())
            running = asyncio.ensure_future(cell.run())
            while not running.done() and not ended(log):
                await asyncio.sleep(0.2)
            await asyncio.sleep(0.5)
            cell.stop()
            await running

        run(story)
        entries = list(log.read())
    facts = [event for entry in entries for event in entry.record.events]
    curve = next(fact.curve for fact in facts if isinstance(fact, ev.CurveProfiled))
    assert (curve.model, curve.global_batch) == ("new", BATCH)
    assert list(curve.iterations_per_second) == [1, 2]
    admitted = next(fact for fact in facts if isinstance(fact, ev.JobAdmitted))
    assert admitted.promised
    done = next(fact for fact in facts if isinstance(fact, ev.JobCompleted))
    assert done.iterations_done == 300
    found = verify(entries, deciders())
    assert [str(each) for each in (*found.mismatches, *found.violations)] == []
    assert not JobDirectory.of_profile(tmp_path, "a").path.exists()


def ended(log: SqliteLog) -> bool:
    ends = (ev.JobCompleted, ev.JobFailed, ev.JobRejected)
    return any(isinstance(event, ends) for entry in log.read() for event in entry.record.events)
