"""Scenarios: a trace, curves and a cluster become the commands that any client could send."""

from __future__ import annotations

import pytest

from resilin.contracts.commands import (
    AddServer,
    ConfigureCell,
    ImportCurves,
    SubmitJob,
    command_adapter,
)
from resilin.contracts.job_specification import DeadlinePolicy
from resilin.contracts.values import StopCost
from resilin.planning.curves import ThroughputCurve
from resilin.simulation.scenario import (
    Cluster,
    configuration,
    job_specification,
    opening_commands,
    submissions,
)
from resilin.workloads import TraceJob, built_in_curves, generate_trace

CURVES = {("resnet50", 256): ThroughputCurve((1, 2, 4), (1.0, 1.9, 3.5))}


def trace_job(deadline: float | None = 1100.0, submitted: float = 1000.0) -> TraceJob:
    return TraceJob(
        job_id="j1",
        submitted_at_seconds=submitted,
        model="resnet50",
        global_batch=256,
        iterations=500,
        deadline_seconds=deadline,
        requested_workers=4,
        duration_seconds=None,
    )


def test_a_clusters_servers_are_numbered_and_racked() -> None:
    cluster = Cluster(servers=5, gpus_per_server=8, servers_per_rack=2)
    assert cluster.gpus == 40
    servers = [cluster.server(number) for number in range(5)]
    assert [server.server_id for server in servers] == [f"server-000{n}" for n in range(5)]
    assert [server.rack for server in servers] == [
        "rack-000",
        "rack-000",
        "rack-001",
        "rack-001",
        "rack-002",
    ]


def test_without_racks_all_servers_are_in_one() -> None:
    cluster = Cluster(servers=3, gpus_per_server=1)
    assert {cluster.server(number).rack for number in range(3)} == {"rack-000"}


def test_a_cell_has_one_virtual_cluster() -> None:
    settings = configuration(
        "edf", StopCost.modelled(), reserve_servers=2, promise_margin_seconds=9.0
    )
    (cluster,) = settings.virtual_clusters
    assert (cluster.name, cluster.policy, cluster.reserve_servers) == ("default", "edf", 2)
    assert (settings.stop_cost, settings.promise_margin_seconds) == (StopCost.modelled(), 9.0)


def test_a_cell_is_opened_by_settings_curves_and_servers_in_this_order() -> None:
    settings = configuration("fifo", StopCost())
    commands = opening_commands(7.0, Cluster(2, 4), settings, CURVES)
    assert [type(timed.command) for timed in commands] == [
        ConfigureCell,
        ImportCurves,
        AddServer,
        AddServer,
    ]
    assert {timed.at_seconds for timed in commands} == {7.0}
    imported = commands[1].command
    assert isinstance(imported, ImportCurves)
    (curve,) = imported.curves
    assert (curve.model, curve.global_batch) == ("resnet50", 256)
    assert curve.iterations_per_second == {1: 1.0, 2: 1.9, 4: 3.5}


def test_every_command_has_an_id_of_its_own_and_survives_the_wire() -> None:
    curves = built_in_curves(most_workers=8, gpus_per_server=4)
    trace = generate_trace(
        jobs=20, seed=1, curves=curves, mean_interarrival_seconds=60.0, cluster_gpus=8
    )
    settings = configuration("elasticflow", StopCost())
    commands = opening_commands(0.0, Cluster(2, 4), settings, curves) + submissions(trace.jobs)
    ids = [timed.command.command_id for timed in commands]
    assert len(ids) == len(set(ids)) == 24
    for timed in commands:
        payload = command_adapter.dump_json(timed.command)
        assert command_adapter.validate_json(payload) == timed.command


def test_a_job_is_submitted_at_its_time_as_its_user_would_have() -> None:
    (timed,) = submissions([trace_job()])
    assert timed.at_seconds == 1000.0
    command = timed.command
    assert isinstance(command, SubmitJob)
    assert (command.job_id, command.command_id) == ("j1", "submit-j1")
    spec = command.job.spec
    assert (spec.model, spec.global_batch, spec.total_iterations) == ("resnet50", 256, 500.0)
    assert spec.elastic.requested_replicas == 4
    assert spec.binding is DeadlinePolicy.GUARANTEED
    assert spec.deadline_seconds(1000.0) == 1100.0


def test_a_job_without_a_deadline_is_best_effort() -> None:
    assert job_specification(trace_job(deadline=None)).spec.binding is DeadlinePolicy.BEST_EFFORT


@pytest.mark.parametrize("window", [0.0, 0.0001])
def test_a_deadline_at_the_submission_itself_is_as_good_as_none_can_be(window: float) -> None:
    spec = job_specification(trace_job(deadline=1000.0 + window)).spec
    deadline = spec.deadline_seconds(1000.0)
    assert deadline is not None
    assert 0.0 < deadline - 1000.0 <= 0.0011


@pytest.mark.parametrize("window", [0.125, 12345.678901, 1e7])
def test_a_deadline_keeps_its_microseconds(window: float) -> None:
    spec = job_specification(trace_job(deadline=1000.0 + window)).spec
    assert spec.deadline_seconds(1000.0) == pytest.approx(1000.0 + window, abs=1e-6)
