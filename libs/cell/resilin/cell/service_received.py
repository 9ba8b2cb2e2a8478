"""What a job has had of the cluster so far: GPU time, runs and waits.

Schedulers that know nothing of a job's length order jobs by this (Tiresias' two-dimensional
attained service is :attr:`ServiceReceived.gpu_seconds`). Time counts while a job holds its
place on GPUs, whether it trains there or stands still for a change: others cannot have them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ServiceReceived"]


@dataclass(slots=True)
class ServiceReceived:
    """A job's account, kept up to the last change of its GPUs.

    Attributes:
        workers: GPUs that it has since then.
        counted_at_seconds: The last change.
        gpu_seconds: GPU time up to there.
        seconds: Time with GPUs up to there.
        since_seconds: Since when it has had, or lacked, GPUs without a break.
        gpu_seconds_before: GPU time before that.
        waited_seconds: How long it waited before the present run, or the one before.
        preemptions: How often it lost all its GPUs.
    """

    workers: int = 0
    counted_at_seconds: float = 0.0
    gpu_seconds: float = 0.0
    seconds: float = 0.0
    since_seconds: float = 0.0
    gpu_seconds_before: float = 0.0
    waited_seconds: float = 0.0
    preemptions: int = 0

    def gpu_seconds_at(self, now_seconds: float) -> float:
        """Return the GPU time up to a moment after the last change."""
        return self.gpu_seconds + self.workers * max(0.0, now_seconds - self.counted_at_seconds)

    def seconds_at(self, now_seconds: float) -> float:
        """Return the time with GPUs up to a moment after the last change."""
        if not self.workers:
            return self.seconds
        return self.seconds + max(0.0, now_seconds - self.counted_at_seconds)

    def change(self, workers: int, now_seconds: float) -> None:
        """Note that the job has so many GPUs from now on."""
        self.gpu_seconds = self.gpu_seconds_at(now_seconds)
        self.seconds = self.seconds_at(now_seconds)
        self.counted_at_seconds = now_seconds
        if (workers > 0) != (self.workers > 0):
            if workers:
                self.waited_seconds = max(0.0, now_seconds - self.since_seconds)
            else:
                self.preemptions += 1
            self.since_seconds = now_seconds
            self.gpu_seconds_before = self.gpu_seconds
        self.workers = workers
