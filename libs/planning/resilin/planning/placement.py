"""Topology-aware placement: which GPUs each job gets, and who moves to make room.

Source: ElasticFlow §4.3 (best fit on the topology tree, buddy allocation, migration). The
paper gives no pseudo-code; this is the procedure here:

    suspend and shrink first: what stays is an aligned part of the job's own GPUs
    accept the requests for which enough GPUs are idle, in the order given
    place the accepted ones, the largest first: extend in place, else best fit
    if one of them finds no compact place (``is_compact``):
        search for the cheapest set of jobs to move so that all of them find one
        if there is none: the same for each request alone
        and where that finds none either: spread over the fewest racks and servers

Every job that keeps its size and is not in that set stays where it is.

*Why a job always fits.* Let all sizes be powers of two, all servers have the same power of
two of GPUs, every job lie compact and be movable. Place in decreasing order of size, and
put what has to move back in the queue. When it is the turn of size m, the jobs that are not
to be touched (as large, or placed already, so as large too) leave each server a multiple of
m, and the idle GPUs and smaller jobs fill exactly that. Idle GPUs there are at least m of.
So a server has room for m once its smaller jobs are moved, and as they are smaller the
argument repeats for them, until at size 1 any idle GPU will do. The search below takes
these steps, so it reaches a first answer without ever having to go back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from resilin.planning.occupancy import Occupancy, count_gpus
from resilin.planning.placement_search import Item, MoveSearch
from resilin.planning.topology import (
    Footprint,
    Gpu,
    Locality,
    Topology,
    choose_gpus,
    fits_one_block,
    set_bits,
)

__all__ = [
    "ChangeKind",
    "PlacedJob",
    "PlacementPlan",
    "RoomWithin",
    "UnplacedJob",
    "UnplacedReason",
    "plan_placement",
]

RoomWithin = Literal["server", "block"]
"""What a migration may be for: one server with enough GPUs, or also an aligned block."""

DEFAULT_SEARCH_LIMIT = 10_000


class ChangeKind(StrEnum):
    """What happens to a job whose GPUs change."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MIGRATE = "migrate"


class UnplacedReason(StrEnum):
    """Why a request was not placed."""

    CLUSTER_TOO_SMALL = "ClusterTooSmall"
    """More workers than the cluster has GPUs that may be used."""
    NOT_ENOUGH_IDLE_GPUS = "NotEnoughIdleGpus"
    """Other jobs hold too many of them."""


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """The new GPUs of one job.

    Attributes:
        job_id: The job.
        kind: What happens to it.
        gpus: Its GPUs from now on, sorted.
        previous: Its GPUs so far, sorted; empty for a start.
        locality: The topology level that spans ``gpus``.
        moved: It leaves GPUs other than by shrinking, so its migration cost is counted. A
            job that shrinks or grows can be moved to make room like any other.
        waits_for: Jobs of this plan that hold some of ``gpus`` in fact and have to release
            them first; sorted.
    """

    job_id: str
    kind: ChangeKind
    gpus: tuple[Gpu, ...]
    previous: tuple[Gpu, ...]
    locality: Locality
    moved: bool = False
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnplacedJob:
    """A request that could not be placed; the job keeps the GPUs it has.

    Attributes:
        job_id: The job.
        workers: What was wanted.
        reason: Why not.
        missing_gpus: How many more GPUs would have to be idle (or in the cluster).
    """

    job_id: str
    workers: int
    reason: UnplacedReason
    missing_gpus: int


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """The GPUs of every job that changes. All other jobs keep theirs.

    Attributes:
        placed: Starts, grows and shrinks, in the order of the requests.
        migrated: Jobs of unchanged size that move to make room, sorted by job.
        suspended: Jobs that lose all their GPUs, in the order of the requests.
        unplaced: Requests without enough GPUs, in the order of the requests.
        migration_cost: The summed migration cost of all jobs with ``moved``.
        least_cost_proven: No cheaper set of moves gives every placed job a compact place
            (given the GPUs that shrinking jobs keep). False if the search was cut short, or
            if some job had to be spread because no set of moves would have helped.
    """

    placed: tuple[PlacedJob, ...] = ()
    migrated: tuple[PlacedJob, ...] = ()
    suspended: tuple[str, ...] = ()
    unplaced: tuple[UnplacedJob, ...] = ()
    migration_cost: float = 0.0
    least_cost_proven: bool = True


