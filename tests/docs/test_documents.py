"""The documents: what they name exists, and what exists and matters is documented."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from resilin.cell import invariants
from resilin.cli.errors import ExitCode
from resilin.cli.main import cli
from resilin.contracts.events import FailureReason, RejectionReason
from resilin.contracts.job_specification import (
    DeadlinePolicy,
    Elastic,
    JobSpecification,
    Metadata,
    TrainingSpecification,
    WorkerSpecification,
    Workload,
)
from resilin.contracts.topics import SERVICES
from resilin.planning.policies.registry import POLICIES
from resilin.workloads import TRACE_FORMATS

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "benchmarks", "deploy", "libs", "services", "tests")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")),
    ]
)
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))

# Paths that can only be those of one person's machine.
MACHINE_PATH = re.compile(
    r"(?<![\w.}$\"-])/(?:home|root|Users|tmp|mnt|opt|srv|var|work(?:spaces?)?)\b"
)

every_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# --- reading Markdown ----------------------------------------------------------------------


def blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Yield each fenced or indented block of code, and each line of prose: (is code, text)."""
    fenced = False
    code: list[str] = []
    before = ""
    for line in [*text.splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        indented = line.startswith("    ") and (bool(code) or not before.strip())
        if not fenced and code and not indented:
            yield True, "\n".join(code)
            code = []
        if fence:
            if fenced and code:
                yield True, "\n".join(code)
                code = []
            fenced = not fenced
        elif fenced or indented:
            code.append(line.removeprefix("    ") if indented else line)
        else:
            yield False, line
        before = line


def prose(text: str) -> str:
    return "\n".join(block for is_code, block in blocks(text) if not is_code)


def spans(text: str) -> list[str]:
    """Return what stands in backticks in the prose."""
    return re.findall(r"`([^`\n]+)`", prose(text))


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)


