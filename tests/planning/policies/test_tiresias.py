"""Tiresias: queues by attained service, promotion, and Gittins indices by hand."""

from __future__ import annotations

import pytest

from resilin.planning.policies.tiresias import Tiresias, TiresiasGittins, queue_of
from resilin.planning.view import ClusterView, JobView

POLICY, GITTINS = Tiresias(), TiresiasGittins()
RATES = {1: 1.0, 2: 1.9, 4: 3.5}
NOW = 1_000_000.0


def job(make, number: int, attained: float, size: int = 1, **more: object) -> JobView:
    fields: dict[str, object] = {
        "requested_workers": size,
        "attained_gpu_seconds": attained,
        "run_gpu_seconds": attained,
        "executed_seconds": attained / size,
        "since_seconds": NOW,
    }
    return make.job(f"job-{number}", make.table(RATES), 1e6, **{**fields, **more})


def view_of(gpus: int, *jobs: JobView, finished: tuple[float, ...] = ()) -> ClusterView:
    return ClusterView(NOW, gpus, gpus, jobs, finished_gpu_seconds=finished)


@pytest.mark.parametrize(
    ("attained", "queue"),
    [(0.0, 0), (9_999.0, 0), (10_000.0, 1), (199_999.0, 1), (200_000.0, 2), (1e9, 2)],
)
def test_service_decides_the_queue(make, attained: float, queue: int) -> None:
    one = job(make, 0, attained)
    assert queue_of(view_of(1, one), one) == queue


def test_a_job_of_an_earlier_queue_takes_the_gpus(make) -> None:
    view = view_of(2, job(make, 0, 50_000.0, 2, workers=2), job(make, 1, 0.0, 2))
    assert POLICY.plan(view).workers == {"job-0": 0, "job-1": 2}
    view = view_of(2, job(make, 0, 5_000.0, 2, workers=2), job(make, 1, 0.0, 2))
    assert POLICY.plan(view).workers == {"job-0": 2, "job-1": 0}, "first come within a queue"


def test_it_looks_again_when_a_running_job_falls(make) -> None:
    view = view_of(2, job(make, 0, 4_000.0, 2, workers=2), job(make, 1, 0.0, 2))
    assert POLICY.plan(view).look_again_seconds == NOW + 3_000.0
    view = view_of(4, job(make, 0, 4_000.0, 2, workers=2), job(make, 1, 0.0, 2))
    assert POLICY.plan(view).look_again_seconds is None, "nobody waits: queues do not matter"


def test_who_waits_too_long_is_promoted_for_a_run(make) -> None:
    ran = {"executed_seconds": 100_000.0, "attained_gpu_seconds": 100_000.0}
    waits = job(make, 0, 0.0, **ran, since_seconds=NOW - 799_999.0)
    runs = job(make, 1, 20_000.0, workers=1)
    plan = POLICY.plan(view_of(1, waits, job(make, 2, 5_000.0, workers=1)))
    assert plan.workers["job-0"] == 0
    assert plan.look_again_seconds == NOW + 1.0, "a second later it has waited 8 times as long"
    waits = job(make, 0, 0.0, **ran, since_seconds=NOW - 800_000.0)
    assert POLICY.plan(view_of(1, waits, runs)).workers == {"job-0": 1, "job-1": 0}
    started = job(
        make,
        0,
        0.0,
        workers=1,
        waited_seconds=800_000.0,
        attained_gpu_seconds=105_000.0,
        executed_seconds=105_000.0,
        run_gpu_seconds=5_000.0,
        since_seconds=NOW - 5_000.0,
    )
    assert queue_of(view_of(1, started), started) == 0, "only this run counts"


def test_gittins_prefers_who_is_likely_to_be_done_soon(make) -> None:
    # Of four jobs two need 1,000 GPU seconds and two 9,000. At 0, the best step is to 1,000:
    # 2 of 4 done for 4 x 1,000. At 1,000 it is to 9,000: 2 of 2 done for 2 x 8,000.
    finished = (1_000.0, 9_000.0, 1_000.0, 9_000.0)
    older, newer = job(make, 0, 1_000.0), job(make, 1, 0.0)
    view = view_of(1, older, newer, finished=finished)
    assert GITTINS.plan(view).workers == {"job-0": 0, "job-1": 1}
    # At 8,000 only 1,000 more are needed, for certain: 2 done for 2 x 1,000.
    older = job(make, 0, 8_000.0)
    assert GITTINS.plan(view_of(1, newer, older, finished=finished)).workers["job-0"] == 1


def test_without_a_history_gittins_goes_by_submission(make) -> None:
    view = view_of(1, job(make, 0, 5_000.0), job(make, 1, 0.0))
    assert GITTINS.plan(view).workers == POLICY.plan(view).workers == {"job-0": 1, "job-1": 0}


def test_queues_come_before_indices(make) -> None:
    finished = (20_001.0,) * 5
    view = view_of(1, job(make, 0, 20_000.0), job(make, 1, 0.0), finished=finished)
    assert GITTINS.plan(view).workers == {"job-0": 0, "job-1": 1}
