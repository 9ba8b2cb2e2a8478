"""The cluster tree, localities, blocks and best fit on one server and over a pool."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilin.planning.topology import (
    Gpu,
    GpuPool,
    Locality,
    Server,
    Topology,
    buddy_width,
    choose_gpus,
    fits_one_block,
    fragmentation_ratio,
    free_blocks,
    is_compact,
    locality,
    set_bits,
)

FOUR = Topology.from_servers([("a1", 4, "a"), ("a2", 4, "a"), ("b1", 4, "b"), ("x", 4, "")])


def gpus(server: str, *indexes: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(server, index) for index in indexes)


def mask_of(indexes: list[int] | tuple[int, ...] | range) -> int:
    return sum(1 << index for index in indexes)


# --- the tree -------------------------------------------------------------------------


def test_a_topology_does_not_depend_on_the_order_of_its_servers() -> None:
    servers = [("s2", 8, "r1"), ("s1", 8, "r2"), ("s3", 6, "r1")]
    topology = Topology.from_servers(servers)
    assert topology == Topology.from_servers(reversed(servers))
    assert hash(topology) == hash(Topology.from_servers(reversed(servers)))
    assert [server.server_id for server in topology.servers] == ["s2", "s3", "s1"]
    assert topology.servers[1] == Server("s3", 6, "r1")
    assert topology.gpu_count == 22
    assert topology.racks == ("r1", "r2")
    assert topology.gpus_of("s3") == gpus("s3", 0, 1, 2, 3, 4, 5)


def test_an_empty_topology_is_a_topology() -> None:
    topology = Topology.from_servers([])
    assert topology.gpu_count == topology.largest == 0
    assert fragmentation_ratio(topology, []) == 0


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ([("s1", 8, ""), ("s1", 4, "")], "server 's1' is listed twice"),
        ([("s1", 8, "a"), ("s1", 8, "b")], "server 's1' is listed twice"),
        ([("s1", 0, "")], "server 's1': gpus must be 1 to 1024, got 0"),
        ([("s1", 1025, "")], "gpus must be 1 to 1024, got 1025"),
    ],
)
def test_bad_servers_are_named(servers: list[tuple[str, int, str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Topology.from_servers(servers)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([("nowhere", 0)], "GPU 0 of server 'nowhere' is not in the topology"),
        ([("a1", 4)], "GPU 4 of server 'a1' is not in the topology"),
        ([("a1", -1)], "GPU -1 of server 'a1' is not in the topology"),
        ([("a1", 1), ("a1", 1)], "GPU 1 of server 'a1' is listed twice"),
        ([], "a job without workers has no locality"),
    ],
)
def test_bad_gpus_are_named(chosen: list[tuple[str, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        locality(FOUR, chosen)


def test_an_unknown_server_has_no_gpus() -> None:
    with pytest.raises(ValueError, match="no server 'nowhere'"):
        FOUR.gpus_of("nowhere")


@pytest.mark.parametrize(
    ("chosen", "level"),
    [
        (gpus("a1", 3), Locality.GPU),
        (gpus("a1", 0, 3), Locality.SERVER),
        (gpus("a1", 0) + gpus("a2", 0), Locality.RACK),
        (gpus("a1", 0) + gpus("b1", 0), Locality.CLUSTER),
        (gpus("a1", 0) + gpus("x", 0), Locality.CLUSTER),
    ],
)
def test_locality_is_the_level_that_spans_all_gpus(
    chosen: tuple[Gpu, ...], level: Locality
) -> None:
    assert locality(FOUR, chosen) == level
    assert level in ("gpu", "server", "rack", "cluster")


def test_servers_without_a_rack_label_are_not_in_one_rack() -> None:
    topology = Topology.from_servers([("s1", 2, ""), ("s2", 2, "")])
    assert locality(topology, gpus("s1", 0) + gpus("s2", 0)) == Locality.CLUSTER


def test_the_fewest_servers_are_the_largest() -> None:
    topology = Topology.from_servers([("s1", 8, ""), ("s2", 4, ""), ("s3", 2, "")])
    assert [topology.servers_needed(n) for n in (1, 8, 9, 12, 13, 14)] == [1, 1, 2, 2, 3, 3]
    with pytest.raises(ValueError, match="15 workers, but the cluster has only 14"):
        topology.servers_needed(15)


@pytest.mark.parametrize(
    ("chosen", "compact", "aligned"),
    [
        (gpus("a1", 1, 2), True, False),
        (gpus("a1", 2, 3), True, True),
        (gpus("a1", 0, 1, 3), True, True),
        (gpus("a1", 0) + gpus("a2", 0), False, False),
        (gpus("a1", 0, 1, 2, 3) + gpus("b1", 0, 1), True, True),
        (gpus("a1", 0, 1, 2, 3) + gpus("b1", 1, 2), True, False),
        (gpus("a1", 0, 1, 2) + gpus("b1", 0, 1, 2), False, False),
        (gpus("a1", 0, 1, 2, 3) + gpus("b1", 0) + gpus("a2", 0), False, False),
    ],
)
def test_compact_is_whole_servers_and_a_rest(
    chosen: tuple[Gpu, ...], compact: bool, aligned: bool
) -> None:
    assert is_compact(FOUR, chosen, aligned=False) is compact
    assert is_compact(FOUR, chosen, aligned=True) is aligned


# --- blocks ---------------------------------------------------------------------------


def blocks_of(mask: int, server: int) -> list[int]:
    """The number of free blocks by size, the largest first, told naively."""
    width = 1 << (server - 1).bit_length()
    counts = []
    while width:
        starts = range(0, server, width)
        whole = [range(start, start + width) for start in starts if start + width <= server]
        if server < width:
            whole = [range(server)]
        counts.append(sum(all(mask >> gpu & 1 for gpu in block) for block in whole))
        width //= 2
    return counts


def reached(mask: int, server: int) -> list[int]:
    """The number of blocks a mask reaches into by size, the largest first."""
    width = 1 << (server - 1).bit_length()
    counts = []
    while width:
        counts.append(len({gpu // width for gpu in range(server) if mask >> gpu & 1}))
        width //= 2
    return counts


@pytest.mark.parametrize("server", [1, 4, 6, 8])
def test_more_and_larger_free_blocks_are_a_larger_number(server: int) -> None:
    masks = range(1 << server)
    by_library = sorted(masks, key=lambda mask: (free_blocks(mask, server), mask))
    naively = sorted(masks, key=lambda mask: (blocks_of(mask, server), mask))
    assert by_library == naively


def assert_best(free: int, candidates: int, held: int, server: int, wanted: int) -> None:
    def key(mask: int) -> tuple[list[int], list[int]]:
        return reached(mask | held, server), [-n for n in blocks_of(free & ~mask, server)]

    indexes = [gpu for gpu in range(server) if candidates >> gpu & 1]
    best = min(key(mask_of(chosen)) for chosen in combinations(indexes, wanted))
    mask = choose_gpus(free, candidates, held, server, wanted)[1]
    assert mask.bit_count() == wanted
    assert not mask & ~candidates
    assert key(mask) == best


@pytest.mark.parametrize("server", [3, 4, 8])
def test_idle_gpus_are_chosen_best_exhaustively(server: int) -> None:
    for free in range(1, 1 << server):
        for wanted in range(1, free.bit_count() + 1):
            assert_best(free, free, 0, server, wanted)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data())
def test_kept_and_added_gpus_are_chosen_best(data: st.DataObject) -> None:
    server = data.draw(st.sampled_from([4, 5, 6, 7, 8]))
    use = data.draw(st.lists(st.sampled_from(["free", "own", "other"]), min_size=8, max_size=8))
    idle = mask_of([gpu for gpu in range(server) if use[gpu] == "free"])
    own = mask_of([gpu for gpu in range(server) if use[gpu] == "own"])
    for wanted in range(1, own.bit_count() + 1):  # shrink
        assert_best(idle | own, own, 0, server, wanted)
    for wanted in range(1, idle.bit_count() + 1):  # grow
        assert_best(idle, idle, own, server, wanted)


def test_what_a_shrinking_job_frees_merges_with_what_is_free() -> None:
    # The job has 2-5, 0-1 are idle: keeping 4-5 frees the block 0-3, keeping 2-3 does not.
    assert choose_gpus(0b111111, 0b111100, 0, 8, 2)[1] == 0b110000


def test_a_large_server_is_handled_within_bounded_work() -> None:
    free = (1 << 1024) - 1 - (1 << 511)
    mask = choose_gpus(free, free, 0, 1024, 512)[1]
    assert mask == ((1 << 512) - 1) << 512


def test_one_block() -> None:
    assert [fits_one_block(mask) for mask in (0b11, 0b110, 0b1011, 0b11100)] == [
        True,
        False,
        True,
        False,
    ]
    assert [buddy_width(n) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 8]
    assert list(set_bits(0b101001)) == [0, 3, 5]


# --- the pool -------------------------------------------------------------------------


def pool_of(free: dict[str, int], servers: list[tuple[str, int, str]]) -> GpuPool:
    topology = Topology.from_servers(servers)
    return GpuPool(topology, [free.get(server.server_id, 0) for server in topology.servers])


@pytest.mark.parametrize(
    ("wanted", "server", "mask"),
    [
        (1, "s1", 0b1),  # the single GPU, though s2 has fewer idle ones
        (2, "s2", 0b11),
        (4, "s1", 0b11110000),
        (5, "s1", 0b11110001),
    ],
)
def test_best_fit_breaks_the_smallest_block(wanted: int, server: str, mask: int) -> None:
    pool = pool_of({"s1": 0b11110001, "s2": 0b11}, [("s1", 8, ""), ("s2", 8, "")])
    found = pool.best_server(wanted, 0b11, aligned=False)
    assert found == (pool.topology.position[server], mask)


def test_equal_servers_are_chosen_in_the_fuller_rack() -> None:
    servers = [("a1", 4, "a"), ("a2", 4, "a"), ("b1", 4, "b"), ("b2", 4, "b")]
    pool = pool_of({"a1": 0b1111, "a2": 0b1111, "b1": 0b1111}, servers)
    assert pool.best_server(4, 0b1111, aligned=False) == (2, 0b1111)
    assert pool.best_server(4, 0b0011, aligned=False) == (0, 0b1111)
    assert pool.best_server(5, 0b1111, aligned=False) is None


def test_alignment_can_be_required() -> None:
    pool = pool_of({"s": 0b0110}, [("s", 4, "")])
    assert pool.best_server(2, 1, aligned=False) == (0, 0b0110)
    assert pool.best_server(2, 1, aligned=True) is None


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.data())
def test_a_pool_is_what_it_would_be_if_built_anew(data: st.DataObject) -> None:
    servers = [("s1", 4, "a"), ("s2", 4, "a"), ("s3", 3, "b"), ("s4", 4, "")]
    topology = Topology.from_servers(servers)
    pool = GpuPool(topology, list(topology.full))
    for _ in range(data.draw(st.integers(0, 8))):
        place = data.draw(st.integers(0, 3))
        mask = data.draw(st.integers(0, topology.full[place]))
        (pool.take if data.draw(st.booleans()) else pool.give)(place, mask)
    anew = GpuPool(topology, list(pool.free))
    assert (pool.idle, pool.idle_in_rack, pool.groups) == (
        anew.idle,
        anew.idle_in_rack,
        anew.groups,
    )
    assert pool.idle == sum(mask.bit_count() for mask in pool.free)


# --- fragmentation --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "ratio"),
    [
        ([], 0.0),
        (gpus("s1", 5), 0.0),
        (FOUR.gpus_of("a1"), 0.0),
        (gpus("s1", 0) + gpus("s2", 0), 1.0),  # no pair of two free GPUs
        (gpus("s1", 0, 1) + gpus("s2", 0, 1), 0.5),  # all pairs, no four
        (gpus("s1", *range(8)), 0.0),
        (gpus("s1", *range(4)) + gpus("s2", *range(4)), 1 / 3),  # all pairs, fours, no eight
    ],
)
def test_fragmentation_is_what_compaction_would_gain(free: tuple[Gpu, ...], ratio: float) -> None:
    servers = [("s1", 8, ""), ("s2", 8, ""), ("a1", 4, "")]
    assert fragmentation_ratio(Topology.from_servers(servers), free) == pytest.approx(ratio)


def test_one_idle_server_does_not_hide_that_the_rest_is_scattered() -> None:
    topology = Topology.from_servers([(f"s{i:02}", 8, "") for i in range(17)])
    scattered = [Gpu(f"s{i:02}", 0) for i in range(1, 17)]
    ratio = fragmentation_ratio(topology, [*topology.gpus_of("s00"), *scattered])
    assert ratio == pytest.approx(2 / 3)  # of each block size a third is usable


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=4))
def test_fragmentation_is_a_ratio_and_zero_when_packed(masks: list[int]) -> None:
    topology = Topology.from_servers([(f"s{i}", 8, "") for i in range(len(masks))])
    free = [Gpu(f"s{i}", gpu) for i, mask in enumerate(masks) for gpu in set_bits(mask)]
    assert 0 <= fragmentation_ratio(topology, free) <= 1
    packed = [Gpu(f"s{i // 8}", i % 8) for i in range(len(free))]
    assert fragmentation_ratio(topology, packed) == 0
