"""Goodput: throughput times statistical efficiency, so that batch sizes can be compared.

A larger global batch trains on more samples a second, but a sample of it is worth less: the
gradient is averaged over more of them than its noise needs. With the gradient noise scale
``phi`` (in samples) and the submitted batch ``M0``, an iteration of batch ``M`` is worth::

    M / M0 x (phi + M0) / (phi + M)      iterations of batch M0

Source: McCandlish et al., An Empirical Model of Large-Batch Training (2018), equation 2.7;
Pollux (OSDI 2021) §3.1, equation 7; FaPES §5.
"""

from __future__ import annotations

__all__ = ["iteration_worth"]


def iteration_worth(batch: int, submitted_batch: int, gradient_noise_scale: float) -> float:
    """Return how many iterations of the submitted batch one of ``batch`` is worth.

    Args:
        batch: The global batch, in samples.
        submitted_batch: The batch that the job's work is counted in.
        gradient_noise_scale: In samples; 0 makes a larger batch worth no more.
    """
    if batch == submitted_batch:
        return 1.0
    return (
        batch
        / submitted_batch
        * (gradient_noise_scale + submitted_batch)
        / (gradient_noise_scale + batch)
    )
