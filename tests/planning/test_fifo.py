"""First in, first out: fixed sizes, no overtaking, no promises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.policies.fifo import FirstInFirstOut
from resilin.planning.policies.policy import Admission, Refusal
from resilin.planning.view import Binding, ClusterView

POLICY = FirstInFirstOut()
RATES = {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0}


def view_of(make, gpus: int, asked: list[tuple[int, int]]) -> ClusterView:
    """Jobs in order of submission, each with what it asked for and what it has."""
    table = make.table(RATES)
    jobs = tuple(
        make.job(f"job-{n}", table, 10.0, requested_workers=requested, workers=workers)
        for n, (requested, workers) in enumerate(asked)
    )
    return ClusterView(0.0, gpus, gpus, jobs)


def planned(make, gpus: int, asked: list[tuple[int, int]]) -> list[int]:
    view = view_of(make, gpus, asked)
    workers = POLICY.plan(view).workers
    return [workers[job.job_id] for job in view.jobs]


@pytest.mark.parametrize("binding", list(Binding))
def test_every_job_comes_in_without_a_promise(make, binding: Binding) -> None:
    job = make.job("job-1", make.table(RATES), 1e9, 1.0, binding=binding)
    view = ClusterView(0.0, 1, 1, ())
    assert POLICY.judge(view, job) == Admission(promised=False)
    assert POLICY.earliest_deadline(view, job) is None


def test_jobs_start_in_order_of_submission_at_the_size_they_asked_for(make) -> None:
    assert planned(make, 8, [(4, 0), (2, 0), (2, 0), (1, 0)]) == [4, 2, 2, 0]
    assert planned(make, 8, [(1, 0), (2, 0)]) == [1, 2], "idle GPUs make nobody larger"


def test_the_first_that_does_not_fit_holds_up_all_behind_it(make) -> None:
    assert planned(make, 4, [(2, 0), (4, 0), (1, 0)]) == [2, 0, 0]
    assert planned(make, 8, [(8, 0), (1, 1)]) == [0, 1], "one that fits nobody can overtake"


def test_what_could_never_run_is_refused_and_holds_up_nobody(make) -> None:
    job = make.job("job-0", make.table(RATES), 10.0, requested_workers=8)
    refusal = POLICY.judge(ClusterView(0.0, 4, 4, ()), job)
    assert isinstance(refusal, Refusal)
    assert (refusal.too_large, refusal.minimum_workers) == (True, 8)
    assert POLICY.judge(ClusterView(0.0, 4, 4, (), installed_gpus=8), job).admitted
    assert planned(make, 4, [(8, 0), (1, 0)]) == [0, 1], "servers were removed since it came"


def test_a_size_past_the_peak_is_given_all_the_same(make) -> None:
    job = make.whole_job("job-0", {1: 1.0, 2: 2.0, 4: 1.5}, 10.0, requested_workers=4)
    assert POLICY.plan(ClusterView(0.0, 4, 4, (job,))).workers == {"job-0": 4}


def test_what_runs_keeps_its_size_whoever_waits_before_it(make) -> None:
    assert planned(make, 8, [(8, 0), (4, 4), (2, 2)]) == [0, 4, 2]
    assert planned(make, 8, [(4, 4), (2, 0), (2, 2)]) == [4, 2, 2]


def test_deadlines_do_not_matter(make) -> None:
    table = make.table(RATES)
    jobs = (
        make.job("job-0", table, 10.0, 100.0, requested_workers=2),
        make.job("job-1", table, 10.0, 1.0, requested_workers=2),
    )
    assert POLICY.plan(ClusterView(0.0, 2, 2, jobs)).workers == {"job-0": 2, "job-1": 0}


def test_a_size_that_the_job_may_not_have_is_rounded(make) -> None:
    assert planned(make, 8, [(3, 0)]) == [2], "down to one it may have"
    job = make.job("job-0", make.table({2: 1.0, 4: 2.0}), 10.0, requested_workers=1)
    view = ClusterView(0.0, 8, 8, (job,))
    assert POLICY.plan(view).workers == {"job-0": 2}, "up to its smallest where there is none"


def test_lost_gpus_are_taken_from_the_last(make) -> None:
    assert planned(make, 6, [(4, 4), (4, 4), (2, 2)]) == [4, 0, 2]
    assert planned(make, 4, [(4, 4), (4, 4), (2, 2)]) == [4, 0, 0]
    assert planned(make, 0, [(4, 4)]) == [0]


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 4, 8)), st.booleans()), max_size=8),
    st.integers(0, 20),
)
def test_no_size_changes_and_no_gpu_is_given_twice(
    make, asked: list[tuple[int, bool]], gpus: int
) -> None:
    jobs = [(size, size if runs else 0) for size, runs in asked]
    workers = planned(make, gpus, jobs)
    assert sum(workers) <= gpus
    assert all(count in (0, size) for count, (size, _) in zip(workers, jobs, strict=True))
    waits = [n for n, count in enumerate(workers) if count == 0 and jobs[n][0] <= gpus]
    started = [
        n for n, (count, (_, had)) in enumerate(zip(workers, jobs, strict=True)) if count > had
    ]
    assert not waits or not started or max(started) < waits[0], "nobody overtakes"
