"""Every metric of a service process, as data: what is counted, exposed and documented.

Three kinds of owner, so that a sum over all processes never counts anything twice:

- ``process``: about the process itself; every process exposes it;
- ``leader``: about one service's records; the leading instance of that service exposes it;
- a service: about a subject of the cell; that service's leading instance exposes it.

Whatever is not of the process is a fold of the log. A standby folds the same numbers and
shows them once it leads, so a takeover looks like no reset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from resilin.contracts.events import AllocationChange, BottleneckDetected, RejectionReason
from resilin.contracts.record import Nature

__all__ = [
    "LEADER",
    "LOST_CAUSES",
    "METRICS",
    "PROCESS",
    "RESIZE_RESULTS",
    "Metric",
    "constant_labels",
]

PROCESS = "process"
LEADER = "leader"

RESIZE_RESULTS = ("done", "overtaken", "interrupted")
"""How a resize ends: its generation trains, another placement comes first, or the job stops."""

LOST_CAUSES = ("start", "resize", "migration", "failure", "release")
"""Why GPUs that a job holds do not train."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name; counters end in ``_total``.
        kind: What Prometheus takes it for.
        owner: Who exposes it: ``process``, ``leader`` or a service.
        help: What it says, one sentence.
        labels: Its labels beside those that its owner gives to all its metrics.
        start: Values of ``labels`` that are there from the start, at zero, so that a rate
            over the first event is not lost. None for none.
        buckets: The upper bounds of a histogram, but for infinity.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    owner: str
    help: str
    labels: tuple[str, ...] = ()
    start: tuple[tuple[str, ...], ...] = ()
    buckets: tuple[float, ...] = ()


def constant_labels(owner: str) -> tuple[str, ...]:
    """Return the labels that all metrics of an owner have."""
    return ("service", "cell") if owner in (PROCESS, LEADER) else ("cell",)


def _counter(
    name: str, owner: str, text: str, labels: str = "", start: Iterable[tuple[str, ...]] = ()
) -> Metric:
    names = tuple(labels.split())
    return Metric(name, "counter", owner, text, names, tuple(start) if names else ((),))


def _gauge(name: str, owner: str, text: str, labels: str = "") -> Metric:
    return Metric(name, "gauge", owner, text, tuple(labels.split()))


def _histogram(
    name: str,
    owner: str,
    text: str,
    buckets: tuple[float, ...],
    labels: str = "",
    start: Iterable[tuple[str, ...]] = (),
) -> Metric:
    names = tuple(labels.split())
    return Metric(name, "histogram", owner, text, names, tuple(start) if names else ((),), buckets)


