"""`resilin verify`: is a log sound?"""

from __future__ import annotations

import click

from resilin.audit.verify import verify
from resilin.cli.errors import ExitCode
from resilin.cli.logs import Source, source_argument
from resilin.cli.output import OutputFormat, Table, emit, example, number_text, output_option
from resilin.cli.progress import progress, watched
from resilin.simulation.simulation import deciders

__all__ = ["command"]


@click.command("verify", epilog=example("resilin verify run/log.resilin"))
@source_argument
@click.option(
    "--findings",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Print so many findings at most.",
)
@output_option
def command(*, source: Source, findings: int, output_format: OutputFormat) -> int:
    """Recompute every decision of a log and check its invariants.

    Of a log file, or of a live cell up to now. Needs nothing but the log. Exits with 0 if it
    is sound and with 1 if it is not. Decisions of other versions of Resilin are not recomputed:
    this one may rightly decide otherwise.
    """
    with source.open() as log, progress("verifying", log.end_offset() + 1) as advance:
        found = verify(watched(log.read(), advance), deciders())
    listed = [(finding.offset, str(finding)) for finding in found.mismatches]
    listed += [(finding.offset, str(finding)) for finding in found.violations]
    shown = [text for _, text in sorted(listed)[:findings]]
    answer = {
        "log": source.name,
        "sound": found.sound,
        "records": found.records,
        "records_that_do_not_count": found.ignored,
        "decisions_recomputed": found.decisions,
        "decisions_of_other_versions": found.of_other_versions,
        "findings": shown,
        "more_findings": max(0, len(listed) - findings),
    }
    figures = Table(
        (),
        [
            ["records read", number_text(found.records)],
            ["records that do not count", number_text(found.ignored)],
            ["decisions recomputed", number_text(found.decisions)],
            ["decisions of other versions, not recomputed", number_text(found.of_other_versions)],
            ["decisions that came out otherwise", number_text(len(found.mismatches))],
            ["invariants broken", number_text(len(found.violations))],
        ],
        right=(1,),
    )
    verdict = f"{source.name} is {'sound' if found.sound else 'NOT sound'}"
    emit(output_format, answer, [verdict, figures, *shown])
    return ExitCode.OK if found.sound else ExitCode.NO