def plan_placement(
    topology: Topology,
    occupancy: Mapping[str, Sequence[tuple[str, int]]],
    requests: Mapping[str, int],
    *,
    migration_costs: Mapping[str, float | None] = MappingProxyType({}),
    unavailable: Collection[Gpu] = (),
    room_within: RoomWithin = "server",
    search_limit: int = DEFAULT_SEARCH_LIMIT,
) -> PlacementPlan:
    """Choose GPUs for every request, moving as few other jobs as cheaply as possible.

    The plan is a target: GPUs that a job of the same plan releases (it shrinks, moves or is
    suspended) are given to others in it. ``waits_for`` says who has to leave first.

    Args:
        topology: The cluster.
        occupancy: What every job holds now, in fact. To replace lost or drained GPUs, leave
            them out here, name them ``unavailable`` and request the old size.
        requests: Workers wanted by job, in order of precedence where GPUs do not suffice:
            0 suspends, fewer than held shrinks, more grows, as many keeps, and a job that
            holds nothing starts. Jobs without a request keep what they have.
        migration_costs: What moving a job loses, in one unit for all (such as seconds or
            GPU-seconds). A job with None or infinity, or without an entry, never moves.
        unavailable: GPUs that nobody may be given: cordoned or lost servers, GPUs that
            leaving workers still hold. A job that has such a GPU may keep it.
        room_within: What is worth a migration. ``server``: that a job does not span more
            servers than it must. ``block``: besides, that a job smaller than a server lies
            in one aligned block of it (as ElasticFlow does; it moves more jobs).
        search_limit: Steps of the search for the cheapest moves, each about a microsecond.
            Where the module's argument holds, a first answer is completed in any case.

    Returns:
        The plan. Equal arguments give equal plans.

    Raises:
        ValueError: If a GPU is unknown or held twice, a request is negative, or a cost is
            negative or not a number. The message names the job or GPU.
    """
    if room_within not in ("server", "block"):
        raise ValueError(f"room_within must be 'server' or 'block', got {room_within!r}")
    planner = Planner(
        topology, occupancy, migration_costs, unavailable, aligned=room_within == "block"
    )
    return planner.plan(requests, search_limit)