_QUICK = (0.0001, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STOPS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_MINUTES = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
_SLACK = (
    *(-86400.0, -3600.0, -600.0, -60.0, 0.0, 60.0, 600.0, 1800.0),
    *(3600.0, 7200.0, 14400.0, 28800.0, 86400.0),
)

_PROMISED = (("true",), ("false",))
_ATTEMPTS = (
    ("admitted", "Promised"),
    ("admitted", "Unpromised"),
    *(("rejected", reason.value) for reason in RejectionReason),
)
_CHANGE_REASONS = get_args(AllocationChange.model_fields["reason"].annotation)
_BOTTLENECKS = get_args(BottleneckDetected.model_fields["resource"].annotation)


def _of_processes() -> Iterable[Metric]:
    p = PROCESS
    yield _gauge(
        "resilin_build_info",
        p,
        "Always 1; says which version runs as which instance.",
        "service_instance version",
    )
    yield _gauge("resilin_leading", p, "Whether this instance leads its service: 1 or 0.")
    yield _gauge("resilin_epoch", p, "The epoch of the service that this instance has seen last.")
    yield _gauge("resilin_log_offset", p, "The offset of the last record folded.")
    yield _gauge(
        "resilin_log_consumer_lag_records", p, "Records that were read and are not folded yet."
    )
    yield _counter("resilin_log_records_folded_total", p, "Records folded by this process.")
    yield _counter(
        "resilin_log_appends_total",
        p,
        "Records appended by this process.",
        "nature",
        ((nature,) for nature in get_args(Nature)),
    )
    yield _histogram(
        "resilin_log_append_seconds", p, "Time until the log has acknowledged a record.", _QUICK
    )
    yield _histogram(
        "resilin_event_apply_latency_seconds",
        p,
        "Time from a record's timestamp until this process has folded it; replay apart.",
        _QUICK,
    )
    yield _histogram("resilin_decide_seconds", p, "Time that the core took to decide.", _QUICK)
    yield _gauge("resilin_log_replay_seconds", p, "Time that folding the log took at the start.")
    yield _gauge("resilin_log_replay_records", p, "Records that were folded at the start.")
    yield _counter(
        "resilin_replay_mismatch_total",
        p,
        "Decisions or states that came out otherwise when they were computed again.",
    )
    yield _counter(
        "resilin_dead_letter_records_total", p, "Inputs that could not be read and were put aside."
    )
    yield _counter("resilin_snapshot_total", p, "Snapshots saved by this process.")
    yield _gauge(
        "resilin_snapshot_seconds", p, "Time that the last snapshot took; 0 before the first."
    )
    yield _gauge("resilin_snapshot_bytes", p, "Size of the last snapshot; 0 before the first.")
    yield _counter(
        "resilin_fenced_writes_total",
        LEADER,
        "Records of this service in the log that do not count: of an old epoch, or repeats.",
    )


def _of_admission() -> Iterable[Metric]:
    a = "admission"
    yield _counter(
        "resilin_admission_attempts_total",
        a,
        "Jobs answered. Rejected ones carry their reason, admitted ones whether their deadline"
        " is promised.",
        "result reason",
        _ATTEMPTS,
    )
    yield _histogram(
        "resilin_admission_latency_seconds",
        a,
        "Time from a job's submission until it was answered.",
        (*_QUICK[1:], 60.0, 600.0),
    )
    yield _gauge(
        "resilin_pending_jobs", a, "Jobs submitted and not answered yet.", "virtual_cluster"
    )
    yield _counter(
        "resilin_deadline_admitted_total",
        a,
        "Jobs admitted with a deadline.",
        "promised",
        _PROMISED,
    )
    yield _counter(
        "resilin_deadline_met_total",
        a,
        "Jobs with a deadline that were done by then.",
        "promised",
        _PROMISED,
    )
    yield _counter(
        "resilin_deadline_missed_total",
        a,
        "Admitted jobs with a deadline that were done later, or failed.",
        "promised",
        _PROMISED,
    )
    yield _histogram(
        "resilin_deadline_slack_seconds",
        a,
        "Time between a job's completion and its deadline; negative for a late job.",
        _SLACK,
    )
    yield _gauge(
        "resilin_overdue_jobs",
        a,
        "Live jobs whose deadline has passed.",
        "virtual_cluster",
    )
    yield _counter(
        "resilin_command_rejected_total", a, "Well-formed commands that could not apply."
    )


def _of_planning() -> Iterable[Metric]:
    yield _gauge(
        "resilin_allocated_gpus",
        "allocator",
        "GPUs that the allocator wants live jobs to have.",
        "virtual_cluster",
    )
    yield _gauge(
        "resilin_promised_gpus",
        "allocator",
        "GPUs that guaranteed plans have at this moment.",
        "virtual_cluster",
    )
    yield _gauge(
        "resilin_waiting_jobs",
        "allocator",
        "Live jobs that are to have no GPU for now.",
        "virtual_cluster",
    )
    yield _counter(
        "resilin_allocation_changes_total",
        "allocator",
        "Changes of a job's allocation, by their reason.",
        "reason",
        ((reason,) for reason in _CHANGE_REASONS),
    )
    yield _gauge(
        "resilin_gpus",
        "placement",
        "GPUs of the cell: usable, cordoned, or down with their node.",
        "virtual_cluster condition",
    )
    yield _gauge(
        "resilin_placed_gpus",
        "placement",
        "GPUs that the newest generations of live jobs are placed on.",
        "virtual_cluster",
    )
    yield _gauge(
        "resilin_used_gpus",
        "placement",
        "GPUs that are busy with a job in fact.",
        "virtual_cluster",
    )
    yield _gauge(
        "resilin_fragmentation_ratio",
        "placement",
        "How far the free GPUs are from being usable in large blocks: 0 to 1.",
        "virtual_cluster",
    )
    yield _counter("resilin_migration_total", "placement", "Moves of a job at the same size.")
    yield _gauge(
        "resilin_loan_active_gpus",
        "loan-manager",
        "GPUs of servers that work for another virtual cluster, by the borrower.",
        "virtual_cluster",
    )
    yield _counter("resilin_loan_total", "loan-manager", "Servers lent.")
    yield _histogram(
        "resilin_loan_recall_seconds",
        "loan-manager",
        "Time from the wish to have a server back until it was.",
        _MINUTES,
    )


def _of_running() -> Iterable[Metric]:
    x = "executor"
    yield _gauge("resilin_running_jobs", x, "Jobs that train.", "virtual_cluster")
    yield _gauge(
        "resilin_stopped_jobs", x, "Jobs that are placed and do not train yet.", "virtual_cluster"
    )
    yield _counter(
        "resilin_job_end_total",
        x,
        "Jobs that ended; rejected ones are counted where they are answered.",
        "outcome",
        (("completed",), ("failed",), ("cancelled",)),
    )
    yield _counter(
        "resilin_resize_total",
        x,
        "Changes of a started job's worker count that are over, suspensions included.",
        "direction result",
        product(("up", "down"), RESIZE_RESULTS),
    )
    yield _histogram(
        "resilin_resize_stop_seconds",
        x,
        "Time that a started job stood still for a change of its GPUs.",
        _STOPS,
        "direction",
        (("up",), ("down",), ("move",)),
    )
    yield _counter(
        "resilin_held_gpu_seconds_total", x, "GPU time that jobs have held, training or not."
    )
    yield _counter(
        "resilin_lost_gpu_seconds_total",
        x,
        "GPU time that jobs have held without progress that lasted, by its cause.",
        "cause",
        ((cause,) for cause in LOST_CAUSES),
    )
    yield _counter("resilin_worker_lost_total", x, "Times a job lost workers and had to stop.")
    yield _counter(
        "resilin_worker_replaced_total", x, "Workers replaced in place while their job trained on."
    )
    yield _counter(
        "resilin_profile_total",
        x,
        "Jobs tried out because nothing was known of their throughput.",
        "result",
        (("measured",), ("failed",)),
    )
    yield _gauge("resilin_node_up", x, "Whether a server's node is up: 1 or 0.", "server")


def _of_measuring() -> Iterable[Metric]:
    m, s = "metric-collector", "stability-detector"
    yield _counter(
        "resilin_measurement_total",
        m,
        "Measurements that became records.",
        "kind",
        (("throughput",), ("gradient-noise",), ("utilization",)),
    )
    yield _gauge(
        "resilin_goodput_ratio",
        m,
        "Share of all GPU time held so far that went into progress that lasted: 0 to 1.",
    )
    yield _gauge("resilin_job_workers", m, "Workers that a live job is placed with.", "job_id")
    yield _gauge(
        "resilin_job_allocated_workers", m, "Workers that a live job is to have.", "job_id"
    )
    yield _gauge("resilin_job_progress_ratio", m, "Share of a job's iterations done.", "job_id")
    yield _gauge(
        "resilin_job_iterations_per_second",
        m,
        "Believed throughput of a job at this moment; 0 while it stands still.",
        "job_id",
    )
    yield _gauge("resilin_job_deadline_timestamp_seconds", m, "A job's deadline.", "job_id")
    yield _gauge(
        "resilin_job_deadline_slack_seconds",
        m,
        "Time between a job's expected end and its deadline: at its present speed, or else by"
        " its plan.",
        "job_id",
    )
    yield _counter("resilin_job_stabilized_total", s, "Times a job's training speed settled.")
    yield _counter("resilin_straggler_detected_total", s, "Workers found much slower than others.")
    yield _counter(
        "resilin_bottleneck_detected_total",
        s,
        "Components found to limit their job.",
        "resource",
        ((resource,) for resource in _BOTTLENECKS),
    )


METRICS: tuple[Metric, ...] = (
    *_of_processes(),
    *_of_admission(),
    *_of_planning(),
    *_of_running(),
    *_of_measuring(),
)
"""Every metric, in the order in which it is documented."""
