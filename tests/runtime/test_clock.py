"""Cell time on the wall: the same, or so many times as fast."""

from __future__ import annotations

import asyncio
import time

import pytest

from resilin.runtime.clock import WallClock


def test_time_is_the_walls_unless_told_otherwise() -> None:
    before = time.time()
    assert before <= WallClock().now_seconds() <= time.time()
    assert WallClock().wall_seconds(7.0) == 7.0


def test_scaled_time_agrees_with_the_wall_at_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock(scale=60.0, origin_seconds=1_000.0)
    for wall, cell in [(1_000.0, 1_000.0), (1_001.0, 1_060.0), (1_010.0, 1_600.0)]:
        monkeypatch.setattr(time, "time", lambda wall=wall: wall)
        assert clock.now_seconds() == cell
    assert clock.wall_seconds(60.0) == 1.0


def test_a_moment_is_waited_for_and_never_met_too_early() -> None:
    async def story() -> None:
        clock = WallClock(scale=1_000.0, origin_seconds=time.time())
        for _ in range(5):
            moment = clock.now_seconds() + 3.0
            await clock.sleep_until(moment)
            assert clock.now_seconds() >= moment
        await clock.sleep_until(0.0)  # long past

    asyncio.run(story())


def test_a_wall_clock_that_jumps_ahead_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # A laptop that slept: its monotonic time stood still, its wall time did not.
    wall, slept = [1_000.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        wall[0] += 3_600.0

    monkeypatch.setattr(time, "time", lambda: wall[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(WallClock().sleep_until(1_000.0 + 3_000.0))
    assert slept == [1.0]
