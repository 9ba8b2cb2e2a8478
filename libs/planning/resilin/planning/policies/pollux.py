"""Pollux: allocations and batch sizes together, by goodput, with a population search.

Source: Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
Learning (OSDI 2021) §3 and §4.2. A baseline of ElasticFlow §6.1 and FaPES §6.

::

    goodput of a job on k GPUs = the highest, over batches M, of
        throughput(k, M) x statistical efficiency(M)
    speedup(k) = goodput(k) / goodput on an equal share of the GPUs
        x (T - R d) / (T + d)  if its GPUs change: it is T old, had R changes, each stops it
                               for d seconds
    every minute: search for the allocation with the best harmonic mean of speedups;
        a population starts from what is and from a greedy guess; each round of the search,
        allocations are changed in a job, crossed, cut down to the GPUs there are, and the
        best survive
    every job takes the batch of its highest goodput, and scales its learning rate by the
        efficiency gained (AdaScale)

Efficiency rests on the gradient noise scale (:mod:`resilin.planning.goodput`); until it has
been measured a job keeps the batch that it came with.

What was simplified: throughput is known at the batches and sizes that curves were imported
for, where Pollux fits a model to any batch and placement while a job runs; allocations are
counts, and placement keeps jobs together by itself (so no interference to avoid); a job
without GPUs counts as a hundredth of its equal share, which the harmonic mean needs to be
above 0; the search is seeded by the moment and the jobs, so it can be repeated.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from resilin.planning.goodput import iteration_worth
from resilin.planning.number_stream import NumberStream
from resilin.planning.policies.fixed_size import kept
from resilin.planning.policies.policy import AllocationPlan, WithoutPromises
from resilin.planning.view import ClusterView, JobView

__all__ = ["Pollux"]

ROUND_SECONDS = 60.0
POPULATION = 20
PATIENCE = 5
"""The search ends after so many generations that found nothing better."""

WITHOUT_GPUS = 0.01
"""The speedup that a job without GPUs counts as."""

LEAST_GAIN = 1.05
"""A batch is changed for five per cent of goodput or more: each change is a record."""


@dataclass(frozen=True, slots=True)
class _Choices:
    """What one job may have: sizes from 0 up, each with its batch and what it costs.

    The cost is one over the speedup; the best harmonic mean has the least sum of these.
    """

    job: JobView
    sizes: tuple[int, ...]
    batches: tuple[int, ...]
    costs: tuple[float, ...]


class Pollux(WithoutPromises):
    """Maximises the harmonic mean of the jobs' speedups."""

    name = "pollux"
    adapts_batches = True

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Search for allocations when the round is over; else let everything be."""
        if not view.jobs:
            return AllocationPlan({})
        if view.due:
            choices = [_choices(view, job) for job in view.jobs]
            best = _search(view, choices)
            workers = {c.job.job_id: c.sizes[n] for c, n in zip(choices, best, strict=True)}
            batches = {c.job.job_id: c.batches[n] for c, n in zip(choices, best, strict=True)}
            ends = view.now_seconds + ROUND_SECONDS if any(workers.values()) else None
        else:
            workers = kept(view)
            batches = {job.job_id: job.global_batch for job in view.jobs}
            ends = view.due_seconds
        factors = {
            job.job_id: iteration_worth(
                batches[job.job_id], job.requested_batch, job.gradient_noise_scale or 0.0
            )
            for job in view.jobs
        }
        return AllocationPlan(
            workers,
            look_again_seconds=ends,
            global_batches=batches,
            learning_rate_factors=factors,
        )


# --- goodput and speedup -------------------------------------------------------------------


def _choices(view: ClusterView, job: JobView) -> _Choices:
    goodputs = _goodputs(job)
    sizes = tuple(goodputs)
    share = view.gpus // len(view.jobs)
    fair = max((size for size in sizes if size <= share), default=sizes[0])
    costs = [1 / WITHOUT_GPUS]
    for size in sizes:
        speedup = goodputs[size][0] / goodputs[fair][0]
        if job.workers and size != job.workers:
            speedup *= _after_change(view, job, size)
        costs.append(1 / max(speedup, WITHOUT_GPUS))
    batches = (job.global_batch, *(goodputs[size][1] for size in sizes))
    return _Choices(job, (0, *sizes), batches, tuple(costs))


def _goodputs(job: JobView) -> dict[int, tuple[float, int]]:
    """Return the highest goodput by size, and the batch that it is reached with."""
    tables = job.batch_tables
    if job.gradient_noise_scale is None or not tables:
        rate_at = job.table.rate_at
        return {size: (rate_at[size], job.global_batch) for size in job.table.sizes}
    found: dict[int, tuple[float, int]] = {}
    in_force: dict[int, float] = {}
    for batch, table in tables:
        worth = iteration_worth(batch, job.requested_batch, job.gradient_noise_scale)
        for size in table.sizes:
            goodput = table.rate_at[size] * worth
            if batch == job.global_batch:
                in_force[size] = goodput
            if goodput > found.get(size, (0.0, 0))[0]:
                found[size] = goodput, batch
    for size, goodput in in_force.items():
        if goodput * LEAST_GAIN >= found[size][0]:
            found[size] = goodput, job.global_batch
    return dict(sorted(found.items()))


def _after_change(view: ClusterView, job: JobView, size: int) -> float:
    """Return what is left of a speedup if the job's GPUs change, by how often they have."""
    stop = job.table.stop_at[job.table.floor(size) or job.table.sizes[0]]
    age = view.now_seconds - job.submitted_at_seconds
    if stop == 0:
        return 1.0
    return max(0.0, (age - job.generation * stop) / (age + stop))


