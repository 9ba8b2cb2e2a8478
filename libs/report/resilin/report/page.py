"""The report page of a run: one HTML file with figures, charts and a table of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from resilin.cell.state import Phase
from resilin.contracts.events import RejectionReason
from resilin.report.charts import gpus_chart, jobs_chart, slack_chart
from resilin.report.document import Tile, document, escaped, figure_of, tile_list
from resilin.report.history import History, JobHistory
from resilin.report.readable import readable_count, readable_duration, readable_share
from resilin.report.series import had_deadline, span, thin
from resilin.report.svg import block, legend, number

__all__ = ["report_page"]

_ROWS = 300


def report_page(
    history: History,
    summary: Mapping[str, Any],
    *,
    title: str,
    bound: int | None = None,
) -> str:
    """Write the report of a run as one HTML page.

    The page needs nothing but itself: no scripts, no fonts, no requests. The same input gives
    the same bytes.

    Args:
        history: The run.
        summary: Its figures, as ``summarize(history).as_dict()`` has them. With
            ``wall_seconds``, ``jobs_per_cpu_second`` or ``peak_memory_bytes`` added, the page
            tells what the run itself took.
        title: The page's title.
        bound: The most deadlines that any scheduler could have met with these jobs, if that
            is known.

    Returns:
        The page.

    Raises:
        ValueError: The summary lacks a figure.
    """
    sections = [
        _overview(history, summary, bound),
        _section("GPUs over time", gpus_chart(history)),
        _section("Jobs over time", jobs_chart(history)),
        _section("Deadline slack", slack_chart(history)),
        _jobs_section(history),
        _GLOSSARY,
    ]
    return document(title, _lead(history, summary), sections)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escaped(title)}</h2>{content}</section>"


def _lead(history: History, summary: Mapping[str, Any]) -> str:
    most = max((moment.gpus for moment in history.moments), default=0)
    facts = [
        f"policy <strong>{escaped(summary.get('policy') or 'not configured')}</strong>",
        f"{readable_count(most)} GPUs",
        f"{readable_count(figure_of(summary, 'jobs'))} jobs",
        f"{readable_duration(span(history).seconds)} of cluster time",
        f"{readable_count(figure_of(summary, 'records'))} log records",
    ]
    return " \N{MIDDLE DOT} ".join(facts)


# --- headline figures ----------------------------------------------------------------------


def _overview(history: History, summary: Mapping[str, Any], bound: int | None) -> str:
    tiles = [
        *_job_tiles(history, summary, bound),
        *_time_tiles(summary),
        *_cluster_tiles(summary),
        *_speed_tiles(summary),
    ]
    return _section("Overview", _shares(history) + tile_list(tiles))


def _job_tiles(history: History, summary: Mapping[str, Any], bound: int | None) -> list[Tile]:
    jobs, admitted, declined, met, late, broken, completed = (
        figure_of(summary, name)
        for name in (
            "jobs",
            "admitted",
            "declined",
            "met",
            "late",
            "broken_promises",
            "completed",
        )
    )
    asked = sum(job.deadline_seconds is not None for job in history.jobs.values())
    against = f"{_of(met, asked)} with a deadline" if asked else ""
    if bound is not None:
        against += f"; at most {readable_count(bound)} possible"
    return [
        Tile("jobs", "Jobs submitted", readable_count(jobs)),
        Tile("admitted", "Admitted", readable_count(admitted), _of(admitted, jobs)),
        Tile("declined", "Declined", readable_count(declined), _of(declined, jobs)),
        Tile("completed", "Completed", readable_count(completed), _of(completed, jobs)),
        Tile("met", "Deadlines met", readable_count(met), against.removeprefix("; ")),
        Tile("late", "Late", readable_count(late), "let in and not done in time", late > 0),
        Tile(
            "broken_promises",
            "Broken promises",
            readable_count(broken),
            f"of {readable_count(figure_of(summary, 'promised'))} promised",
            broken > 0,
        ),
    ]


def _time_tiles(summary: Mapping[str, Any]) -> list[Tile]:
    mean, tail, makespan = (
        readable_duration(figure_of(summary, f"{name}_seconds"))
        for name in ("mean_completion", "p99_completion", "makespan")
    )
    done = "from submission to completion"
    return [
        Tile("mean_completion_seconds", "Mean completion", mean, done),
        Tile("p99_completion_seconds", "99th percentile", tail, done),
        Tile("makespan_seconds", "Makespan", makespan, "first submission to last end"),
    ]


def _cluster_tiles(summary: Mapping[str, Any]) -> list[Tile]:
    admitted, resizes = figure_of(summary, "admitted"), figure_of(summary, "resizes")
    each = f"{resizes / admitted:.1f} for each admitted job" if admitted else ""
    return [
        Tile("resizes", "Resizes", readable_count(resizes), each),
        Tile(
            "migrations",
            "Migrations",
            readable_count(figure_of(summary, "migrations")),
            "moves at the same size",
        ),
        Tile(
            "gpu_utilization",
            "GPU utilisation",
            readable_share(figure_of(summary, "gpu_utilization")),
            "of GPU time held by jobs",
        ),
        Tile(
            "cluster_efficiency",
            "Cluster efficiency",
            readable_share(figure_of(summary, "cluster_efficiency")),
            "of linear scaling on all GPUs",
        ),
    ]


def _speed_tiles(summary: Mapping[str, Any]) -> list[Tile]:
    """Tell what the run itself took, as far as the summary says so."""
    known = {
        name: figure_of(summary, name)
        for name in ("wall_seconds", "jobs_per_cpu_second", "peak_memory_bytes")
        if summary.get(name) is not None
    }
    tiles = []
    wall = known.get("wall_seconds", 0.0)
    if wall > 0:
        faster = figure_of(summary, "makespan_seconds") / wall
        note = f"{readable_count(_rounded(faster))} times as fast as real time"
        speed = _rounded(figure_of(summary, "records") / wall)
        tiles = [
            Tile("wall_seconds", "Run took", readable_duration(wall), note if faster >= 1 else ""),
            Tile("records_per_second", "Speed", f"{readable_count(speed)}/s", "log records"),
        ]
    if "jobs_per_cpu_second" in known:
        jobs = f"{readable_count(_rounded(known['jobs_per_cpu_second']))}/s"
        tiles.append(Tile("jobs_per_cpu_second", "Jobs by CPU time", jobs, "the whole process"))
    if "peak_memory_bytes" in known:
        memory = f"{readable_count(known['peak_memory_bytes'] / 2**20)} MiB"
        tiles.append(Tile("peak_memory_bytes", "Peak memory", memory, "the whole process"))
    return tiles


def _rounded(speed: float) -> float:
    """Keep the two digits that a measurement of time on a shared machine is worth."""
    return float(f"{speed:.2g}")


def _of(part: float, whole: float) -> str:
    return f"{readable_share(part / whole)} of {readable_count(whole)}" if whole else ""


_FATES = (
    ("met", "met", "done by the deadline"),
    ("completed", "admitted", "done, had no deadline"),
    ("late", "late", "late or not done in time"),
    ("declined", "declined", "declined"),
    ("other", "other", "cancelled, failed or unfinished"),
)


def _shares(history: History) -> str:
    """Draw what became of all jobs as one bar."""
    if not history.jobs:
        return '<p class="note">No job was submitted.</p>'
    counts = Counter(_fate(job) for job in history.jobs.values())
    bars, samples, x = [], [], 0.0
    for name, style, label in _FATES:
        if not counts[name]:
            continue
        width = 1000 * counts[name] / len(history.jobs)
        words = f"{readable_count(counts[name])} {label}"
        bars.append(
            f'<rect class="f-{style}" x="{number(x)}" width="{number(width)}" height="22">'
            f"<title>{escaped(words)}</title></rect>"
        )
        samples.append((block(style), words))
        x += width
    return (
        '<svg class="shares" viewBox="0 0 1000 22" preserveAspectRatio="none" role="img" '
        f'aria-label="What became of the jobs">{"".join(bars)}</svg>{legend(samples)}'
    )


def _fate(job: JobHistory) -> str:
    """Sort a job as the summary counts it."""
    if job.outcome is Phase.REJECTED:
        return "declined"
    if had_deadline(job):
        return "met" if job.met else "late"
    return "completed" if job.outcome is Phase.COMPLETED else "other"


# --- the table of jobs ---------------------------------------------------------------------


def _jobs_section(history: History) -> str:
    if not history.jobs:
        return ""
    jobs = sorted(history.jobs.values(), key=_urgency)
    shown, left_out = jobs[:_ROWS], jobs[_ROWS:]
    start = span(history).start_seconds
    headings = "".join(
        f'<th scope="col"{_LEFT if left else ""}>{heading}</th>' for heading, left in _COLUMNS
    )
    rows = "".join(_row(job, start) for job in shown)
    return _section(
        "Jobs",
        f'<p class="note" id="jobs-note">{_rows_text(shown, left_out)}</p>{_reasons(history)}'
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of jobs">'
        f'<table aria-describedby="jobs-note"><thead><tr>{headings}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
    )


_LEFT = ' class="left"'
_COLUMNS = (
    ("Job, model", True),
    ("Outcome", True),
    ("Submitted", False),
    ("Took", False),
    ("Deadline", False),
    ("Slack", False),
    ("Resizes", False),
    ("Workers", True),
    ("Reason and counter-offer", True),
)


def _urgency(job: JobHistory) -> tuple[int, float, float, str]:
    """Order jobs: late ones (worst first), declined ones, then the others by their slack."""
    slack = job.slack_seconds
    if had_deadline(job) and not job.met:
        # What was never done is later than anything that was.
        group, slack = 0, float("-inf") if slack is None else slack
    elif job.outcome is Phase.REJECTED:
        group, slack = 1, 0.0
    elif slack is not None:
        group = 2
    else:
        group, slack = 3, 0.0
    return group, slack, job.submitted_at_seconds, job.job_id


def _rows_text(shown: Sequence[JobHistory], left_out: Sequence[JobHistory]) -> str:
    order = "Late and declined jobs first, then those with the least slack."
    if not left_out:
        return f"{order} All are shown."
    fates = Counter(_badge(job) for job in left_out)
    kinds = ", ".join(f"{readable_count(fates[fate])} {fate}" for fate in sorted(fates))
    return (
        f"{order} {readable_count(len(shown))} rows are shown, "
        f'<strong data-figure="left_out">{readable_count(len(left_out))}</strong> are left out '
        f"({escaped(kinds)})."
    )


def _counted(count: int, what: str) -> str:
    return f"{readable_count(count)} {what}{'' if count == 1 else 's'}"


_REASON_TEXTS = {
    RejectionReason.DEADLINE_UNREACHABLE: "not even an empty cluster could finish it in time",
    RejectionReason.CAPACITY_PROMISED: "the capacity it needs is promised to jobs before it",
    RejectionReason.CELL_OVERLOADED: "more was asked for than there is, and it is very large",
    RejectionReason.LARGER_THAN_CELL: "it needs more GPUs at once than there are",
    RejectionReason.QUOTA_EXCEEDED: "its tenant's quota is used up",
    RejectionReason.CURVE_UNKNOWN: "no throughput curve is known for it",
    RejectionReason.PROFILE_FAILED: "it did not run when it was tried out",
    RejectionReason.NO_SUCH_VIRTUAL_CLUSTER: "its virtual cluster does not exist",
}


def _reasons(history: History) -> str:
    """Say why jobs were declined, and how often."""
    declined = [job for job in history.jobs.values() if job.outcome is Phase.REJECTED]
    if not declined:
        return ""
    counts = Counter(str(job.reason) for job in declined)
    texts = {str(reason): text for reason, text in _REASON_TEXTS.items()}
    items = "".join(
        f"<li><strong>{escaped(reason)}</strong> ({_counted(count, 'job')})"
        f"{': ' + texts[reason] if reason in texts else ''}</li>"
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    return f'<ul class="reasons">{items}</ul>'


def _badge(job: JobHistory) -> str:
    """Name what became of a job, in a word."""
    match job.outcome:
        case Phase.REJECTED:
            return "declined"
        case Phase.COMPLETED if job.met:
            return "met"
        case Phase.COMPLETED if job.deadline_seconds is not None:
            return "late"
        case Phase.ADMITTED:
            return "unfinished"
        case Phase.SUBMITTED:
            return "unanswered"
        case outcome:
            return str(outcome)


def _row(job: JobHistory, start: float) -> str:
    badge = _badge(job)
    submitted = job.submitted_at_seconds
    waited = None if job.started_at_seconds is None else job.started_at_seconds - submitted
    allowed = None if job.deadline_seconds is None else job.deadline_seconds - submitted
    most = max((workers for _, workers in job.allocation), default=0)
    moved = _below(_counted(job.migrations, "move")) if job.migrations else ""
    return (
        f'<tr><th scope="row" class="left name"><bdi>{escaped(job.job_id)}</bdi>'
        f"{_below(job.model)}</th>"
        f'<td class="left"><span class="badge {badge}">{badge}</span>'
        f"{_below('promised') if job.promised else ''}</td>"
        f"<td>{readable_duration(submitted - start)}</td>"
        f"<td>{_duration(job.completion_seconds)}"
        f"{'' if waited is None else _below(f'waited {readable_duration(waited)}')}</td>"
        f"<td>{_duration(allowed)}</td>{_slack_cell(job)}"
        f"<td>{readable_count(job.resizes) if most else _NOTHING}{moved}</td>"
        f'<td class="left">{_spark(job, most)}</td>'
        f'<td class="left why">{_why(job)}</td></tr>'
    )


_NOTHING = '<span class="quiet">\N{EN DASH}</span>'


def _below(text: str) -> str:
    return f'<span class="below">{escaped(text)}</span>'


def _duration(seconds: float | None) -> str:
    return _NOTHING if seconds is None else readable_duration(seconds)


def _slack_cell(job: JobHistory) -> str:
    slack = job.slack_seconds
    if slack is None or job.met:
        return f"<td>{_duration(slack)}</td>"
    return f'<td class="bad">{readable_duration(slack)}</td>'


def _why(job: JobHistory) -> str:
    """Say why a job was declined or failed, and what would have been accepted."""
    reason = escaped(job.reason)
    if job.outcome is not Phase.REJECTED:
        return reason
    if job.earliest_deadline_seconds is None:
        return reason + _below("no counter-offer")
    offer = readable_duration(job.earliest_deadline_seconds - job.submitted_at_seconds)
    if job.deadline_seconds is None:
        return reason + _below(f"possible: {offer}")
    more = readable_duration(job.earliest_deadline_seconds - job.deadline_seconds)
    return reason + _below(f"possible: {offer},") + _below(f"{more} more than asked")


def _spark(job: JobHistory, most: int) -> str:
    """Draw a job's workers from its submission to its end, with its deadline as a line."""
    if not most:
        return _NOTHING
    start, end = job.submitted_at_seconds, job.allocation[-1][0]
    finish = end if job.deadline_seconds is None else max(end, job.deadline_seconds)
    scale = 109 / (finish - start) if finish > start else 0.0
    steps = [(at - start, float(workers)) for at, workers in job.allocation]
    outline = ["M0 22"]
    for at, workers in thin(steps, 16):
        outline.append(f"H{number(at * scale)}V{number(22 - 20 * workers / most)}")
    outline.append(f"H{number((end - start) * scale)}V22Z")
    parts = [f'<path class="area f-held" d="{"".join(outline)}"/>']
    if job.deadline_seconds is not None:
        x = number((job.deadline_seconds - start) * scale + 0.5)
        parts.append(f'<path class="axis" d="M{x} 0V22"/>')
    return (
        f'<svg class="spark" viewBox="0 0 110 22" aria-hidden="true">{"".join(parts)}</svg>'
        f"{_below(f'up to {readable_count(most)}')}"
    )


