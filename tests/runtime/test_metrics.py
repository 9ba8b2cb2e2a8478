"""Metrics: what a run's log says, counted once, and only by those whose subject it is."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support import events as some
from tests.support.log import HandMadeLog, a_cell
from tests.support.runs import KINDS, edited, recorded, run, scenario
from tests.support.strategies import any_entries

from resilin.cell import gpu_sets
from resilin.cell.state import Phase
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.topics import SERVICES
from resilin.contracts.values import StopCost
from resilin.eventlog.memory import MemoryLog
from resilin.kernel.fencing import Fence
from resilin.kernel.snapshot import SnapshotError
from resilin.report.history import History
from resilin.report.summary import summarize
from resilin.runtime import metrics_page
from resilin.runtime.cell_figures import JOB_SERIES_SECONDS
from resilin.runtime.clock import WallClock
from resilin.runtime.metrics import CellMetrics, ServiceMetrics
from resilin.runtime.metrics_catalogue import METRICS, PROCESS
from resilin.runtime.metrics_numbers import Numbers, families
from resilin.simulation import faults
from resilin.simulation.cluster import Physics
from resilin.simulation.simulation import Simulation

ROOT = Path(__file__).parents[2]
CLOCK = WallClock()
SEEDS = range(8)

every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def folded(kind: str) -> CellMetrics:
    return cell_metrics(recorded(kind))


def cell_metrics(entries: Sequence[LogEntry], service: str = "executor") -> CellMetrics:
    metrics = CellMetrics(service)
    for entry in entries:
        metrics.fold(entry)
    return metrics


def instance(service: str, *, leading: bool = True, per_job: bool = True) -> ServiceMetrics:
    metrics = ServiceMetrics(
        service, instance="one", cell="main", version="0.1.0", clock=CLOCK, per_job=per_job
    )
    metrics.role(leading=leading, epoch=1)
    return metrics


def exposed(metrics: ServiceMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Scrape an instance: values by the name and labels of their series."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("resilin_")
    }


def counted_events(entries: Sequence[LogEntry]) -> list[ev.Event]:
    fence = Fence()
    return [
        event
        for entry in entries
        if fence.admit(entry)
        for event in entry.record.events
        if isinstance(event, ev.Event)
    ]


# --- a run's counters against other counts of its log --------------------------------------


@every_kind
def test_jobs_and_deadlines_are_those_of_the_summary(kind: str) -> None:
    numbers = folded(kind).figures.numbers
    history = History.of(recorded(kind))
    summary = summarize(history)
    attempts = numbers.values["resilin_admission_attempts_total"]
    admitted = sum(n for labels, n in attempts.items() if labels.startswith("admitted"))
    assert admitted == summary.admitted
    assert sum(attempts.values()) - admitted == summary.declined
    assert numbers.value("resilin_job_end_total", "completed") == summary.completed
    assert numbers.total("resilin_deadline_met_total") == summary.met
    assert numbers.total("resilin_deadline_missed_total") == summary.late
    assert numbers.value("resilin_deadline_missed_total", "true") == summary.broken_promises
    refused = Counter(job.reason for job in history.jobs.values() if job.outcome is Phase.REJECTED)
    assert {
        labels.partition("\t")[2]: n
        for labels, n in attempts.items()
        if labels.startswith("rejected") and n
    } == refused


@every_kind
def test_resizes_and_migrations_are_those_of_the_summary(kind: str) -> None:
    numbers, summary = folded(kind).figures.numbers, summarize(History.of(recorded(kind)))
    assert numbers.total("resilin_resize_total") == summary.resizes
    assert numbers.total("resilin_migration_total") == summary.migrations
    assert not any(job.change for job in folded(kind).figures.jobs.values())


@every_kind
def test_every_event_is_counted_once(kind: str) -> None:
    numbers = folded(kind).figures.numbers
    happened = Counter(type(event) for event in counted_events(recorded(kind)))
    for name, event_type in {
        "resilin_measurement_total": ev.ThroughputMeasured,
        "resilin_job_stabilized_total": ev.JobStabilized,
        "resilin_worker_lost_total": ev.WorkerLost,
        "resilin_worker_replaced_total": ev.WorkerReplaced,
        "resilin_profile_total": ev.CurveProfiled,
        "resilin_command_rejected_total": ev.CommandRejected,
    }.items():
        assert numbers.total(name) == happened[event_type], name
    answers = numbers.histograms["resilin_admission_latency_seconds"][""]
    assert sum(answers.counts) == happened[ev.JobAdmitted] + happened[ev.JobRejected]


@every_kind
def test_gpu_time_is_what_jobs_held_between_the_changes(kind: str) -> None:
    numbers = folded(kind).figures.numbers
    moments = History.of(recorded(kind)).moments
    held = sum(one.busy * (two.at_seconds - one.at_seconds) for one, two in pairwise(moments))
    assert numbers.total("resilin_held_gpu_seconds_total") == pytest.approx(held)
    assert not any(folded(kind).figures.holding.values()), "all GPUs are free at the end"


def test_stops_cost_what_the_cell_is_told_they_cost() -> None:
    """With a fixed stop each placement costs that time on all GPUs of its generation."""
    physics = Physics(stop_cost=StopCost(fixed_seconds=10.0))
    entries = run(scenario(stop_cost=physics.stop_cost), physics)
    stopped = sum(
        event.workers * event.stopped_seconds
        for event in counted_events(entries)
        if isinstance(event, ev.GenerationSwitched)
    )
    numbers = cell_metrics(entries).figures.numbers
    lost = numbers.total("resilin_lost_gpu_seconds_total")
    # A generation that another overtakes before it trains has lost its time too.
    assert stopped > 0
    assert lost >= stopped
    unfinished = numbers.value("resilin_resize_total", "up", "overtaken") + numbers.value(
        "resilin_resize_total", "down", "overtaken"
    )
    assert lost <= stopped + 10.0 * 16 * (unfinished + numbers.total("resilin_migration_total"))


def test_only_failures_cost_anything_where_stops_are_free() -> None:
    lost = folded("failures").figures.numbers.values["resilin_lost_gpu_seconds_total"]
    assert lost["failure"] > 0
    assert sum(lost.values()) == lost["failure"]
    assert not any(
        folded("free stops").figures.numbers.values["resilin_lost_gpu_seconds_total"].values()
    )


# --- at every record -----------------------------------------------------------------------


@cache
def with_faults(seed: int) -> tuple[LogEntry, ...]:
    """A log with zombies, repeats, lost nodes and late reports."""
    chance = random.Random(seed)
    commands, physics = faults._scenario(chance)
    entries: list[LogEntry] = []
    chaos = faults.Faults(chance, share=0.1)
    simulation = Simulation(MemoryLog(), commands, physics, chaos=chaos, observe=entries.append)
    simulation.run(until_seconds=faults.MOST_SECONDS)
    chaos.mend(simulation)
    return tuple(entries)


def test_the_faults_leave_records_that_do_not_count() -> None:
    assert any(cell_metrics(with_faults(seed)).figures.fenced for seed in SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_figures_agree_with_the_cell_after_every_record_whatever_fails(seed: int) -> None:
    metrics, history = CellMetrics("executor"), History()
    figures = metrics.figures
    before: dict[tuple[str, str], float] = {}
    for entry in with_faults(seed):
        metrics.fold(entry)
        history.fold(entry)
        held = sum(gpu_sets.count(job.held) for job in figures.cell.jobs.values())
        assert sum(figures.holding.values()) == held
        assert min(figures.holding.values(), default=0) >= 0
        training = sum(job.placed_workers for job in figures.cell.jobs.values() if job.trains)
        assert figures.holding.get("training", 0) == training
        now = {
            (name, labels): value
            for name, series in figures.numbers.values.items()
            for labels, value in series.items()
        }
        assert all(now[key] >= value for key, value in before.items()), "a counter fell"
        before = now
    numbers, summary = figures.numbers, summarize(history)
    assert numbers.total("resilin_resize_total") == summary.resizes
    assert numbers.total("resilin_migration_total") == summary.migrations
    assert numbers.total("resilin_deadline_met_total") == summary.met
    assert numbers.total("resilin_deadline_missed_total") == summary.late
    held_seconds = numbers.total("resilin_held_gpu_seconds_total")
    assert numbers.total("resilin_lost_gpu_seconds_total") <= held_seconds


@given(entries=any_entries())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_no_log_however_absurd_breaks_the_fold_or_a_scrape(entries: list[LogEntry]) -> None:
    scraped = {service: instance(service) for service in SERVICES}
    for entry in entries:
        for one in scraped.values():
            one.folded(entry, counted=True)
    for one in scraped.values():
        assert exposed(one)
    assert min(scraped["executor"].of_cell.figures.holding.values(), default=0) >= 0


# --- one job, by hand ----------------------------------------------------------------------


def a_job_on_two_gpus() -> HandMadeLog:
    return a_cell().given(
        some.submitted("a", iterations=100, deadline=1000.0),
        some.admitted("a"),
        some.placed("a", 1, {"s1": (0, 1)}),
        some.switched("a", 1, workers=2),
    )


def test_what_a_failure_undoes_is_lost_at_the_speed_it_was_made() -> None:
    log = a_job_on_two_gpus()
    log.at(20.0).add(some.worker_lost("a", 1, done=30.0))
    # It had done 40 iterations at 2 a second on 2 GPUs: 10 iterations cost 10 GPU seconds.
    # Then it holds both GPUs for 5 seconds more.
    log.at(25.0).add(some.released("a", 1, {"s1": (0, 1)}, done=30.0))
    numbers = cell_metrics(log.entries).figures.numbers
    assert numbers.value("resilin_lost_gpu_seconds_total", "failure") == pytest.approx(20.0)
    assert numbers.total("resilin_held_gpu_seconds_total") == pytest.approx(50.0)


def test_a_node_that_is_lost_takes_the_work_since_the_checkpoint_with_it() -> None:
    log = a_job_on_two_gpus()
    log.at(20.0).add(some.lost("s1"))
    log.at(30.0).add(some.worker_lost("a", 1, done=30.0))
    numbers = cell_metrics(log.entries).figures.numbers
    assert numbers.value("resilin_lost_gpu_seconds_total", "failure") == pytest.approx(10.0)
    assert numbers.total("resilin_held_gpu_seconds_total") == pytest.approx(40.0)


def test_a_resize_ends_when_its_generation_trains_or_something_comes_first() -> None:
    log = a_job_on_two_gpus()
    log.at(10.0).given(some.placed("a", 2, {"s1": (0, 1, 2, 3)}))
    log.at(12.0).given(some.placed("a", 3, {"s1": (0,)}))
    log.at(15.0).given(some.switched("a", 3, workers=1).model_copy(update={"stopped_seconds": 5.0}))
    log.at(20.0).given(some.placed("a", 4, {"s1": (0, 1)}))
    log.at(21.0).given(some.worker_lost("a", 4, done=0.0))
    figures = cell_metrics(log.entries).figures
    resizes = {k: n for k, n in figures.numbers.values["resilin_resize_total"].items() if n}
    assert resizes == {"up\tovertaken": 1, "down\tdone": 1, "up\tinterrupted": 1}
    stops = figures.numbers.histograms["resilin_resize_stop_seconds"]
    assert (stops["down"].sum, stops["up"].sum) == (5.0, 0.0)


def test_a_late_job_has_missed_its_deadline_and_is_overdue_before() -> None:
    log = a_job_on_two_gpus()
    log.at(1001.0).given(some.progressed("a", 1, done=50.0))
    metrics = instance("admission")
    for entry in log.entries:
        metrics.folded(entry, counted=True)
    overdue = ("resilin_overdue_jobs", (("cell", "main"), ("virtual_cluster", "default")))
    assert exposed(metrics)[overdue] == 1
    at = log.at(1100.0).add(some.completed("a", 1))
    metrics.folded(log.entries[at], counted=True)
    shown = exposed(metrics)
    assert shown[overdue] == 0
    missed = {labels: n for (name, labels), n in shown.items() if name.endswith("missed_total")}
    assert sum(missed.values()) == 1
    slack = {
        dict(labels)["le"]: n
        for (name, labels), n in shown.items()
        if name == "resilin_deadline_slack_seconds_bucket"
    }
    assert (slack["-60.0"], slack["-600.0"], slack["+Inf"]) == (1, 0, 1)


def test_a_job_is_shown_while_it_lives_and_for_a_while_after() -> None:
    log = a_job_on_two_gpus()
    log.at(50.0).given(some.completed("a", 1))
    log.at(51.0).given(some.released("a", 1, {"s1": (0, 1)}, done=100.0))
    collector = instance("metric-collector")
    seen = []
    for seconds in (52.0, 50.0 + JOB_SERIES_SECONDS + 1):
        log.at(seconds).given(some.progressed("nobody", 1, done=1.0))
    for entry in log.entries:
        collector.folded(entry, counted=True)
        shown = exposed(collector)
        seen.append({name: n for (name, labels), n in shown.items() if ("job_id", "a") in labels})
    assert seen[0] == {}
    training = seen[-5]
    assert training["resilin_job_workers"] == 2
    assert training["resilin_job_iterations_per_second"] == 2
    assert training["resilin_job_deadline_slack_seconds"] == pytest.approx(950.0)
    assert seen[-2]["resilin_job_progress_ratio"] == 1
    assert seen[-2]["resilin_job_workers"] == 0
    assert seen[-1] == {}


def test_series_by_job_can_be_turned_off() -> None:
    on, off = instance("metric-collector"), instance("metric-collector", per_job=False)
    for entry in a_job_on_two_gpus().entries:
        on.folded(entry, counted=True)
        off.folded(entry, counted=True)
    assert any("job_id" in dict(labels) for _, labels in exposed(on))
    assert not any("job_id" in dict(labels) for _, labels in exposed(off))


def test_a_virtual_cluster_that_there_is_not_makes_no_series() -> None:
    metrics = instance("admission")
    for entry in (
        a_cell()
        .given(some.submitted("a", virtual_cluster="x1"), some.submitted("b", virtual_cluster="x2"))
        .entries
    ):
        metrics.folded(entry, counted=True)
    pending = {
        dict(labels)["virtual_cluster"]: n
        for (name, labels), n in exposed(metrics).items()
        if name == "resilin_pending_jobs"
    }
    assert pending == {"default": 0, "unknown": 2}


# --- who exposes what ----------------------------------------------------------------------


def all_leading(entries: Sequence[LogEntry]) -> dict[str, ServiceMetrics]:
    metrics = {service: instance(service) for service in SERVICES}
    for entry in entries:
        for one in metrics.values():
            one.folded(entry, counted=True)
    return metrics


def test_no_series_has_two_sources_and_every_metric_has_one() -> None:
    scraped = [exposed(one) for one in all_leading(recorded("noise")).values()]
    series = Counter(key for one in scraped for key in one)
    assert [key for key, sources in series.items() if sources > 1] == []
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in series}
    started = {metric.name for metric in METRICS} - {
        # Not before a job lives at the moment of the scrape, which is the end of the run.
        "resilin_job_allocated_workers",
        "resilin_job_deadline_timestamp_seconds",
        "resilin_job_deadline_slack_seconds",
    }
    assert started <= names


def test_a_standby_shows_its_process_only_until_it_leads() -> None:
    standby = instance("placement", leading=False)
    for entry in recorded("noise"):
        standby.folded(entry, counted=True)
    owned = {metric.name for metric in METRICS if metric.owner == PROCESS}
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in exposed(standby)}
    assert names == owned
    standby.role(leading=True, epoch=2)
    moves = exposed(standby)["resilin_migration_total", (("cell", "main"),)]
    assert moves == summarize(History.of(recorded("noise"))).migrations


def test_the_writer_of_records_that_do_not_count_is_found() -> None:
    entries = list(recorded("noise"))
    late = next(entry for entry in entries if entry.record.service == "allocator")
    end = len(entries)
    entries += [
        edited(LogEntry(end, late.record), epoch=0),
        edited(LogEntry(end + 1, late.record), epoch=0),
    ]
    fenced = {
        service: exposed(one)[
            "resilin_fenced_writes_total", (("cell", "main"), ("service", service))
        ]
        for service, one in all_leading(entries).items()
    }
    assert fenced == {service: 2 if service == "allocator" else 0 for service in SERVICES}


def test_what_a_process_does_is_counted() -> None:
    metrics = instance("allocator", leading=False)
    record = recorded("noise")[0].record
    metrics.folded(recorded("noise")[0], counted=True)  # replay: its age says nothing
    metrics.replayed(records=1, seconds=0.5)
    metrics.folded(recorded("noise")[1], counted=True)
    metrics.appended(record, 0.002)
    metrics.decided(0.003)
    metrics.lag(7)
    metrics.snapshot(size_bytes=1000, seconds=0.1)
    metrics.dead_letter()
    metrics.mismatch()
    metrics.role(leading=True, epoch=3)
    shown = {name: n for (name, labels), n in exposed(metrics).items() if len(labels) == 2}
    assert shown["resilin_log_records_folded_total"] == 2
    assert shown["resilin_event_apply_latency_seconds_count"] == 1
    assert shown["resilin_log_append_seconds_sum"] == 0.002
    assert shown["resilin_decide_seconds_count"] == 1
    assert shown["resilin_log_consumer_lag_records"] == 7
    assert shown["resilin_log_replay_seconds"] == 0.5
    assert shown["resilin_snapshot_bytes"] == 1000
    assert shown["resilin_dead_letter_records_total"] == 1
    assert shown["resilin_replay_mismatch_total"] == 1
    assert (shown["resilin_leading"], shown["resilin_epoch"]) == (1, 3)


def test_the_metrics_of_an_empty_log_are_no_trouble() -> None:
    for service in SERVICES:
        assert exposed(instance(service))


# --- snapshots -----------------------------------------------------------------------------


@every_kind
def test_a_fold_goes_on_from_a_snapshot_as_if_nothing_had_been(kind: str) -> None:
    entries = recorded(kind)
    for cut in (0, 1, len(entries) // 2, len(entries) - 1):
        before = cell_metrics(entries[:cut])
        after = CellMetrics("executor")
        after.restore(before.dump())
        assert after.offset == before.offset
        for entry in entries:  # what the snapshot holds already changes nothing
            after.fold(entry)
        assert after.dump() == folded(kind).dump()


def test_a_damaged_snapshot_says_so() -> None:
    with pytest.raises(SnapshotError):
        CellMetrics("executor").restore(b"{}")


def test_a_bucket_holds_its_own_bound() -> None:
    numbers = Numbers()
    for seconds in (0.1, 0.11, 1000.0):
        numbers.observe("resilin_resize_stop_seconds", "up", value=seconds)
    (stops,) = (metric for metric in METRICS if metric.name == "resilin_resize_stop_seconds")
    (family,) = families([stops], numbers, ("main",))
    counts = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert (counts["0.1"], counts["0.25"], counts["300.0"], counts["+Inf"]) == (1, 2, 2, 3)


# --- the catalogue and its page ------------------------------------------------------------


def test_names_follow_the_rules() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"resilin_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.owner in (*SERVICES, "process", "leader")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.help.endswith("."), metric.name
        if "job_id" in metric.labels:
            assert metric.owner == "metric-collector"
        for labels in metric.start:
            assert len(labels) == len(metric.labels)


def test_the_page_of_metrics_is_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = ROOT / "docs" / "metrics.md"
    assert metrics_page.main([str(committed), "--check"]) == 0, "run the module on docs/metrics.md"
    other = tmp_path / "metrics.md"
    assert metrics_page.main([str(other), "--check"]) == 1
    assert "not up to date" in capsys.readouterr().err
    assert metrics_page.main([str(other)]) == 0
    assert other.read_text() == committed.read_text()


def test_nothing_of_other_libraries_is_exposed() -> None:
    registry = instance("executor").registry
    assert isinstance(registry, CollectorRegistry)
    names = {family.name for family in registry.collect()}
    assert all(name.startswith(("resilin_", "process_")) for name in names)
