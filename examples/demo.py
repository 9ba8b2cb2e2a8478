"""The demonstration: real jobs with deadlines on this machine, in a few minutes.

``make demo`` runs it. It does what a user would do, by the commands that a user has: starts a
cell, submits jobs, has one refused, kills a worker, ends the cell. What it shows is read from the
log. In the end it holds the run against what was promised, and exits with 0 only if all is so.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from demo_replay import decisions
from demo_story import Story, say, table

from resilin.agent.job_directory import JobDirectory
from resilin.cell.state import Phase
from resilin.contracts import events as ev
from resilin.simulation.recorded import run_again

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

PATIENCE_SECONDS = 300.0
"""How long anything may take before the demonstration gives up: a busy machine is slow."""
BEGIN_SECONDS = 20.0
"""How long a cell that was interrupted while it began is waited for, to end it."""
MEASURED_SECONDS = 7.0
"""How long a profile stays at each size; what it takes beside that is for starting workers."""
LEAST_GAIN = 1.1
"""Two workers have to be so much faster than one, or a job would rightly not grow."""
ROOM, ROOM_SECONDS = 2.5, 90.0
"""Deadlines leave so many times the time that one worker takes, and so much more: machines are
noisy, and a job that seems to be done and has not said so is planned with a minute more."""


class NotSoError(Exception):
    """Something that is to be shown did not happen; the text says what."""


# --- the cell, by its command line ---------------------------------------------------------


class Cell:
    """A cell in a folder of its own, driven as a user drives it.

    Args:
        home: The folder.
        meanwhile: Called again and again while a command runs.
    """

    def __init__(self, home: Path, meanwhile: Callable[[], None]) -> None:
        self.home = home
        self._meanwhile = meanwhile

    def resilin(self, *arguments: object) -> tuple[int, dict[str, Any]]:
        """Run a command; return its exit code and the object that it prints."""
        words = [str(argument) for argument in arguments]
        output = self.home / "command.output"
        with output.open("w+", encoding="utf-8") as stdout:
            process = subprocess.Popen(  # noqa: S603 (this project's own command line)
                [sys.executable, "-m", "resilin.cli", *words, "-o", "json"],
                cwd=ROOT,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
            )
            while process.poll() is None:
                self._meanwhile()
                time.sleep(0.1)
            self._meanwhile()
            stdout.seek(0)
            said = stdout.read()
        assert process.stderr is not None, "it is a pipe"  # noqa: S101 (invariant)
        with process.stderr:
            complaint = process.stderr.read().strip()
        if not said:
            raise NotSoError(f"resilin {words[0]} exited with {process.returncode}: {complaint}")
        return process.returncode, json.loads(said)

    def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        """Submit a job, its name being its id; return what it is answered."""
        name = job["metadata"]["name"]
        file = self.home / f"{name}.yaml"
        file.write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
        arguments = ("-f", file, "--id", name, "--timeout", PATIENCE_SECONDS)
        _, answer = self.resilin("submit", *arguments, "--home", self.home)
        answered: dict[str, Any] = answer["jobs"][0]
        return answered

    def reckon_with_live_resizes(self) -> None:
        """Set what a change of workers is reckoned to cost: by default seconds, as by restarts.

        A job grows only where that wins back twice what the change costs.
        """
        _, settings = self.resilin("cell", "show", "--home", self.home)
        settings["stopCost"] = {"fixedSeconds": 1.0, "perDoublingSeconds": 0.5}
        file = self.home / "cell-settings.yaml"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self.resilin("cell", "configure", "-f", file, "--yes", "--home", self.home)

    def down(self) -> bool:
        """End the cell, whatever else has gone wrong; say whether one ran."""
        done = subprocess.run(  # noqa: S603 (this project's own command line)
            [sys.executable, "-m", "resilin.cli", "down", "--home", str(self.home)],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode == 0

    def kill_a_worker(self, job_id: str) -> int:
        """Kill the youngest of a job's workers, as nobody can prevent; return its process."""
        folder = str(JobDirectory.of_job(self.home, job_id).path)
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_text(errors="replace").split("\0")
            except OSError:
                continue  # it has ended meanwhile
            if "resilin.elastic.worker" in words and folder in words:
                found.append(int(process.name))
        if not found:
            raise NotSoError(f"{job_id} has no worker to kill")
        os.kill(max(found), signal.SIGKILL)
        return max(found)


