"""`resilin run`: submit a job that is a class in a Python file."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import click

from resilin.agent.job_directory import JobDirectory
from resilin.cli.answers import answer_code
from resilin.cli.documents import Document
from resilin.cli.errors import ExitCode, InputError
from resilin.cli.job_reader import JobReading, read_job
from resilin.cli.jobs import described_end, outcome_code
from resilin.cli.live import LiveAddress, LiveCell, live_options, open_live, timeout_option
from resilin.cli.logs import fold_history
from resilin.cli.output import OutputFormat, emit, emit_one, example, note, output_option
from resilin.cli.standing import standing
from resilin.cli.submission import described_replies, reply_parts, submissions, submit
from resilin.cli.worker_output import JobOutput, followed_output, print_line
from resilin.contracts.job_specification import HyperParameter, JobSpecification

__all__ = ["command"]

_MOST_OF_A_NAME = 100


@click.command(
    "run",
    epilog=example(
        "resilin run my_job.py:MyJob --deadline 10m --follow",
        "resilin run train.py:main --set bs=64 --max-iterations 5000 --dry-run > job.yaml",
    ),
)
@click.argument("entrypoint", metavar="FILE.py:NAME")
@click.option("--deadline", help="By when: 90s, 10m, 2h30m, or a time.  [default: the code's]")
@click.option("--name", help="The job's name.  [default: that of its class]")
@click.option("--max-workers", type=click.IntRange(1, 1_000_000), help="The most workers it gets.")
@click.option(
    "--max-iterations",
    type=click.IntRange(1, 10**15),
    help="It ends after so many, if not before.  [default: the code's]",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A hyperparameter, before the code's own; may be given more than once.",
)
@click.option("-f", "--follow", "follows", is_flag=True, help="Print its output until it ends.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Print the job file; submit nothing.")
@timeout_option(600.0, "Wait so long for the answer: the job may be tried out first.")
@live_options
@output_option
def command(
    *,
    entrypoint: str,
    deadline: str | None,
    name: str | None,
    max_workers: int | None,
    max_iterations: int | None,
    settings: tuple[str, ...],
    follows: bool,
    is_dry_run: bool,
    timeout_seconds: float,
    address: LiveAddress,
    output_format: OutputFormat,
) -> int:
    """Submit a job that is a class, or a training loop, in a Python file.

    The class says what it trains: global batch, learning rate, end and deadline, as far as no
    option does. Its code is read in a process of its own, and runs in its own folder, as it is
    then: nothing is copied. Exits with 0 if the job is admitted, with 1 if not, with 4 if no
    answer came in time; with --follow, with 0 if it completed and with 1 if not.
    """
    overrides = dict(map(_read_setting, settings))
    place, directory = _located(entrypoint)
    reading = read_job(place, directory, overrides)
    options = _Options(deadline, name, max_workers, max_iterations)
    job = _specification(place, directory, reading, overrides, options)
    if is_dry_run:
        plain = job.model_dump(mode="json", exclude_defaults=True)
        head = {"apiVersion": job.api_version, "kind": job.kind}
        emit("yaml" if output_format in ("table", "wide") else output_format, head | plain, ())
        return ExitCode.OK
    if not address.given and not address.exists:
        raise InputError(
            f"{address.home}: there is no cell to run it; start one with `resilin up`, or name one"
            " with --home or --bootstrap"
        )
    if follows and address.bootstrap is not None:
        raise InputError(
            "--follow reads workers' output, which stays on the servers of a cell on Kafka; leave"
            " it out, and see `resilin watch`"
        )
    return _submitted(job, address, output_format, timeout_seconds, follows=follows)


class _Options(NamedTuple):
    """What goes before what the code says of itself."""

    deadline: str | None
    name: str | None
    max_workers: int | None
    max_iterations: int | None


# --- what is typed -------------------------------------------------------------------------


def _read_setting(text: str) -> tuple[str, HyperParameter]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="'--set'")
    try:
        plain = json.loads(value)
    except ValueError:
        return key, value
    if not isinstance(plain, bool | int | float | str):
        raise click.BadParameter(
            f"{key}: {value} is no text, number, true or false", param_hint="'--set'"
        )
    return key, plain


def _located(entrypoint: str) -> tuple[str, Path]:
    """Return the entry point as a worker is told it, and the folder that it is told it in."""
    where, _, name = entrypoint.rpartition(":")
    if not where or not name.isidentifier():
        raise InputError(
            f"{entrypoint}: name a file and what is in it, such as my_job.py:MyJob, or a module"
            " and what is in it"
        )
    if not where.endswith(".py"):
        return entrypoint, Path.cwd()
    file = Path(where)
    if not file.is_file():
        raise InputError(f"{where}: there is no such file")
    return f"{file.name}:{name}", file.absolute().parent


# --- the job file --------------------------------------------------------------------------


def _specification(
    entrypoint: str,
    directory: Path,
    reading: JobReading,
    overrides: dict[str, HyperParameter],
    options: _Options,
) -> JobSpecification:
    values = reading.hyperparameters | overrides
    batch, rate = values.pop("bs", None), values.pop("lr", None)
    if batch is None:
        raise InputError(
            f"{entrypoint}: its global batch is not known: set_hyperparameter(bs=64) in the code,"
            " or --set bs=64"
        )
    worker: dict[str, Any] = {
        "entrypoint": entrypoint,
        "directory": str(directory),
        "hyperparameters": values,
    }
    if rate is not None:
        worker["learningRate"] = rate
    spec: dict[str, Any] = {
        "model": _model(entrypoint, directory, values),
        "globalBatch": batch,
        "workload": {"totalIterations": _iterations(entrypoint, reading, batch, options)},
        "worker": worker,
    }
    if options.deadline is not None:
        spec["deadline"] = options.deadline
    elif reading.deadline_seconds is not None:
        seconds = f"{reading.deadline_seconds:.3f}"
        spec["deadline"] = f"{seconds.rstrip('0').rstrip('.')}s"
    if options.max_workers is not None:
        spec["elastic"] = {"maxReplicas": options.max_workers}
    content = {"metadata": {"name": options.name or _plain_name(entrypoint)}, "spec": spec}
    return Document(entrypoint, content, 1).read_as(JobSpecification, "a job", "metadata and spec")


def _plain_name(entrypoint: str) -> str:
    where, _, name = entrypoint.rpartition(":")
    # Every loop is called main or so; its file says more.
    chosen = name if name[0].isupper() else Path(where).stem
    return re.sub(r"[^a-z0-9]+", "-", chosen.lower()).strip("-")[:_MOST_OF_A_NAME] or "job"


def _model(entrypoint: str, directory: Path, values: dict[str, HyperParameter]) -> str:
    """Return a name under which throughput is known: another one once the code is another."""
    where, _, name = entrypoint.rpartition(":")
    file = directory / where
    known = hashlib.sha256(f"{directory}\n{entrypoint}\n".encode())
    known.update(file.read_bytes() if where.endswith(".py") else b"")
    known.update(json.dumps(values, sort_keys=True).encode())
    plain = re.sub(r"[^A-Za-z0-9]", "", name)[:_MOST_OF_A_NAME] or "job"
    return f"{plain}.{known.hexdigest()[:8]}"


def _iterations(
    entrypoint: str, reading: JobReading, batch: HyperParameter, options: _Options
) -> int:
    """Return after how many iterations it ends at the latest."""
    bounds = [options.max_iterations, reading.max_iterations]
    if reading.max_epochs is not None and reading.samples is not None and isinstance(batch, int):
        # The last minibatch of an epoch holds what is left of it.
        bounds.append(reading.max_epochs * -(-reading.samples // max(1, batch)))
    known = [bound for bound in bounds if bound is not None]
    if not known:
        raise InputError(
            f"{entrypoint}: how long it trains at most is not known, so nothing can be promised:"
            " term_condition(max_epochs=10) in the code beside any other end, or --max-iterations"
        )
    return min(known)


# --- submitting ----------------------------------------------------------------------------


def _submitted(
    job: JobSpecification,
    address: LiveAddress,
    output_format: OutputFormat,
    timeout_seconds: float,
    *,
    follows: bool,
) -> int:
    commands = submissions(address.cell, [job], None)
    job_id = commands[0].job_id
    with open_live(address) as live:
        replies = submit(live, commands, repeatable=False, timeout_seconds=timeout_seconds)
        answer = described_replies(live, replies)
        code = answer_code(answer["admitted"])
        if not follows or code is not ExitCode.OK:
            emit(output_format, answer, reply_parts(answer))
            if code is not ExitCode.NO:
                note(f"next: resilin watch {job_id}; resilin logs {job_id} -f")
            return code
        if output_format in ("json", "yaml"):
            emit_one(output_format, answer, "")
        else:
            emit(output_format, answer, reply_parts(answer), to_stderr=True)
        return _follow(live, address, job_id, output_format)


def _follow(
    live: LiveCell, address: LiveAddress, job_id: str, output_format: OutputFormat
) -> ExitCode:
    """Print what the job's workers print until it has ended; return how it did."""
    output = JobOutput(JobDirectory.of_job(address.home, job_id).logs, None)
    try:
        for line in followed_output(live, job_id, output):
            print_line(output_format, line, several=True)
    finally:
        output.close()
    past = fold_history(live.log.read(), live.name).jobs[job_id]
    sentence = standing(past, live.fold().cell)
    if output_format in ("json", "yaml"):
        emit_one(output_format, described_end(past) | {"standing": sentence}, sentence)
    else:
        note(sentence)
    return outcome_code(past)
