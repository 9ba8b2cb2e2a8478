"""Services killed, frozen and woken, the broker restarted: nothing lost, nothing done twice.

``make chaos`` does the same a hundred times over.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.chaos import run


def test_a_cell_survives_kills_zombies_and_a_restart_of_its_broker(tmp_path: Path) -> None:
    outcome = run(kills=10, seed=1, directory=tmp_path)
    assert outcome.problems == []
    assert outcome.broker_restarts == 1
    assert outcome.kills + outcome.zombies == 10
