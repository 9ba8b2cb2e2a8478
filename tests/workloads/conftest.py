"""Small valid files of every format, a curve book to read them with, and the public data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resilin.workloads import CurveBook, built_in_curves, read_profiles

STEPS = "step_time,sync_time"


@pytest.fixture(scope="session")
def curves() -> CurveBook:
    return built_in_curves()


@pytest.fixture(scope="session")
def traces_folder() -> Path:
    """The folder with public traces; tests that need it are skipped where it is not set."""
    folder = os.environ.get("RESILIN_TRACES")
    if not folder:
        pytest.skip("RESILIN_TRACES names no folder with public traces")
    return Path(folder)


@pytest.fixture(scope="session")
def a100_curves(traces_folder: Path) -> CurveBook:
    return read_profiles(traces_folder / "elasticflow/profiles/throughputs_A100")


@pytest.fixture(scope="session")
def pollux_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like Pollux's ``models``: one model, measured on 1, 2, 4, 6, 8 and 24 GPUs."""
    folder = tmp_path_factory.mktemp("pollux") / "models"
    write_pollux_models(folder)
    return folder


def write_pollux_models(folder: Path) -> None:
    model = folder / "cifar10"
    model.mkdir(parents=True)
    (model / "placements.csv").write_text(
        f"placement,local_bsz,{STEPS}\n"
        "1,32,0.10,0.01\n"
        "1,64,0.20,0.01\n"
        "2,32,0.12,0.02\n"
        "2,64,0.22,0.02\n"
        "11,32,0.50,0.40\n"
        "4,32,0.14,0.04\n"
        "4,64,0.24,0.04\n"
        "24,32,0.18,0.08\n"
        "44,32,0.20,0.10\n"
    )
    (model / "scalability.csv").write_text(
        f"num_nodes,num_replicas,local_bsz,{STEPS}\n"
        "6,8,32,0.90,0.80\n"
        "2,8,32,0.60,0.50\n"
        "6,24,32,0.40,0.30\n"
        "8,24,32,0.70,0.60\n"
    )
    for batch, iterations in ((128, 1000), (256, 600)):
        (model / f"validation-{batch}.csv").write_text(
            f"progress,iteration,metric\n1.0,10,0.1\n2.5,{iterations},0.9\n"
        )
