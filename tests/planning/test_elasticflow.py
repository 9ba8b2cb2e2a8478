"""ElasticFlow's admission: what it promises can be kept, and what it refuses is explained."""

from __future__ import annotations

import functools
import itertools
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
        columns += [
            (interval, [-rate for _, rate in way])
            for way in itertools.product(*choices)
            if sum(size for size, _ in way) <= gpus
        ]
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

    Plain search over all of them. A stop is one second, and each job must hold GPUs for two
    more seconds without training: the reserve of every promise.
    """
    choices = [[(0, 0.0), *one.rates] for one in asked]
    last = int(max(one.deadline for one in asked))
    dead = set()

    def search(second: int, left: tuple[tuple[int, float], ...], held: tuple[int, ...]) -> bool:
        if not any(work for _, work in left):
            return True
        late = any(
            work and second + still + work / one.rates[-1][1] > one.deadline
            for (still, work), one in zip(left, asked, strict=True)
        )
        if late or second >= last or (second, left, held) in dead:
            return False
        for way in itertools.product(*choices):
            if sum(size for size, _ in way) <= gpus:
                after = tuple(
                    (still, work)
                    if size != had or not size
                    else (still - 1, work)
                    if still
                    else (0, max(0.0, work - rate))
                    for (still, work), had, (size, rate) in zip(left, held, way, strict=True)
                )
                if search(second + 1, after, tuple(size for size, _ in way)):
                    return True
        dead.add((second, left, held))
        return False

    return search(0, tuple((2, one.work) for one in asked), (0,) * len(asked))


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
        (2, 2, kinds_of((CONCAVE, LINEAR, COARSE), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)), 0.06),
        (3, 3, kinds_of((CONCAVE, COARSE), (1.5, 3.0), (1.0, 2.0, 3.0)), 0.07),
        (3, 4, kinds_of((CONCAVE, LINEAR), (2.0, 3.0), (1.0, 2.0, 3.0)), 0.03),
        (4, 3, kinds_of((CONCAVE,), (1.0, 2.5), (1.0, 2.0)), 0.15),
    ],
)
def test_what_is_admitted_is_kept_and_little_is_refused_in_vain(
    make, plans, many: int, gpus: int, kinds: list[Asked], most_in_vain: float
) -> None:
    """Every sequence of small jobs at no resize cost, against an exact answer.

    Whatever comes in has plans that the interpreter confirms, so the impossible is never
    admitted. Of the refusals 5.1, 6.1, 2.5 and 14.5 % were in vain when this was written.
    """
    refused = in_vain = 0
    for together in refusals(make, plans, kinds, many, gpus):
        refused += 1
        in_vain += possible(together, gpus)
    assert refused > 0
    assert in_vain <= most_in_vain * refused


@pytest.mark.parametrize(
    ("many", "gpus", "most_in_vain"), [(2, 2, 0.02), (2, 3, 0.02), (3, 2, 0.15)]
)
def test_stops_are_counted_in_every_promise(
    make, plans, many: int, gpus: int, most_in_vain: float
) -> None:
    """Every sequence of small jobs at a stop of one second, against a search by the second.

    None, none and 14.6 % of the refusals were in vain when this was written.
    """
    works = (1.0, 2.0) if many == 3 else (1.0, 2.0, 3.0)
    deadlines = (4.0, 6.0, 7.0) if many == 3 else (4.0, 5.0, 6.0, 7.0, 8.0)
    kinds = kinds_of((CONCAVE[:2],), works, deadlines, stop=1.0)
    refused = in_vain = 0
    for together in refusals(make, plans, kinds, many, gpus):
        refused += 1
        in_vain += possible_by_the_second(together, gpus)
    assert refused > 0
    assert in_vain <= most_in_vain * refused


ASKED = st.builds(
    Asked,
    st.sampled_from((CONCAVE, LINEAR, COARSE)),
    st.integers(1, 24).map(lambda quarters: quarters / 4),
    st.integers(1, 24).map(lambda halves: halves / 2),
    st.sampled_from((0.0, 0.25, 1.0)),
)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(st.lists(ASKED, min_size=1, max_size=6), st.integers(1, 6), st.sampled_from((0.0, 0.5)))
def test_a_promise_is_a_plan_that_keeps_it(
    make, plans, asked: list[Asked], gpus: int, margin: float
) -> None:
    view, answers = submitted(jobs_of(make, asked), gpus, margin, now=0.0)
    assert_kept(plans, view)
    promised = [answer for answer in answers if isinstance(answer, Admission)]
    for job, answer in zip(view.jobs, promised, strict=True):
        assert answer.promised
        assert answer.share == max(size for _, _, size in answer.plan)
        assert answer.finish_seconds == pytest.approx(plans.finish(job, answer.plan, 0.0))


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(ASKED, min_size=2, max_size=6), st.integers(1, 4))
def test_a_refusal_leaves_no_trace(make, asked: list[Asked], gpus: int) -> None:
    jobs = jobs_of(make, asked)
    view, answers = submitted(jobs, gpus)
    admitted = [job for job, answer in zip(jobs, answers, strict=True) if answer.admitted]
    again, others = submitted(admitted, gpus)
    assert again.jobs == view.jobs
    assert others == [answer for answer in answers if answer.admitted]


def test_one_refusal_does_not_refuse_its_neighbours(make) -> None:
    table = make.table({1: 1.0, 2: 2.0})
    jobs = [
        make.job("job-0", table, 2.0, 2.0),
        make.job("job-1", table, 9.0, 2.0),
        make.job("job-2", table, 2.0, 2.0),
    ]
    _, answers = submitted(jobs, gpus=2)
    assert [answer.admitted for answer in answers] == [True, False, True]


def test_who_comes_first_is_promised_first(make) -> None:
    table = make.table({1: 1.0, 2: 2.0})
    small, large = make.job("job-1", table, 2.0, 2.0), make.job("job-2", table, 3.0, 2.0)
    for first, second in ((small, large), (large, small)):
        view, answers = submitted([first, second], gpus=2)
        assert [answer.admitted for answer in answers] == [True, False]
        assert [job.job_id for job in view.jobs] == [first.job_id]


def test_standing_plans_move_where_that_makes_room(make, plans) -> None:
    """The first job fills second 0 to 3 on one GPU; the second needs both until second 2."""
    jobs = [
        make.job("job-0", make.table({1: 1.0, 2: 2.0}), 3.0, 4.0),
        make.job("job-1", make.table({2: 2.0}), 4.0, 2.0),
    ]
    view, answers = submitted(jobs, gpus=2)
    assert answers[1].plans_moved == {"job-0": ((2.0, 3.5, 2),)}
    assert_kept(plans, view)


def test_a_counter_offer_in_overload_is_of_a_job_that_is_small_enough(make) -> None:
    """In time it would take 80 GPU seconds, with more time 40; 50 are too many."""
    large = make.job("job-1", make.table({1: 1.0, 2: 1.5, 4: 2.0}), 40.0, 25.0)
    view = ClusterView(0.0, 8, 8, (), smallest_refused_gpu_seconds=50.0)
    answer = POLICY.judge(view, large)
    assert isinstance(answer, Refusal)
    assert answer.overloaded
    offer = POLICY.earliest_deadline(view, large)
    assert offer is not None
    assert POLICY.judge(view, replace(large, deadline_seconds=offer)).admitted


def test_a_tail_that_others_are_planned_into_is_cut_off(make) -> None:
    """The first job ran ahead of its plan: of its ten seconds it needs three."""
    ahead = make.job("job-0", make.table({1: 1.0}), 3.0, 10.0, workers=1, plan=((0.0, 10.0, 1),))
    view = ClusterView(0.0, 2, 2, (ahead,))
    beside = make.job("job-1", make.table({1: 1.0}), 8.0, 9.0)
    into = make.job("job-1", make.table({2: 1.0}), 6.0, 9.0)
    assert POLICY.judge(view, beside).plans_moved == {}
    assert POLICY.judge(view, into).plans_moved == {"job-0": ((0.0, 3.0, 1),)}


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), min_size=1, max_size=6),
    st.integers(1, 4),
)
def test_theorem_1_linear_curves_are_admitted_exactly(
    make, asked: list[tuple[int, int]], gpus: int
) -> None:
    """§4.1, theorem 1: with linear curves the work due by each deadline must fit before it."""
    table = make.table({size: float(size) for size in range(1, gpus + 1)})
    jobs = [make.job(f"job-{n}", table, work, due) for n, (work, due) in enumerate(asked)]
    _, answers = submitted(jobs, gpus)
    inside: list[tuple[int, int]] = []
    for one, answer in zip(asked, answers, strict=True):
        together = [*inside, one]
        fits = all(
            sum(work for work, due in together if due <= end) <= gpus * end for _, end in together
        )
        assert answer.admitted == fits
        inside = together if fits else inside


def test_figure_4_of_the_paper_as_admission(make) -> None:
    table = make.table({1: 1.0, 2: 1.5, 4: 2.0})
    jobs = [
        make.job("A-1", table, 1.0, 1.0),
        make.job("B-2", table, 1.5, 1.0),
        make.job("C-3", table, 3.0, 2.0),
    ]
    _, answers = submitted(jobs, gpus=4)
    assert [answer.share for answer in answers] == [1, 2, 4]
    assert answers[2].plan == ((0.0, 1.0, 1), (1.0, 2.0, 4))
    assert answers[2].plans_moved == {}


@pytest.mark.parametrize("binding", [Binding.SOFT, Binding.BEST_EFFORT])
def test_without_a_guarantee_nobody_is_refused(make, binding: Binding) -> None:
    hopeless = make.job("job-1", make.table({8: 1.0}), 1e9, 1.0, binding=binding)
    for gpus in (0, 2):
        answer = POLICY.judge(ClusterView(0.0, gpus, gpus, ()), hopeless)
        assert answer == Admission(promised=False)


def test_the_reserve_is_not_promised(make) -> None:
    job = make.job("job-1", make.table({1: 1.0, 4: 4.0}), 8.0, 2.0)
    assert POLICY.judge(ClusterView(0.0, 4, 4, ()), job).admitted
    assert not POLICY.judge(ClusterView(0.0, 4, 3, ()), job).admitted


def test_the_margin_is_not_promised(make) -> None:
    job = make.job("job-1", make.table({1: 1.0}), 8.0, 8.0)
    assert POLICY.judge(ClusterView(0.0, 1, 1, ()), job).admitted
    assert not POLICY.judge(ClusterView(0.0, 1, 1, (), margin_seconds=0.5), job).admitted


def test_a_job_that_is_too_large_for_the_overload_rule_gets_no_promise(make) -> None:
    job = make.job("job-1", make.table({1: 1.0}), 8.0, 80.0)
    view = ClusterView(0.0, 4, 4, (), smallest_refused_gpu_seconds=8.5)
    assert POLICY.judge(view, job).admitted
    answer = POLICY.judge(replace(view, smallest_refused_gpu_seconds=8.0), job)
    assert isinstance(answer, Refusal)
    assert answer.overloaded


def test_what_no_empty_cluster_could_do_is_unreachable(make) -> None:
    table = make.table({1: 1.0, 2: 2.0, 4: 4.0})
    blocker = make.job("job-0", table, 1.0, 9.0)
    view, _ = submitted([blocker], gpus=2)
    answer = POLICY.judge(view, make.job("job-1", table, 9.0, 4.0))  # 2.25 GPUs, and 2 there are
    assert answer == Refusal(reachable=False, minimum_workers=None, blocking=())


def test_a_refusal_names_who_stands_in_the_way(make) -> None:
    """Most GPU time within the asked window first; who has none there is not named."""
    one, two = make.table({1: 1.0}), make.table({1: 1.0, 2: 2.0})
    jobs = [
        make.job("small-0", one, 2.0, 2.0),
        make.job("large-1", two, 9.0, 5.0),
        make.job("middle-2", one, 4.0, 4.0),
        make.job("tiny-3", one, 1.0, 1.0),
    ]
    view, answers = submitted(jobs, gpus=4)
    assert all(answer.admitted for answer in answers)
    answer = POLICY.judge(view, make.job("job-9", make.table({1: 1.0, 3: 3.0, 4: 4.0}), 11.5, 4.0))
    assert isinstance(answer, Refusal)
    assert (answer.reachable, answer.minimum_workers) == (True, 3)
    assert answer.blocking == ("large-1", "middle-2", "small-0")


def test_who_has_nothing_in_the_window_does_not_block(make) -> None:
    table = make.table({1: 1.0, 2: 2.0})
    now, later = make.job("now-0", table, 4.0, 2.0), make.job("later-1", table, 4.0, 4.0)
    view, answers = submitted([now, later], gpus=2)
    assert answers[1].plan == ((2.0, 4.0, 2),)
    answer = POLICY.judge(view, make.job("job-2", table, 1.0, 2.0))
    assert answer == Refusal(reachable=True, minimum_workers=1, blocking=("now-0",))


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(ASKED, min_size=1, max_size=6), ASKED, st.integers(1, 4))
def test_minimum_workers_are_the_share_in_an_empty_cluster(
    make, asked: list[Asked], last: Asked, gpus: int
) -> None:
    *jobs, candidate = jobs_of(make, [*asked, last])
    view, _ = submitted(jobs, gpus)
    answer = POLICY.judge(view, candidate)
    alone = POLICY.judge(replace(view, jobs=()), candidate)
    if isinstance(answer, Refusal):
        assert answer.reachable == alone.admitted
        assert answer.minimum_workers == (alone.share if answer.reachable else None)
        assert set(answer.blocking) <= {job.job_id for job in view.jobs}
        assert bool(answer.blocking) == answer.reachable
    else:
        assert alone.admitted


def accepts(view: ClusterView, job: JobView, deadline: float) -> bool:
    return POLICY.judge(view, replace(job, deadline_seconds=deadline)).admitted


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(ASKED, min_size=1, max_size=6), ASKED, st.integers(2, 4))
def test_the_counter_offer_is_accepted(
    make, plans, asked: list[Asked], last: Asked, gpus: int
) -> None:
    *jobs, candidate = jobs_of(make, [*asked, last])
    view, _ = submitted(jobs, gpus)
    if accepts(view, candidate, candidate.deadline_seconds):
        return
    offer = POLICY.earliest_deadline(view, candidate)
    assert offer is not None, "its smallest size fits, so some deadline does"
    assert offer > candidate.deadline_seconds
    answer = POLICY.judge(view, replace(candidate, deadline_seconds=offer))
    assert isinstance(answer, Admission)
    assert plans.finish(candidate, answer.plan, 0.0) <= offer + NEAR


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=5),
    st.integers(1, 60),
    st.integers(1, 4),
)
def test_the_counter_offer_is_within_a_second_of_the_earliest(
    make, asked: list[tuple[int, int]], work: int, gpus: int
) -> None:
    """With linear curves theorem 1 tells the earliest; later deadlines are accepted as well."""
    table = make.table({size: float(size) for size in range(1, gpus + 1)})
    jobs = [make.job(f"job-{n}", table, size, due) for n, (size, due) in enumerate(asked)]
    view, _ = submitted(jobs, gpus)
    promised = [(job.remaining_iterations, job.deadline_seconds) for job in view.jobs]

    def fits(deadline: float) -> bool:
        together = [*promised, (work, deadline)]
        return all(
            sum(size for size, due in together if due <= end) <= gpus * end for _, end in together
        )

    candidate = make.job("job-9", table, work, 1.0)
    if fits(1.0):
        return
    quarters = (quarter / 4 for quarter in itertools.count(4))
    earliest = next(deadline for deadline in quarters if fits(deadline))
    offer = POLICY.earliest_deadline(view, candidate)
    assert offer is not None
    assert earliest - 0.25 <= offer <= earliest + 1.0
    assert not accepts(view, candidate, offer - 1.25)
    assert all(accepts(view, candidate, offer + later) for later in (0.5, 1.0, 7.0, 1000.0))


def test_later_deadlines_are_rarely_refused_where_an_earlier_one_is_accepted(make) -> None:
    """Monotone but for the order of deadlines in the refilled plans.

    A later deadline puts the candidate behind others in that order, and forward filling may
    then find no way: 2 of 2,580 pairs of neighbours when this was written.
    """
    kinds = [CONCAVE, LINEAR, COARSE]
    pairs = refused_later = 0
    for seed in range(60):
        asked = [
            Asked(kinds[(seed + n) % 3], 1.0 + (seed * (n + 3)) % 7, 2.0 + (seed * (n + 5)) % 9)
            for n in range(5)
        ]
        *jobs, candidate = jobs_of(make, asked)
        view, _ = submitted(jobs, 4)
        taken = [accepts(view, candidate, half / 2) for half in range(1, 45)]
        pairs += len(taken) - 1
        refused_later += sum(a and not b for a, b in itertools.pairwise(taken))
    assert refused_later <= 0.002 * pairs


def test_a_size_that_never_fits_has_no_counter_offer(make) -> None:
    view = ClusterView(0.0, 8, 3, ())
    assert POLICY.earliest_deadline(view, make.job("job-1", make.table({4: 1.0}), 1.0, 1.0)) is None
    assert POLICY.earliest_deadline(view, make.job("job-1", make.table({2: 1.0}), 1.0, 0.5)) <= 2.0


def test_a_deadline_in_the_past_is_refused_and_gets_an_offer(make) -> None:
    view = ClusterView(100.0, 4, 4, ())
    job = make.job("job-1", make.table({1: 1.0}, stop=3.0), 50.0, 90.0)
    assert POLICY.judge(view, job) == Refusal(reachable=False, minimum_workers=None)
    offer = POLICY.earliest_deadline(view, job)
    assert offer is not None
    assert 159.0 <= offer <= 160.0  # 100 + 3 to start + 50 + two stops in reserve