class Planner(Occupancy):
    """One call of ``plan_placement``: the facts, and the placement as far as it is decided."""

    def plan(self, requests: Mapping[str, int], search_limit: int) -> PlacementPlan:
        """Decide on all requests."""
        suspended = []
        wanted = {}
        for job, workers in requests.items():
            if workers < 0:
                raise ValueError(f"job {job!r}: {workers} workers requested, at least 0 needed")
            held = self.workers.get(job, 0)
            if not workers and held:
                self.assign(job, {})
                suspended.append(job)
            elif workers < held:
                self.assign(job, self._kept(self.held[job], workers))
            elif workers > held:
                wanted[job] = workers
        items, unplaced = self._accept(wanted)
        proven = self._place(items, search_limit)
        placed, migrated = self._report(requests)
        moved = [job.job_id for job in (*placed, *migrated) if job.moved]
        return PlacementPlan(
            placed=placed,
            migrated=migrated,
            suspended=tuple(suspended),
            unplaced=unplaced,
            migration_cost=math.fsum(self.cost[job] for job in moved),
            least_cost_proven=proven,
        )

    def _accept(self, wanted: Mapping[str, int]) -> tuple[list[Item], tuple[UnplacedJob, ...]]:
        """Accept requests, in their order, as long as enough GPUs are idle for them."""
        usable = self.topology.gpu_count - count_gpus(self.blocked)
        idle = self.pool.idle
        items = []
        unplaced = []
        for order, (job, workers) in enumerate(wanted.items()):
            held = self.held.get(job, {})
            kept = sum(
                (mask & self.blocked.get(place, 0)).bit_count() for place, mask in held.items()
            )
            more = workers - self.workers.get(job, 0)
            if more <= idle:
                idle -= more
                items.append(Item(-workers, 0 if held else 1, order, job))
            elif workers > usable + kept:
                reason = UnplacedReason.CLUSTER_TOO_SMALL
                unplaced.append(UnplacedJob(job, workers, reason, workers - usable - kept))
            else:
                reason = UnplacedReason.NOT_ENOUGH_IDLE_GPUS
                unplaced.append(UnplacedJob(job, workers, reason, more - idle))
        return sorted(items), tuple(unplaced)

    def _place(self, items: list[Item], search_limit: int) -> bool:
        """Place all items; return whether the cost of all moves is proven least."""
        placed: list[str] = []
        for item in items:
            if not self._place_directly(item):
                break
            placed.append(item.job_id)
        else:
            return True
        for job in placed:
            self.assign(job, self.before[job])
        search = MoveSearch(self, items, search_limit)
        if search.run():
            return search.proven
        # No set of moves serves everybody: serve as many as possible, one by one. A job that
        # leaves unavailable GPUs would use up idle ones that were counted on for the others.
        self.pinned.update(
            job for job, held in self.held.items() if held.keys() & self.blocked.keys()
        )
        spread = []
        for item in items:
            if (
                self._place_directly(item)
                or MoveSearch(self, [item], search_limit // len(items)).run()
            ):
                self.pinned.add(item.job_id)
            else:
                spread.append(item)
        for item in spread:
            self._place_spread(item)
        return False

    def _place_directly(self, item: Item) -> bool:
        """Place a job compactly on idle GPUs, beside those it has; False if it cannot be."""
        workers, own = -item.minus_workers, self.held.get(item.job_id, {})
        if self.topology.servers_needed(workers) > 1:
            footprint = self._large_place(workers, own)
        elif not own:
            found = self.pool.best_server(workers, self.everywhere, aligned=self.aligned)
            footprint = dict([found]) if found else None
        else:
            footprint = self._extended(workers, own)
        if footprint is None:
            return False
        self.assign(item.job_id, footprint)
        return True

    def _extended(self, workers: int, own: Footprint) -> Footprint | None:
        """Extend a job within its only server."""
        if len(own) > 1:
            return None
        ((place, held),) = own.items()
        free = self.pool.free[place]
        more = workers - held.bit_count()
        if more > free.bit_count():
            return None
        mask = held | choose_gpus(free, free, held, self.topology.sizes[place], more)[1]
        return None if self.aligned and not fits_one_block(mask) else {place: mask}

    def _large_place(self, workers: int, own: Footprint) -> Footprint | None:
        """Find whole idle servers, and a rest on one more, in as few racks as possible.

        A job that grows keeps its servers: all of them become whole, but for one at most.
        """
        needed = self.topology.servers_needed(workers)
        free, full, sizes = self.pool.free, self.topology.full, self.topology.sizes
        for partial_place in (None, *own):
            completed = [place for place in own if place != partial_place]
            if any(free[place] | own[place] != full[place] for place in completed):
                continue
            rest = workers - sum(sizes[place] for place in completed)
            others = needed - len(completed) - 1
            footprint = {place: full[place] for place in completed}
            if others < 0:
                continue
            for allowed in self._rack_choices(rest, own):
                found = self._whole_and_rest(rest, others, allowed, own, partial_place)
                if found is not None:
                    return footprint | found
        return None

    def _rack_choices(self, wanted: int, own: Footprint) -> Iterator[int]:
        """Yield the servers of single racks with enough idle GPUs, best fit first, then all."""
        racks = self.topology.racks
        idle = self.pool.idle_in_rack
        mine = {self.topology.rack_of[place] for place in own}
        if len(racks) > 1 and len(mine) < 2:
            for rack in sorted(mine or range(len(racks)), key=lambda rack: (idle[rack], rack)):
                if idle[rack] + count_gpus(own) >= wanted and racks[rack]:
                    yield self.topology.members[rack]
        yield self.everywhere

    def _whole_and_rest(
        self, rest: int, others: int, allowed: int, own: Footprint, partial_place: int | None
    ) -> Footprint | None:
        """Take ``others`` whole idle servers and what is then missing on one more.

        The one more is the job's own server ``partial_place``, if given, else the best fit.
        """
        sizes, rack_of = self.topology.sizes, self.topology.rack_of
        idle: dict[int, list[int]] = {}
        for (size, mask), members in self.pool.groups.items():
            if mask == (1 << size) - 1:
                for place in set_bits(members & allowed):
                    idle.setdefault(rack_of[place], []).append(place)
        mine = {rack_of[place] for place in own}
        racks = sorted(idle, key=lambda rack: (rack not in mine, -len(idle[rack]), rack))
        order = [(-sizes[place], turn, place) for turn, r in enumerate(racks) for place in idle[r]]
        chosen = [place for _, _, place in sorted(order)[:others]]
        footprint = {place: self.topology.full[place] for place in chosen}
        rest -= sum(sizes[place] for place in chosen)
        if len(chosen) < others or rest > self.topology.largest:
            return None
        if partial_place is None:
            within = allowed
            for place in (*chosen, *own):
                within &= ~(1 << place)
            near = sum(
                self.topology.members[rack] for rack in {rack_of[place] for place in chosen} | mine
            )
            found = self.pool.best_server(rest, within & near, aligned=self.aligned)
            found = found or self.pool.best_server(rest, within, aligned=self.aligned)
            return footprint | dict([found]) if found else None
        more = rest - own[partial_place].bit_count()
        if more < 0 or more > self.pool.free[partial_place].bit_count():
            return None
        mask = own[partial_place]
        if more:
            free = self.pool.free[partial_place]
            mask |= choose_gpus(free, free, mask, sizes[partial_place], more)[1]
        whole = mask == self.topology.full[partial_place]
        if self.aligned and not whole and not fits_one_block(mask):
            return None
        return footprint | {partial_place: mask}

    def _place_spread(self, item: Item) -> None:
        """Place a job on idle GPUs wherever they are, in few racks and servers."""
        own = self.held.get(item.job_id, {})
        more = -item.minus_workers - count_gpus(own)
        portions = {place: mask.bit_count() for place, mask in enumerate(self.pool.free) if mask}
        footprint = dict(own)
        for place, count in self._fewest_servers(portions, more, own):
            free = self.pool.free[place]
            held = own.get(place, 0)
            footprint[place] = (
                held | choose_gpus(free, free, held, self.topology.sizes[place], count)[1]
            )
        self.assign(item.job_id, footprint)

    def _kept(self, own: Footprint, workers: int) -> Footprint:
        """Choose what a shrinking job keeps: close together, and apart from what is idle.

        On one server if it can be, and there on what lies closest; among such choices one
        that leaves unavailable GPUs, then the one after which the most and largest blocks
        are free.
        """
        usable = {place: mask & ~self.blocked.get(place, 0) for place, mask in own.items()}
        choices = []
        for place, mask in own.items():
            if mask.bit_count() >= workers:
                rank, kept = self._kept_on(place, mask, workers)
                choices.append(((kept & ~usable[place]).bit_count(), rank, place, kept))
        if choices:
            _, _, place, kept = min(choices)
            return {place: kept}
        portions = {place: mask.bit_count() for place, mask in own.items()}
        footprint = {}
        for place, count in self._fewest_servers(portions, workers, {}):
            footprint[place] = self._kept_on(place, own[place], count)[1]
        return footprint

    def _kept_on(self, place: int, mask: int, workers: int) -> tuple[int, int]:
        """Choose what to keep of a job's GPUs on one server: (rank, mask)."""
        usable = mask & ~self.blocked.get(place, 0)
        candidates = usable if usable.bit_count() >= workers else mask
        free = self.pool.free[place] | usable
        return choose_gpus(free, candidates, 0, self.topology.sizes[place], workers)

    def _fewest_servers(
        self, portions: Mapping[int, int], wanted: int, own: Footprint
    ) -> list[tuple[int, int]]:
        """Choose GPUs in few racks, and there on few servers, from what each server offers.

        Servers and racks where the job is already come first. Then the largest portions,
        and for the rest of them the smallest that suffices. Unavailable GPUs come last.
        """
        rack_of = self.topology.rack_of
        by_rack: dict[int, list[int]] = {}
        for place in portions:
            by_rack.setdefault(rack_of[place], []).append(place)
        total = {rack: sum(portions[p] for p in places) for rack, places in by_rack.items()}
        mine = {rack_of[place] for place in own}
        chosen: list[tuple[int, int]] = []
        while wanted and by_rack:
            rack = min(
                by_rack,
                key=lambda rack: (
                    rack not in mine,
                    total[rack] < wanted,
                    not self.topology.racks[rack],
                    total[rack] if total[rack] >= wanted else -total[rack],
                    rack,
                ),
            )
            places = by_rack.pop(rack)
            places.sort(key=lambda p: (p not in own, -portions[p], p in self.blocked, p))
            while wanted and places:
                enough = [p for p in places if portions[p] >= wanted]
                place = places[0]
                if enough and place not in own:
                    place = min(enough, key=lambda p: (portions[p], p in self.blocked, p))
                places.remove(place)
                chosen.append((place, min(wanted, portions[place])))
                wanted -= chosen[-1][1]
        return chosen

    def _report(
        self, requests: Mapping[str, int]
    ) -> tuple[tuple[PlacedJob, ...], tuple[PlacedJob, ...]]:
        """Describe all jobs with other GPUs than before: (those requested, those moved)."""
        changed = {
            job: before for job, before in self.before.items() if before != self.held.get(job, {})
        }
        released: dict[int, list[tuple[int, str]]] = {}
        for job, before in changed.items():
            now = self.held.get(job, {})
            for place, mask in before.items():
                if mask & ~now.get(place, 0):
                    released.setdefault(place, []).append((mask & ~now.get(place, 0), job))

        def describe(job: str, kind: ChangeKind) -> PlacedJob:
            before, now = changed[job], self.held[job]
            smaller, larger = (now, before) if kind is ChangeKind.SHRINK else (before, now)
            return PlacedJob(
                job_id=job,
                kind=kind,
                gpus=self.topology.gpus(now),
                previous=self.topology.gpus(before),
                locality=self.topology.span(now),
                moved=any(mask & ~larger.get(place, 0) for place, mask in smaller.items()),
                waits_for=tuple(
                    sorted(
                        {
                            other
                            for place, mask in now.items()
                            for gone, other in released.get(place, ())
                            if mask & gone
                        }
                    )
                ),
            )

        placed = []
        migrated = []
        for job in (*requests, *sorted(changed.keys() - requests.keys())):
            if job not in changed or job not in self.held:
                continue
            had, has = count_gpus(changed[job]), count_gpus(self.held[job])
            if had == has:
                migrated.append(describe(job, ChangeKind.MIGRATE))
            elif had > has:
                placed.append(describe(job, ChangeKind.SHRINK))
            else:
                placed.append(describe(job, ChangeKind.GROW if had else ChangeKind.START))
        migrated.sort(key=lambda job: job.job_id)
        return tuple(placed), tuple(migrated)
