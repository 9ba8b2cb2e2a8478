from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from resilin.report.history import History, JobHistory
from resilin.report.plots import PlotsUnavailableError, write_plots

PNG = b"\x89PNG\r\n\x1a\n"


def check(paths: list[Path], folder: Path) -> None:
    assert paths == [folder / "gpus.png", folder / "jobs.png", folder / "slack.png"]
    for path in paths:
        data = path.read_bytes()
        assert data.startswith(PNG)
        assert data.endswith(b"IEND\xaeB`\x82")
        width, height = struct.unpack(">II", data[16:24])
        assert (width, height) == (1_650, 540)
        assert len(data) > 3_000


def test_three_plots_are_written(simulated: History, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet"
    check(write_plots(simulated, folder), folder)


def test_plots_of_nothing_say_so(tmp_path: Path) -> None:
    check(write_plots(History(), tmp_path), tmp_path)


def test_plots_of_one_job(
    make_history: Callable[..., History], make_job: Callable[..., JobHistory], tmp_path: Path
) -> None:
    check(write_plots(make_history([make_job()]), tmp_path), tmp_path)


def test_the_same_run_gives_the_same_bytes(simulated: History, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_plots(simulated, tmp_path / "a")]
    second = [path.read_bytes() for path in write_plots(simulated, tmp_path / "b")]
    assert first == second


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotsUnavailableError, match=r"resilin\[plots\]"):
        write_plots(History(), tmp_path / "plots")
    assert not (tmp_path / "plots").exists()
