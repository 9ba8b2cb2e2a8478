"""Grafana's dashboards, from a short description of each panel.

``python deploy/observability/grafana/dashboards.py`` writes them; with ``--check`` it only
says whether they are up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent / "dashboards" / "Resilin"

_COLUMNS = 24
_SCHEMA_VERSION = 39
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: Its title.
        help: What it shows.
        queries: Expressions by the legend of their series; ``{{label}}`` stands for a label.
        kind: How it is drawn.
        unit: The unit of its values, by Grafana's name.
        width: Columns of the 24.
        height: Rows.
        most: The upper end of its axis; None to fit.
        stacked: Whether its series are stacked.
        red_above: From which value on a single figure is red; None for never.
        red_below: Below which value it is red; None for never.
    """

    title: str
    help: str
    queries: dict[str, str]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    most: float | None = None
    stacked: bool = False
    red_above: float | None = None
    red_below: float | None = None


@dataclass(frozen=True)
class Dashboard:
    """One dashboard.

    Attributes:
        uid: Its fixed identity, and the name of its file.
        title: Its title.
        help: What it answers.
        panels: Its panels, from left to right and top to bottom.
        variables: Queries of further variables by their names.
    """

    uid: str
    title: str
    help: str
    panels: Sequence[Panel]
    variables: dict[str, str] = field(default_factory=dict)


def _stat(title: str, text: str, query: str, unit: str = "short", **looks: Any) -> Panel:  # noqa: ANN401 (fields of Panel)
    return Panel(title, text, {title: query}, kind="stat", unit=unit, width=4, height=4, **looks)


def _quantiles(histogram: str, by: str = "") -> dict[str, str]:
    """Return the median and the 99th percentile of a histogram, by a label if one is given."""
    labels = f"{by}, le" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    rate = f'sum by ({labels}) (rate({histogram}_bucket{{cell="$cell"}}[$__rate_interval]))'
    return {
        f"{legend}median": f"histogram_quantile(0.5, {rate})",
        f"{legend}99 %": f"histogram_quantile(0.99, {rate})",
    }


