"""Histories for the tests: made by hand where a shape matters, simulated where truth does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html.parser import HTMLParser

import pytest

from resilin.cell.state import Phase
from resilin.contracts.values import StopCost
from resilin.eventlog.memory import MemoryLog
from resilin.report.history import History, JobHistory, Moment
from resilin.simulation.cluster import Physics
from resilin.simulation.scenario import Cluster, configuration, opening_commands, submissions
from resilin.simulation.simulation import Simulation
from resilin.workloads import built_in_curves, generate_trace


@pytest.fixture
def make_job() -> Callable[..., JobHistory]:
    """A job that was promised its deadline, ran on four workers and met it, unless told else."""

    def make(job_id: str = "job", **changes: object) -> JobHistory:
        job = JobHistory(
            job_id,
            "resnet50",
            100.0,
            1_000.0,
            Phase.COMPLETED,
            promised=True,
            answered_at_seconds=100.0,
            started_at_seconds=110.0,
            ended_at_seconds=700.0,
            allocation=[(110.0, 4), (700.0, 0)],
        )
        for name, value in changes.items():
            getattr(job, name)
            setattr(job, name, value)
        return job

    return make


@pytest.fixture
def make_history() -> Callable[..., History]:
    """A history of the given jobs and moments."""

    def make(jobs: Iterable[JobHistory] = (), moments: Iterable[Moment] = ()) -> History:
        history = History()
        history.policy = "elasticflow"
        history.jobs = {job.job_id: job for job in jobs}
        history.moments = list(moments)
        return history

    return make


@pytest.fixture(scope="session")
def simulated() -> History:
    """A busy run: jobs that are admitted, resized, declined, and jobs without a deadline."""
    curves = built_in_curves()
    trace = generate_trace(
        jobs=60,
        seed=3,
        curves=curves,
        mean_interarrival_seconds=300.0,
        cluster_gpus=16,
        best_effort_share=0.2,
        load=1.2,
    )
    packed = {(model, batch): curve for (model, batch), curve in curves.items()}
    history = History()
    commands = opening_commands(
        0.0, Cluster(2, 8), configuration("elasticflow", StopCost()), packed
    ) + submissions(trace.jobs)
    Simulation(MemoryLog(), commands, Physics(stop_cost=StopCost()), observe=history.fold).run()
    return history


class Page(HTMLParser):
    """A page taken apart; fails on tags that do not match, and on an id that is used twice."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input", "base"})
    # What SVG lets close itself.
    SHAPES = frozenset({"rect", "path"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: set[str] = set()
        self.figures: dict[str, str] = {}
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self._figure: tuple[str, int] | None = None
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"an attribute of {tag} is there twice"
        self.tags.append((tag, attributes))
        if identity := attributes.get("id"):
            assert identity not in self.ids, f"id {identity} is there twice"
            self.ids.add(identity)
        if tag in self.VOID:
            return
        self.open.append(tag)
        if name := attributes.get("data-figure"):
            self._figure = (name, len(self.open))
            self.figures[name] = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.SHAPES, f"{tag} cannot close itself"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes {self.open[-1]}"
        if self._figure and self._figure[1] == len(self.open):
            self._figure = None
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))
        if self._figure:
            self.figures[self._figure[0]] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of this name."""
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, *inside: str) -> str:
        """All text within elements of these names."""
        return " ".join(data for path, data in self.texts if set(inside) <= set(path))


@pytest.fixture
def parse() -> Callable[[str], Page]:
    """Take a page apart."""
    return Page
