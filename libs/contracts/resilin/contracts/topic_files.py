"""The topic catalogue as files: for those who run brokers, and for readers.

``python -m resilin.contracts.topic_files ROOT`` writes ``deploy/topics.yaml``,
``deploy/acls.yaml`` and ``docs/topics.md`` below the root of the repository; with ``--check``
it only says whether they are up to date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from resilin.contracts.topics import JOBS_COMMANDS, SERVICES, TOPICS, Topic

__all__ = ["Grant", "grants", "main", "topic_files"]

_MADE_BY = "python -m resilin.contracts.topic_files ."
_SECONDS = ((86_400, "day"), (3_600, "hour"))
_MEBIBYTE = 1_048_576

CLIENT = "client"
"""The principal of programs that only submit commands."""

OPERATOR = "operator"
"""The principal of people at the command line: they see all and ask like any client."""

SETUP = "setup"
"""The principal that creates topics and checks their settings."""

_SETUP_OPERATIONS = ("Alter", "Create", "Describe", "DescribeConfigs")

_GROUP_PREFIX = "resilin-"
"""What the names of the services' consumer groups begin with."""


class Grant(NamedTuple):
    """What one principal may do with one resource; nothing else is allowed.

    Attributes:
        principal: A service, or one of those beside them.
        resource: The kind of resource.
        name: Its name, or what the names begin with.
        pattern: Which of the two.
        operations: Kafka's names of what is allowed.
    """

    principal: str
    resource: Literal["topic", "group"]
    name: str
    pattern: Literal["literal", "prefixed"]
    operations: tuple[str, ...]


def grants() -> list[Grant]:
    """Return what the catalogue's writers and readers need, and no more."""
    return [
        *(grant for service in SERVICES for grant in _of_service(service)),
        Grant(CLIENT, "topic", JOBS_COMMANDS.name, "literal", ("Describe", "Write")),
        *(Grant(OPERATOR, "topic", topic.name, "literal", _of_operator(topic)) for topic in TOPICS),
        *(Grant(SETUP, "topic", topic.name, "literal", _SETUP_OPERATIONS) for topic in TOPICS),
    ]


def _of_service(service: str) -> Iterator[Grant]:
    for topic in TOPICS:
        operations = ["Read"] if service in topic.readers else []
        if service in topic.writers:
            operations.append("Write")
        if operations:
            yield Grant(service, "topic", topic.name, "literal", ("Describe", *operations))
    # Instances elect their leader as members of a group.
    yield Grant(service, "group", _GROUP_PREFIX, "prefixed", ("Describe", "Read"))


def _of_operator(topic: Topic) -> tuple[str, ...]:
    return ("Describe", "Read", "Write") if topic is JOBS_COMMANDS else ("Describe", "Read")


# --- YAML ----------------------------------------------------------------------------------


def _topics_yaml() -> str:
    lines = [
        f"# The topics of a cell. Made from the catalogue by `{_MADE_BY}`; do not edit.",
        "# `python -m resilin.runtime.create_topics` creates them; this file is for other tools.",
        "# The replication factor is the operator's: 3 wherever there are three brokers, then",
        "# with min.insync.replicas=2.",
        "topics:",
    ]
    for topic in TOPICS:
        lines += [
            f"  - name: {topic.name}",
            f"    partitions: 1  # {topic.partitioning}",
            "    settings:",
            *(f'      {name}: "{value}"' for name, value in topic.settings.items()),
        ]
    return "\n".join(lines) + "\n"


def _acls_yaml() -> str:
    lines = [
        "# Who may do what with which topic, where brokers ask who is there. Made from the",
        f"# catalogue by `{_MADE_BY}`; do not edit.",
        "acls:",
    ]
    for principal in dict.fromkeys(grant.principal for grant in grants()):
        lines += [f"  - principal: User:resilin-{principal}", "    allow:"]
        for grant in grants():
            if grant.principal == principal:
                lines += [
                    f"      - {{resource: {grant.resource}, name: {grant.name},"
                    f" pattern: {grant.pattern}, operations: [{', '.join(grant.operations)}]}}"
                ]
    return "\n".join(lines) + "\n"


