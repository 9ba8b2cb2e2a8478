"""A model of iterations per second, for jobs and placements that nobody has measured.

One iteration of synchronous data-parallel training on ``k`` workers with global batch ``B``::

    compute     = fixed + per sample x B / k
    all-reduce  = 2 (k - 1) / k x bytes of gradients / bandwidth(locality)
    hidden      = min(OVERLAP x all-reduce, backward share of the compute time)
    synchronise = synchronisation x log2(k)
    time        = compute + all-reduce - hidden + synchronise

The all-reduce term is the volume that each worker sends in a bandwidth-optimal all-reduce
(Patarasuk and Yuan, JPDC 2009). ``synchronise`` stands for what grows with the workers but
not with the model's size: latencies of the collective, and waiting for the slowest worker.

Where the constants come from: parameter counts from the literature; bandwidths of a full
server from ElasticFlow §3.2 (NVLink 600 GB/s both ways, InfiniBand 200 GB/s); times fitted to
the A100 profiles published with ElasticFlow (six models, 97 points, 1 to 64 GPUs) and to two
figures in its §3.2: VGG16 with batch 256 reaches 76.07 % of linear scaling on 8 GPUs, and
ResNet50 with batch 256 is 2.17 times as fast on 8 GPUs of one server as on one GPU of each of
8 servers. The model is within 13 % of every profiled point, half of them within 2.5 %. The
spread locality rests on that one published ratio alone: take it as an order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from resilin.planning.curves import ThroughputCurve

__all__ = [
    "A100_SERVERS",
    "MODEL_COSTS",
    "Interconnect",
    "ModelCosts",
    "iteration_seconds",
    "predicted_curve",
]

BYTES_PER_PARAMETER = 4
"""Gradients are exchanged in single precision."""

OVERLAP = 0.5
"""Share of the all-reduce that can hide behind the backward pass."""

BACKWARD_SHARE = 2 / 3
"""Share of the per-sample time that is the backward pass: twice the forward one's work."""


@dataclass(frozen=True, slots=True)
class Interconnect:
    """How fast the workers of a job exchange gradients.

    Attributes:
        gpus_per_server: GPUs on each server, at least 1.
        intra_server_bytes_per_second: Bandwidth between workers of one server.
        inter_server_bytes_per_second: Bandwidth between servers whose GPUs all belong to the
            job, so that all network adapters work for it.
        lone_worker_bytes_per_second: Bandwidth between servers with one worker each.

    Raises:
        ValueError: If an attribute is not above 0 and finite.
    """

    gpus_per_server: int
    intra_server_bytes_per_second: float
    inter_server_bytes_per_second: float
    lone_worker_bytes_per_second: float

    def __post_init__(self) -> None:
        bandwidths = (
            self.intra_server_bytes_per_second,
            self.inter_server_bytes_per_second,
            self.lone_worker_bytes_per_second,
        )
        if self.gpus_per_server < 1 or not all(0 < value < math.inf for value in bandwidths):
            raise ValueError(f"GPUs and bandwidths must be finite and above 0, got {self}")

    def bytes_per_second(self, workers: int, workers_per_server: int) -> float:
        """Return the bandwidth of a job's slowest link.

        Args:
            workers: All workers of the job, at least 1.
            workers_per_server: How many of them fill a server before the next one is used,
                1 to ``gpus_per_server``. The last server may hold fewer, and is then the
                slowest. Between one worker and a full server the bandwidth grows with a power
                of the workers: the simplest curve through the two known ends.
        """
        if workers <= workers_per_server:
            return self.intra_server_bytes_per_second
        fewest = workers % workers_per_server or workers_per_server
        if fewest == 1:
            return self.lone_worker_bytes_per_second
        gain = self.inter_server_bytes_per_second / self.lone_worker_bytes_per_second
        share = math.log(fewest) / math.log(self.gpus_per_server)
        return float(self.lone_worker_bytes_per_second * gain**share)


