"""Gradient noise scales out of Pollux's validation files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from resilin.workloads import WorkloadError, read_gradient_noise


def write(folder: Path, model: str, batch: int, rows: Sequence[tuple[int, float, float]]) -> None:
    """Write a validation file of (iteration, squared gradient, variance)."""
    (folder / model).mkdir(parents=True, exist_ok=True)
    lines = ["iteration,grad_sqr,grad_var", *(f"{n},{sqr},{var}" for n, sqr, var in rows)]
    (folder / model / f"validation-{batch}.csv").write_text("\n".join(lines) + "\n")


def test_noise_is_the_smallest_batch_times_variance_over_square(tmp_path: Path) -> None:
    write(tmp_path, "net", 32, [(50, 2.0, 4.0), (100, 1.0, 8.0)])
    (profile,) = read_gradient_noise(tmp_path).values()
    assert len(profile) == 16
    assert profile[0] == (0.0, pytest.approx(64.0))
    assert profile[8] == (0.5, pytest.approx(64.0)), "the first epoch ends at half of the work"
    assert profile[9] == (0.5625, pytest.approx(256.0))


def test_batches_are_averaged_and_counted_in_the_smallest(tmp_path: Path) -> None:
    write(tmp_path, "net", 32, [(100, 1.0, 1.0)])
    write(tmp_path, "net", 128, [(25, 1.0, 4.0)])
    assert read_gradient_noise(tmp_path)["net"][0] == (0.0, pytest.approx(64.0))


def test_a_vanished_gradient_tells_nothing(tmp_path: Path) -> None:
    write(tmp_path, "net", 32, [(50, 0.0, 1.0), (100, 1.0, 1.0)])
    profile = read_gradient_noise(tmp_path)["net"]
    assert profile[0] == (0.0, pytest.approx(32.0)), "as when it first is told"
    assert profile[1][0] == 0.625, "the next share after the first that tells"


def test_a_training_that_was_not_watched_has_none(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "validation-8.csv").write_text("iteration\n100\n")
    assert read_gradient_noise(tmp_path) == {}


def test_a_number_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    file = tmp_path / "net" / "validation-8.csv"
    file.write_text("iteration,grad_sqr,grad_var\n100,nan,1\n")
    with pytest.raises(WorkloadError) as caught:
        read_gradient_noise(tmp_path)
    assert (caught.value.line, caught.value.field) == (2, "grad_sqr")


def test_noise_grows_in_the_public_profiles(traces_folder: Path) -> None:
    profiles = read_gradient_noise(traces_folder / "pollux" / "models")
    assert sorted(profiles) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    assert all(profile[-1][1] > profile[0][1] for profile in profiles.values())