_GLOSSARY = """<section><details><summary>What the figures mean</summary><dl>
<dt>Admitted, declined</dt><dd>Every job is answered when it is submitted. A declined job gets
a counter-offer where there is one: the earliest deadline that would have been accepted at that
moment.</dd>
<dt>Slack</dt><dd>The time between a job's end and its deadline; negative if it was late.</dd>
<dt>Late</dt><dd>Jobs that were let in with a deadline and not done by then, failed and
unfinished ones included, cancelled ones left out.</dd>
<dt>Broken promises</dt><dd>Late jobs whose deadline had been promised.</dd>
<dt>Completion time</dt><dd>From submission to completion, waiting included. Jobs that did not
complete are not counted.</dd>
<dt>Resizes</dt><dd>Changes of a running job's worker count, suspensions included.</dd>
<dt>GPU utilisation</dt><dd>The share of the working GPUs' time that jobs held, over the
makespan.</dd>
<dt>Cluster efficiency</dt><dd>The sum over jobs of their throughput over that of one worker,
divided by the number of GPUs, averaged over the makespan (ElasticFlow, equation 8).</dd>
<dt>Effective GPUs</dt><dd>The same sum, not divided: the GPUs that would do this work if
training scaled linearly.</dd>
<dt>Submitted, deadline</dt><dd>A job's submission is counted from the run's start, its
deadline from its own submission.</dd>
<dt>Workers</dt><dd>A job's workers from its submission on; the line marks its deadline.</dd>
</dl></details></section>"""
