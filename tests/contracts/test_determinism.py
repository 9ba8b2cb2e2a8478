"""The same bytes in every process, whatever its hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).parent / "released" / "records.jsonl"

PROGRAM = """
import hashlib, sys
from pathlib import Path
from resilin.contracts.record import decode_record, encode_record
from resilin.contracts.schemas import documents, event_table

digest = hashlib.sha256()
for line in Path(sys.argv[1]).read_bytes().splitlines():
    digest.update(encode_record(decode_record(line)))
for name, text in documents().items():
    digest.update(name.encode() + text.encode())
digest.update(event_table().encode())
print(digest.hexdigest(), hash("seed"))
"""


def run_with(seed: str) -> tuple[str, str]:
    result = subprocess.run(  # noqa: S603 (our own program)
        [sys.executable, "-c", PROGRAM, str(GOLDEN)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    digest, seeded = result.stdout.split()
    return digest, seeded


def test_records_and_schemas_are_the_same_under_two_hash_seeds() -> None:
    (first, first_seed), (second, second_seed) = run_with("1"), run_with("2")
    assert first_seed != second_seed, "the seeds made no difference: the test shows nothing"
    assert first == second
