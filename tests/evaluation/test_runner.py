"""The runner: results are kept, gone on with, and do not fall with each other."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.support.cells import dies_for_edf, fails_for_edf, must_not_run

from resilin.evaluation.grid import cells, digest
from resilin.evaluation.runner import CELLS_FOLDER, run_cells
from resilin.evaluation.scenario import load

ROOT = Path(__file__).parents[2]

# Says which process runs its one cell, which never ends.
HELD = """
import sys
from pathlib import Path
from resilin.evaluation.grid import cells
from resilin.evaluation.runner import run_cells
from resilin.evaluation.scenario import load, shipped
from tests.support.cells import never_ends

if __name__ == "__main__":
    run_cells([next(cells(load(shipped()["smoke"])))], Path(sys.argv[1]), run=never_ends)
"""

pytestmark = pytest.mark.usefixtures("importable")


def files(out: Path) -> list[Path]:
    return sorted((out / CELLS_FOLDER).iterdir())


def test_what_is_there_is_not_run_again(tiny, tmp_path: Path) -> None:
    grid = list(cells(tiny))
    first = run_cells(grid, tmp_path)
    assert (len(first.runs), first.reused, first.failures) == (4, 0, ())
    assert list(first.runs) == grid
    counted: list[int] = []
    second = run_cells(grid, tmp_path, run=must_not_run, done=lambda: counted.append(1))
    assert (second.reused, second.runs) == (4, first.runs)
    assert len(counted) == 4


def test_an_interrupted_run_goes_on_where_it_was(tiny, tmp_path: Path) -> None:
    grid = list(cells(tiny))
    whole = run_cells(grid, tmp_path, jobs=2)
    torn, lost, *kept = files(tmp_path)
    torn.write_bytes(torn.read_bytes()[:100])
    lost.unlink()
    before = {file: file.stat().st_mtime_ns for file in kept}
    again = run_cells(grid, tmp_path)
    assert again.reused == 2
    assert {file: file.stat().st_mtime_ns for file in kept} == before
    assert [run.jobs for run in again.runs.values()] == [run.jobs for run in whole.runs.values()]


def test_runs_that_differ_in_names_only_are_one(write, tmp_path: Path) -> None:
    scenario = load(
        write(
            spec__resizeCosts=["none", {"name": "free"}], spec__policies=["edf"], spec__published=[]
        )
    )
    counted: list[int] = []
    outcome = run_cells(list(cells(scenario)), tmp_path, done=lambda: counted.append(1))
    assert len(outcome.runs) == 2
    assert len(files(tmp_path)) == 1
    assert len(counted) == 2


def test_a_run_that_fails_does_not_end_the_others(tiny, tmp_path: Path) -> None:
    grid = list(cells(tiny))
    outcome = run_cells(grid, tmp_path, jobs=2, run=fails_for_edf)
    assert [cell.policy for cell in outcome.runs] == ["elasticflow", "elasticflow"]
    assert [failure.cell.policy for failure in outcome.failures] == ["edf", "edf"]
    assert outcome.failures[0].message == "ArithmeticError: no way"
    mended = run_cells(grid, tmp_path)
    assert (mended.reused, len(mended.runs)) == (2, 4)


def test_a_process_that_dies_takes_only_its_own_run_along(tiny, tmp_path: Path) -> None:
    outcome = run_cells(list(cells(tiny)), tmp_path, jobs=2, run=dies_for_edf)
    assert [cell.policy for cell in outcome.runs] == ["elasticflow", "elasticflow"]
    assert [failure.cell.policy for failure in outcome.failures] == ["edf", "edf"]
    assert "died" in outcome.failures[0].message


def test_a_digest_hangs_on_all_that_a_result_does(write, tmp_path: Path) -> None:
    trace = tmp_path / "traces" / "trace.csv"
    trace.parent.mkdir()
    trace.write_text("one")
    source = {"file": "trace.csv", "format": "csv"}

    def of(**changes) -> str:
        given = {"spec__workloads__0__source": source, **changes}
        return digest(next(cells(load(write(**given)))), trace.parent)

    plain = of()
    assert of(metadata__name="other", spec__workloads__0__name="other") == plain
    others = {
        of(spec__seeds=[7]),
        of(spec__policies=["edf", "elasticflow"]),
        of(spec__resizeCosts=["modelled"]),
        of(spec__workloads__0__clusters=[{"servers": 3, "gpusPerServer": 8}]),
        of(spec__workloads__0__source={**source, "jobs": 5}),
    }
    assert len(others | {plain}) == 6


def test_no_process_outlives_a_caller_that_was_killed(tmp_path: Path) -> None:
    """Killed, it cannot end its processes; they would hold memory and wait for ever."""
    command = [sys.executable, "-c", HELD, str(tmp_path)]
    caller = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603 (our own command)
    assert caller.stdout is not None
    child = int(caller.stdout.readline())
    assert psutil.pid_exists(child)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(child).wait(timeout=60)
    assert not psutil.pid_exists(child)
