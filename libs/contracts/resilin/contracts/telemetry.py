"""Telemetry: what executors report at a high rate on `telemetry.steps`.

A sample may come twice and must then count once, so it carries its place in the sequence of
its generation's samples; :meth:`StepSample.follows` is the rule.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from resilin.contracts.base import EventModel, Identifier, Seconds, Timestamp

__all__ = ["StepSample", "WorkerSample"]


class WorkerSample(EventModel):
    """How one worker did over the stretch of a sample, in means over its steps.

    In synchronous training all workers' steps take equally long, so only the time before
    the all-reduce tells a slow worker from one that waits.
    """

    server_id: Identifier
    gpu_index: Annotated[int, Field(ge=0)]
    step_seconds: Seconds
    compute_seconds: Seconds = Field(description="Before the all-reduce.")


class StepSample(EventModel):
    """The mean throughput of a job over a stretch of steps of one generation."""

    job_id: Identifier
    generation: Annotated[int, Field(ge=1)]
    workers: Annotated[int, Field(ge=1)]
    iterations_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    sequence: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Increases over a generation's samples; a repeat has the same."
    )
    ended_at_seconds: Timestamp | None = Field(
        default=None, description="When the stretch ended, by the clock of the node."
    )
    seconds: Seconds | None = Field(
        default=None,
        description="How long the stretch was; none where the throughput is exact (simulated).",
    )
    worker_samples: tuple[WorkerSample, ...] = ()
    gradient_noise_scale: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="In samples, where the workers measure it."
    )

    @property
    def exact(self) -> bool:
        """Whether the throughput is known and not measured, so that one sample tells all."""
        return self.seconds is None

    def follows(self, last: StepSample | None) -> bool:
        """Say whether this sample is news after the job's last one.

        It is not if it is of an older generation, or a repeat. Samples without a place in
        their generation are all news.
        """
        if last is None or self.generation != last.generation:
            return last is None or self.generation > last.generation
        return self.sequence is None or last.sequence is None or self.sequence > last.sequence
