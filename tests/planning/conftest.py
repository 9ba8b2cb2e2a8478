"""An interpreter of plans and a small cluster, both independent of the library under test.

Neither uses the planning library's own arithmetic: the interpreter first cuts every moment of
standing still out of a plan and only then counts iterations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from resilin.planning.curves import ThroughputCurve
from resilin.planning.policies.policy import Admission, AllocationPlan, Policy, Refusal
from resilin.planning.view import Binding, ClusterView, JobView, Plan, Segment, SizeTable

# A job that ends this much after its deadline is in time: floating point is no broken promise.
ROUNDING_SECONDS = 1e-5


class Jobs:
    """Builds size tables and jobs from few numbers."""

    @staticmethod
    def table(rates: Mapping[int, float], stop: float | Sequence[float] = 0.0) -> SizeTable:
        """A table from ``{workers: iterations per second}``, one stop for all or one each."""
        curve = ThroughputCurve.from_mapping(rates)
        stops = [stop] * len(curve.workers) if isinstance(stop, int | float) else list(stop)
        stop_of = dict(zip(curve.workers, stops, strict=True))
        cut = curve.cut_at_peak()
        return SizeTable(cut, [stop_of[count] for count in cut.workers])

    @staticmethod
    def job(
        name: str, table: SizeTable, work: float, deadline: float = math.inf, **more: object
    ) -> JobView:
        """A guaranteed job; its order is the number its name ends with, if any."""
        digits = "".join(letter for letter in name if letter.isdigit())
        fields: dict[str, object] = {
            "job_id": name,
            "order": int(digits or 0),
            "binding": Binding.GUARANTEED,
            "deadline_seconds": deadline,
            "remaining_iterations": work,
            "table": table,
        }
        return JobView(**{**fields, **more})  # type: ignore[arg-type]  # fields by name

    @classmethod
    def whole_job(
        cls,
        name: str,
        rates: Mapping[int, float],
        work: float,
        deadline: float = math.inf,
        stop: float = 0.0,
        **more: object,
    ) -> JobView:
        """A job that knows the sizes past its curve's peak as well."""
        curve = ThroughputCurve.from_mapping(rates)
        full = SizeTable(curve, [stop] * len(curve.workers))
        table = cls.table(rates, stop)
        return cls.job(name, table, work, deadline, full_table=full, **more)


class Plans:
    """What plans mean, told independently of the library."""

    @staticmethod
    def training(
        job: JobView, plan: Plan, now: float, allowance: float = 0.0
    ) -> list[tuple[float, float, float]]:
        """When the job trains and how fast: (from, to, iterations per second).

        Every change of size and every resumption costs the stop of the new size; a change
        during a stop starts a new stop. The allowance is cut off the front of what is left.
        """
        size_from = {now: 0}
        for start, end, size in plan:
            if end > now:
                size_from[max(start, now)] = size
                size_from[end] = 0  # a segment that begins there overwrites it
        moments = sorted(size_from)
        held, still_until = job.workers, job.resumes_at_seconds
        intervals: list[tuple[float, float, float]] = []
        for start, end in itertools.pairwise(moments):
            size = size_from[start]
            if size != held:
                still_until = start + (job.table.stop_at[size] if size else 0.0)
            held = size
            if size and max(start, still_until) < end:
                intervals.append((max(start, still_until), end, job.table.rate_at[size]))
        shortened: list[tuple[float, float, float]] = []
        for start, end, rate in intervals:
            lost = min(allowance, end - start)
            allowance -= lost
            if start + lost < end:
                shortened.append((start + lost, end, rate))
        return shortened

    @classmethod
    def finish(cls, job: JobView, plan: Plan, now: float, allowance: float = 0.0) -> float:
        """When the plan finishes the job's work; infinite if it does not."""
        left = job.remaining_iterations
        for start, end, rate in cls.training(job, plan, now, allowance):
            if left <= (end - start) * rate + ROUNDING_SECONDS * rate:
                return start + left / rate
            left -= (end - start) * rate
        return math.inf

    @classmethod
    def needed(cls, job: JobView, plan: Plan, now: float) -> Plan:
        """The part of a plan that is still to come and that the job needs to finish."""
        finish = cls.finish(job, plan, now)
        return tuple(
            (max(start, now), min(end, finish), size)
            for start, end, size in plan
            if end > now and start < finish
        )

    @staticmethod
    def in_use(plans: Iterable[Iterable[Segment]], moment: float) -> int:
        """GPUs in use at a moment."""
        return sum(size for plan in plans for start, end, size in plan if start <= moment < end)

    @classmethod
    def peak(cls, plans: Iterable[Plan]) -> int:
        """The most GPUs in use at any moment, rounding aside; it is reached at some start."""
        shorter = [
            [(start, end - ROUNDING_SECONDS, size) for start, end, size in plan] for plan in plans
        ]
        starts = {start for plan in shorter for start, _, _ in plan}
        return max((cls.in_use(shorter, start) for start in sorted(starts)), default=0)

    @staticmethod
    def assert_well_formed(job: JobView, plan: Plan, now: float) -> None:
        """Segments are in order, disjoint, not empty, not in the past, of allowed sizes."""
        until = now
        for start, end, size in plan:
            assert until <= start < end, plan
            assert size in job.table.sizes, plan
            until = end


@dataclass
class Arrival:
    """A job that is going to be submitted, with its deadline counted from then."""

    at: float
    work: float
    table: SizeTable
    binding: Binding = Binding.GUARANTEED
    allowed_seconds: float = math.inf
    requested: int = 1


