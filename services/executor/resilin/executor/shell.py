"""The executor's shell: instructions to a worker backend, its reports into the log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence

from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry
from resilin.contracts.telemetry import StepSample
from resilin.executor.backend import WorkerBackend
from resilin.executor.decider import ExecutorState, instructions, steered_jobs

__all__ = ["BackendInput"]

_STEERS_BACKEND = (
    ev.JobRejected,
    ev.ProfileRequested,
    ev.ServerAdded,
    ev.ServerRemoved,
    ev.NodeLost,
)
"""What a backend sees to besides the workers of jobs: profiles, and which nodes there are."""

_BATCH_REPORTS = 200
_WAITING_SAMPLES = 10_000
"""Telemetry may be lost: what cannot be sent in time makes room for what is newer."""


class BackendInput:
    """Feeds a backend's reports to the executor, and the log's instructions to the backend.

    Args:
        backend: What carries instructions out.
        send_sample: Takes telemetry away.
    """

    def __init__(
        self, backend: WorkerBackend, send_sample: Callable[[StepSample], Awaitable[None]]
    ) -> None:
        self._backend = backend
        self._send_sample = send_sample
        self._reports: deque[ev.Event] = deque()
        self._samples: deque[StepSample] = deque(maxlen=_WAITING_SAMPLES)
        self._sampled = asyncio.Event()
        self._leads = False
        self._taking = 0

    async def run(self, wake: Callable[[], None]) -> None:
        """See :class:`~resilin.runtime.ports.Input`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            while True:
                reports = await self._backend.reports()
                self._samples += [each for each in reports if isinstance(each, StepSample)]
                if self._samples:
                    self._sampled.set()
                if self._leads:
                    self._reports += [each for each in reports if not isinstance(each, StepSample)]
                    wake()

    async def _send(self) -> None:
        """Send telemetry beside the rest: facts do not wait for it."""
        while True:
            await self._sampled.wait()
            self._sampled.clear()
            samples = [*self._samples]
            self._samples.clear()
            # Together: a topic may hold each of them back for a moment, to send many at once.
            await asyncio.gather(*map(self._send_sample, samples))

    async def lead(self, state: ExecutorState, now_seconds: float) -> None:
        """Take over what an earlier executor left, then say what every job's workers are."""
        self._leads = True
        await self._backend.take_over(state, now_seconds)
        self._backend.carry_out(state, instructions(state), now_seconds)

    async def follow(self) -> None:
        """Another executor leads: it takes over whatever runs."""
        self._leads = False
        self._reports.clear()
        self._taking = 0

    async def next_batch(self, state: ExecutorState, now_seconds: float) -> Sequence[ev.Event]:  # noqa: ARG002 (the port)
        """Take one report of each job, up to the first that is about a node."""
        batch: list[ev.Event] = []
        jobs: dict[Hashable, None] = {}
        for report in self._reports:
            job_id = getattr(report, "job_id", None)
            if job_id is None:
                if not batch:
                    batch.append(report)
                break
            if job_id in jobs or len(batch) == _BATCH_REPORTS:
                break
            jobs[job_id] = None
            batch.append(report)
        self._taking = len(batch)
        return batch

    def taken(self) -> None:
        """See :class:`~resilin.runtime.ports.Input`."""
        for _ in range(self._taking):
            self._reports.popleft()
        self._taking = 0

    def folded(self, state: ExecutorState, entry: LogEntry, now_seconds: float) -> None:
        """Hand on what an entry changes."""
        jobs = steered_jobs(entry)
        if not jobs and not any(isinstance(each, _STEERS_BACKEND) for each in entry.record.events):
            return
        self._backend.carry_out(state, instructions(state, jobs), now_seconds)
