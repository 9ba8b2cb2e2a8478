"""Dashboards and rules on a real Prometheus: every question they ask has an answer.

Once the seven services are stood in for by the metrics of a simulated run, which goes on a
little with every scrape; once they are real processes on a real broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from tests.support.partitions import own_partition
from tests.support.processes import services_running
from tests.support.prometheus import (
    OBSERVABILITY,
    Prometheus,
    Query,
    dashboard_queries,
    prometheus_running,
    promtool,
    rule_queries,
    selectors,
    unanswered,
)
from tests.support.runs import recorded, scenario

from resilin.contracts import events as ev
from resilin.contracts.commands import SubmitJob
from resilin.contracts.record import LogEntry
from resilin.contracts.topics import JOBS_COMMANDS, SERVICES
from resilin.contracts.values import StopCost
from resilin.eventlog.kafka import KafkaConnection, KafkaTopic
from resilin.runtime.clock import WallClock
from resilin.runtime.metrics import ServiceMetrics
from resilin.runtime.metrics_catalogue import METRICS

SCRAPES = 40
TIME_SCALE = 300.0


class Unrolling(Collector):
    """An instance whose log grows with every scrape, as if records came in between."""

    def __init__(self, service: str, entries: Sequence[LogEntry]) -> None:
        self.metrics = ServiceMetrics(
            service, instance=f"{service}-1", cell="main", version="0.1.0", clock=WallClock()
        )
        self.metrics.replayed(records=0, seconds=0.1)
        self.metrics.snapshot(size_bytes=2_000, seconds=0.01)
        self._service = service
        self._left = list(entries)
        self._step = -(-len(entries) // SCRAPES)

    def collect(self) -> Iterator[Family]:
        now, self._left = self._left[: self._step], self._left[self._step :]
        for entry in now:
            if entry.record.service == self._service:
                self.metrics.appended(entry.record, 0.002)
                for event in entry.record.events:
                    if isinstance(event, ev.LeadershipClaimed):
                        self.metrics.role(leading=True, epoch=entry.record.epoch)
            self.metrics.decided(0.001)
            self.metrics.folded(entry, counted=True)
        yield from self.metrics.registry.collect()


@pytest.fixture(scope="module")
def targets() -> Iterator[list[str]]:
    """The addresses of seven processes whose metrics are those of a run with failures."""
    with ExitStack() as stack:
        addresses = []
        for service in SERVICES:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(Unrolling(service, recorded("failures")))
            server, thread = start_http_server(0, "127.0.0.1", registry)
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            addresses.append(f"127.0.0.1:{server.server_port}")
        yield addresses


def check_dashboards(
    prometheus: Prometheus, *, since: float, cell: str = "main", timeout_seconds: float = 90.0
) -> None:
    """Ask every question of every dashboard and rule until each has had an answer.

    Args:
        prometheus: Scrapes the services.
        since: From when on answers count.
        cell: The cell.
        timeout_seconds: How long to wait for the last answer.
    """
    queries = [*dashboard_queries(), *rule_queries()]
    variables = {"cell": cell, "__rate_interval": "5s"}
    until = time.monotonic() + timeout_seconds
    while True:
        variables["job_id"] = most_seen_job(prometheus, since)
        left = unanswered(prometheus, queries, variables, since=since)
        if not left or time.monotonic() > until:
            break
        time.sleep(1.0)
    assert left == {}


def most_seen_job(prometheus: Prometheus, since: float) -> str:
    """Return the job with a deadline that has been there for longest; empty before the first."""
    seen = prometheus.series("resilin_job_deadline_slack_seconds", since)
    longest = max(seen, key=lambda series: len(series["values"]), default=None)
    return "" if longest is None else str(longest["metric"]["job_id"])


def test_every_panel_and_rule_has_data(targets: list[str], tmp_path: Path) -> None:
    started = time.time()
    with prometheus_running(targets, tmp_path) as prometheus:
        check_dashboards(prometheus, since=started)
        assert prometheus.unscraped(targets, started) == []
        served = set(prometheus.get("/api/v1/label/__name__/values"))
    bases = {metric.name for metric in METRICS if metric.kind != "histogram"}
    assert bases <= served
    assert {f"{m.name}_bucket" for m in METRICS if m.kind == "histogram"} <= served


def test_every_panel_and_rule_has_data_of_real_processes(bootstrap: str, tmp_path: Path) -> None:
    cell, partition = own_partition(bootstrap)
    started = time.time()
    with ExitStack() as stack:
        live = stack.enter_context(
            services_running(
                bootstrap, tmp_path, cell=cell, partition=partition, time_scale=TIME_SCALE
            )
        )
        live.wait_for_leaders()
        targets = [f"127.0.0.1:{instance.port}" for instance in live.instances]
        (tmp_path / "prometheus").mkdir()
        prometheus = stack.enter_context(prometheus_running(targets, tmp_path / "prometheus"))
        topic = stack.enter_context(
            KafkaTopic(KafkaConnection(bootstrap), JOBS_COMMANDS.name, partition)
        )
        # Costly stops, so that GPUs are seen while they are held without progress.
        for timed in scenario(stop_cost=StopCost(fixed_seconds=30.0)):
            command = timed.command.model_copy(update={"cell": cell})
            topic.produce(command.model_dump_json().encode())
            if isinstance(command, SubmitJob):
                time.sleep(1.0)
        check_dashboards(prometheus, since=started, cell=cell)
        assert prometheus.unscraped(targets, started) == []


def test_an_unanswered_question_is_found(targets: list[str], tmp_path: Path) -> None:
    """The check itself can fail: a metric that nobody exposes, a division by nothing."""
    started = time.time()
    with prometheus_running(targets[:1], tmp_path) as prometheus:
        up = Query("up", 'up{job="resilin"}')
        for _ in range(100):
            if not unanswered(prometheus, [up], {}, since=started):
                break
            time.sleep(0.2)
        queries = [up, Query("missing", "resilin_nobody"), Query("nothing", "0 * up / 0")]
        left = unanswered(prometheus, queries, {}, since=started)
    assert [line.partition(":")[0] for line in left] == ["missing", "nothing"]


def test_the_rules_are_sound_and_their_tests_pass() -> None:
    rules = sorted((OBSERVABILITY / "prometheus" / "rules").glob("*.yml"))
    tests = sorted((OBSERVABILITY / "prometheus" / "tests").glob("*.yml"))
    assert rules
    assert tests
    promtool("check", "rules", *rules)
    promtool("test", "rules", *tests)


def test_every_alert_is_tested_to_fire_and_to_keep_quiet() -> None:
    alerts = [
        rule["alert"]
        for path in (OBSERVABILITY / "prometheus" / "rules").glob("*.yml")
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    tests = [
        test
        for path in (OBSERVABILITY / "prometheus" / "tests").glob("*.yml")
        for case in yaml.safe_load(path.read_text())["tests"]
        for test in case.get("alert_rule_test", ())
    ]
    assert {test["alertname"] for test in tests if test.get("exp_alerts")} == set(alerts)
    assert {test["alertname"] for test in tests if not test.get("exp_alerts")} == set(alerts)


def test_the_configuration_is_sound() -> None:
    promtool("check", "config", OBSERVABILITY / "prometheus" / "prometheus.yml")


def test_the_series_that_an_alert_selects_are_found() -> None:
    expression = 'sum by (cell) (increase(resilin_a_total{b="c"}[15m])) > cell:resilin_d:sum'
    assert selectors(expression) == ['resilin_a_total{b="c"}', "cell:resilin_d:sum"]
    assert selectors('up{job="resilin"} == 0') == ['up{job="resilin"}']
