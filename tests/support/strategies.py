"""Random events about few jobs and servers, so that they meet; in no order that makes sense."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.support.events import BATCH, job

from resilin.contracts import events as ev
from resilin.contracts.job_specification import DeadlinePolicy, WorkerSpecification
from resilin.contracts.record import LogEntry, Record
from resilin.contracts.values import (
    CellConfiguration,
    Curve,
    Quota,
    Server,
    SourcePosition,
    StopCost,
    VirtualCluster,
    training_allocation,
)

__all__ = ["any_entries", "any_events", "gpu_sets_of"]

_jobs = st.sampled_from(["a", "b", "c"])
_servers = st.sampled_from(["s1", "s2", "s3"])
_clusters = st.sampled_from(["default", "other", "nowhere"])
_models = st.sampled_from(["linear", "peaked", "unheard-of"])
_generations = st.integers(1, 4)
_sizes = st.sampled_from([1, 2, 3, 4, 8])
_moments = st.floats(-10.0, 1e4)
_iterations = st.floats(0.0, 1e4)
_rates = st.floats(1e-6, 1e6)
_seconds = st.floats(0.0, 100.0)
_sources = st.builds(
    SourcePosition, topic=st.sampled_from(["jobs.commands", "other"]), offset=st.integers(-1, 5)
)
_command_ids = st.sampled_from(["k1", "k2", "k3"])

gpu_sets_of = st.dictionaries(
    _servers,
    st.sets(st.integers(0, 5), min_size=1, max_size=4).map(lambda some: tuple(sorted(some))),
    max_size=3,
)
"""Sets of GPUs as events write them, of servers that may or may not exist."""

_plans = st.lists(st.tuples(_moments, _moments, _sizes), max_size=3).map(tuple)
_plans_of_jobs = st.dictionaries(_jobs, _plans, max_size=2)

# Not the models themselves: their signatures have the camelCase names that users write.
_curves = st.builds(
    lambda **fields: Curve(**fields),
    model=_models,
    global_batch=st.just(BATCH),
    iterations_per_second=st.dictionaries(_sizes, _rates, min_size=1),
)
_virtual_clusters = st.builds(
    lambda **fields: VirtualCluster(**fields),
    name=_clusters,
    kind=st.sampled_from(["training", "inference"]),
    policy=st.sampled_from(["elasticflow", "edf", "fifo"]),
    reserve_servers=st.integers(0, 2),
    quotas=st.just({}) | st.just({"default": Quota(live_jobs=1, gpu_seconds=100.0)}),
)
_configurations = st.builds(
    lambda **fields: CellConfiguration(**fields),
    virtual_clusters=st.lists(_virtual_clusters, max_size=2, unique_by=lambda it: it.name).map(
        tuple
    ),
    stop_cost=st.builds(
        lambda **fields: StopCost(**fields), fixed_seconds=_seconds, per_doubling_seconds=_seconds
    ),
    promise_margin_seconds=_seconds,
)
_specifications = st.builds(
    job,
    _jobs,
    iterations=st.integers(1, 1000),
    within_seconds=st.floats(1.0, 1e4),
    policy=st.sampled_from([None, DeadlinePolicy.GUARANTEED, DeadlinePolicy.SOFT]),
    model=_models,
    virtual_cluster=_clusters,
    sizes=st.none() | st.just((1, 2)) | st.just((3,)),
    requested=st.none() | _sizes,
    migratable=st.booleans(),
    worker=st.none() | st.just(WorkerSpecification(entrypoint="train.py:Job")),
    submission_id=st.none() | _command_ids,
) | st.builds(job, _jobs, model=_models)


def _from_command(event: type[ev.FactFromCommand], **fields: object) -> st.SearchStrategy[ev.Event]:
    return st.builds(event, source=_sources, command_id=_command_ids, **fields)  # type: ignore[arg-type]  # strategies by name


_facts_from_commands = [
    _from_command(
        ev.JobSubmitted,
        job_id=_jobs,
        job=_specifications,
        submitted_at_seconds=_moments,
        deadline_seconds=st.none() | _moments,
    ),
    _from_command(ev.CancellationRequested, job_id=_jobs),
    _from_command(ev.DeadlineChangeRequested, job_id=_jobs, deadline_seconds=_moments),
    _from_command(
        ev.ServerAdded,
        server=st.builds(
            lambda **fields: Server(**fields),
            server_id=_servers,
            gpus=st.integers(1, 8),
            virtual_cluster=_clusters,
        ),
    ),
    _from_command(ev.ServerRemoved, server_id=_servers),
    _from_command(ev.ServerCordoned, server_id=_servers, cordoned=st.booleans()),
    _from_command(ev.CellConfigured, configuration=_configurations),
    _from_command(ev.CurvesImported, curves=st.lists(_curves, max_size=2).map(tuple)),
    _from_command(ev.CommandRejected, message=st.just("no")),
]

_decisions = [
    st.builds(
        ev.JobAdmitted,
        job_id=_jobs,
        promised=st.booleans(),
        finish_seconds=st.none() | _moments,
        plan=_plans,
        plans_moved=_plans_of_jobs,
    ),
    st.builds(
        ev.JobRejected,
        job_id=_jobs,
        reason=st.sampled_from(ev.RejectionReason),
        message=st.just("no"),
    ),
    st.builds(ev.JobCancelled, job_id=_jobs),
    st.builds(ev.ProfileRequested, job_id=_jobs),
    st.builds(
        ev.DeadlineChanged,
        job_id=_jobs,
        deadline_seconds=_moments,
        plan=_plans,
        plans_moved=_plans_of_jobs,
    ),
    st.builds(ev.DeadlineChangeRejected, job_id=_jobs, message=st.just("no")),
    st.builds(
        ev.AllocationPlanned,
        virtual_cluster=_clusters,
        changes=st.lists(
            st.builds(
                ev.AllocationChange,
                job_id=_jobs,
                allocation=st.builds(training_allocation, st.integers(0, 8), st.just(BATCH)),
            ),
            max_size=3,
        ).map(tuple),
        plans=_plans_of_jobs,
        look_again_seconds=st.none() | _moments,
    ),
    st.builds(ev.JobPlaced, job_id=_jobs, generation=_generations, gpus=gpu_sets_of),
    st.builds(ev.JobMigrated, job_id=_jobs, generation=_generations, gpus=gpu_sets_of),
    st.builds(ev.JobSuspended, job_id=_jobs, generation=_generations),
    st.builds(ev.ServerLoaned, server_id=_servers, lender=_clusters, borrower=_clusters),
    st.builds(ev.ServerReclaimed, server_id=_servers, lender=_clusters, borrower=_clusters),
    st.builds(
        ev.ServerReclaimRequested,
        server_id=_servers,
        lender=_clusters,
        borrower=_clusters,
        due_seconds=_moments,
    ),
]

_reports = [
    st.builds(ev.NodeJoined, server_id=_servers, incarnation=_generations),
    st.builds(ev.NodeLost, server_id=_servers, incarnation=_generations),
    st.builds(ev.WorkersReady, job_id=_jobs, generation=_generations),
    st.builds(
        ev.GenerationSwitched,
        job_id=_jobs,
        generation=_generations,
        workers=_sizes,
        stopped_seconds=_seconds,
        iterations_done=_iterations,
    ),
    st.builds(
        ev.ProgressReported, job_id=_jobs, generation=_generations, iterations_done=_iterations
    ),
    st.builds(
        ev.WorkersReleased,
        job_id=_jobs,
        generation=_generations,
        gpus=gpu_sets_of,
        iterations_done=_iterations,
    ),
    st.builds(ev.WorkerLost, job_id=_jobs, generation=_generations, iterations_done=_iterations),
    st.builds(
        ev.WorkerReplaced,
        job_id=_jobs,
        generation=_generations,
        server_id=_servers,
        gpu_index=st.integers(0, 5),
        failures=st.integers(1, 4),
    ),
    st.builds(ev.CurveProfiled, job_id=_jobs, curve=_curves),
    st.builds(
        ev.ProfileFailed,
        job_id=_jobs,
        reason=st.sampled_from(ev.FailureReason),
        message=st.just("no"),
    ),
    st.builds(ev.JobCompleted, job_id=_jobs, generation=_generations, iterations_done=_iterations),
    st.builds(
        ev.JobFailed,
        job_id=_jobs,
        generation=_generations,
        reason=st.just("Crashed"),
        message=st.just(""),
    ),
]

_measurements = [
    st.builds(
        ev.ThroughputMeasured,
        job_id=_jobs,
        generation=_generations,
        workers=_sizes,
        iterations_per_second=_rates,
    ),
    st.builds(
        ev.GradientNoiseMeasured,
        job_id=_jobs,
        generation=_generations,
        gradient_noise_scale=_rates,
    ),
    st.builds(
        ev.UtilizationMeasured,
        job_id=_jobs,
        generation=_generations,
        utilization_ratio=st.floats(0.0, 1.0),
    ),
    st.builds(
        ev.JobStabilized, job_id=_jobs, generation=_generations, iterations_per_second=_rates
    ),
    st.builds(
        ev.StragglerDetected,
        job_id=_jobs,
        generation=_generations,
        server_id=_servers,
        gpu_index=st.integers(0, 5),
        relative_throughput=st.floats(0.0, 1.0),
    ),
    st.builds(
        ev.BottleneckDetected,
        job_id=_jobs,
        generation=_generations,
        role=st.just("worker"),
        resource=st.just("compute"),
    ),
]

_kernel = [
    st.builds(ev.ClockTicked, due_seconds=_moments),
    st.builds(ev.LeadershipClaimed, instance=_servers),
    st.builds(
        ev.UnknownEvent,
        type=st.just("FutureEvent"),
        version=st.integers(1, 9),
        content=st.dictionaries(_jobs, st.integers()),
    ),
]

any_events: st.SearchStrategy[ev.Event | ev.UnknownEvent] = st.one_of(
    *_facts_from_commands, *_decisions, *_reports, *_measurements, *_kernel
)
"""Any event of any type."""


@st.composite
def any_entries(draw: st.DrawFn, most: int = 30) -> list[LogEntry]:
    """Entries of one event each: any writer, any time, any basis before the entry."""
    entries = []
    for offset, event in enumerate(draw(st.lists(any_events, min_size=1, max_size=most))):
        record = Record(
            service=draw(st.sampled_from(["admission", "allocator", "executor"])),
            cell="main",
            epoch=1,
            basis=offset - 1,
            nature="facts",
            timestamp=draw(_moments),
            events=(event,),
        )
        entries.append(LogEntry(offset, record))
    return entries
