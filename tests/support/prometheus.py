"""A real Prometheus for tests, and everything that dashboards and rules ask of one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from resilin.runtime.local_broker import DiesWith, free_ports

__all__ = [
    "OBSERVABILITY",
    "Prometheus",
    "Query",
    "dashboard_queries",
    "dashboards",
    "prometheus_running",
    "promtool",
    "rule_queries",
    "selectors",
    "unanswered",
]

OBSERVABILITY = Path(__file__).parents[2] / "deploy" / "observability"
_START_SECONDS = 60.0


def _needed(program: str) -> str:
    """Return where a program is; skip without it, but not in CI."""
    path = shutil.which(program)
    return path if path is not None else _unavailable(f"{program} is not installed")


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def promtool(*arguments: str | Path) -> None:
    """Run promtool; fail with what it says if it finds anything."""
    done = subprocess.run(  # noqa: S603 (our own arguments)
        [_needed("promtool"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Query:
    """A question to Prometheus, and who asks it."""

    asker: str
    expression: str

    def filled_in(self, variables: Mapping[str, str]) -> Query:
        """Put values in place of ``$variables``, the longest names first."""
        expression = self.expression
        for name in sorted(variables, key=len, reverse=True):
            expression = expression.replace(f"${name}", variables[name])
        return Query(self.asker, expression)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str | float) -> Any:
        """Ask the HTTP interface; return the answer's data."""
        encoded = urllib.parse.urlencode(parameters)
        try:
            return json.loads(self._page(f"{path}?{encoded}"))["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def ready(self) -> bool:
        try:
            return bool(self._page("/-/ready"))
        except OSError:
            return False

    def _page(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=30) as answer:  # noqa: S310 (our own address)
            return bytes(answer.read())

    def unscraped(self, targets: Sequence[str], since: float) -> list[str]:
        """Return the targets that have not answered once since then."""
        answered = [series["metric"]["instance"] for series in self.series("up == 1", since)]
        return [target for target in targets if target not in answered]

    def series(self, expression: str, since: float) -> list[dict[str, Any]]:
        """Return the series of an expression from ``since`` until now."""
        answer = self.get(
            "/api/v1/query_range", query=expression, start=since, end=time.time(), step=0.5
        )
        return list(answer["result"])

    def answers(self, expression: str, since: float) -> bool:
        """Say whether an expression had a value, and a number at that, at any moment."""
        return any(
            math.isfinite(float(value))
            for series in self.series(expression, since)
            for _, value in series["values"]
        )


@contextlib.contextmanager
def prometheus_running(targets: Sequence[str], directory: Path) -> Iterator[Prometheus]:
    """Run Prometheus with the committed configuration and rules, on these targets.

    Only where the targets come from is otherwise, and the intervals, so that tests are quick.
    """
    program = _needed("prometheus")
    source = OBSERVABILITY / "prometheus"
    shutil.copytree(source / "rules", directory / "rules")
    configuration = yaml.safe_load((source / "prometheus.yml").read_text(encoding="utf-8"))
    configuration["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms"}
    configuration["global"] |= {"evaluation_interval": "500ms"}
    (services,) = (job for job in configuration["scrape_configs"] if job["job_name"] == "resilin")
    del services["dns_sd_configs"], services["file_sd_configs"]
    services["static_configs"] = [{"targets": list(targets)}]
    configuration["scrape_configs"] = [services]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    (port,) = free_ports(1)
    with (directory / "output.txt").open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 (our own arguments)
            [
                program,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=DiesWith(os.getpid()),
        )
    try:
        prometheus = Prometheus(port)
        _wait_for(lambda: process.poll() is not None or prometheus.ready())
        if process.poll() is not None:
            pytest.fail((directory / "output.txt").read_text(encoding="utf-8")[-3000:])
        yield prometheus
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(done: Callable[[], bool]) -> None:
    until = time.monotonic() + _START_SECONDS
    while not done():
        assert time.monotonic() < until, "Prometheus does not get ready"
        time.sleep(0.1)


# --- what is asked -------------------------------------------------------------------------


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the committed dashboards by the names of their files."""
    folder = OBSERVABILITY / "grafana" / "dashboards"
    return {
        path.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.json"))
    }


def dashboard_queries() -> list[Query]:
    """Return every query of every panel."""
    return [
        Query(f"{name}: {panel['title']}", target["expr"])
        for name, dashboard in dashboards().items()
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


def rule_queries() -> list[Query]:
    """Return what the rules ask: all of a recording, the operands of an alert.

    An alert's own expression has an answer only when something is wrong.
    """
    queries = []
    for path in sorted((OBSERVABILITY / "prometheus" / "rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                if "record" in rule:
                    queries.append(Query(rule["record"], rule["expr"]))
                else:
                    queries += [
                        Query(rule["alert"], operand) for operand in selectors(rule["expr"])
                    ]
    return queries


def selectors(expression: str) -> list[str]:
    """Return the series that an expression selects, with the labels it wants of them."""
    pattern = r"\bup\{[^}]*\}|\b(?:[a-z_]+:)?resilin_[a-z_]+(?::[a-z0-9_]+)?(?:\{[^}]*\})?"
    return re.findall(pattern, expression)


def unanswered(
    prometheus: Prometheus,
    queries: Sequence[Query],
    variables: Mapping[str, str],
    *,
    since: float,
) -> dict[str, str]:
    """Return the questions that have had no number for an answer since then, by their askers."""
    filled = [query.filled_in(variables) for query in queries]
    return {
        f"{query.asker}: {query.expression}": "no data"
        for query in filled
        if not prometheus.answers(query.expression, since)
    }
