"""The tree of a cluster (rack, server, GPU) and the buddy arithmetic on its GPUs.

Source: ElasticFlow §4.3 (the multi-layer hierarchical tree, best fit, buddy allocation).
Within a server GPUs are buddies by the alignment of their indexes: 0-1, 2-3, 0-3, 4-7 and
so on. A *block* is such an aligned power of two of GPUs; a whole server is a block too,
whatever its size. Sets of GPUs of one server are bit masks (bit i is GPU i), so that a
question about a server costs a few integer operations, and the answer to it is remembered
for all servers that look the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

__all__ = [
    "Footprint",
    "Gpu",
    "GpuPool",
    "Locality",
    "Server",
    "Topology",
    "buddy_width",
    "choose_gpus",
    "fits_one_block",
    "fragmentation_ratio",
    "free_blocks",
    "is_compact",
    "locality",
    "set_bits",
]

Footprint = dict[int, int]
"""GPUs by server: the server's position in its topology, and the mask of its GPUs (not 0)."""

MOST_GPUS_PER_SERVER = 1024
_COUNT_BITS = 12  # a server of 1024 GPUs has at most 1024 blocks of one size
_LEVELS = MOST_GPUS_PER_SERVER.bit_length()
_TOUCHED_SHIFT = _COUNT_BITS * (_LEVELS + 1)
_ONE_COUNT = (1 << _COUNT_BITS) - 1
_EXHAUSTIVE_WIDTH = 16  # wider blocks are split only at the two ends: bounded work
_REMEMBERED = 1 << 15
_STARTS = tuple(
    sum(1 << start for start in range(0, MOST_GPUS_PER_SERVER, 1 << level))
    for level in range(_LEVELS + 1)
)
"""By level, the first GPU of every aligned block of 2^level GPUs."""


class Gpu(NamedTuple):
    """One GPU (a slot, when it may be a CPU): its server and its index there, from 0."""

    server: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs of a GPU


class Server(NamedTuple):
    """One server: its id, its number of GPUs and the label of its rack ("" for unknown)."""

    server_id: str
    gpus: int
    rack: str = ""


