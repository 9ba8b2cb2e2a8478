"""Who holds which GPUs: the facts that a placement starts from, and what it has changed so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from resilin.planning.topology import Footprint, Gpu, GpuPool, Topology, set_bits

__all__ = ["Occupancy", "count_gpus"]


def count_gpus(footprint: Footprint) -> int:
    """Return how many GPUs a footprint holds."""
    return sum(mask.bit_count() for mask in footprint.values())


class Occupancy:
    """The GPUs of a cluster, and who holds them as far as that is decided.

    Attributes:
        topology: The cluster.
        pool: The GPUs that are idle now.
        held: The footprint of each job now.
        workers: How many GPUs that is.
        before: The footprint that each changed job had at first.
        blocked: The mask of unavailable GPUs by server position, where there are any.
        cost: The migration cost of every job that may move.
        pinned: Jobs that do not move (again), whatever their cost.
        aligned: Whether a compact place is also an aligned block.
        everywhere: All servers, as bits by position.
    """

    def __init__(
        self,
        topology: Topology,
        occupancy: Mapping[str, Sequence[tuple[str, int]]],
        migration_costs: Mapping[str, float | None],
        unavailable: Iterable[Gpu],
        *,
        aligned: bool,
    ) -> None:
        self.topology = topology
        self.aligned = aligned
        self.everywhere = (1 << len(topology.servers)) - 1
        self.before: dict[str, Footprint] = {}
        self.pinned: set[str] = set()
        self.blocked = topology.footprint(sorted(set(unavailable)))
        self.cost: dict[str, float] = {}
        for job, cost in migration_costs.items():
            if cost is None:
                continue
            if not cost >= 0:
                raise ValueError(f"job {job!r}: the migration cost must be at least 0, got {cost}")
            if cost < math.inf:
                self.cost[job] = cost
        self.held: dict[str, Footprint] = {}
        self.workers: dict[str, int] = {}
        free = self._occupy(occupancy)
        for place, mask in self.blocked.items():
            free[place] &= ~mask
        self.pool = GpuPool(topology, free)

    def _occupy(self, occupancy: Mapping[str, Sequence[tuple[str, int]]]) -> list[int]:
        """Note what each job holds, and return the mask of GPUs left on each server."""
        left = list(self.topology.full)
        position = self.topology.position
        for job, gpus in occupancy.items():
            masks: dict[str, int] = {}
            last, mask = "", 0
            for server, index in gpus:
                if server != last:
                    masks[last] = mask
                    last, mask = server, masks.get(server, 0)
                bit = 1 << index if index >= 0 else 0
                if not bit & ~mask:
                    raise ValueError(self._bad_gpu(job, server, index))
                mask |= bit
            masks[last] = mask
            footprint: Footprint = {}
            for server, mask in masks.items():
                if mask:
                    place = position.get(server, -1)
                    if place < 0 or mask & ~left[place]:
                        bad = mask & ~left[place] if place >= 0 else mask
                        raise ValueError(self._bad_gpu(job, server, next(set_bits(bad))))
                    left[place] ^= mask
                    footprint[place] = mask
            if footprint:
                self.held[job] = footprint
                self.workers[job] = len(gpus)
        return left

    def _bad_gpu(self, job: str, server: str, index: int) -> str:
        place = self.topology.position.get(server, -1)
        what = f"job {job!r}: GPU {index} of server {server!r}"
        if place < 0 or not 0 <= index < self.topology.sizes[place]:
            return f"{what} is not in the topology"
        return f"{what} is held twice"

    def assign(self, job: str, footprint: Footprint) -> None:
        """Give a job other GPUs than it has now; those it gains must be idle."""
        held = self.held.pop(job, {})
        self.before.setdefault(job, held)
        for place, mask in held.items():
            self.release(place, mask & ~footprint.get(place, 0))
        for place, mask in footprint.items():
            self.pool.take(place, mask & ~held.get(place, 0))
        if footprint:
            self.held[job] = footprint
        self.workers[job] = count_gpus(footprint)

    def release(self, place: int, mask: int) -> None:
        """Make GPUs of a server idle, those that are unavailable excepted."""
        self.pool.give(place, mask & ~self.blocked.get(place, 0))