# --- the search ----------------------------------------------------------------------------

_Allocation = list[int]
"""For each job, the position of its choice."""


def _search(view: ClusterView, choices: list[_Choices]) -> _Allocation:
    """Return the best allocation that a population comes to."""
    everything = [min(range(len(c.costs)), key=c.costs.__getitem__) for c in choices]
    if sum(c.sizes[n] for c, n in zip(choices, everything, strict=True)) <= view.gpus:
        return everything  # nobody stands in anybody's way
    chance = NumberStream(int(view.now_seconds * 1000) * 1_000_003 + len(choices))
    population = [_greedy(view, choices), _as_it_is(view, choices)]
    while len(population) < POPULATION:
        population.append(_changed(view, choices, population[len(population) % 2], chance))
    ranked = _ranked(choices, population)
    unimproved = 0
    while unimproved < PATIENCE:
        best = ranked[0][0]
        parents = [allocation for _, allocation in ranked]
        for allocation in parents:
            other = parents[chance.below(len(parents))]
            crossed = [pair[chance.below(2)] for pair in zip(allocation, other, strict=True)]
            _cut_down(view, choices, crossed, chance)
            parents = [*parents, _changed(view, choices, crossed, chance)]
        ranked = _ranked(choices, parents)[:POPULATION]
        unimproved = 0 if ranked[0][0] < best else unimproved + 1
    return ranked[0][1]


def _ranked(
    choices: list[_Choices], population: list[_Allocation]
) -> list[tuple[float, _Allocation]]:
    """Sort by cost; equals by their choices, so that no order of arrival matters."""
    costs = [choice.costs for choice in choices]
    rated = {
        tuple(allocation): sum(cost[n] for cost, n in zip(costs, allocation, strict=True))
        for allocation in population
    }
    return sorted((cost, list(allocation)) for allocation, cost in rated.items())


def _greedy(view: ClusterView, choices: list[_Choices]) -> _Allocation:
    """Take steps up by the cost that they save per GPU."""
    allocation = [0] * len(choices)
    left = view.gpus
    queue: list[tuple[float, int, int]] = []

    def offer(number: int) -> None:
        choice, at = choices[number], allocation[number]
        steps = [
            ((choice.costs[n] - choice.costs[at]) / (choice.sizes[n] - choice.sizes[at]), number, n)
            for n in range(at + 1, len(choice.sizes))
            if choice.costs[n] < choice.costs[at] and choice.sizes[n] - choice.sizes[at] <= left
        ]
        if steps:
            heapq.heappush(queue, min(steps))

    for number in range(len(choices)):
        offer(number)
    while queue:
        _, number, step = heapq.heappop(queue)
        sizes = choices[number].sizes
        added = sizes[step] - sizes[allocation[number]]
        if added <= left:
            left -= added
            allocation[number] = step
        offer(number)
    return allocation


def _as_it_is(view: ClusterView, choices: list[_Choices]) -> _Allocation:
    """Return the allocation in force, as far as it still fits."""
    workers = kept(view)
    return [
        choice.sizes.index(count) if (count := workers[choice.job.job_id]) in choice.sizes else 0
        for choice in choices
    ]


def _changed(
    view: ClusterView, choices: list[_Choices], allocation: _Allocation, chance: NumberStream
) -> _Allocation:
    """Return an allocation with another choice for one job, cut down to the GPUs."""
    changed = allocation.copy()
    number = chance.below(len(choices))
    changed[number] = chance.below(len(choices[number].sizes))
    _cut_down(view, choices, changed, chance)
    return changed


def _cut_down(
    view: ClusterView, choices: list[_Choices], allocation: _Allocation, chance: NumberStream
) -> None:
    """Take jobs down a size, at random, until the GPUs are enough."""
    used = sum(choice.sizes[n] for choice, n in zip(choices, allocation, strict=True))
    while used > view.gpus:
        number = chance.below(len(choices))
        at = allocation[number]
        if at:
            sizes = choices[number].sizes
            used -= sizes[at] - sizes[at - 1]
            allocation[number] = at - 1