def _rate(counter: str, by: str) -> dict[str, str]:
    """Return how often something happens a minute, by labels."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    rate = f'sum by ({by}) (rate({counter}{{cell="$cell"}}[$__rate_interval])) * 60'
    return {legend: rate}


def _sum(gauge: str, more: str = "") -> str:
    return f'sum({gauge}{{cell="$cell"{more}}})'


CLUSTER = Dashboard(
    uid="resilin-cluster",
    title="Cluster",
    help="What the GPUs of a cell are doing, and what is lost of their time.",
    panels=[
        _stat("GPUs", "GPUs that may get work.", _sum("resilin_gpus", ',condition="usable"')),
        _stat(
            "Utilization",
            "Share of the GPUs whose node is up that are busy with a job in fact.",
            'cell:resilin_gpu_utilization:ratio{cell="$cell"}',
            "percentunit",
        ),
        _stat(
            "Goodput",
            "Share of all GPU time held so far that went into progress that lasted.",
            'resilin_goodput_ratio{cell="$cell"}',
            "percentunit",
            red_below=0.8,
        ),
        _stat("Jobs training", "Jobs that train.", _sum("resilin_running_jobs")),
        _stat(
            "Jobs without GPUs",
            "Live jobs that are to have none for now.",
            _sum("resilin_waiting_jobs"),
        ),
        _stat(
            "Nodes down",
            "Servers of the cell whose node is not up.",
            'count(resilin_node_up{cell="$cell"}) - sum(resilin_node_up{cell="$cell"})',
            red_above=1,
        ),
        Panel(
            "GPUs: wished, placed, in fact",
            "What guaranteed plans have, what the allocator wants, what placement gave, and what"
            " is busy in fact. They differ while jobs change hands.",
            {
                "usable": _sum("resilin_gpus", ',condition="usable"'),
                "promised": _sum("resilin_promised_gpus"),
                "allocated": _sum("resilin_allocated_gpus"),
                "placed": _sum("resilin_placed_gpus"),
                "used": _sum("resilin_used_gpus"),
            },
        ),
        Panel(
            "Jobs",
            "Live jobs by what they are doing, and submissions without an answer.",
            {
                "training": _sum("resilin_running_jobs"),
                "standing still": _sum("resilin_stopped_jobs"),
                "without GPUs": _sum("resilin_waiting_jobs"),
                "not answered": _sum("resilin_pending_jobs"),
            },
            stacked=True,
        ),
        Panel(
            "GPUs in use by virtual cluster",
            "GPUs that are busy with a job in fact.",
            {"{{virtual_cluster}}": 'sum by (virtual_cluster) (resilin_used_gpus{cell="$cell"})'},
            stacked=True,
        ),
        Panel(
            "GPUs by condition",
            "All GPUs of the cell; those of a node that is down cannot be used.",
            {"{{condition}}": 'sum by (condition) (resilin_gpus{cell="$cell"})'},
            stacked=True,
        ),
        Panel(
            "GPUs held without progress, by cause",
            "Mean number of GPUs whose time is lost: until a job starts, resizes, moves, has"
            " recovered from a failure, or gives its GPUs back.",
            {
                "{{cause}}": "sum by (cause)"
                ' (rate(resilin_lost_gpu_seconds_total{cell="$cell"}[$__rate_interval]))'
            },
            stacked=True,
        ),
        Panel(
            "Goodput over five minutes",
            "Share of the GPU time held that went into progress that lasted.",
            {"goodput": 'cell:resilin_goodput:ratio_rate5m{cell="$cell"}'},
            unit="percentunit",
            most=1,
        ),
        Panel(
            "Fragmentation",
            "How far the free GPUs are from being usable in large blocks: 0 is best.",
            {"{{virtual_cluster}}": 'resilin_fragmentation_ratio{cell="$cell"}'},
            unit="percentunit",
            most=1,
            width=8,
        ),
        Panel(
            "Moves and trouble with workers, a minute",
            "Migrations make room for others; lost workers cost work, replaced ones a little;"
            " stragglers slow a job.",
            {
                "moves": 'sum(rate(resilin_migration_total{cell="$cell"}[$__rate_interval])) * 60',
                "lost workers": 'sum(rate(resilin_worker_lost_total{cell="$cell"}'
                "[$__rate_interval])) * 60",
                "replaced workers": 'sum(rate(resilin_worker_replaced_total{cell="$cell"}'
                "[$__rate_interval])) * 60",
                "stragglers": 'sum(rate(resilin_straggler_detected_total{cell="$cell"}'
                "[$__rate_interval])) * 60",
            },
            width=8,
        ),
        Panel(
            "GPUs on loan, by borrower",
            "GPUs of servers that work for another virtual cluster.",
            {"{{virtual_cluster}}": 'resilin_loan_active_gpus{cell="$cell"}'},
            width=8,
        ),
        Panel(
            "Nodes",
            "1 while the node of a server is up.",
            {"{{server}}": 'resilin_node_up{cell="$cell"}'},
            width=24,
            most=1,
        ),
    ],
)

PROMISES = Dashboard(
    uid="resilin-promises",
    title="Jobs and promises",
    help="What was asked, what was promised, and what became of it.",
    panels=[
        _stat(
            "Jobs answered",
            "Submissions that were admitted or rejected.",
            _sum("resilin_admission_attempts_total"),
        ),
        _stat(
            "Admitted",
            "Share of all answers that let the job in.",
            _sum("resilin_admission_attempts_total", ',result="admitted"')
            + " / "
            + _sum("resilin_admission_attempts_total"),
            "percentunit",
        ),
        _stat(
            "Deadlines met",
            "Jobs that were done by their deadline.",
            _sum("resilin_deadline_met_total"),
        ),
        _stat(
            "Promises broken",
            "Jobs with a promised deadline that were late or failed.",
            _sum("resilin_deadline_missed_total", ',promised="true"'),
            red_above=1,
        ),
        _stat(
            "Jobs overdue",
            "Live jobs whose deadline has passed.",
            _sum("resilin_overdue_jobs"),
            red_above=1,
        ),
        _stat("Not answered", "Submissions without an answer.", _sum("resilin_pending_jobs")),
        Panel(
            "Answers a minute",
            "Admitted jobs by whether their deadline is promised, rejected ones by the reason.",
            _rate("resilin_admission_attempts_total", "result, reason"),
            stacked=True,
        ),
        Panel(
            "Time to an answer",
            "Cell time from a submission until it was answered.",
            _quantiles("resilin_admission_latency_seconds"),
            unit="s",
        ),
        Panel(
            "Deadlines",
            "Jobs admitted with a deadline, and how those that ended turned out.",
            {
                "admitted": _sum("resilin_deadline_admitted_total"),
                "met": _sum("resilin_deadline_met_total"),
                "missed, promised": _sum("resilin_deadline_missed_total", ',promised="true"'),
                "missed, not promised": _sum("resilin_deadline_missed_total", ',promised="false"'),
            },
        ),
        Panel(
            "Slack at completion",
            "Time between a job's completion and its deadline, to the nearest bucket; below zero"
            " it was late.",
            _quantiles("resilin_deadline_slack_seconds")
            | {
                "1 %": "histogram_quantile(0.01, sum by (le)"
                ' (rate(resilin_deadline_slack_seconds_bucket{cell="$cell"}[$__rate_interval])))'
            },
            unit="s",
        ),
        Panel(
            "Resizes a minute",
            "Changes of a started job's worker count, by how they ended.",
            _rate("resilin_resize_total", "direction, result"),
            stacked=True,
        ),
        Panel(
            "Stops",
            "Time that a job stood still for a change of its GPUs.",
            _quantiles("resilin_resize_stop_seconds", "direction"),
            unit="s",
        ),
        Panel(
            "Why allocations change, a minute",
            "Reasons of the allocator.",
            _rate("resilin_allocation_changes_total", "reason"),
            stacked=True,
        ),
        Panel(
            "Ends a minute",
            "Jobs that completed, failed or were cancelled.",
            _rate("resilin_job_end_total", "outcome"),
            stacked=True,
        ),
        Panel(
            "Jobs tried out",
            "Jobs of models of which nothing was known, by what came of it.",
            {"{{result}}": 'sum by (result) (resilin_profile_total{cell="$cell"})'},
            width=8,
        ),
        Panel(
            "Live jobs, the tightest first",
            "Expected time between a job's end and its deadline.",
            {
                "{{job_id}}": "bottomk(20,"
                ' sum by (job_id) (resilin_job_deadline_slack_seconds{cell="$cell"}))'
            },
            kind="table",
            unit="s",
            width=16,
        ),
    ],
)

JOB = Dashboard(
    uid="resilin-job",
    title="One job",
    help="One job: its workers, its progress and its slack.",
    variables={"job_id": 'label_values(resilin_job_workers{cell="$cell"}, job_id)'},
    panels=[
        _stat(
            "Progress",
            "Share of its iterations done.",
            'max(resilin_job_progress_ratio{cell="$cell",job_id="$job_id"})',
            "percentunit",
        ),
        _stat(
            "Workers",
            "Workers it is placed with.",
            'max(resilin_job_workers{cell="$cell",job_id="$job_id"})',
        ),
        _stat(
            "Iterations per second",
            "Believed throughput; 0 while it stands still.",
            'max(resilin_job_iterations_per_second{cell="$cell",job_id="$job_id"})',
        ),
        _stat(
            "Slack",
            "Expected time between its end and its deadline.",
            'max(resilin_job_deadline_slack_seconds{cell="$cell",job_id="$job_id"})',
            "s",
            red_below=0,
        ),
        Panel(
            "Deadline",
            "When it is to be done, in cell time.",
            {
                "deadline": "max(resilin_job_deadline_timestamp_seconds"
                '{cell="$cell",job_id="$job_id"}) * 1000'
            },
            kind="stat",
            unit="dateTimeAsIso",
            width=8,
            height=4,
        ),
        Panel(
            "Workers",
            "What the allocator wants it to have, and what it is placed with.",
            {
                "allocated": 'max(resilin_job_allocated_workers{cell="$cell",job_id="$job_id"})',
                "placed": 'max(resilin_job_workers{cell="$cell",job_id="$job_id"})',
            },
            width=24,
        ),
        Panel(
            "Progress",
            "Share of its iterations done; it falls only when a failure undoes some.",
            {"progress": 'max(resilin_job_progress_ratio{cell="$cell",job_id="$job_id"})'},
            unit="percentunit",
            most=1,
        ),
        Panel(
            "Throughput",
            "Iterations per second, as believed at each moment.",
            {
                "iterations per second": "max(resilin_job_iterations_per_second"
                '{cell="$cell",job_id="$job_id"})'
            },
        ),
        Panel(
            "Slack",
            "Expected time between its end and its deadline: at its present speed, or by its plan.",
            {"slack": 'max(resilin_job_deadline_slack_seconds{cell="$cell",job_id="$job_id"})'},
            unit="s",
            width=24,
        ),
    ],
)

SERVICES = Dashboard(
    uid="resilin-services",
    title="Services and lag",
    help="Who leads, who is behind, and what must not happen.",
    panels=[
        _stat(
            "Services with a leader",
            "Seven are needed.",
            'count(cell_service:resilin_leading:sum{cell="$cell"} > 0)',
            red_below=7,
        ),
        _stat(
            "Instances",
            "Processes that Prometheus reaches, standbys included.",
            'count(resilin_leading{cell="$cell"})',
        ),
        _stat(
            "Records in the log",
            "The highest offset that any instance has folded, plus one.",
            'max(resilin_log_offset{cell="$cell"}) + 1',
        ),
        _stat(
            "Dead letters",
            "Inputs put aside since the processes started.",
            _sum("resilin_dead_letter_records_total"),
            red_above=1,
        ),
        _stat(
            "Fenced writes",
            "Records in the log that do not count.",
            _sum("resilin_fenced_writes_total"),
            red_above=1,
        ),
        _stat(
            "Replay mismatches",
            "What came out otherwise when it was computed again.",
            _sum("resilin_replay_mismatch_total"),
            red_above=1,
        ),
        Panel(
            "Leaders",
            "Instances that lead, by service; one is right.",
            {"{{service}}": 'cell_service:resilin_leading:sum{cell="$cell"}'},
            width=8,
        ),
        Panel(
            "Epochs",
            "The epoch of each service; each takeover adds one.",
            {"{{service}}": 'max by (service) (resilin_epoch{cell="$cell"})'},
            width=8,
        ),
        Panel(
            "Versions",
            "Processes by service and version; the same everywhere but during an upgrade.",
            {
                "{{service}} {{version}}": "count by (service, version)"
                ' (resilin_build_info{cell="$cell"})'
            },
            kind="table",
            width=8,
        ),
        Panel(
            "Records read and not folded",
            "The backlog of each instance.",
            {"{{service}} {{instance}}": 'resilin_log_consumer_lag_records{cell="$cell"}'},
        ),
        Panel(
            "Records behind the furthest instance",
            "How far each instance is behind the one that has folded most.",
            {"{{service}} {{instance}}": 'instance:resilin_log_behind:records{cell="$cell"}'},
        ),
        Panel(
            "Age of records when they are folded",
            "Wall time from a record's timestamp until an instance has folded it.",
            _quantiles("resilin_event_apply_latency_seconds", "service"),
            unit="s",
        ),
        Panel(
            "Time to decide",
            "How long the cores think.",
            _quantiles("resilin_decide_seconds", "service"),
            unit="s",
        ),
        Panel(
            "Time to append",
            "Until the log has acknowledged a record.",
            _quantiles("resilin_log_append_seconds", "service"),
            unit="s",
        ),
        Panel(
            "Appends a second",
            "Records by their nature.",
            {
                "{{nature}}": "sum by (nature)"
                ' (rate(resilin_log_appends_total{cell="$cell"}[$__rate_interval]))'
            },
            stacked=True,
        ),
        Panel(
            "What must not happen, in an hour",
            "Dead letters, fenced writes and mismatches, by service.",
            {
                "{{service}} dead letters": "sum by (service)"
                ' (increase(resilin_dead_letter_records_total{cell="$cell"}[1h]))',
                "{{service}} fenced writes": "sum by (service)"
                ' (increase(resilin_fenced_writes_total{cell="$cell"}[1h]))',
                "{{service}} mismatches": "sum by (service)"
                ' (increase(resilin_replay_mismatch_total{cell="$cell"}[1h]))',
            },
        ),
        Panel(
            "Last replay",
            "How long each instance folded the log when it started.",
            {"{{service}} {{instance}}": 'resilin_log_replay_seconds{cell="$cell"}'},
            unit="s",
        ),
        Panel(
            "Snapshots",
            "The size of each instance's last snapshot; 0 before the first.",
            {"{{service}} {{instance}}": 'resilin_snapshot_bytes{cell="$cell"}'},
            unit="bytes",
            width=8,
        ),
        Panel(
            "Memory",
            "Resident memory of each process.",
            {
                "{{service}} {{service_instance}}": "process_resident_memory_bytes"
                " * on (instance, job) group_left (service, service_instance)"
                ' resilin_build_info{cell="$cell"}'
            },
            unit="bytes",
            width=8,
        ),
        Panel(
            "CPU",
            "Cores in use by each process.",
            {
                "{{service}} {{service_instance}}": "rate(process_cpu_seconds_total"
                "[$__rate_interval])"
                " * on (instance, job) group_left (service, service_instance)"
                ' resilin_build_info{cell="$cell"}'
            },
            width=8,
        ),
    ],
)

DASHBOARDS = (CLUSTER, PROMISES, JOB, SERVICES)


# --- from descriptions to Grafana's form ---------------------------------------------------


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.replace("_id", ""),
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 1,
        "includeAll": False,
        "multi": False,
    }


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    chosen = {
        "name": "datasource",
        "label": "source",
        "type": "datasource",
        "query": "prometheus",
        "includeAll": False,
        "multi": False,
    }
    queries = {"cell": "label_values(resilin_build_info, cell)"} | dashboard.variables
    return [chosen, *(_variable(name, query) for name, query in queries.items())]


def _thresholds(panel: Panel) -> dict[str, Any]:
    """Color a figure: green, red from ``red_above`` on or below ``red_below``."""
    if panel.red_below is not None:
        steps = [("red", None), ("green", panel.red_below)]
    elif panel.red_above is not None:
        steps = [("green", None), ("red", panel.red_above)]
    else:
        steps = [("green", None)]
    return {
        "mode": "absolute",
        "steps": [{"color": color, "value": value} for color, value in steps],
    }


def _looks(panel: Panel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the defaults of a panel's fields, and its options."""
    defaults: dict[str, Any] = {"unit": panel.unit, "thresholds": _thresholds(panel)}
    if panel.most is not None:
        defaults |= {"min": 0, "max": panel.most}
    if panel.kind == "stat":
        options: dict[str, Any] = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
            "textMode": "value",
        }
    elif panel.kind == "table":
        options = {"showHeader": True, "footer": {"show": False}}
    else:
        defaults["color"] = {"mode": "palette-classic"}
        defaults["custom"] = {
            "drawStyle": "line",
            "lineInterpolation": "stepAfter",
            "fillOpacity": 25 if panel.stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return defaults, options


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults, options = _looks(panel)
    table = panel.kind == "table"
    content: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": table,
                "range": not table,
                "format": "table" if table else "time_series",
            }
            for position, (legend, expression) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }
    if table:
        hidden = {"excludeByName": {"Time": True}}
        content["transformations"] = [{"id": "organize", "options": hidden}]
    return content


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Place panels in rows from left to right."""
    placed: list[dict[str, Any]] = []
    x = y = row = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > _COLUMNS:
            x, y, row = 0, y + row, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        placed.append(_panel(panel, number, place))
        x, row = x + panel.width, max(row, panel.height)
    return placed


def content(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.help,
        "tags": ["resilin"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "links": [
            {
                "title": "Resilin",
                "type": "dashboards",
                "tags": ["resilin"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": _variables(dashboard)},
        "annotations": {"list": []},
        "panels": _placed(dashboard.panels),
    }


def files() -> dict[str, str]:
    """Return the text of each dashboard's file by its name."""
    return {
        f"{dashboard.uid}.json": json.dumps(content(dashboard), indent=2) + "\n"
        for dashboard in DASHBOARDS
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the dashboards, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description="Write Grafana's dashboards.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where they are")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    stale = {
        folder / name: text
        for name, text in files().items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    }
    if options.check:
        for path in stale:
            sys.stderr.write(f"{path.name}: not up to date; run {Path(__file__).name}\n")
        return 1 if stale else 0
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
