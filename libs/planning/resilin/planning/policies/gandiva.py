"""Gandiva: introspective scheduling; time-slicing in rounds, so that nobody waits long.

Source: Xiao et al., Gandiva: Introspective Cluster Scheduling for Deep Learning (OSDI 2018)
§3.2 and §4.1. A baseline of ElasticFlow §6.1: neither elastic nor aware of deadlines.

::

    every job comes in at once (over-subscription); at the end of each slice of a minute
        those that wait go first, who waits longest before others
        then those that ran, who started last before others
        each gets the GPUs that it asked for, if they are still free

ElasticFlow's authors report far fewer deadlines met by Gandiva than this meets (47 of 195
against 89). Their simulator binds each job to a set of servers for jobs of its size; when a
size is to give up some GPUs it gives up as many sets of servers, so that small jobs crowd
onto few servers while others idle. The paper asks for no such thing.

What was simplified: servers are not set apart by job size (placement packs all sizes into
one buddy tree); two jobs never share one GPU, so packing by measured utilisation and its
undoing are left out; migration for locality is the placement service's; growing into idle
GPUs is left out, as in ElasticFlow's evaluation.
"""

from __future__ import annotations

from resilin.planning.policies.fixed_size import FixedSize, round_plan
from resilin.planning.policies.policy import AllocationPlan
from resilin.planning.view import ClusterView, JobView

__all__ = ["Gandiva"]

SLICE_SECONDS = 60.0


class Gandiva(FixedSize):
    """Round robin over all jobs."""

    name = "gandiva"

    def plan(self, view: ClusterView) -> AllocationPlan:
        """Give the next slice to those that had none for longest."""
        return round_plan(view, sorted(view.jobs, key=_turn), SLICE_SECONDS)


def _turn(job: JobView) -> tuple[bool, float, int]:
    running = job.workers > 0
    return running, -job.since_seconds if running else job.since_seconds, job.order
