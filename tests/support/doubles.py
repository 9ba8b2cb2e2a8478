"""Broken services: each is wrong in one way that the checks must catch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from resilin.admission.decider import AdmissionDecider
from resilin.admission.state import AdmissionState
from resilin.allocator.decider import AllocatorDecider, AllocatorState
from resilin.cell import gpu_sets
from resilin.cell.view import cluster_view, job_view
from resilin.contracts import events as ev
from resilin.contracts.values import training_allocation
from resilin.executor.decider import ExecutorDecider, ExecutorState
from resilin.kernel.decider import Decider
from resilin.metric_collector.decider import CollectorState, MetricCollectorDecider
from resilin.placement.decider import PlacementDecider, PlacementState
from resilin.planning.capacity import CapacityProfile
from resilin.planning.filling import fill_at_level
from resilin.simulation.simulation import deciders

__all__ = [
    "AcceptsEverythingTwice",
    "AdmitsTheCancelled",
    "CountsInSecret",
    "IgnoresWhoHolds",
    "PlacesAnySize",
    "PromisesEverything",
    "TakesFromThePromised",
    "WritesForOthers",
    "with_double",
]


def with_double(double: Callable[[], Decider[Any]]) -> Callable[[], tuple[Decider[Any], ...]]:
    """Return what makes the seven cores with one of them replaced."""

    def make() -> tuple[Decider[Any], ...]:
        broken = double()
        return tuple(broken if core.service == broken.service else core for core in deciders())

    return make


class IgnoresWhoHolds(PlacementDecider):
    """Places every job on the first GPUs of the cell, whoever is there."""

    def decide(self, state: PlacementState) -> Sequence[ev.Event]:
        gpus = [
            (server.server.server_id, index)
            for server in state.cell.servers.values()
            if server.usable
            for index in range(server.server.gpus)
        ]
        decision: list[ev.Event] = []
        for job in state.cell.jobs.values():
            wanted = job.wanted_workers
            if not job.live or wanted == job.placed_workers or wanted > len(gpus):
                continue
            chosen: dict[str, tuple[int, ...]] = {}
            for server, index in gpus[:wanted]:
                chosen[server] = (*chosen.get(server, ()), index)
            generation = job.generation + 1
            decision.append(
                ev.JobPlaced(job_id=job.job_id, generation=generation, gpus=chosen)
                if chosen
                else ev.JobSuspended(job_id=job.job_id, generation=generation)
            )
        return decision


class PlacesAnySize(PlacementDecider):
    """Gives every job one GPU less than it is to have."""

    def decide(self, state: PlacementState) -> Sequence[ev.Event]:
        decision = []
        for event in super().decide(state):
            if isinstance(event, ev.JobPlaced) and gpu_sets.count(event.gpus) > 3:
                last = list(event.gpus)[-1]
                fewer = {**event.gpus, last: event.gpus[last][:-1]}
                event = event.model_copy(update={"gpus": gpu_sets.minus(fewer, {})})
            decision.append(event)
        return decision


class TakesFromThePromised(AllocatorDecider):
    """Gives the first promised job nothing, ever."""

    def decide(self, state: AllocatorState) -> Sequence[ev.Event]:
        promised = next((job for job in state.cell.jobs.values() if job.promised), None)
        if promised is None:
            return super().decide(state)
        nothing = ev.AllocationChange(
            job_id=promised.job_id,
            allocation=training_allocation(0, promised.job.spec.global_batch),
        )
        return [
            event.model_copy(
                update={
                    "changes": (
                        *(one for one in event.changes if one.job_id != promised.job_id),
                        nothing,
                    )
                }
            )
            for event in super().decide(state)
            if isinstance(event, ev.AllocationPlanned)
        ]


class CountsInSecret(AllocatorDecider):
    """Looks again at a time that depends on how often it was asked, which no log tells."""

    def __init__(self) -> None:
        self._asked = 0

    def decide(self, state: AllocatorState) -> Sequence[ev.Event]:
        self._asked += 1
        return [
            event.model_copy(
                update={"look_again_seconds": state.cell.now_seconds + 3600.0 + self._asked}
            )
            for event in super().decide(state)
            if isinstance(event, ev.AllocationPlanned)
        ]


class AcceptsEverythingTwice(ExecutorDecider):
    """Records every report twice."""

    def accept(self, state: ExecutorState, item: ev.Event) -> Sequence[ev.Event]:
        return [*super().accept(state, item)] * 2


class PromisesEverything(AdmissionDecider):
    """Judges every job as if it were alone in the cell, and says yes."""

    def decide(self, state: AdmissionState) -> Sequence[ev.Event]:
        return [
            self._promised(state, event) if isinstance(event, ev.JobRejected) else event
            for event in super().decide(state)
        ]

    def _promised(self, state: AdmissionState, refusal: ev.JobRejected) -> ev.Event:
        job = state.cell.jobs[refusal.job_id]
        view = job_view(state.cell, job)
        if view is None or job.deadline_seconds is None:
            return refusal
        cluster = cluster_view(state.cell, job.job.spec.virtual_cluster)
        empty = CapacityProfile(cluster.now_seconds, cluster.gpus)
        plan = fill_at_level(view, empty, cluster.gpus, math.inf)
        if plan is None:
            return refusal
        return ev.JobAdmitted(
            job_id=job.job_id, promised=True, finish_seconds=plan[-1][1], plan=plan
        )


class AdmitsTheCancelled(AdmissionDecider):
    """Says that a job was cancelled, and a moment later that it was admitted."""

    def decide(self, state: AdmissionState) -> Sequence[ev.Event]:
        anew = [ev.JobAdmitted(job_id=job_id, promised=False) for job_id in state.to_cancel]
        return [*super().decide(state), *anew]


class WritesForOthers(MetricCollectorDecider):
    """Says itself that a job has settled, which is the stability-detector's to say."""

    def accept(self, state: CollectorState, item: Any) -> Sequence[ev.Event]:
        settled = ev.JobStabilized(
            job_id=item.job_id,
            generation=item.generation,
            iterations_per_second=item.iterations_per_second,
        )
        facts = super().accept(state, item)
        return [*facts, settled] if facts else facts