@dataclass
class Running:
    """A job of the small cluster."""

    name: str
    order: int
    arrival: Arrival
    left: float
    workers: int = 0
    resumes_at: float = -math.inf
    plan: Plan = ()
    promised: bool = False
    finished_at: float = math.inf

    @property
    def deadline(self) -> float:
        return self.arrival.at + self.arrival.allowed_seconds

    def view(self, now: float) -> JobView:
        return JobView(
            job_id=self.name,
            order=self.order,
            binding=self.arrival.binding,
            deadline_seconds=self.deadline,
            remaining_iterations=self.left,
            table=self.arrival.table,
            workers=self.workers,
            resumes_at_seconds=max(self.resumes_at, now) if self.resumes_at > now else -math.inf,
            plan=self.plan,
            requested_workers=self.arrival.requested,
        )

    def ends_at(self, now: float) -> float:
        if not self.workers:
            return math.inf
        return max(now, self.resumes_at) + self.left / self.arrival.table.rate_at[self.workers]

    def train(self, since: float, until: float) -> None:
        if self.workers:
            trained = max(0.0, until - max(since, self.resumes_at))
            self.left -= trained * self.arrival.table.rate_at[self.workers]


@dataclass
class Cluster:
    """A cluster in a closed loop with a policy: jobs arrive, are judged, train and end.

    Attributes:
        policy: The policy under test.
        gpus: GPUs that work.
        promised_gpus: GPUs that promises count on.
        margin: The margin of promises.
        live: Jobs that came in and have not ended.
        ended: Jobs that have ended.
        refused: Names of refused jobs.
        look: Sees the view and the answer each time the policy has planned.
    """

    policy: Policy
    gpus: int
    promised_gpus: int
    margin: float = 0.0
    now: float = 0.0
    live: list[Running] = field(default_factory=list)
    ended: list[Running] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    look_again: float | None = None
    look: Callable[[ClusterView, AllocationPlan], None] | None = None

    def view(self) -> ClusterView:
        jobs = tuple(job.view(self.now) for job in self.live)
        return ClusterView(self.now, self.gpus, self.promised_gpus, jobs, self.margin)

    def run(
        self,
        arrivals: Sequence[Arrival],
        replans: Sequence[float] = (),
        capacity: Sequence[tuple[float, int]] = (),
        most_events: int = 400,
    ) -> None:
        """Run until every job that came in has ended.

        ``replans`` are further moments at which the policy is asked, without any cause;
        ``capacity`` are changes of the GPUs that work.
        """
        waiting = sorted(enumerate(arrivals), key=lambda pair: (pair[1].at, pair[0]))
        nudges = sorted(set(replans))
        changes = sorted(capacity)
        for _ in range(most_events):
            moments = [job.ends_at(self.now) for job in self.live]
            moments += [waiting[0][1].at] if waiting else []
            moments += nudges[:1]
            moments += [changes[0][0]] if changes else []
            moments += [self.look_again] if self.look_again is not None else []
            if not waiting and not self.live:
                return
            self.advance(min(moments))
            while nudges and nudges[0] <= self.now:
                nudges.pop(0)
            while changes and changes[0][0] <= self.now:
                self.gpus = changes.pop(0)[1]
            while waiting and waiting[0][1].at <= self.now:
                self.submit(*waiting.pop(0))
            self.replan()
        raise AssertionError(f"not over after {most_events} events: {self.live}")

    def advance(self, moment: float) -> None:
        assert moment >= self.now, "the policy wants to look again in the past"
        assert moment < math.inf, f"nobody will ever continue: {self.live}"
        for job in self.live:
            ends = job.ends_at(self.now)
            job.train(self.now, moment)
            if ends <= moment or job.left <= 1e-9:
                job.finished_at = moment
                self.ended.append(job)
        self.live = [job for job in self.live if job.finished_at == math.inf]
        self.now = moment

    def submit(self, order: int, arrival: Arrival) -> Admission | Refusal:
        job = Running(f"job-{order}", order, arrival, arrival.work)
        answer = self.policy.judge(self.view(), job.view(self.now))
        if isinstance(answer, Refusal):
            self.refused.append(job.name)
            return answer
        job.promised, job.plan = answer.promised, answer.plan
        for other in self.live:
            other.plan = answer.plans_moved.get(other.name, other.plan)
        self.live.append(job)
        return answer

    def replan(self) -> AllocationPlan:
        view = self.view()
        plan = self.policy.plan(view)
        if self.look is not None:
            self.look(view, plan)
        assert set(plan.workers) == {job.name for job in self.live}
        assert sum(plan.workers.values()) <= self.gpus, "more planned than works"
        for job in self.live:
            job.plan = plan.plans.get(job.name, job.plan)
            size = plan.workers[job.name]
            assert size == 0 or size in job.arrival.table.sizes
            if size != job.workers:
                job.workers = size
                job.resumes_at = self.now + (job.arrival.table.stop_at[size] if size else 0.0)
        self.look_again = plan.look_again_seconds
        return plan

    def late(self) -> list[Running]:
        """The promised jobs that have ended, or are still to end, after their deadline."""
        return [
            job
            for job in (*self.ended, *self.live)
            if job.promised and job.finished_at > job.deadline + ROUNDING_SECONDS
        ]


@pytest.fixture(scope="session")
def make() -> type[Jobs]:
    """Builders for tables and jobs."""
    return Jobs


@pytest.fixture(scope="session")
def plans() -> type[Plans]:
    """The independent interpreter of plans."""
    return Plans


@pytest.fixture(scope="session")
def cluster() -> type[Cluster]:
    """The closed loop; build one with a policy and GPUs."""
    return Cluster


@pytest.fixture(scope="session")
def arrival() -> type[Arrival]:
    """A job for the closed loop."""
    return Arrival