class Locality(StrEnum):
    """The topology level that spans a job's workers, from the closest to the widest."""

    GPU = "gpu"
    SERVER = "server"
    RACK = "rack"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Topology:
    """An immutable cluster tree. Equal servers in any order make equal topologies.

    Servers are kept sorted by rack and id; a *position* is an index into that order. The
    other attributes are derived once, for algorithms on masks.

    Attributes:
        servers: The servers, sorted by rack and id.
        position: The position of a server by its id.
        sizes: GPUs of each server.
        full: The mask of all GPUs of each server.
        racks: The rack labels, sorted. Servers without a label share the entry "".
        rack_of: Each server's index into ``racks``.
        members: For each rack the set of its servers, as bits by position.
        gpu_count: GPUs of the cluster.
        largest: GPUs of the largest server.

    Raises:
        ValueError: If a server id occurs twice or a server's GPUs are not 1 to 1024.
    """

    servers: tuple[Server, ...]
    position: Mapping[str, int] = field(init=False, repr=False, compare=False)
    sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    full: tuple[int, ...] = field(init=False, repr=False, compare=False)
    racks: tuple[str, ...] = field(init=False, repr=False, compare=False)
    rack_of: tuple[int, ...] = field(init=False, repr=False, compare=False)
    members: tuple[int, ...] = field(init=False, repr=False, compare=False)
    gpu_count: int = field(init=False, repr=False, compare=False)
    largest: int = field(init=False, repr=False, compare=False)
    _needed: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        servers = tuple(
            sorted((Server(*server) for server in self.servers), key=lambda s: (s.rack, s[0]))
        )
        position = {server.server_id: place for place, server in enumerate(servers)}
        for place, server in enumerate(servers):
            if position[server.server_id] != place:
                raise ValueError(f"server {server.server_id!r} is listed twice in the topology")
            if not 1 <= server.gpus <= MOST_GPUS_PER_SERVER:
                raise ValueError(
                    f"server {server.server_id!r}: gpus must be 1 to {MOST_GPUS_PER_SERVER}, "
                    f"got {server.gpus}"
                )
        sizes = tuple(server.gpus for server in servers)
        racks = tuple(sorted({server.rack for server in servers}))
        rack_of = tuple(racks.index(server.rack) for server in servers)
        members = [0] * len(racks)
        for place, rack in enumerate(rack_of):
            members[rack] |= 1 << place
        derived = {
            "servers": servers,
            "position": position,
            "sizes": sizes,
            "full": tuple((1 << size) - 1 for size in sizes),
            "racks": racks,
            "rack_of": rack_of,
            "members": tuple(members),
            "gpu_count": sum(sizes),
            "largest": max(sizes, default=0),
            "_needed": tuple(accumulate(sorted(sizes, reverse=True))),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_servers(cls, servers: Iterable[tuple[str, int, str]]) -> Topology:
        """Build a topology from (server id, number of GPUs, rack label or "")."""
        return cls(tuple(Server(*server) for server in servers))

    def servers_needed(self, workers: int) -> int:
        """Return the fewest servers that hold ``workers`` GPUs when all are idle.

        Raises:
            ValueError: If the whole cluster has fewer GPUs.
        """
        if workers <= self.largest:
            return 1
        for count, gpus in enumerate(self._needed, start=1):
            if gpus >= workers:
                return count
        raise ValueError(f"{workers} workers, but the cluster has only {self.gpu_count} GPUs")

    def gpus_of(self, server_id: str) -> tuple[Gpu, ...]:
        """Return all GPUs of a server.

        Raises:
            ValueError: If the topology has no such server.
        """
        place = self.position.get(server_id)
        if place is None:
            raise ValueError(f"no server {server_id!r} in the topology")
        return tuple(Gpu(server_id, index) for index in range(self.sizes[place]))

    def footprint(self, gpus: Iterable[tuple[str, int]]) -> Footprint:
        """Turn GPUs into masks by server position.

        Raises:
            ValueError: If a GPU is not in the topology or occurs twice.
        """
        masks: Footprint = {}
        for server, index in gpus:
            place = self.position.get(server, -1)
            bit = 1 << index if index >= 0 else 0
            if place < 0 or not self.full[place] & bit:
                raise ValueError(f"GPU {index} of server {server!r} is not in the topology")
            if masks.get(place, 0) & bit:
                raise ValueError(f"GPU {index} of server {server!r} is listed twice")
            masks[place] = masks.get(place, 0) | bit
        return masks

    def gpus(self, footprint: Footprint) -> tuple[Gpu, ...]:
        """Turn masks by server position into GPUs, sorted by server id and index."""
        return tuple(
            sorted(
                Gpu(self.servers[place].server_id, index)
                for place, mask in footprint.items()
                for index in set_bits(mask)
            )
        )

    def span(self, footprint: Footprint) -> Locality:
        """Return the locality of a footprint that is not empty."""
        if len(footprint) == 1:
            (mask,) = footprint.values()
            return Locality.GPU if mask.bit_count() == 1 else Locality.SERVER
        rack, *others = sorted({self.rack_of[place] for place in footprint})
        # Servers of which no rack is known may be anywhere.
        return Locality.CLUSTER if others or not self.racks[rack] else Locality.RACK


def locality(topology: Topology, gpus: Iterable[tuple[str, int]]) -> Locality:
    """Return the topology level that spans ``gpus``.

    Servers without a rack label count as far apart: two of them span the cluster.

    Raises:
        ValueError: If there are no GPUs, one is unknown or one is listed twice.
    """
    footprint = topology.footprint(gpus)
    if not footprint:
        raise ValueError("no GPUs: a job without workers has no locality")
    return topology.span(footprint)


def is_compact(topology: Topology, gpus: Iterable[tuple[str, int]], *, aligned: bool) -> bool:
    """Tell whether ``gpus`` lie as close together as that number of GPUs can lie.

    Compact means: on the fewest servers that can hold so many GPUs, all of them taken whole
    but at most one. ``aligned`` asks besides that those on the server not taken whole lie
    in one block of the next power of two, as in a buddy allocator.
    """
    footprint = topology.footprint(gpus)
    workers = sum(mask.bit_count() for mask in footprint.values())
    if len(footprint) > topology.servers_needed(workers):
        return False
    parts = [mask for place, mask in footprint.items() if mask != topology.full[place]]
    return len(parts) <= 1 and not (aligned and parts and not fits_one_block(parts[0]))


def set_bits(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits, increasing."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def buddy_width(gpus: int) -> int:
    """Return the smallest power of two that is at least ``gpus``."""
    return 1 << (gpus - 1).bit_length()


def fits_one_block(mask: int) -> bool:
    """Tell whether a mask lies in one aligned block of the next power of two of its GPUs."""
    width = buddy_width(mask.bit_count())
    return ((mask & -mask).bit_length() - 1) // width == (mask.bit_length() - 1) // width


@lru_cache(maxsize=_REMEMBERED)
def free_blocks(mask: int, gpus: int) -> int:
    """Count the aligned blocks of every size that lie in ``mask`` on a server of ``gpus``.

    Returns:
        One number that compares like the list of counts from the largest size down (more
        and larger free blocks are a larger number) and adds up over parts of a server. A
        server whose size is no power of two counts, when all of it is free, as one block
        of the next power of two.
    """
    total = 0
    blocks = mask
    for level in range(_LEVELS):
        if not blocks:
            break
        total += blocks.bit_count() << (_COUNT_BITS * level)
        blocks &= (blocks >> (1 << level)) & _STARTS[level + 1]
    if gpus & (gpus - 1) and mask == (1 << gpus) - 1:
        total += 1 << (_COUNT_BITS * gpus.bit_length())
    return total


def _touched_blocks(mask: int, width: int) -> int:
    """Count the aligned blocks of every size up to ``width`` that ``mask`` reaches into."""
    total = 0
    blocks = mask
    for level in range(width.bit_length()):
        total += blocks.bit_count() << (_COUNT_BITS * level)
        blocks = (blocks | (blocks >> (1 << level))) & _STARTS[level + 1]
    return total


@lru_cache(maxsize=_REMEMBERED)
def choose_gpus(free: int, candidates: int, held: int, gpus: int, wanted: int) -> tuple[int, int]:
    """Choose ``wanted`` of the candidate GPUs of one server, by best fit on its buddy tree.

    First the chosen GPUs, together with those held, lie as close as possible (they reach
    into the fewest blocks, the largest size first: a power of two gets an aligned block if
    there is one). Then what stays free keeps the most and largest blocks.

    Args:
        free: GPUs that are free as long as they are not chosen.
        candidates: GPUs to choose from. When a job shrinks, those it has.
        held: GPUs the job keeps besides the chosen ones.
        gpus: GPUs of the server.
        wanted: How many to choose, from 1 to the number of candidates.

    Returns:
        A rank that compares choices over servers of any size (smaller is better: fewer
        blocks reached into, then fewer and smaller free blocks broken), and the mask of
        the chosen GPUs.
    """
    width = buddy_width(gpus)
    key, mask = _choose_in_block(free, candidates, held, width, wanted)
    # Every choice reaches into at least one block of each size. Counting only what exceeds
    # that makes the ranks of servers of different sizes comparable.
    least = sum(1 << (_COUNT_BITS * level) for level in range(width.bit_length()))
    return key - (least << _TOUCHED_SHIFT) + free_blocks(free, gpus), mask


@lru_cache(maxsize=_REMEMBERED)
def _choose_in_block(
    free: int, candidates: int, held: int, width: int, wanted: int
) -> tuple[int, int]:
    """Return the best (touched blocks, less the free blocks left) and the chosen mask.

    Both counts add up over the two halves of a block, and adding keeps the order, so the
    best choice in a block is made of best choices in its halves:

        best(block, n) = min over i of best(left half, i) + best(right half, n - i)
    """
    if wanted in (0, candidates.bit_count()):
        chosen = candidates if wanted else 0
        touched = _touched_blocks(chosen | held, width)
        return (touched << _TOUCHED_SHIFT) - free_blocks(free & ~chosen, width), chosen
    half = width >> 1
    low = (1 << half) - 1
    left, right = candidates & low, candidates >> half
    fewest = max(0, wanted - right.bit_count())
    most = min(wanted, left.bit_count())
    splits: Iterable[int] = range(most, fewest - 1, -1)
    if width > _EXHAUSTIVE_WIDTH:
        splits = (most, fewest)
    choices = []
    for on_left in splits:
        left_key, left_mask = _choose_in_block(free & low, left, held & low, half, on_left)
        right_key, right_mask = _choose_in_block(
            free >> half, right, held >> half, half, wanted - on_left
        )
        choices.append((left_key + right_key, left_mask | (right_mask << half)))
    key, mask = min(choices, key=itemgetter(0))  # the first of equals: low indexes first
    return key + (1 << (_COUNT_BITS * (width.bit_length() - 1) + _TOUCHED_SHIFT)), mask


class GpuPool:
    """The idle GPUs of a cluster. Servers with the same idle GPUs form one group.

    A question about fit is answered once per group, not per server: a cluster of a thousand
    servers has a few dozen groups.

    Attributes:
        topology: The cluster.
        free: The mask of idle GPUs by server position.
        idle: The number of idle GPUs.
        idle_in_rack: The number of idle GPUs by rack.
        groups: Servers, as bits by position, by (GPUs of the server, mask of idle GPUs).
    """

    __slots__ = ("free", "groups", "idle", "idle_in_rack", "topology")

    def __init__(self, topology: Topology, free: list[int]) -> None:
        """Start from the mask of idle GPUs of each server; the list becomes the pool's own."""
        self.topology = topology
        self.free = free
        self.idle_in_rack = [0] * len(topology.racks)
        self.groups: dict[tuple[int, int], int] = {}
        groups = self.groups
        for place, (size, mask, rack) in enumerate(
            zip(topology.sizes, free, topology.rack_of, strict=True)
        ):
            self.idle_in_rack[rack] += mask.bit_count()
            key = (size, mask)
            groups[key] = groups.get(key, 0) | (1 << place)
        self.idle = sum(self.idle_in_rack)

    def take(self, place: int, mask: int) -> None:
        """Make idle GPUs of a server busy."""
        self._set(place, self.free[place] & ~mask)

    def give(self, place: int, mask: int) -> None:
        """Make busy GPUs of a server idle."""
        self._set(place, self.free[place] | mask)

    def _set(self, place: int, mask: int) -> None:
        size = self.topology.sizes[place]
        before = self.free[place]
        if mask == before:
            return
        bit = 1 << place
        left = self.groups[size, before] ^ bit
        if left:
            self.groups[size, before] = left
        else:
            del self.groups[size, before]
        self.groups[size, mask] = self.groups.get((size, mask), 0) | bit
        self.free[place] = mask
        change = mask.bit_count() - before.bit_count()
        self.idle += change
        self.idle_in_rack[self.topology.rack_of[place]] += change

    def best_server(self, wanted: int, within: int, *, aligned: bool) -> tuple[int, int] | None:
        """Find the best fit for ``wanted`` GPUs on one server, without taking them.

        Best fit compares from the smallest subtree up: the closest GPUs, then the smallest
        free block that has to be broken, then the server and at last the rack with the
        fewest idle GPUs.

        Args:
            wanted: GPUs wanted, at least 1.
            within: The servers to look at, as bits by position.
            aligned: Accept only GPUs in one block of the next power of two.

        Returns:
            The server's position and the mask of the chosen GPUs; None if nothing fits.
        """
        best: tuple[int, int] | None = None
        servers = 0
        for (size, free), members in self.groups.items():
            members &= within
            idle = free.bit_count()
            if idle < wanted or not members:
                continue
            rank, mask = choose_gpus(free, free, 0, size, wanted)
            if aligned and not fits_one_block(mask):
                continue
            if best is None or (rank, idle) < best:
                best, servers = (rank, idle), members
            elif (rank, idle) == best:
                servers |= members
        if best is None:
            return None
        place = self._in_fullest_rack(servers)
        free = self.free[place]
        return place, choose_gpus(free, free, 0, self.topology.sizes[place], wanted)[1]

    def _in_fullest_rack(self, servers: int) -> int:
        """Return the first of some servers in the rack with the fewest idle GPUs."""
        members = self.topology.members
        if len(members) > 1:
            rack = min(
                (rack for rack in range(len(members)) if servers & members[rack]),
                key=lambda rack: (self.idle_in_rack[rack], rack),
            )
            servers &= members[rack]
        return (servers & -servers).bit_length() - 1


def fragmentation_ratio(topology: Topology, free: Iterable[tuple[str, int]]) -> float:
    """Return how far the free GPUs are from being usable in large blocks, 0 to 1.

    For a block size b, *usable* is the number of free blocks of b GPUs, and *ideal* the
    number there would be if the same number of GPUs were free with all jobs packed
    together. The ratio is the mean of 1 - usable / ideal over b = 2, 4, ... up to the
    largest size of which one block would be possible. 0: every job that could start after
    compaction can start now; 1: only single GPUs can be used together. It is 0 too when
    fewer than two GPUs are free.

    The plain measure, 1 - (largest free block / largest possible), says 0 as soon as one
    server of a hundred is free and however scattered the rest is; it also has only a few
    values. Counting all blocks of all sizes keeps its ends and grades what lies between.
    """
    masks = topology.footprint(free)
    gpus = sum(mask.bit_count() for mask in masks.values())
    losses = []
    for level in range(1, topology.largest.bit_length()):
        ideal = min(gpus >> level, sum(size >> level for size in topology.sizes))
        usable = sum(
            (free_blocks(mask, MOST_GPUS_PER_SERVER) >> (_COUNT_BITS * level)) & _ONE_COUNT
            for mask in masks.values()
        )
        if ideal:
            losses.append(1 - usable / ideal)
    return sum(losses) / len(losses) if losses else 0.0