# --- jobs that fit this machine ------------------------------------------------------------


@dataclass
class Kind:
    """One of the example jobs, and what this machine makes of it.

    Attributes:
        job: The specification, from the file beside this one.
        rates: Iterations per second by the number of workers, as the cell has measured them.
        start_seconds: What it takes to start a worker, about.
    """

    job: dict[str, Any]
    rates: dict[int, float] = field(default_factory=dict)
    start_seconds: float = 5.0

    @classmethod
    def read(cls, name: str) -> Kind:
        """Read an example."""
        return cls(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")))

    @property
    def name(self) -> str:
        """Its name in the file."""
        return str(self.job["metadata"]["name"])

    @property
    def gain(self) -> float:
        """How much faster two workers are than one."""
        return self.rates.get(2, 0.0) / self.rates[1]

    def sized(
        self, name: str, seconds: float, *, deadline: str = "", **hyperparameters: object
    ) -> dict[str, Any]:
        """Return such a job that keeps one worker busy for about so long.

        Args:
            name: Its name.
            seconds: How long one worker takes.
            deadline: Its deadline; by default one that this machine can keep with ease.
            hyperparameters: Values for its code.
        """
        job = copy.deepcopy(self.job)
        job["metadata"]["name"] = name
        spec = job["spec"]
        rate = self.rates.get(1, 1.0)
        spec["workload"] = {"totalIterations": max(10, round(seconds * rate))}
        room = math.ceil(ROOM * seconds + 6 * self.start_seconds + ROOM_SECONDS)
        spec["deadline"] = deadline or f"{room}s"
        spec["worker"]["directory"] = str(EXAMPLES)
        spec["worker"].setdefault("hyperparameters", {}).update(hyperparameters)
        return job


def try_out(cell: Cell, story: Story, kind: Kind) -> None:
    """Ask for the impossible, so that the cell tries the job out before it refuses."""
    name = f"{kind.name}-at-once" if not kind.rates else f"{kind.name}-at-once-again"
    answer = cell.submit(kind.sized(name, 3600.0, deadline="1s"))
    if answer["admitted"] is not False or not has_counter_offer(answer):
        raise NotSoError(f"{name} was not refused with a counter-offer: {answer}")
    (tried,) = story.events(ev.CurveProfiled, name)
    (asked,) = story.events(ev.ProfileRequested, name)
    kind.rates = dict(tried.event.curve.iterations_per_second)
    measured = MEASURED_SECONDS * len(kind.rates)
    kind.start_seconds = max(5.0, tried.at_seconds - asked.at_seconds - measured)


# --- the demonstration ---------------------------------------------------------------------


def prepare(cell: Cell) -> None:
    """Make the folder, and clear what an earlier demonstration has left in it."""
    home = cell.home
    if home.exists() and any(home.iterdir()) and not (home / "command.output").exists():
        raise NotSoError(f"{home} is not empty, and not from an earlier demonstration")
    if home.exists():
        cell.down()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)


