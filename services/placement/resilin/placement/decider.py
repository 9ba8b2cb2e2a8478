"""temporary"""

from __future__ import annotations
from collections.abc import Sequence
from dataclasses import dataclass, field
from resilin.cell.state import CellState, evolve_cell
from resilin.contracts import events as ev
from resilin.contracts.record import LogEntry


@dataclass(slots=True)
class PlacementState:
    cell: CellState = field(default_factory=CellState)


class PlacementDecider:
    service = "placement"
    state_type = PlacementState

    def initial_state(self) -> PlacementState:
        return PlacementState()

    def evolve(
        self, state: PlacementState, event: ev.Event | ev.UnknownEvent, entry: LogEntry
    ) -> PlacementState:
        state.cell = evolve_cell(state.cell, event, entry)
        return state

    def decide(self, state: PlacementState) -> Sequence[ev.Event]:
        cell = state.cell
        want = [j for j in cell.jobs.values() if j.live and j.wanted_workers != j.placed_workers]
        if not want:
            return ()
        free: dict[str, list[int]] = {}
        for sid, s in cell.servers.items():
            if s.usable:
                free[sid] = list(range(s.server.gpus))
        for j in cell.jobs.values():
            for sid, idx in j.held.items():
                if sid in free:
                    free[sid] = [i for i in free[sid] if i not in idx]
        out: list[ev.Event] = []
        for j in want:
            n = j.wanted_workers
            if n == 0:
                out.append(ev.JobSuspended(job_id=j.job_id, generation=j.generation + 1))
                continue
            if n < j.placed_workers:
                g: dict[str, tuple[int, ...]] = {}
                left = n
                for sid, idx in j.placed.items():
                    if left:
                        g[sid] = idx[:left]
                        left -= len(g[sid])
                out.append(ev.JobPlaced(job_id=j.job_id, generation=j.generation + 1, gpus=g))
                continue
            need = n - j.placed_workers
            if sum(map(len, free.values())) < need:
                continue
            g = {s: i for s, i in j.placed.items()}
            for sid in sorted(free, key=lambda s: (s not in g, len(free[s]))):
                if need and free[sid]:
                    t = free[sid][:need]
                    free[sid] = free[sid][len(t) :]
                    need -= len(t)
                    g[sid] = tuple(sorted((*g.get(sid, ()), *t)))
            out.append(
                ev.JobPlaced(
                    job_id=j.job_id, generation=j.generation + 1, gpus=dict(sorted(g.items()))
                )
            )
        return out

    def next_timer(self, state: PlacementState) -> float | None:
        return None
