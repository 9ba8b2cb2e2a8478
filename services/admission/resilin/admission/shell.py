"""Admission's shell: `jobs.commands` into the log."""

from __future__ import annotations

from functools import partial

from resilin.admission.intake import read_command
from resilin.admission.state import AdmissionState
from resilin.contracts.topics import JOBS_COMMANDS
from resilin.contracts.values import SourcePosition
from resilin.runtime.inputs import DeadLetters, TopicInput
from resilin.runtime.ports import MessageReader

__all__ = ["command_input"]


def command_input(
    reader: MessageReader, dead_letters: DeadLetters, *, cell: str, partition: int = 0
) -> TopicInput:
    """Feed a cell's commands to admission."""

    def position(state: AdmissionState, source: SourcePosition) -> int:
        return state.position_of(source)

    return TopicInput(
        reader,
        topic=JOBS_COMMANDS.name,
        partition=partition,
        read=partial(read_command, cell=cell),
        position=position,
        dead_letters=dead_letters,
    )