def demonstrate(cell: Cell, story: Story, *, quick: bool) -> list[str]:
    """Play the story; return the jobs that were admitted."""
    text, digits, regression = map(Kind.read, ("text", "digits", "regression"))
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        story.tell(f"this machine is busy already ({load:.0f} tasks, {cores} cores): be patient")
    story.tell("nothing is known of these jobs: each is asked for at once, and tried out first")
    try_out(cell, story, text)
    if text.gain < LEAST_GAIN:
        story.tell(f"two workers make {text.gain:.2f} times what one does: larger batches now")
        text.job["spec"]["globalBatch"] *= 2
        try_out(cell, story, text)
    if text.gain < LEAST_GAIN:
        raise NotSoError(
            f"two workers make only {text.gain:.2f} times what one does on this machine: it is"
            " too busy to show a job that grows"
        )
    kinds = [regression] if quick else [digits, regression]
    for kind in kinds:
        try_out(cell, story, kind)

    story.tell("a short job comes, and a long one that gets what is left")
    admit(cell, regression.sized("regression", 5.0))
    admit(cell, text.sized("text", 40.0 if quick else 60.0 + 4 * min(20.0, text.start_seconds)))
    story.wait("regression has ended", lambda: story.ended("regression"))
    story.wait("text has grown", lambda: story.workers.get("text", 0) > 1 or story.ended("text"))
    if quick:
        refuse(cell, text)
        story.wait("text has ended", lambda: story.ended("text"))
        return ["regression", "text"]

    story.rest(2)
    process = cell.kill_a_worker("text")
    story.tell(f"kill -9 {process}: a worker of text")
    story.wait("the killed worker is made up for", lambda: made_up_for(story, "text"))

    story.tell("two more jobs come, and one that wants what nobody can give")
    admit(cell, digits.sized("digits", 15.0))
    refuse(cell, text)
    admit(cell, regression.sized("regression-2", 8.0, seed=1))
    jobs = ["regression", "text", "digits", "regression-2"]
    story.wait("all have ended", lambda: all(map(story.ended, jobs)))
    return jobs


def admit(cell: Cell, job: dict[str, Any]) -> None:
    """Submit a job that has to be admitted with a promise."""
    answer = cell.submit(job)
    if not (answer["admitted"] and answer["promised"]):
        raise NotSoError(f"{answer['job_id']} was not promised its deadline: {answer}")


def refuse(cell: Cell, kind: Kind) -> None:
    """Submit a job that has to be refused, with a counter-offer."""
    answer = cell.submit(kind.sized("urgent", 60.0, deadline=f"{60 / len(kind.rates) / 4:.0f}s"))
    if answer["admitted"] is not False or not has_counter_offer(answer):
        raise NotSoError(f"urgent was not refused with a counter-offer: {answer}")


def has_counter_offer(answer: dict[str, Any]) -> bool:
    """Say whether a refusal names a deadline that would be accepted."""
    return answer.get("counter_offer", {}).get("earliest_deadline") is not None


def made_up_for(story: Story, job_id: str) -> bool:
    """Say whether a job has lost a worker and has as many as before again, or has ended."""
    lost = [each.at_seconds for each in story.events(ev.WorkerLost, job_id)]
    replaced = [each.at_seconds for each in story.events(ev.WorkerReplaced, job_id)]
    switched = [each.at_seconds for each in story.events(ev.GenerationSwitched, job_id)]
    whole = bool(lost) and switched[-1] > lost[-1]
    return bool(replaced) or whole or story.ended(job_id)


# --- what came of it -----------------------------------------------------------------------


def sum_up(cell: Cell, story: Story, jobs: list[str]) -> None:
    """Print a row for every job that was admitted."""
    from resilin.elastic.checkpoint_io import load_newest

    rows = []
    for job_id in jobs:
        past = story.history.jobs[job_id]
        sizes = story.sizes(job_id)
        stops = [f"{1000 * stop:.0f} ms" for _, stop in sizes if stop is not None]
        trained = load_newest(JobDirectory.of_job(cell.home, job_id).checkpoints)
        loss = None if trained is None else trained["progress"]["loss"]
        rows.append(
            [
                job_id,
                seconds_text(past.deadline_seconds, past.submitted_at_seconds),
                seconds_text(past.ended_at_seconds, past.submitted_at_seconds),
                "-" if past.slack_seconds is None else f"{past.slack_seconds:.0f}s",
                " ".join(str(size) for size, _ in sizes),
                f"{len(stops)}: {', '.join(stops)}" if stops else "0",
                "-" if loss is None else f"{loss:.3f}",
            ]
        )
    say()
    columns = ("job", "deadline", "finished", "slack", "workers", "resizes, each stop", "loss")
    table(columns, rows)


