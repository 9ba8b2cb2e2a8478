"""A service's process: what it is told, how it ends, and with which status."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.kernel.counter import Counter
from tests.support.live import ByHand, Listed, SharedLog, View

from resilin.runtime import main as module
from resilin.runtime.clock import WallClock
from resilin.runtime.main import run_service
from resilin.runtime.service import LiveService


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "configure_logs", lambda *_, **__: None)


def test_settings_that_make_no_sense_are_named_and_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RESILIN_PARTITION", "many")
    monkeypatch.setenv("RESILIN_SASL_PASSWORD", "hush")
    assert run_service(Counter()) == 2
    error = capsys.readouterr().err
    assert error.startswith("RESILIN_PARTITION: ")
    assert "hush" not in error


@pytest.mark.parametrize(("error", "status"), [(None, 0), (OSError("no broker"), 1)])
def test_the_status_says_whether_it_ended_in_good_order(
    error: Exception | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(module, "_run", run)
    assert run_service(Counter()) == status


def a_service(view: View | None = None) -> LiveService[Any]:
    return LiveService(
        Counter(),
        cell="main",
        instance="one",
        log=view or SharedLog().view(),
        election=ByHand(),
        clock=WallClock(),
        inputs=[Listed()],
    )


async def for_ever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("cancelled")


async def together(live: LiveService[Any], *background: Any) -> None:
    async with asyncio.timeout(30):
        await module._together(live, background)


def test_a_service_that_is_stopped_ends_what_goes_on_beside_it() -> None:
    async def story() -> None:
        live, ended = a_service(), list[str]()
        running = asyncio.create_task(together(live, for_ever(ended)))
        await live.ready.wait()
        live.stop()
        await running
        assert ended == ["cancelled"]

    asyncio.run(story())


def test_an_error_beside_a_service_ends_it() -> None:
    async def story() -> None:
        live = a_service()

        async def fails() -> None:
            await live.ready.wait()
            raise OSError("beside")

        with pytest.raises(OSError, match="beside"):
            await together(live, fails())
        assert live._election.stood_back  # type: ignore[attr-defined]  # by hand

    asyncio.run(story())


def test_a_future_that_fails_beside_a_service_ends_it() -> None:
    # So telemetry tells that it has ended.
    async def story() -> None:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, failed.set_exception, OSError("telemetry"))
        with pytest.raises(OSError, match="telemetry"):
            await together(a_service(), failed)

    asyncio.run(story())


def test_what_ends_by_itself_beside_a_service_is_an_error() -> None:
    async def story() -> None:
        with pytest.raises(RuntimeError, match="by itself"):
            await together(a_service(), asyncio.sleep(0.01))

    asyncio.run(story())


def test_an_error_of_the_service_ends_what_goes_on_beside_it() -> None:
    async def story() -> None:
        view, ended = SharedLog().view(), list[str]()
        view.append_error = OSError("no broker")
        with pytest.raises(OSError, match="no broker"):
            await together(a_service(view), for_ever(ended))
        assert ended == ["cancelled"]

    asyncio.run(story())


def test_health_shows_where_a_service_stands() -> None:
    async def story() -> None:
        live = a_service()
        assert module._standing(live)["ready"] is False
        running = asyncio.create_task(together(live))
        await live.ready.wait()
        while not live.host.may_append:
            await asyncio.sleep(0.001)
        standing = module._standing(live)
        live.stop()
        await running
        assert json.loads(json.dumps(standing)) == {
            "ready": True,
            "service": "counter",
            "role": "leading",
            "leading": True,
            "epoch": 1,
            "offset": 0,
        }

    asyncio.run(story())
