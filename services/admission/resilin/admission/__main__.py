"""Admission as a process on Kafka: `python -m resilin.admission`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from resilin.admission.decider import AdmissionDecider
from resilin.admission.shell import command_input
from resilin.contracts.topics import JOBS_COMMANDS
from resilin.runtime.main import ServiceProcess, run_service
from resilin.runtime.ports import Input


async def _inputs(process: ServiceProcess) -> Sequence[Input]:
    return [
        command_input(
            process.topic_reader(JOBS_COMMANDS.name),
            await process.dead_letters(),
            cell=process.settings.cell,
            partition=process.settings.partition,
        )
    ]


if __name__ == "__main__":
    sys.exit(run_service(AdmissionDecider(), _inputs))