# --- the page ------------------------------------------------------------------------------


def _page() -> str:
    lines = [
        "# Topics",
        "",
        "What the services of a cell and its clients say to each other over Kafka. Made from the"
        f" topic catalogue by `{_MADE_BY}`; do not edit. What the messages are is in"
        " [asyncapi.json](schemas/asyncapi.json) and [events.md](events.md).",
        "",
        "| Topic | Carries | Key | Partitions | Written by | Read by | Kept | Largest message |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(_topic_row, TOPICS),
        "",
        *(f"- `{topic.name}`: {topic.note}" for topic in TOPICS),
        "",
        "`python -m resilin.runtime.create_topics --bootstrap HOST:PORT` creates what is missing"
        " and checks the settings of what is there; `deploy/topics.yaml` holds the same settings"
        " for other tools. Topics are never created by use: brokers should run with"
        " `auto.create.topics.enable=false`.",
        "",
        "## Who may do what",
        "",
        "Where brokers authenticate their clients, each service has a principal of its own,"
        " `User:resilin-` and its name. `client` is for programs that only submit commands,"
        " `operator` for people at the command line, `setup` for whoever creates topics."
        " `deploy/acls.yaml` holds the same as rules: R is Read, W is Write, C is Create and"
        " A is Alter (to add partitions). All of them include Describe. A consumer group's"
        f" name begins with `{_GROUP_PREFIX}`.",
        "",
        f"| Principal | {' | '.join(f'`{topic.name}`' for topic in TOPICS)} | groups |",
        f"| --- |{' --- |' * (len(TOPICS) + 1)}",
        *map(_grant_row, dict.fromkeys(grant.principal for grant in grants())),
        "",
        "Brokers cannot tell one event type from another: that each has one writing service is"
        " checked by `resilin verify`, and that only one instance of it counts, by every reader.",
    ]
    return "\n".join(lines) + "\n"


def _topic_row(topic: Topic) -> str:
    cells = [
        f"`{topic.name}`",
        topic.carries,
        topic.key,
        topic.partitioning,
        _people(topic.writers),
        _people(topic.readers),
        "the newest of each key" if topic.cleanup == "compact" else _kept(topic.retention_seconds),
        f"{topic.message_bytes_max // _MEBIBYTE} MiB",
    ]
    return f"| {' | '.join(cells)} |"


def _people(names: tuple[str, ...]) -> str:
    return "every service" if names == SERVICES else ", ".join(names) or "people"


def _kept(seconds: int | None) -> str:
    if seconds is None:
        return "for ever"
    length, unit = next((length, unit) for length, unit in _SECONDS if seconds % length == 0)
    return f"{seconds // length} {unit}s"


def _grant_row(principal: str) -> str:
    own = [grant for grant in grants() if grant.principal == principal]
    cells = [
        " ".join(_letters(grant) for grant in own if grant.name == topic.name) for topic in TOPICS
    ]
    groups = " ".join(_letters(grant) for grant in own if grant.resource == "group")
    return f"| {principal} | {' | '.join(cell or '-' for cell in (*cells, groups))} |"


def _letters(grant: Grant) -> str:
    return "".join(name[0] for name in grant.operations if not name.startswith("Describe"))


# --- the command ---------------------------------------------------------------------------


def topic_files() -> dict[str, str]:
    """Return the content of each file, by its path below the root of the repository."""
    return {
        "deploy/acls.yaml": _acls_yaml(),
        "deploy/topics.yaml": _topics_yaml(),
        "docs/topics.md": _page(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or check them; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m resilin.contracts.topic_files",
        description="Write the topic catalogue as files for operators and readers.",
    )
    parser.add_argument("root", type=Path, help="the root of the repository")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    options = parser.parse_args(arguments)
    stale = [
        (path, text)
        for path, text in ((options.root / name, text) for name, text in topic_files().items())
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if options.check:
            sys.stderr.write(f"{path}: not up to date; run {parser.prog} {options.root}\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
