"""ElasticFlow's admission: what it promises can be kept, and what it refuses is explained."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from resilin.planning.policies.elasticflow import ElasticFlow
from resilin.planning.policies.policy import Admission, Refusal
from resilin.planning.view import Binding, ClusterView, JobView

POLICY = ElasticFlow()
NEAR = 1e-6


@dataclass(frozen=True, order=True)
class Asked:
    """A job in plain numbers, submitted at second 0."""

    rates: tuple[tuple[int, float], ...]
    work: float
    deadline: float
    stop: float = 0.0


CONCAVE = ((1, 1.0), (2, 1.5), (4, 2.0))
LINEAR = ((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0))
COARSE = ((2, 1.5), (3, 2.0))


def jobs_of(make, asked: Iterable[Asked]) -> list[JobView]:
    return [
        make.job(f"job-{order}", make.table(dict(one.rates), one.stop), one.work, one.deadline)
        for order, one in enumerate(asked)
    ]


def submitted(
    jobs: Iterable[JobView], gpus: int, margin: float = 0.0, now: float = 0.0
) -> tuple[ClusterView, list[Admission | Refusal]]:
    """Submit one by one; return the view with those that came in, and all answers."""
    view = ClusterView(now, gpus, gpus, (), margin)
    answers = []
    for job in jobs:
        answer = POLICY.judge(view, job)
        answers.append(answer)
        if isinstance(answer, Admission):
            others = (
                replace(other, plan=answer.plans_moved.get(other.job_id, other.plan))
                for other in view.jobs
            )
            view = replace(view, jobs=(*others, replace(job, plan=answer.plan)))
    return view, answers


def assert_kept(plans, view: ClusterView) -> None:
    """All plans of the view can be followed at once, and each keeps its promise."""
    needed = []
    for job in view.jobs:
        plans.assert_well_formed(job, job.plan, view.now_seconds)
        finish = plans.finish(job, job.plan, view.now_seconds)
        assert finish <= job.deadline_seconds - view.margin_seconds + NEAR, job
        needed.append(job.plan)
    assert plans.peak(needed) <= view.promised_gpus


@functools.cache
def possible(asked: tuple[Asked, ...], gpus: int) -> bool:
    """Whether any schedule at all meets all deadlines, where changing a size costs nothing.

    Exact: nothing changes between two deadlines, so a schedule is how long the cluster
    spends there in each of the ways to divide its GPUs, and that is a linear program.
    """
    edges = [0.0, *sorted({one.deadline for one in asked})]
    columns: list[tuple[int, list[float]]] = []
    for interval, start in enumerate(edges[:-1]):
        live = [one.deadline > start for one in asked]
        choices = [
            [(0, 0.0), *one.rates] if lives else [(0, 0.0)]
            for one, lives in zip(asked, live, strict=True)
        ]
        for way in itertools.product(*choices):
            if sum(size for size, _ in way) <= gpus:
                columns.append((interval, [-rate for _, rate in way]))
    lengths = np.diff(edges)
    share = np.zeros((len(lengths), len(columns)))
    for column, (interval, _) in enumerate(columns):
        share[interval, column] = 1.0
    work = np.array([rates for _, rates in columns]).T
    answer = linprog(
        np.zeros(len(columns)),
        A_ub=np.vstack([share, work]),
        b_ub=np.concatenate([lengths, [-one.work for one in asked]]),
        method="highs",
    )
    return bool(answer.status == 0)


@functools.cache
def possible_by_the_second(asked: tuple[Asked, ...], gpus: int) -> bool:
    """Whether a schedule that changes sizes at whole seconds meets all deadlines; stops cost.

    Plain search over all of them. Stops are whole seconds, at most one.
    """
    choices = [[(0, 0.0), *one.rates] for one in asked]
    last = int(max(one.deadline for one in asked))
    dead: set[tuple[int, tuple[float, ...], tuple[int, ...]]] = set()

    def search(second: int, left: tuple[float, ...], held: tuple[int, ...]) -> bool:
        if not any(left):
            return True
        late = any(rest and one.deadline <= second for rest, one in zip(left, asked, strict=True))
        if late or second >= last or (second, left, held) in dead:
            return False
        for way in itertools.product(*choices):
            if sum(size for size, _ in way) <= gpus:
                after = tuple(
                    max(0.0, rest - rate) if size == had or not one.stop else rest
                    for one, rest, had, (size, rate) in zip(asked, left, held, way, strict=True)
                )
                if search(second + 1, after, tuple(size for size, _ in way)):
                    return True
        dead.add((second, left, held))
        return False

    return search(0, tuple(one.work for one in asked), (0,) * len(asked))


def refusals(
    make, plans, kinds: Sequence[Asked], many: int, gpus: int
) -> Iterable[tuple[Asked, ...]]:
    """Submit every sequence of ``many`` jobs; yield those that came in with each refused one."""
    for asked in itertools.product(kinds, repeat=many):
        view, answers = submitted(jobs_of(make, asked), gpus)
        assert_kept(plans, view)
        inside: tuple[Asked, ...] = ()
        for one, answer in zip(asked, answers, strict=True):
            if answer.admitted:
                inside = (*inside, one)
            else:
                yield tuple(sorted((*inside, one)))


def kinds_of(
    rates: Sequence[tuple[tuple[int, float], ...]],
    works: Sequence[float],
    deadlines: Sequence[float],
    stop: float = 0.0,
) -> list[Asked]:
    return [Asked(*one, stop) for one in itertools.product(rates, works, deadlines)]


@pytest.mark.parametrize(
    ("many", "gpus", "kinds", "most_in_vain"),
    [
        (2, 2, kinds_of((CONCAVE, LINEAR, COARSE), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)), 0.05),
        (3, 3, kinds_of((CONCAVE, COARSE), (1.5, 3.0), (1.0, 2.0, 3.0)), 0.05),
        (3, 4, kinds_of((CONCAVE, LINEAR), (2.0, 3.0), (1.0, 2.0, 3.0)), 0.05),
        (4, 3, kinds_of((CONCAVE,), (1.0, 2.5), (1.0, 2.0)), 0.05),
    ],
)
def test_what_is_admitted_is_kept_and_little_is_refused_in_vain(
    make, plans, many: int, gpus: int, kinds: list[Asked], most_in_vain: float
) -> None:
    """Every sequence of small jobs at no resize cost, against an exact answer.

    Whatever comes in has plans that the interpreter confirms, so the impossible is never
    admitted.
    """
    refused = in_vain = 0
    for together in refusals(make, plans, kinds, many, gpus):
        refused += 1
        in_vain += possible(together, gpus)
    print(many, gpus, refused, in_vain)
    assert refused > 0
    assert in_vain <= most_in_vain * refused


@pytest.mark.parametrize(("many", "gpus"), [(2, 2), (2, 3), (3, 2)])
def test_stops_are_counted_in_every_promise(make, plans, many: int, gpus: int) -> None:
    """Every sequence of small jobs at a stop of one second, against a search by the second.

    Each promise keeps two stops in reserve, so the search must meet earlier deadlines too.
    """
    works = (1.0, 2.0) if many == 3 else (1.0, 2.0, 3.0)
    kinds = kinds_of((CONCAVE[:2],), works, (4.0, 5.0, 6.0, 7.0), stop=1.0)
    refused = in_vain = 0
    for together in refusals(make, plans, kinds, many, gpus):
        refused += 1
        reserved = tuple(replace(one, deadline=one.deadline - 2 * one.stop) for one in together)
        in_vain += possible_by_the_second(reserved, gpus)
    print(many, gpus, refused, in_vain)
    assert refused > 0
    assert in_vain <= 0.05 * refused
