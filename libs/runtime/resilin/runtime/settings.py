"""Settings of a service process, from the environment: ``RESILIN_<FIELD>``."""

from __future__ import annotations

import os
import socket
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from resilin.contracts.base import Identifier

__all__ = ["ServiceSettings"]


class ServiceSettings(BaseSettings):
    """What a service process can be told; every field is an environment variable."""

    model_config = SettingsConfigDict(env_prefix="RESILIN_", extra="ignore", frozen=True)

    bootstrap: str = Field(default="127.0.0.1:9092", description="Kafka's address.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_cafile: str | None = Field(default=None, description="The authority's certificate.")
    cell: Identifier = Field(default="main", description="The cell this process serves.")
    partition: Annotated[int, Field(ge=0)] = Field(
        default=0, description="The cell's partition of every topic."
    )
    instance: Identifier = Field(
        default_factory=lambda: f"{socket.gethostname()}".replace("_", "-"),
        description="A name of its own for each process of a service; the host's name.",
    )
    http_host: str = Field(default="127.0.0.1", description="Where health and metrics listen.")
    http_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=0, description="0 takes any free port."
    )
    session_timeout_seconds: Annotated[float, Field(ge=1, le=300)] = Field(
        default=6.0, description="A leader not heard of for this long is replaced."
    )
    snapshot_every_records: Annotated[int, Field(ge=1)] = Field(
        default=20_000, description="Records between two snapshots of the folded state."
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    time_scale: Annotated[float, Field(gt=0, le=100_000)] = Field(
        default=1.0, description="Seconds of the cell a second of wall time, for trials."
    )
    time_origin_seconds: Annotated[float, Field(allow_inf_nan=False)] = Field(
        default=0.0, description="Wall time at which cell time and wall time agree."
    )
    archive_url: SecretStr | None = Field(
        default=None, description="PostgreSQL's address; without one nothing is archived."
    )
    per_job_metrics: bool = Field(
        default=True, description="Whether the metric-collector exposes series by job."
    )
    executor_backend: Literal["simulated", "local"] = Field(
        default="simulated", description="What carries out placements."
    )
    executor_server: Identifier = Field(
        default="local", description="With local workers: this machine's name in the cell."
    )
    executor_slots: Annotated[int, Field(ge=1, le=4096)] = Field(
        default_factory=lambda: os.cpu_count() or 1,
        description="With local workers: how many run at once; this machine's cores.",
    )
    executor_home: str = Field(
        default="resilin-home",
        description="With local workers: the folder of their checkpoints and output.",
    )
    executor_device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="With local workers: whether a slot is a share of CPU or a GPU."
    )
