"""Telemetry: what executors report at a high rate on `telemetry.steps`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from resilin.contracts.base import EventModel, Identifier

__all__ = ["StepSample"]


class StepSample(EventModel):
    """The mean throughput of a job over a stretch of steps of one generation."""

    job_id: Identifier
    generation: Annotated[int, Field(ge=1)]
    workers: Annotated[int, Field(ge=1)]
    iterations_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)]
