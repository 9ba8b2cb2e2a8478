"""The lease, the checkpoints' manifests, the program: all that is on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from resilin.elastic.checkpoints import (
    discard_older,
    intact,
    manifest_path,
    manifests,
    newest_step,
    seal,
    state_path,
)
from resilin.elastic.files import write_atomically
from resilin.elastic.lease import Lease
from resilin.elastic.program import JobProgram, LeaderAddress


def test_one_candidate_holds_the_lease_until_it_expires(tmp_path: Path) -> None:
    first, second = Lease(tmp_path, "one", 2.0), Lease(tmp_path, "two", 2.0)
    assert first.acquire(100.0)
    assert not second.acquire(101.9)
    assert first.renew(101.9)
    assert not second.acquire(103.8)
    assert second.acquire(104.0)
    assert (first.term, second.term) == (1, 2)
    assert not first.renew(104.1), "the first is fenced"
    assert second.renew(104.1)


def test_a_lease_that_was_released_is_free_at_once(tmp_path: Path) -> None:
    first, second = Lease(tmp_path, "one", 60.0), Lease(tmp_path, "two", 60.0)
    assert first.acquire(100.0)
    second.release()
    assert not second.acquire(100.1), "only the holder can release it"
    first.release()
    assert second.acquire(100.2)
    assert second.term == 2


def test_of_many_candidates_one_gets_the_lease(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from resilin.elastic.lease import Lease\n"
        "print(Lease(Path(sys.argv[1]), sys.argv[2], 60.0).acquire(100.0))"
    )
    candidates = [
        subprocess.Popen(  # noqa: S603 (this interpreter, this code)
            [sys.executable, "-c", code, str(tmp_path), str(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    answers = [candidate.communicate()[0].strip() for candidate in candidates]
    assert sorted(answers) == ["False", "False", "False", "True"]


def checkpoint(folder: Path, step: int) -> None:
    folder.mkdir(exist_ok=True)
    write_atomically(state_path(folder, step), b"state of %d" % step)
    seal(folder, step)


def test_the_newest_whole_checkpoint_counts_and_older_ones_go(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        checkpoint(tmp_path, step)
    assert newest_step(tmp_path) == 30
    discard_older(tmp_path, keep=2)
    assert [manifest.step for manifest in manifests(tmp_path)] == [30, 20]
    assert not state_path(tmp_path, 10).exists()


@pytest.mark.parametrize("damage", ["shorter", "other bytes", "no state", "no manifest", "words"])
def test_a_torn_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20)
    state, manifest = state_path(tmp_path, 20), manifest_path(tmp_path, 20)
    match damage:
        case "shorter":
            state.write_bytes(b"state")
        case "other bytes":
            state.write_bytes(b"STATE of 20")
        case "no state":
            state.unlink()
        case "no manifest":
            manifest.unlink()
        case "words":
            manifest.write_text("not a manifest")
    assert newest_step(tmp_path) == 10


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert newest_step(tmp_path / "nowhere") is None
    checkpoint(tmp_path, 5)
    (only,) = manifests(tmp_path)
    assert intact(tmp_path, only)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")  # type: ignore[arg-type]  # (on purpose)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_program_is_read_as_it_was_written_and_checked(tmp_path: Path) -> None:
    program = JobProgram(
        job_id="digits", entrypoint="train.py:Digits", global_batch=64, hyperparameters={"w": 1}
    )
    program.save(tmp_path / "job")
    assert JobProgram.load(tmp_path / "job") == program
    for wrong in (
        {"entrypoint": "train.py"},
        {"global_batch": 0},
        {"data_mode": "some"},
        {"colour": "red"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            JobProgram.model_validate(program.model_dump() | wrong)


def test_an_address_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    assert LeaderAddress.load(tmp_path) is None
    (tmp_path / "leader.json").write_text(json.dumps({"host": "x"}))
    assert LeaderAddress.load(tmp_path) is None
    LeaderAddress(host="127.0.0.1", port=5, pid=1, term=2).save(tmp_path)
    found = LeaderAddress.load(tmp_path)
    assert found is not None
    assert (found.port, found.term) == (5, 2)


@pytest.mark.parametrize(
    "module", ["control", "program", "checkpoints", "leader_state", "leader", "local", "api"]
)
def test_what_the_leader_and_the_agent_import_needs_no_pytorch(module: str) -> None:
    code = f"import sys, resilin.elastic.{module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run(  # noqa: S603 (this interpreter, this code)
        [sys.executable, "-c", code], check=False
    )
    assert done.returncode == 0
