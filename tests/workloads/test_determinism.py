"""The same arguments give the same trace whatever the hash seed of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import hashlib, sys
from resilin.workloads import built_in_curves, generate_preset, read_trace
curves = built_in_curves()
read = read_trace(sys.argv[1], "itp", curves=curves, seed=11)
made = generate_preset("one-day-128-gpus", seed=11, curves=curves, best_effort_share=0.3)
print(hashlib.sha256(repr((read, made)).encode()).hexdigest())
"""


def fingerprint(path: Path, hash_seed: str) -> str:
    return subprocess.run(  # noqa: S603  our own interpreter and script
        [sys.executable, "-c", SCRIPT, str(path)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_two_processes_agree(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{position * 7},{600 + position},{1 << position % 7}" for position in range(300)]
    path.write_text("\n".join(["submission_time,duration,num_gpu", *rows]))
    assert fingerprint(path, "1") == fingerprint(path, "4242")
