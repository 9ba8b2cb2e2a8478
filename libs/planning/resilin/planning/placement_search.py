"""The search for the cheapest set of jobs to move, so that all placed jobs lie compact.

The part of :mod:`resilin.planning.placement` that decides who has to make room: a bounded
branch and bound over where the jobs that have no place could go, and whom they would push
aside there. Its first answer follows the buddy argument and never has to go back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from resilin.planning.occupancy import Occupancy
from resilin.planning.topology import (
    Footprint,
    buddy_width,
    choose_gpus,
    fits_one_block,
    set_bits,
)

__all__ = ["Item", "MoveSearch"]

_CANDIDATE_SERVERS = 64  # servers to make room on that one step of the search compares
_CANDIDATE_SETS = 64  # sets of jobs to move away from one server that it compares
_COMPARED_SERVERS = 8  # sets of servers to be emptied are compared up to this many servers
_COMBINATION_WORK = 10_000  # steps after which no more of these sets are compared


class Item(NamedTuple):
    """A job to be placed; sorts in the order in which jobs are placed."""

    minus_workers: int
    turn: int  # at equal size: 0 grows, 1 starts, 2 makes room for others
    order: int  # of the requests
    job_id: str


class _Option(NamedTuple):
    """One way to place a job.

    Attributes:
        largest: Workers of the largest job it moves.
        cost: Migration cost of the jobs it moves.
        moves: How many it moves.
        rank: How well the GPUs fit, smaller is better.
        victims: The jobs it moves; the job itself if it gives up its present GPUs.
        takes: The GPUs it takes: (server position, mask).
        shared: It moves a job that lies on several servers.
    """

    largest: int = 0
    cost: float = 0.0
    moves: int = 0
    rank: int = 0
    victims: tuple[str, ...] = ()
    takes: tuple[tuple[int, int], ...] = ()
    shared: bool = False


_Looks = tuple[int, int, float, str]
_Signature = tuple[int, int, tuple[str, ...], tuple[_Looks, ...]]


class _Offer(NamedTuple):
    """The options on one server, as long as its idle GPUs and its jobs stay the same."""

    free: int
    residents: tuple[str, ...]
    signature: _Signature
    options: tuple[_Option, ...]


@dataclass(slots=True)
class _Step:
    """One level of the search: a queue of jobs, and the ways to place its first."""

    queue: tuple[Item, ...]
    options: Iterator[_Option]
    cost: float
    moves: int
    undo: list[Callable[[], object]] = field(default_factory=list)


class MoveSearch:
    """The cheapest set of jobs to move so that all given jobs find a compact place.

    Depth-first branch and bound. The queue holds the jobs without GPUs, the largest first:

        place(queue, cost):
            if cost is not below the best so far: return
            if the queue is empty: this is the best so far
            for each server (or set of servers) that could take the first of the queue,
            and each smallest set of jobs there whose GPUs it would need, cheapest first:
                place(queue - first + that set, cost + that set's cost)
            if the first is a job that grows: let it give up its GPUs, as one more option

    In any answer each job lies somewhere, so an unlimited search sees every answer that
    moves no job needlessly. It leaves out only what cannot be better:

    - Servers that look the same are tried once, and of jobs that look the same the one that
      is cheapest to move leaves first.
    - In an ``orderly`` cluster (all sizes powers of two, all that may move compact) idle GPUs
      are used wherever there are any, and nobody makes room for a job that is no larger.
      For all that is still to be placed is no larger than the job of size m whose turn it
      is. Wherever an answer puts that job, it can change places with what the answer puts
      on m idle GPUs, as that is made of powers of two up to m; and in the same way a job of
      m or more that moved could have stayed. Only a job that grows beside what it has is
      tied to a server, so neither is done on the servers of jobs that are still to grow.

    Beyond that the work is bounded: a step compares a bounded number of servers (those that
    lack the fewest GPUs) and of sets on each, and after ``limit`` steps the best answer so
    far is taken.
    """

    def __init__(self, occupancy: Occupancy, items: Sequence[Item], limit: int) -> None:
        self.occupancy = occupancy
        self.topology = occupancy.topology
        self.pool = occupancy.pool
        self.held = occupancy.held
        self.work = limit
        self.cut = False
        self.turned_back = False
        self.queue = tuple(items)
        self.requested = {item.job_id: item for item in items}
        self.growing = {item.job_id for item in items if item.job_id in self.held}
        self.anchored = [0] * len(self.topology.servers)
        for job in sorted(self.growing):
            for place in self.held[job]:
                self.anchored[place] += 1
        self.assigned: dict[str, Footprint] = {}
        self.best: dict[str, Footprint] | None = None
        self.best_key = (math.inf, 0)
        self.workers = {item.job_id: -item.minus_workers for item in items}
        residents: list[list[str]] = [[] for _ in self.topology.servers]
        fixed: list[list[str]] = [[] for _ in self.topology.servers]
        for job, footprint in self.held.items():
            if self._may_move(job):
                for place in footprint:
                    residents[place].append(job)
                self.workers.setdefault(job, occupancy.workers[job])
            elif job in self.growing:
                for place in footprint:
                    fixed[place].append(job)
        self.residents = [tuple(jobs) for jobs in residents]
        self.fixed = [tuple(jobs) for jobs in fixed]
        self.orderly = self._is_orderly()
        self.remembered: dict[tuple[int, bool, str], dict[int, _Offer]] = {}

    def _may_move(self, job: str) -> bool:
        return job in self.occupancy.cost and job not in self.occupancy.pinned

    @property
    def proven(self) -> bool:
        """Whether no cheaper answer exists."""
        return not self.cut or self.best_key == (0.0, 0)

    def run(self) -> bool:
        """Search, and give the jobs of the best answer their GPUs; False if there is none."""
        steps = [self._step(self.queue, 0.0, 0)]
        while steps:
            step = steps[-1]
            self._undo(step)
            if self._is_over():
                break
            option = next(step.options, None)
            if option is None:
                steps.pop()
                self.turned_back = True
                continue
            cost, moves = step.cost + option.cost, step.moves + option.moves
            if (cost, moves) >= self.best_key:
                continue
            queue = self._apply(step, option)
            if queue:
                steps.append(self._step(queue, cost, moves))
            else:
                self.best, self.best_key = dict(self.assigned), (cost, moves)
        for step in reversed(steps):
            self._undo(step)
        if self.best is None:
            return False
        for job in self.best:
            self.occupancy.assign(job, {})
        for job, footprint in self.best.items():
            self.occupancy.assign(job, footprint)
        return True

    def _is_over(self) -> bool:
        """Tell whether to stop: nothing can be better, or the search has worked enough.

        In an orderly cluster it goes on to a first answer as long as it need not turn back:
        that ends by itself, as no job is moved twice.
        """
        if self.best_key == (0.0, 0):
            return True
        hopeful = self.orderly and self.best is None and not self.turned_back
        if self.work <= 0 and not hopeful:
            self.cut = True
            return True
        return False

    def _is_orderly(self) -> bool:
        """Tell whether all sizes are powers of two and all jobs that may move lie compact."""
        sizes = self.topology.sizes
        if any(workers & (workers - 1) for workers in self.workers.values()):
            return False
        largest = self.topology.largest
        uniform = min(sizes) == largest and not largest & (largest - 1)
        if not uniform and any(workers > largest for workers in self.workers.values()):
            return False
        for job in self.workers:
            footprint = self.held.get(job, {})
            if len(footprint) > 1:
                if any(mask != self.topology.full[place] for place, mask in footprint.items()):
                    return False
            elif self.occupancy.aligned and any(map(_is_unaligned, footprint.values())):
                return False
        return True

    def _step(self, queue: tuple[Item, ...], cost: float, moves: int) -> _Step:
        return _Step(queue, self._options(queue[0], cost, moves), cost, moves)

    def _undo(self, step: _Step) -> None:
        for action in reversed(step.undo):
            action()
        step.undo.clear()

    def _apply(self, step: _Step, option: _Option) -> tuple[Item, ...]:
        """Carry out an option for the first job of the queue; return the queue after it."""
        self.work -= 20
        undo, pool = step.undo, self.pool
        job = step.queue[0].job_id
        displaced = []
        for victim in option.victims:
            for place, mask in self._leave(victim, undo).items():
                mask &= ~self.occupancy.blocked.get(place, 0)
                pool.give(place, mask)
                undo.append(partial(pool.take, place, mask))
            if victim not in self.requested:
                displaced.append(Item(-self.workers[victim], 2, 0, victim))
        if job in option.victims:
            return step.queue
        footprint = dict(self._leave(job, undo))
        for place, mask in option.takes:
            pool.take(place, mask)
            undo.append(partial(pool.give, place, mask))
            footprint[place] = footprint.get(place, 0) | mask
        self.assigned[job] = footprint
        undo.append(partial(self.assigned.pop, job))
        return tuple(sorted((*step.queue[1:], *displaced)))

    def _leave(self, job: str, undo: list[Callable[[], object]]) -> Footprint:
        """Forget what a job holds, so that nobody moves it (again); return what it was."""
        footprint = self.held.pop(job, None)
        if footprint is None:
            return {}
        undo.append(partial(self.held.__setitem__, job, footprint))
        for place in footprint:
            before = self.residents[place]
            self.residents[place] = tuple(other for other in before if other != job)
            undo.append(partial(self.residents.__setitem__, place, before))
        if job in self.growing:
            self._count_growing(job, footprint, -1)
            undo.append(partial(self._count_growing, job, footprint, 1))
        return footprint

    def _count_growing(self, job: str, footprint: Footprint, change: int) -> None:
        (self.growing.add if change > 0 else self.growing.remove)(job)
        for place in footprint:
            self.anchored[place] += change

    def _options(self, item: Item, cost: float, moves: int) -> Iterator[_Option]:
        """Yield the ways to place a job, the best first as far as that is cheap to know.

        ``cost`` and ``moves`` are what has been decided before.
        """
        job, workers = item.job_id, -item.minus_workers
        own = self.held.get(job, {})
        give_up = []
        if own and self._may_move(job):
            give_up = [_Option(cost=self.occupancy.cost[job], moves=1, victims=(job,))]
        if self.topology.servers_needed(workers) == 1:
            options = self._on_one_server(workers, job, own, give_up)
            first = list(islice(options, 1))
        else:
            options = self._on_whole_servers(workers, job, own, cost, moves)
            first = sorted((*islice(options, 1), *give_up), key=self._order(workers))
        # Idle GPUs are taken at once, unless another job that grows may need them.
        if (
            self.orderly
            and first
            and not first[0].moves
            and all(self.anchored[place] == (place in own) for place, _ in first[0].takes)
        ):
            return iter(first[:1])
        return chain(first, options)

    def _order(self, workers: int) -> Callable[[_Option], tuple[bool, tuple[object, ...]]]:
        """Return the sort key of options for a job: the most promising first.

        Last are those that move a job for which there is no room on any server now, or
        which needs as much room as the job itself: others would have to move for it. The
        rest is sorted by cost.
        """
        room = max(free.bit_count() for _, free in self.pool.groups)
        largest = min(workers - 1, room)
        return lambda option: (option.largest > largest, option[1:])

    def _on_one_server(
        self, workers: int, job: str, own: Footprint, give_up: list[_Option]
    ) -> Iterator[_Option]:
        """Yield the ways to place a job on one server: its own if it has one."""
        if own:
            options = list(give_up)
            if len(own) == 1:
                (place,) = own
                options += self._on_server(place, workers, job).options
            yield from sorted(options, key=self._order(workers))
            return
        if self.orderly:
            allowed = self.occupancy.everywhere
            allowed -= sum(1 << place for place, jobs in enumerate(self.anchored) if jobs)
            found = self.pool.best_server(workers, allowed, aligned=self.occupancy.aligned)
            if found:
                yield _Option(takes=(found,))
                return
        yield from self._on_any_server(workers, own, 1)

    def _on_any_server(self, workers: int, excluded: Footprint, alike: int) -> Iterator[_Option]:
        """Yield the ways to place a job on a server; ``alike`` of those that look the same.

        Idle GPUs come first. Who could move is looked at only after them.
        """
        direct: list[_Option] = []
        others: list[_Option] = []
        seen: dict[_Signature, int] = {}
        for place in self._candidates(workers):
            if direct and self.pool.free[place].bit_count() < workers:
                yield from sorted(direct, key=self._order(workers))
                direct = []
            self.work -= 1
            offer = self._on_server(place, workers, "")
            count = seen.get(offer.signature, 0)
            if not offer.options or count == alike or place in excluded:
                continue
            if len(seen) == _CANDIDATE_SERVERS < len(self.topology.servers) and not count:
                self.cut = True
                break
            seen[offer.signature] = count + 1
            for option in offer.options:
                (others if option.moves else direct).append(option)
        yield from sorted(direct + others, key=self._order(workers))

    def _candidates(self, workers: int) -> Iterator[int]:
        """Yield servers: the tightest fits first, then those that lack the fewest GPUs."""
        groups = sorted(
            (idle < workers, abs(idle - workers), size, free)
            for size, free in self.pool.groups
            for idle in (free.bit_count(),)
            if size >= workers
        )
        for _, _, size, free in groups:
            yield from set_bits(self.pool.groups[size, free])

    def _on_server(self, place: int, workers: int, job: str) -> _Offer:
        """Return what one server offers; ``job`` is named if it extends what it has there."""
        smaller_only = self.orderly and not self.anchored[place]
        offers = self.remembered.setdefault((workers, smaller_only, job), {})
        offer = offers.get(place)
        free, residents = self.pool.free[place], self.residents[place]
        if offer is not None and offer.free == free and offer.residents is residents:
            return offer
        jobs = [
            other
            for other in residents
            if other != job and not (smaller_only and self.workers[other] >= workers)
        ]
        own = self.held[job][place] if job else 0
        signature: _Signature = (self.topology.sizes[place], free, self.fixed[place], ())
        options: list[_Option] = []
        if (free | own).bit_count() + sum(self.workers[other] for other in jobs) >= workers:
            self.work -= 30
            looks = tuple(sorted(self._looks(place, residents)))
            signature = (*signature[:3], looks)
            options = list(self._options_on_server(place, workers, own, jobs))
        offers[place] = _Offer(free, residents, signature, tuple(options))
        return offers[place]

    def _options_on_server(
        self, place: int, workers: int, own: int, jobs: Sequence[str]
    ) -> Iterator[_Option]:
        """Yield the ways to place a job beside ``own`` on a server that ``jobs`` may leave."""
        free, size = self.pool.free[place], self.topology.sizes[place]
        for region in self._regions(size, workers, own):
            short = workers - ((free | own) & region).bit_count()
            for victims in self._sets_to_move(place, jobs, region, short):
                freed = free
                for victim in victims:
                    freed |= self._gain(victim, place)
                rank, mask = choose_gpus(
                    freed, freed & region, own, size, workers - own.bit_count()
                )
                yield self._option(rank, victims, ((place, mask),))

    def _regions(self, size: int, workers: int, own: int) -> list[int]:
        """List the parts of a server that a job of that many workers may lie in."""
        width = buddy_width(workers) if self.occupancy.aligned else size
        full = (1 << size) - 1
        blocks = [((1 << width) - 1) << start & full for start in range(0, size, width)]
        return [block for block in blocks if block.bit_count() >= workers and not own & ~block]

    def _gain(self, job: str, place: int) -> int:
        """Return the mask of the GPUs that become idle on a server if a job leaves it."""
        return self.held[job][place] & ~self.occupancy.blocked.get(place, 0)

    def _is_like_others(self, job: str) -> bool:
        """Tell whether jobs of the same size on a server can stand in for each other."""
        return len(self.held[job]) == 1 and job not in self.requested

    def _looks(self, place: int, residents: Iterable[str]) -> Iterator[_Looks]:
        """Describe the jobs that may leave a server, by all that matters to the search."""
        for job in residents:
            name = "" if self._is_like_others(job) else job
            yield self._gain(job, place), self.workers[job], self.occupancy.cost[job], name

    def _option(
        self, rank: int, victims: Iterable[str], takes: tuple[tuple[int, int], ...]
    ) -> _Option:
        self.work -= 3
        leaving = tuple(sorted(set(victims)))
        return _Option(
            largest=max((self.workers[victim] for victim in leaving), default=0),
            cost=math.fsum(self.occupancy.cost[victim] for victim in leaving),
            moves=len(leaving),
            rank=rank,
            victims=leaving,
            takes=takes,
            shared=any(len(self.held[victim]) > 1 for victim in leaving),
        )

    def _sets_to_move(
        self, place: int, jobs: Iterable[str], region: int, short: int
    ) -> list[tuple[str, ...]]:
        """List the smallest sets of jobs that free ``short`` more GPUs of a region."""
        if short <= 0:
            return [()]
        alike: dict[tuple[int, int, str], list[tuple[float, str]]] = {}
        for job in jobs:
            gain = (self._gain(job, place) & region).bit_count()
            if gain:
                # In a block it matters which GPUs are freed; on a whole server how many.
                same = not self.occupancy.aligned and self._is_like_others(job)
                kind = (-gain, self.workers[job], "" if same else job)
                alike.setdefault(kind, []).append((self.occupancy.cost[job], job))
        kinds = [
            (-minus_gain, [job for _, job in sorted(members)])
            for (minus_gain, _, _), members in sorted(alike.items())
        ]
        if sum(gain * len(members) for gain, members in kinds) == short:
            return [tuple(job for _, members in kinds for job in members)]
        sets = list(islice(_smallest_sets(kinds[:_CANDIDATE_SETS], short, ()), _CANDIDATE_SETS + 1))
        if len(sets) > _CANDIDATE_SETS or len(kinds) > _CANDIDATE_SETS:
            self.cut = True
        return sets[:_CANDIDATE_SETS]

    def _on_whole_servers(
        self, workers: int, job: str, own: Footprint, cost: float, moves: int
    ) -> Iterator[_Option]:
        """Yield ways to place a job larger than a server: whole servers and a rest."""
        needed = self.topology.servers_needed(workers)
        sizes = self.topology.sizes
        emptied = self._emptied_servers(job, own)
        kinds = self._kinds_of_servers(emptied, own)
        for partial_place in (None, *own):
            completed = [place for place in own if place != partial_place]
            if any(place not in emptied for place in completed):
                continue
            base = [emptied[place] for place in completed]
            rest = workers - sum(sizes[place] for place in completed)
            others = needed - len(completed)
            if partial_place is None and others * min(sizes) <= rest <= others * max(sizes):
                for chosen in self._sets_of_servers(kinds, others, cost, moves):
                    if rest == sum(sizes[option.takes[0][0]] for option in chosen):
                        yield self._union([*base, *chosen])
            if rest >= others * self.topology.largest:
                continue  # too many workers for one of the servers to be taken in part
            rests: dict[int, list[_Option]] = {}
            for chosen in self._sets_of_servers(kinds, others - 1, cost, moves):
                taken = {option.takes[0][0] for option in chosen}
                left = rest - sum(sizes[place] for place in taken)
                if left not in rests:
                    rests[left] = self._rest_options(left, job, own, partial_place, others)
                for option in rests[left]:
                    if not taken.intersection(place for place, _ in option.takes):
                        yield self._union([*base, *chosen, option])

    def _kinds_of_servers(
        self, emptied: Mapping[int, _Option], own: Footprint
    ) -> list[tuple[_Option, ...]]:
        """Group the servers that a job could have whole by all that matters to the search."""
        kinds: dict[tuple[int, tuple[_Looks, ...]], list[_Option]] = {}
        for place, option in emptied.items():
            if place not in own:
                looks = sorted(self._looks(place, option.victims))
                if not self.occupancy.aligned:  # how many GPUs they have matters, not which
                    looks = sorted((0, workers, cost, job) for _, workers, cost, job in looks)
                kind = (self.topology.sizes[place], tuple(looks))
                kinds.setdefault(kind, []).append(option)
        order = self._order(self.topology.largest)
        ordered = [tuple(sorted(options, key=order)) for options in kinds.values()]
        return sorted(ordered, key=lambda options: order(options[0]))

    def _sets_of_servers(
        self, kinds: Sequence[tuple[_Option, ...]], count: int, cost: float, moves: int
    ) -> Iterator[tuple[_Option, ...]]:
        """Yield sets of ``count`` servers to empty, the cheapest first as far as that is easy.

        Of many servers only the cheapest set is tried.
        """
        if count > _COMPARED_SERVERS:
            options = [option for kind in kinds for option in kind]
            if len(options) >= count:
                self.cut = True
                yield tuple(options[:count])
            return
        limit = self.work - _COMBINATION_WORK

        def extend(
            start: int, more: int, chosen: tuple[_Option, ...], cost: float, moves: int
        ) -> Iterator[tuple[_Option, ...]]:
            if more == 0:
                yield chosen
                return
            for index in range(start, len(kinds)):
                kind = kinds[index]
                for taken in range(min(more, len(kind)), 0, -1):
                    self.work -= 1
                    if self.work < limit:
                        self.cut = True
                        return
                    # What moves a job away from several servers may be paid for already.
                    paid = 0 if kind[0].shared else taken
                    sums = cost + paid * kind[0].cost, moves + paid * kind[0].moves
                    if sums < self.best_key:
                        yield from extend(index + 1, more - taken, chosen + kind[:taken], *sums)

        yield from extend(0, count, (), cost, moves)

    def _emptied_servers(self, job: str, own: Footprint) -> dict[int, _Option]:
        """Find the servers that a job could have whole, and who would have to leave them."""
        free, full, rack_of = self.pool.free, self.topology.full, self.topology.rack_of
        idle_in_rack = [0] * len(self.topology.racks)
        for place, rack in enumerate(rack_of):
            idle_in_rack[rack] += free[place] == full[place]
        emptied = {}
        for place, size in enumerate(self.topology.sizes):
            jobs = [other for other in self.residents[place] if other != job]
            if self.orderly and not self.anchored[place]:
                jobs = [other for other in jobs if self.workers[other] < size]
            mine = own.get(place, 0)
            covered = free[place] | mine
            for other in jobs:
                covered |= self._gain(other, place)
            if covered == full[place]:
                takes = ((place, full[place] & ~mine),)
                emptied[place] = self._option(-idle_in_rack[rack_of[place]], jobs, takes)
        self.work -= len(free)
        return emptied

    def _rest_options(
        self, left: int, job: str, own: Footprint, partial_place: int | None, alike: int
    ) -> list[_Option]:
        """List the places for the part of a large job that takes no whole server.

        Of servers that look the same ``alike`` are listed: others may be taken whole.
        """
        sizes = self.topology.sizes
        if not 0 < left <= self.topology.largest:
            return []
        if partial_place is None:
            options = self._on_any_server(left, own, alike)
            return [option for option in options if left < sizes[option.takes[0][0]]]
        held = own[partial_place].bit_count()
        if left == held:
            lies_well = not self.occupancy.aligned or fits_one_block(own[partial_place])
            return [_Option()] if lies_well else []
        if not held < left < sizes[partial_place]:
            return []
        return sorted(self._on_server(partial_place, left, job).options, key=self._order(left))

    def _union(self, options: Sequence[_Option]) -> _Option:
        """Join the parts of a place on several servers; who leaves two of them counts once."""
        victims = [victim for option in options for victim in option.victims]
        takes = tuple(take for option in options for take in option.takes)
        return self._option(sum(option.rank for option in options), victims, takes)


def _smallest_sets(
    kinds: Sequence[tuple[int, Sequence[str]]], short: int, chosen: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the sets of jobs that free at least ``short`` GPUs, none of them to spare.

    ``kinds`` are (GPUs each job frees, jobs with the cheapest first), the most GPUs first.
    Because of that order every set is smallest: without its last job it frees too little,
    and the other jobs free no fewer GPUs than the last.
    """
    if short <= 0:
        yield chosen
        return
    if sum(gain * len(jobs) for gain, jobs in kinds) < short:
        return
    gain, jobs = kinds[0]
    for count in range(min(len(jobs), -(-short // gain)), -1, -1):
        yield from _smallest_sets(kinds[1:], short - count * gain, (*chosen, *jobs[:count]))


def _is_unaligned(mask: int) -> bool:
    return not fits_one_block(mask)
