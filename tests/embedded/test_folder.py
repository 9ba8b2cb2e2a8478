"""The folder of a cell at home: one process holds it, and what was settled stays."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from resilin.embedded import folder as module
from resilin.embedded.folder import Home, HomeBusyError, HomeSettings


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_what_is_settled_when_a_cell_is_new_stays(home: Home) -> None:
    first = home.settings(4)
    assert first.slots == 4
    assert home.settings(64) == first
    assert HomeSettings(**json.loads((home.path / "cell.json").read_text())) == first


def test_settings_that_are_damaged_are_loud(home: Home) -> None:
    home.settings(4)
    (home.path / "cell.json").write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        home.settings(4)


def test_nobody_runs_a_new_home(home: Home) -> None:
    assert home.running() is None


def test_who_holds_a_home_is_known_by_its_address(home: Home) -> None:
    with home.held():
        assert home.running() is None  # not up yet
        home.announce(8080)
        running = home.running()
        assert running is not None
        assert (running.pid, running.url) == (os.getpid(), "http://127.0.0.1:8080")
    assert home.running() is None
    assert not (home.path / "up.json").exists()


def test_a_home_is_held_by_one_process_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.05)
    with home.held():
        home.announce(8080)
        with pytest.raises(HomeBusyError, match="a cell runs in"), home.held():
            pass
        assert home.running() is not None
    with home.held():
        pass


def test_a_process_that_was_killed_holds_nothing_and_is_not_found(home: Home) -> None:
    with home.held():
        home.announce(8080)
        left = (home.path / "up.json").read_bytes()
    (home.path / "up.json").write_bytes(left)
    assert home.running() is None
    with home.held():
        assert home.running() is None  # not the one before


def test_a_look_at_a_home_does_not_keep_a_cell_from_starting(home: Home) -> None:
    # Whoever starts a cell asks all the time whether it is up.
    looking = threading.Event()

    def look() -> None:
        with home._lock():
            looking.set()
            done.wait(0.2)

    done = threading.Event()
    thread = threading.Thread(target=look)
    thread.start()
    looking.wait(30)
    with home.held():
        pass
    done.set()
    thread.join(30)


def test_a_note_that_cannot_be_read_names_nobody(home: Home) -> None:
    with home.held():
        (home.path / "up.json").write_text("{")
        assert home.running() is None
