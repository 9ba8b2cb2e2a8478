"""What the charts of a run show, as numbers: shared by the page and the plots.

Times are seconds since the run's start (see :func:`span`), so that charts of different runs
can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from resilin.cell.state import Phase
from resilin.report.history import History, JobHistory
from resilin.report.readable import readable_duration

__all__ = [
    "GpusOverTime",
    "JobsOverTime",
    "SlackClass",
    "Span",
    "Step",
    "gpus_over_time",
    "had_deadline",
    "jobs_over_time",
    "mean_over",
    "slack_classes",
    "span",
    "thin",
]

Step = tuple[float, float]
"""(seconds since the run's start, value from then on)."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time a run covers.

    Attributes:
        start_seconds: The first submission, or the first change of the cluster before it.
        end_seconds: The last end of a job or change of the cluster.
    """

    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_seconds - self.start_seconds


def span(history: History) -> Span:
    """Find the time that a history covers; (0, 0) for one in which nothing happened."""
    times = [moment.at_seconds for moment in history.moments]
    for job in history.jobs.values():
        times.append(job.submitted_at_seconds)
        times.extend(at for at in (job.answered_at_seconds, job.ended_at_seconds) if at is not None)
    return Span(min(times, default=0.0), max(times, default=0.0))


@dataclass(frozen=True, slots=True)
class GpusOverTime:
    """The cluster over time, as steps.

    Attributes:
        working: GPUs that work.
        held: GPUs that jobs hold.
        effective: The sum of all jobs' speed-ups over one worker: the GPUs that would do the
            same work if training scaled linearly (ElasticFlow's equation 8, not divided).
    """

    working: list[Step]
    held: list[Step]
    effective: list[Step]


def gpus_over_time(history: History) -> GpusOverTime:
    """Take the cluster's steps from a history."""
    start = span(history).start_seconds
    moments = history.moments
    return GpusOverTime(
        [(m.at_seconds - start, float(m.gpus)) for m in moments],
        [(m.at_seconds - start, float(m.busy)) for m in moments],
        [(m.at_seconds - start, m.efficiency * m.gpus) for m in moments],
    )


@dataclass(frozen=True, slots=True)
class JobsOverTime:
    """Jobs so far, as steps.

    Attributes:
        submitted: Jobs submitted so far.
        admitted: Jobs let in so far.
        declined: Jobs declined so far.
        completed: Jobs done so far.
    """

    submitted: list[Step]
    admitted: list[Step]
    declined: list[Step]
    completed: list[Step]


def jobs_over_time(history: History) -> JobsOverTime:
    """Count a history's jobs over time."""
    start = span(history).start_seconds
    jobs = list(history.jobs.values())

    def count(at: Callable[[JobHistory], float | None]) -> list[Step]:
        times = sorted(t - start for t in map(at, jobs) if t is not None)
        # Of several jobs at one time only the last count is a step.
        return list({time: (time, float(n)) for n, time in enumerate(times, 1)}.values())

    def answered(*, declined: bool) -> Callable[[JobHistory], float | None]:
        return lambda job: (
            job.answered_at_seconds if (job.outcome is Phase.REJECTED) is declined else None
        )

    return JobsOverTime(
        submitted=count(lambda job: job.submitted_at_seconds),
        admitted=count(answered(declined=False)),
        declined=count(answered(declined=True)),
        completed=count(
            lambda job: job.ended_at_seconds if job.outcome is Phase.COMPLETED else None
        ),
    )


def thin(steps: Sequence[Step], buckets: int) -> list[Step]:
    """Leave out the steps that a chart ``buckets`` pixels wide could not show.

    Of each bucket of time the first, the lowest, the highest and the last step stay, so
    every peak, every trough and every value at a bucket's edge survives: the M4 aggregation
    of Jugel et al., *M4: A Visualization-Oriented Time Series Data Aggregation*, PVLDB 7(10),
    2014.

    Args:
        steps: Steps in order of time.
        buckets: Buckets of equal width over the steps' time.

    Returns:
        At most ``4 * buckets`` of the steps, in their order; all of them if they are fewer.
    """
    if len(steps) <= 4 * buckets:
        return list(steps)
    first, last = steps[0][0], steps[-1][0]
    width = (last - first) / buckets
    members: dict[int, list[int]] = {}
    for place, (at, _) in enumerate(steps):
        members.setdefault(min(buckets - 1, int((at - first) / width)), []).append(place)
    kept: list[Step] = []
    for places in members.values():
        lowest = min(places, key=lambda place: steps[place][1])
        highest = max(places, key=lambda place: steps[place][1])
        kept.extend(steps[place] for place in sorted({places[0], lowest, highest, places[-1]}))
    return kept


def mean_over(steps: Sequence[Step], edges: Sequence[float]) -> list[float]:
    """Average steps over each interval between two edges; 0 before the first step.

    Args:
        steps: Steps in order of time.
        edges: Ascending times, in the steps' seconds.

    Returns:
        One time-weighted mean for each of the ``len(edges) - 1`` intervals.
    """
    means: list[float] = []
    place, value = 0, 0.0
    for begin, end in pairwise(edges):
        area, at = 0.0, begin
        while place < len(steps) and steps[place][0] < end:
            until = max(at, steps[place][0])
            area += value * (until - at)
            at, value = until, steps[place][1]
            place += 1
        area += value * (end - at)
        means.append(area / (end - begin) if end > begin else value)
    return means


def had_deadline(job: JobHistory) -> bool:
    """Say whether a job was let in with a deadline and not cancelled: it is met or late."""
    return job.deadline_seconds is not None and job.outcome not in (
        Phase.SUBMITTED,
        Phase.REJECTED,
        Phase.CANCELLED,
    )


@dataclass(frozen=True, slots=True)
class SlackClass:
    """Jobs that were done about equally long before (or after) their deadline.

    Attributes:
        label: How long, such as ``1 h - 6 h``.
        late: Whether the deadline was missed.
        jobs: How many jobs.
        promised: How many of them were promised their deadline.
    """

    label: str
    late: bool
    jobs: int
    promised: int


_SLACK_EDGES = (60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0)


def slack_classes(history: History) -> list[SlackClass]:
    """Sort the jobs that were let in with a deadline by their slack.

    Returns:
        Classes from never done, over the latest, to the earliest; their jobs add up to the
        summary's ``met + late``.
    """
    unfinished: list[JobHistory] = []
    late: list[list[JobHistory]] = [[] for _ in range(len(_SLACK_EDGES) + 1)]
    early: list[list[JobHistory]] = [[] for _ in range(len(_SLACK_EDGES) + 1)]
    for job in history.jobs.values():
        if not had_deadline(job):
            continue
        slack = job.slack_seconds
        if slack is None:
            unfinished.append(job)
        else:
            place = sum(abs(slack) >= edge for edge in _SLACK_EDGES)
            # By `met`, not by the sign: the slack of a job done in time may round below zero.
            (early if job.met else late)[place].append(job)
    groups = [
        ("not done", True, unfinished),
        *[(_slack_label(place), True, late[place]) for place in reversed(range(len(late)))],
        *[(_slack_label(place), False, jobs) for place, jobs in enumerate(early)],
    ]
    return [
        SlackClass(label, is_late, len(jobs), sum(job.promised for job in jobs))
        for label, is_late, jobs in groups
    ]


def _slack_label(place: int) -> str:
    if place == 0:
        return f"< {readable_duration(_SLACK_EDGES[0])}"
    if place == len(_SLACK_EDGES):
        return f"> {readable_duration(_SLACK_EDGES[-1])}"
    low, high = (readable_duration(edge) for edge in _SLACK_EDGES[place - 1 : place + 1])
    low_number, low_unit = low.split(" ")
    short = low_number if high.endswith(low_unit) else low
    return f"{short}\N{EN DASH}{high}"