A100_SERVERS = Interconnect(
    gpus_per_server=8,
    intra_server_bytes_per_second=300e9,
    inter_server_bytes_per_second=200e9,
    lone_worker_bytes_per_second=1.15e9,
)
"""ElasticFlow's testbed (§3.2, §6.1); the lone worker's bandwidth is fitted to its 2.17."""


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """What an iteration of one model costs on an A100.

    Attributes:
        parameters: Trained parameters.
        global_batches: Global batches that the times were fitted at.
        fixed_seconds: Compute time that does not depend on the batch.
        seconds_per_sample: Compute time for each sample of the local batch.
        synchronisation_seconds: Waiting added by each doubling of the workers.
    """

    parameters: float
    global_batches: tuple[int, ...]
    fixed_seconds: float
    seconds_per_sample: float
    synchronisation_seconds: float


MODEL_COSTS: Mapping[str, ModelCosts] = MappingProxyType(
    {
        # 110 million: Devlin et al., NAACL 2019 (base).
        "bert": ModelCosts(110e6, (64, 128), 0.0465, 0.00183, 0.00853),
        # 38 million: Amodei et al., ICML 2016 (the size of their depth comparison).
        "deepspeech2": ModelCosts(38e6, (32, 64), 0.0628, 0.0085, 0.0),
        # 124 million: Radford et al., 2019 (small, as released).
        "gpt2": ModelCosts(124e6, (128, 256), 0.017, 0.000911, 0.0061),
        # 23.8 million: Szegedy et al., CVPR 2016 (without the auxiliary classifier).
        "inception3": ModelCosts(23.8e6, (64, 128), 0.0252, 0.0028, 0.00823),
        # 25.6 million: He et al., CVPR 2016.
        "resnet50": ModelCosts(25.6e6, (64, 128, 256), 0.0134, 0.00206, 0.0052),
        # 138 million: Simonyan and Zisserman, ICLR 2015.
        "vgg16": ModelCosts(138e6, (64, 128, 256), 0.0221, 0.00285, 0.00137),
    }
)
"""The models and batches of ElasticFlow's evaluation (table 2)."""


def iteration_seconds(
    costs: ModelCosts,
    interconnect: Interconnect,
    *,
    global_batch: int,
    workers: int,
    workers_per_server: int,
) -> float:
    """Return the time of one iteration (the formula at the top of this module).

    Args:
        costs: The model's costs.
        interconnect: The servers and network.
        global_batch: Samples in an iteration, over all workers.
        workers: Workers, at least 1 and at most ``global_batch``.
        workers_per_server: How many of them fill a server before the next one is used: the
            GPUs of a server when packed, 1 when spread.

    Raises:
        ValueError: If there are fewer samples than workers, or no such packing.
    """
    if not 1 <= workers <= global_batch:
        raise ValueError(
            f"workers must be between 1 and the global batch of {global_batch}, got {workers}"
        )
    if not 1 <= workers_per_server <= interconnect.gpus_per_server:
        raise ValueError(
            f"workers per server must be between 1 and the {interconnect.gpus_per_server} GPUs of "
            f"a server, got {workers_per_server}"
        )
    per_sample = costs.seconds_per_sample * global_batch / workers
    volume = 2 * (workers - 1) / workers * costs.parameters * BYTES_PER_PARAMETER
    all_reduce = volume / interconnect.bytes_per_second(workers, workers_per_server)
    hidden = min(OVERLAP * all_reduce, BACKWARD_SHARE * per_sample)
    synchronise = costs.synchronisation_seconds * math.log2(workers)
    return costs.fixed_seconds + per_sample + all_reduce - hidden + synchronise


def predicted_curve(
    costs: ModelCosts,
    interconnect: Interconnect,
    *,
    global_batch: int,
    worker_counts: Iterable[int],
    workers_per_server: int,
) -> ThroughputCurve:
    """Return the predicted curve at the given worker counts, not cut at its peak.

    Counts above the global batch are left out: a worker needs a sample.

    Raises:
        ValueError: If no count is left, or there is no such packing.
    """
    return ThroughputCurve.from_mapping(
        {
            workers: 1
            / iteration_seconds(
                costs,
                interconnect,
                global_batch=global_batch,
                workers=workers,
                workers_per_server=workers_per_server,
            )
            for workers in worker_counts
            if workers <= global_batch
        }
    )
