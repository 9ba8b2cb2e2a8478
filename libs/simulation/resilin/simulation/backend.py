"""The simulated cluster behind a live executor: a whole live cell without a GPU."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from resilin.contracts.values import Curve
from resilin.executor.backend import Report
from resilin.executor.decider import ExecutorState, Instruction, profiles_wanted
from resilin.simulation.cluster import Physics, SimulatedCluster

__all__ = ["SimulatedBackend"]


class _Believed:
    """Takes what the cell believes of its jobs for the truth."""

    def __init__(self) -> None:
        self.state = ExecutorState()

    def rate(self, job_id: str, workers: int, global_batch: int | None = None) -> float:  # noqa: ARG002 (the cell knows the batch in force)
        cell = self.state.cell
        return cell.step_rate(cell.jobs[job_id], workers)

    def submitted(self, job_id: str) -> tuple[str, int]:
        spec = self.state.cell.jobs[job_id].job.spec
        return spec.model, spec.global_batch

    def total_iterations(self, job_id: str) -> float:
        return self.state.cell.jobs[job_id].job.spec.total_iterations

    def curve(self, job_id: str) -> Curve | None:  # noqa: ARG002 (the protocol)
        return None


class SimulatedBackend:
    """A :class:`~resilin.executor.backend.WorkerBackend` whose workers are simulated.

    The workers outlive the executor that started them: a later one finds them as the log
    tells of them.

    Args:
        now_seconds: The cell's clock.
        sleep_until: Waits for a moment of that clock.
        physics: How the simulated world behaves; None takes the cell's own costs.
    """

    def __init__(
        self,
        now_seconds: Callable[[], float],
        sleep_until: Callable[[float], Awaitable[None]],
        physics: Physics | None = None,
    ) -> None:
        self._now = now_seconds
        self._sleep_until = sleep_until
        self._physics = physics
        self._truth = _Believed()
        self._cluster: SimulatedCluster | None = None
        self._changed = asyncio.Event()

    async def take_over(self, state: ExecutorState, now_seconds: float) -> None:
        """Find the nodes up and the workers training that the log tells of."""
        self._truth.state = state
        physics = self._physics or Physics(stop_cost=state.cell.configuration.stop_cost)
        cluster = SimulatedCluster(physics, self._truth)
        for server in state.cell.servers.values():
            if server.joined:
                cluster.adopt_node(server.server.server_id, server.incarnation)
        for job in state.cell.jobs.values():
            if job.live:
                done = state.cell.iterations_done(job, now_seconds)
                cluster.adopt_job(job.job_id, done)
            if job.live and job.trains:
                cluster.adopt_workers(job.job_id, job.generation, job.placed, now_seconds)
        self._cluster = cluster
        self._changed.set()

    def carry_out(
        self, state: ExecutorState, instructions: Sequence[Instruction], now_seconds: float
    ) -> None:
        """See :class:`~resilin.executor.backend.WorkerBackend`."""
        cluster = self._cluster
        assert cluster is not None, "an executor takes over before it instructs"  # noqa: S101 (invariant)
        self._truth.state = state
        for server_id, server in state.cell.servers.items():
            if not server.removed:
                cluster.add_node(server_id, now_seconds, after_incarnation=server.incarnation)
        for instruction in instructions:
            cluster.carry_out(instruction, now_seconds)
        for job_id in profiles_wanted(state):
            cluster.profile(job_id, now_seconds)
        self._changed.set()

    def next_seconds(self) -> float:
        """Return when the next thing happens in the cluster; infinite for never."""
        return math.inf if self._cluster is None else self._cluster.next_seconds()

    async def reports(self) -> Sequence[Report]:
        """Wait for the next thing that happens in the cluster."""
        while True:
            self._changed.clear()
            cluster = self._cluster
            if cluster is not None:
                reports = list(cluster.reports(self._now()))
                if reports:
                    return reports
            await self._until(self.next_seconds())

    async def _until(self, moment: float) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        waits: list[asyncio.Future[Any]] = [changed]
        if math.isfinite(moment):
            waits.append(asyncio.ensure_future(self._sleep_until(moment)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self, *, stop_workers: bool) -> None:
        """Nothing to end: the simulated workers are told of by the log alone."""
