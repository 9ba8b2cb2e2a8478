"""A live cell on one machine without containers: a broker, its topics, the seven services.

``python -m resilin.runtime.local_cell DIRECTORY`` runs until interrupted. A process that ends
is started again, as an orchestrator would. ``RESILIN_*`` settings are handed on to services.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from resilin.contracts.topics import SERVICES
from resilin.eventlog.kafka import KafkaConnection
from resilin.runtime.create_topics import create_topics
from resilin.runtime.local_broker import DiesWith, LocalBroker, LocalBrokerError

__all__ = ["FIRST_HTTP_PORT", "main"]

FIRST_HTTP_PORT = 8081
_RESTART_SECONDS = 1.0
_STOP_SECONDS = 20.0


async def _supervise(service: str, environment: dict[str, str], output: Path) -> None:
    """Keep one service running until cancelled, then end it in good order."""
    while True:
        with output.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"resilin.{service.replace('-', '_')}",
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=DiesWith(os.getpid()),
            )
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
                    raise
            process.kill()
            raise
        sys.stderr.write(f"{service} ended with status {status}; see {output}\n")
        await asyncio.sleep(_RESTART_SECONDS)


async def _run(broker: LocalBroker, directory: Path) -> None:
    await create_topics(KafkaConnection(broker.bootstrap))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # One origin for all, for a cell whose time is told to run faster.
    origin = os.environ.get("RESILIN_TIME_ORIGIN_SECONDS", str(time.time()))
    tasks = []
    for place, service in enumerate(SERVICES):
        environment = os.environ | {
            "RESILIN_BOOTSTRAP": broker.bootstrap,
            "RESILIN_INSTANCE": f"{service}-0",
            "RESILIN_HTTP_PORT": str(FIRST_HTTP_PORT + place),
            "RESILIN_TIME_ORIGIN_SECONDS": origin,
        }
        output = directory / f"{service}.output"
        tasks.append(asyncio.create_task(_supervise(service, environment, output)))
    last = FIRST_HTTP_PORT + len(SERVICES) - 1
    sys.stderr.write(
        f"Kafka at {broker.bootstrap}; health and metrics of the services at"
        f" http://127.0.0.1:{FIRST_HTTP_PORT} to {last}; their output in {directory}\n"
        f"Next: resilin list --bootstrap {broker.bootstrap}\n"
    )
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cell in the foreground until interrupted; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m resilin.runtime.local_cell",
        description="Run a Kafka broker and the seven services until interrupted.",
    )
    parser.add_argument("directory", type=Path, help="where everything is kept")
    parser.add_argument("--port", type=int, default=9092, help="the broker's port (%(default)s)")
    options = parser.parse_args(arguments)
    directory: Path = options.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    broker = LocalBroker(directory / "kafka", port=options.port)
    try:
        broker.start()
        asyncio.run(_run(broker, directory))
    except LocalBrokerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