def seconds_text(moment: float | None, since: float) -> str:
    """Write a moment as seconds after another."""
    return "-" if moment is None else f"{moment - since:.0f}s"


def replay(story: Story) -> bool:
    """Run the same commands in the same world in simulation; say whether all is decided alike."""
    live, again = decisions(story.entries), decisions(run_again(story.entries))
    rows = []
    for job_id, made in live.items():
        repeated = again.get(job_id)
        rows.append(
            [
                job_id,
                made.answer,
                " ".join(map(str, made.shares)) or "-",
                "-" if repeated is None else repeated.answer,
                "-" if repeated is None else " ".join(map(str, repeated.shares)) or "-",
                "same" if repeated == made else "OTHERWISE",
            ]
        )
    say()
    say("The same submissions in simulation, with the throughput and the stops measured here:")
    say()
    table(("job", "live", "shares", "simulated", "shares", "answer, shares and slots"), rows)
    return live == again


def hold_to_account(cell: Cell, story: Story, jobs: list[str], *, quick: bool) -> bool:
    """Hold the run against what is promised of it; say whether all is so."""
    past = [story.history.jobs[job_id] for job_id in jobs]
    refused = [
        job_id
        for job_id, job in story.history.jobs.items()
        if job.outcome is Phase.REJECTED and job.earliest_deadline_seconds is not None
    ]
    resizes = {job_id: sum(stop is not None for _, stop in story.sizes(job_id)) for job_id in jobs}
    most = max(resizes, key=lambda job_id: resizes[job_id])
    lost = [*story.events(ev.WorkerLost, "text"), *story.events(ev.WorkerReplaced, "text")]
    code, verified = cell.resilin("verify", cell.home / "log.resilin")
    same_decisions = replay(story)
    least_jobs, least_resizes = (2, 1) if quick else (4, 2)
    promises = [
        (f"{len(jobs)} real jobs trained", len(jobs) >= least_jobs),
        ("every admitted deadline is kept", all(job.met for job in past)),
        (f"resizes of {most} while it trained: {resizes[most]}", resizes[most] >= least_resizes),
        (f"{len(refused)} jobs were refused with a counter-offer", bool(refused)),
        (
            f"resilin verify: {verified['decisions_recomputed']} decisions recomputed from the"
            " log, all the same; no invariant broken",
            code == 0 and verified["sound"],
        ),
        ("a simulation of the same submissions decides alike", same_decisions),
    ]
    if not quick:
        promises.insert(3, ("a worker was killed, and its job went on", bool(lost)))
    say()
    for what, is_so in promises:
        say(f"  {'yes' if is_so else 'NO '}  {what}")
    return all(is_so for _, is_so in promises)


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("out/demo"), help="the cell's folder")
    slots = max(2, min(4, os.cpu_count() or 1))
    parser.add_argument("--slots", type=int, default=slots, help="workers at once (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="two jobs only, and nobody killed")
    options = parser.parse_args()
    home = options.home.absolute()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    story = Story(home / "log.resilin", PATIENCE_SECONDS)
    cell = Cell(home, story.look)
    begun = False
    try:
        prepare(cell)
        begun = True
        _, running = cell.resilin("up", "--home", home, "--slots", options.slots)
        story.open()
        story.tell(f"resilin up: {options.slots} slots, in {home}, process {running['pid']}")
        cell.reckon_with_live_resizes()
        jobs = demonstrate(cell, story, quick=options.quick)
        sum_up(cell, story, jobs)
        return 0 if hold_to_account(cell, story, jobs, quick=options.quick) else 1
    except (NotSoError, TimeoutError) as error:
        say(f"NO   {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        story.close()
        until = time.monotonic() + BEGIN_SECONDS
        # Interrupted while it began, it may be about to run.
        while begun and not cell.down() and not story.entries and time.monotonic() < until:
            time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
