"""What holds for every policy: plans that can be carried out, and the same ones every time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.bound import SolverError
from resilin.planning.policies import chronus
from resilin.planning.policies.policy import Policy
from resilin.planning.policies.registry import POLICIES
from resilin.planning.view import Binding, ClusterView, JobView

CURVES = (
    {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0},
    {1: 1.0, 2: 1.5, 4: 1.4, 8: 1.2},
    {2: 1.0, 4: 1.5},
    {1: 1.0},
    {1: 1.0, 3: 2.0, 6: 2.5},
)
NAMES = [
    "elasticflow",
    "edf",
    "edf-uncapped",
    "edf+admission",
    "edf+elastic",
    "fifo",
    "sjf",
    "gandiva",
    "tiresias",
    "tiresias-gittins",
    "elastic-tiresias",
    "themis",
    "chronus",
    "optimus",
    "pollux",
]
NOW = 1000.0


def test_policies_are_chosen_by_name() -> None:
    assert sorted(POLICIES) == sorted(NAMES)
    assert all(policy.name == name for name, policy in POLICIES.items())


Make = Callable[[int, int, dict[str, object]], JobView]


@st.composite
def fields(draw: st.DrawFn) -> tuple[int, dict[str, object]]:
    """The curve and the fields of a job: anything that a fold may come to."""
    curve = draw(st.integers(0, len(CURVES) - 1))
    sizes = sorted(CURVES[curve])
    workers = draw(st.sampled_from((0, *sizes)))
    since = draw(st.sampled_from((0.0, 400.0, NOW)))
    attained = draw(st.sampled_from((0.0, 9_000.0, 10_000.0, 150_000.0, 300_000.0)))
    return curve, {
        "remaining_iterations": draw(st.sampled_from((1e-3, 10.0, 500.0, 1e6))),
        "deadline_seconds": draw(st.sampled_from((10.0, NOW, 1100.0, 3000.0, 1e6, math.inf))),
        "binding": draw(st.sampled_from(Binding)),
        "workers": workers,
        "requested_workers": draw(st.sampled_from((1, 2, 3, 8, 64))),
        "resumes_at_seconds": draw(st.sampled_from((-math.inf, NOW, NOW + 7.0))),
        "submitted_at_seconds": draw(st.sampled_from((0.0, 300.0, NOW))),
        "total_iterations": 1e6,
        "attained_gpu_seconds": attained,
        "run_gpu_seconds": attained / 2,
        "executed_seconds": 0.0 if attained == 0 else 900.0,
        "since_seconds": since,
        "waited_seconds": draw(st.sampled_from((0.0, 10.0, 1e5))),
        "preemptions": draw(st.integers(0, 3)),
        "generation": draw(st.integers(0, 3)) if workers == 0 else 1,
        "requested_batch": 64,
        "global_batch": draw(st.sampled_from((64, 128))),
        "gradient_noise_scale": draw(st.sampled_from((None, 0.0, 100.0, 1e6))),
    }


@st.composite
def views(draw: st.DrawFn, make) -> ClusterView:
    stop = draw(st.sampled_from((0.0, 8.0)))
    jobs = []
    for number, (curve, more) in enumerate(draw(st.lists(fields(), max_size=8))):
        job = make.whole_job(f"job-{number}", CURVES[curve], stop=stop, work=1.0)
        tables = ((64, job.table), (128, job.table))
        jobs.append(replace(job, batch_tables=tables, **more))
    gpus = draw(st.integers(0, 24))
    return ClusterView(
        NOW,
        gpus,
        draw(st.integers(0, gpus)),
        tuple(jobs),
        margin_seconds=draw(st.sampled_from((0.0, 1.0))),
        installed_gpus=gpus + draw(st.sampled_from((0, 8))),
        due_seconds=draw(st.sampled_from((None, NOW, NOW + 20.0))),
        finished_gpu_seconds=draw(st.sampled_from(((), (5.0, 12_000.0, 12_000.0, 1e6)))),
    )


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60, derandomize=True)
@given(data=st.data())
def test_a_plan_can_be_carried_out(make, name: str, data: st.DataObject) -> None:
    policy, view = POLICIES[name], data.draw(views(make))
    plan = policy.plan(view)
    assert set(plan.workers) == {job.job_id for job in view.jobs}, "every job, nobody else"
    assert sum(plan.workers.values()) <= view.gpus
    for job in view.jobs:
        count = plan.workers[job.job_id]
        assert count == 0 or count in job.all_sizes.sizes
        if job.job_id in plan.global_batches:
            assert plan.global_batches[job.job_id] in (64, 128)
            assert plan.learning_rate_factors[job.job_id] > 0
    assert plan.look_again_seconds is None or plan.look_again_seconds > view.now_seconds


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=20, derandomize=True)
@given(data=st.data())
def test_the_same_view_gives_the_same_plan(make, name: str, data: st.DataObject) -> None:
    policy, view = POLICIES[name], data.draw(views(make))
    assert policy.plan(view) == policy.plan(replace(view))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=30, derandomize=True)
@given(data=st.data())
def test_every_job_has_an_answer(make, name: str, data: st.DataObject) -> None:
    policy, view = POLICIES[name], data.draw(views(make))
    curve, more = data.draw(fields())
    candidate = make.whole_job("job-99", CURVES[curve], work=1.0)
    candidate = replace(candidate, **{**more, "workers": 0})
    answer = policy.judge(view, candidate)
    offer = policy.earliest_deadline(view, candidate)
    if offer is not None:
        assert offer >= view.now_seconds
        assert policy.judge(view, replace(candidate, deadline_seconds=offer)).admitted
    if name not in ("elasticflow", "edf+admission"):
        too_large = getattr(answer, "too_large", False)
        assert answer.admitted or too_large, "who promises nothing refuses for size alone"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stop", [0.0, 8.0])
def test_every_job_is_done_in_the_end(make, cluster, arrival, name: str, stop: float) -> None:
    """Nobody starves for ever, however the GPUs are shared; a jammed policy would not end."""
    policy = POLICIES[name]
    shapes = [(n % 4, 20.0 + 37.0 * (n % 5)) for n in range(9)]
    arrivals = [
        arrival(11.0 * n, work, make.table(CURVES[curve], stop), Binding.BEST_EFFORT)
        for n, (curve, work) in enumerate(shapes)
    ]
    run = _Run(cluster, policy)
    run.until_done(arrivals)


class _Run:
    """The closed loop of the other tests, with the timers of policies that share in rounds."""

    def __init__(self, cluster, policy: Policy) -> None:
        self.inner = cluster(policy, 8, 8)
        plain = self.inner.view
        self.inner.view = lambda: replace(plain(), due_seconds=self.inner.look_again)

    def until_done(self, arrivals) -> None:
        self.inner.run(arrivals, most_events=2_000)
        assert len(self.inner.ended) == len(arrivals)


def test_chronus_says_what_is_missing(make, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    jobs = tuple(make.job(f"job-{n}", make.table(CURVES[3]), 10.0, 1e6) for n in range(2))
    view = ClusterView(600.0, 1, 1, jobs, due_seconds=600.0)
    assert sum(chronus.Chronus().plan(view).workers.values()) == 1
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(SolverError, match="needs scipy"):
        chronus.Chronus().plan(view)
