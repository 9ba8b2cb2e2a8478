"""The reference of all metrics, made from their catalogue.

``python -m resilin.runtime.metrics_page docs/metrics.md`` writes it; with ``--check`` it only
says whether it is up to date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from resilin.contracts.topics import SERVICES
from resilin.runtime.metrics_catalogue import LEADER, METRICS, PROCESS, Metric, constant_labels

__all__ = ["main", "page"]

_HEAD = """\
# Metrics

Every metric of Resilin's services. Made from the catalogue by
`python -m resilin.runtime.metrics_page docs/metrics.md`; do not edit.

Every service process exposes its metrics at `/metrics`, once an instance: scrape each process
itself, never through a balancer. What is said of the cell is a fold of its log, and each such
series is exposed by one process only, the leading instance of the service that owns it. So a sum
over all processes counts nothing twice. After a takeover the new leader goes on with the same
numbers, because it has folded the same log.

Names start with `resilin_`, units are seconds, bytes and ratios from 0 to 1, and counters end in
`_total`. No label holds a job's id, except in the series by job that the metric-collector keeps
while a job lives and for 15 minutes of cell time after its end; `RESILIN_PER_JOB_METRICS=false`
turns them off. A histogram has the usual series `_bucket`, `_count` and `_sum`, but for
`resilin_deadline_slack_seconds`, whose values may be negative: it has `_bucket` only.

Times in the first table are wall time. All others are cell time, that of the records' timestamps:
with `RESILIN_TIME_SCALE` other than 1 it runs faster than the clock on the wall. A gauge of the
cell stands for the moment of the last record.
"""

_TITLES = {
    PROCESS: "Of every process",
    LEADER: "Of the leading instance of every service",
}


def page() -> str:
    """Return the page, as Markdown."""
    lines = [_HEAD]
    for owner in (PROCESS, LEADER, *SERVICES):
        lines += [f"## {_TITLES.get(owner, owner)}", ""]
        labels = ", ".join(f"`{label}`" for label in constant_labels(owner))
        lines += [f"All have {labels}.", ""]
        lines += ["| Metric | Type | Further labels | Meaning |", "| --- | --- | --- | --- |"]
        lines += (_row(metric) for metric in METRICS if metric.owner == owner)
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(_labels(metric))
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def _labels(metric: Metric) -> Iterator[str]:
    """Yield each label, with its values where they are a short closed list."""
    for place, label in enumerate(metric.labels):
        values = list(dict.fromkeys(labels[place] for labels in metric.start))
        yield f"`{label}`" + (f" ({', '.join(values)})" if values else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check it; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m resilin.runtime.metrics_page",
        description="Write the reference of all metrics.",
    )
    parser.add_argument("path", type=Path, help="the page, such as docs/metrics.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    options = parser.parse_args(arguments)
    path: Path = options.path
    text = page()
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        sys.stderr.write(f"{path}: not up to date; run {parser.prog} {path}\n")
        return 1
    path.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