def anchor(heading: str) -> str:
    """Return the anchor that a heading gets where Markdown is commonly shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def shell_lines(text: str) -> Iterator[str]:
    """Yield the commands in blocks of code: after a prompt, or all lines where there is none."""
    for is_code, block in blocks(text):
        if not is_code:
            continue
        lines = re.sub(r"\\\n\s*", " ", block).splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        yield from prompted or lines


def test_blocks_tell_code_from_prose() -> None:
    text = "a `b`\n\n    one\n    two\n\nc\n```console\n$ three \\\n    --four\n5\n```\nd\n    e\n"
    assert prose(text).split() == ["a", "`b`", "c", "d", "e"]
    assert list(shell_lines(text)) == ["one", "two", "three  --four"]
    assert anchor("3: excuses, and `more`") == "3-excuses-and-more"


# --- links, files, machines ----------------------------------------------------------------


@every_document
def test_every_relative_link_resolves(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text_of(path))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), f"{target} does not exist"
        assert place.is_relative_to(ROOT), f"{target} leaves the repository"
        if fragment:
            assert fragment in map(anchor, headings(text_of(place))), f"{target}: no such heading"


@every_document
def test_every_file_that_is_named_exists(path: Path) -> None:
    for span in spans(text_of(path)):
        if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./-]+", span):
            assert (ROOT / span).exists(), f"{span} does not exist"
        elif re.fullmatch(r"[\w/-]+\.py", span):
            assert any(f"/{source}".endswith(f"/{span}") for source in SOURCES), f"no {span}"


@pytest.mark.parametrize("path", [*DOCUMENTS, *EXAMPLES], ids=lambda path: path.name)
def test_no_document_names_a_place_on_a_machine(path: Path) -> None:
    found = MACHINE_PATH.search(text_of(path))
    assert found is None, f"{path}: {found and found[0]}"


def test_a_place_on_a_machine_is_recognised() -> None:
    assert MACHINE_PATH.search("see /home/me/traces")
    assert MACHINE_PATH.search("in `/tmp/x`")
    assert not MACHINE_PATH.search("up/home, $OUT/tmp, a.b/var and 1/workers")


def test_documents_that_the_code_names_exist() -> None:
    for source in SOURCES:
        if source.is_relative_to(ROOT / "tests"):
            continue
        for name in re.findall(r"\bdocs/[\w./-]*\w", text_of(source)):
            assert list(ROOT.glob(f"{name}*")), f"{source}: {name} does not exist"


# --- commands ------------------------------------------------------------------------------


def resilin_arguments(line: str) -> list[str] | None:
    """Return the arguments of a line that calls resilin, up to a pipe or the like."""
    match = re.match(r"(?:\S*/)?resilin (.*)", line)
    if match is None:
        return None
    arguments = shlex.split(match[1], comments=True)
    ends = [n for n, word in enumerate(arguments) if word in ("|", "||", "&&", ";", ">", "2>")]
    return arguments[: ends[0]] if ends else arguments


def parse(arguments: list[str]) -> None:
    """Parse a whole call as resilin would, without running it."""
    context = click.Context(cli, info_name="resilin")
    name, *rest = arguments
    command = cli.get_command(context, name)
    assert command is not None, f"there is no command {name}"
    try:
        command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        pass  # --help
    except click.ClickException as error:
        pytest.fail(f"resilin {shlex.join(arguments)}: {error.format_message()}")


@every_document
def test_every_command_shown_would_be_taken(path: Path) -> None:
    for line in shell_lines(text_of(path)):
        arguments = resilin_arguments(line)
        if arguments:
            parse(arguments)


@every_document
def test_every_command_mentioned_exists_with_its_options(path: Path) -> None:
    context = click.Context(cli, info_name="resilin")
    for span in spans(text_of(path)):
        arguments = resilin_arguments(span)
        if not arguments or arguments[0].isupper():
            continue
        command = cli.get_command(context, arguments[0])
        assert command is not None, f"`{span}`: no such command"
        known = {name for parameter in command.get_params(context) for name in parameter.opts}
        for word in arguments[1:]:
            if word.startswith("-"):
                assert word.partition("=")[0] in known, f"`{span}`: no such option"


@every_document
def test_every_make_target_and_module_mentioned_exists(path: Path) -> None:
    text = text_of(path)
    targets = re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    for line in [*spans(text), *shell_lines(text)]:
        if (made := re.match(r"make ([a-z]+)", line)) is not None:
            assert made[1] in targets, f"`{line}`: no such target"
        if (run := re.search(r"python -m (resilin[\w.]*|benchmarks)", line)) is not None:
            assert importlib.util.find_spec(run[1]) or (ROOT / run[1]).is_dir(), line


def test_every_command_of_the_command_line_is_documented() -> None:
    text = text_of(ROOT / "docs" / "cli.md")
    context = click.Context(cli, info_name="resilin")
    assert [f"resilin {name}" for name in cli.list_commands(context)] == headings(text)[1:]
    shown = [line for line in map(resilin_arguments, shell_lines(text)) if line]
    assert {line[0] for line in shown} == set(cli.list_commands(context))
    for code in ExitCode:
        assert f"| {code.value} |" in text


# --- what has to be documented -------------------------------------------------------------


def test_every_reason_is_documented_and_no_other() -> None:
    titles = headings(text_of(ROOT / "docs" / "reasons.md"))
    assert {title for title in titles[1:] if " " not in title} == {
        reason.value for reason in (*RejectionReason, *FailureReason)
    }


def test_every_invariant_is_documented() -> None:
    source = text_of(Path(invariants.__file__))
    documented = {
        int(number)
        for number in re.findall(
            r"^\| (\d+) \|", text_of(ROOT / "docs" / "invariants.md"), re.MULTILINE
        )
    }
    assert documented == set(range(1, max(documented) + 1))
    reported = {int(number) for number in re.findall(r"_report\(\s*(\d+),", source)}
    listed = {int(number) for number in re.findall(r"^(\d+)\. ", source, re.MULTILINE)}
    assert reported, "the checker reports no invariant: the pattern is out of date"
    assert reported == listed
    assert listed <= documented


@pytest.mark.parametrize(
    "model",
    [JobSpecification, Metadata, TrainingSpecification, Workload, Elastic, WorkerSpecification],
)
def test_every_field_of_a_job_is_documented(model: type[BaseModel]) -> None:
    named = spans(text_of(ROOT / "docs" / "job-specification.md"))
    last = {span.rpartition(".")[2] for span in named}
    parts = {"metadata", "spec", "workload"}
    for field in model.model_fields.values():
        assert field.alias in last | parts, f"{field.alias} is not documented"


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ("ARCHITECTURE.md", SERVICES),
        ("docs/traces.md", TRACE_FORMATS),
        ("docs/planning.md", tuple(POLICIES)),
        ("docs/job-specification.md", tuple(policy.value for policy in DeadlinePolicy)),
    ],
)
def test_every_name_of_a_closed_list_is_documented(document: str, names: tuple[str, ...]) -> None:
    text = text_of(ROOT / document)
    for name in names:
        assert f"`{name}`" in text or f"[{name}]" in text, f"{document}: {name} is missing"


def test_decisions_are_numbered_and_have_their_sections() -> None:
    files = sorted((ROOT / "docs" / "adr").glob("*.md"))
    for number, path in enumerate(files, start=1):
        title, *sections = headings(text_of(path))
        assert path.name.startswith(f"{number:04d}-")
        assert title.startswith(f"{number:04d}: ")
        assert sections == ["Context", "Decision", "Consequences", "Rejected alternatives"]
