"""The seven services as real processes on a real broker, to be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resilin.contracts.topics import SERVICES
from resilin.runtime.local_broker import DiesWith, free_ports

__all__ = ["LiveServices", "ServiceInstance", "services_running"]

READY_SECONDS = 90.0


@dataclass
class ServiceInstance:
    """One process of one service."""

    service: str
    name: str
    environment: dict[str, str]
    output: Path
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    starts: int = 0

    def start(self) -> None:
        (self.port,) = free_ports(1)
        self.starts += 1
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 (this project's own services)
                [sys.executable, "-m", f"resilin.{self.service.replace('-', '_')}"],
                env=self.environment
                | {"RESILIN_HTTP_PORT": str(self.port), "RESILIN_INSTANCE": self.name},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                preexec_fn=DiesWith(os.getpid()),
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)

    def standing(self) -> dict[str, Any] | None:
        """What /readyz says, whatever its status; None if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as page:
                return dict(json.load(page))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            return None

    def ready(self) -> bool:
        """Whether it has folded the log."""
        standing = self.standing() if self.running else None
        return standing is not None and bool(standing["ready"])

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as page:
            return str(page.read().decode())

    def tail(self) -> str:
        return self.output.read_text(errors="replace")[-3000:] if self.output.exists() else ""


@dataclass
class LiveServices:
    """All processes of a cell."""

    instances: list[ServiceInstance] = field(default_factory=list)

    def of(self, service: str) -> list[ServiceInstance]:
        return [each for each in self.instances if each.service == service]

    def leader(self, service: str) -> ServiceInstance | None:
        for instance in self.of(service):
            standing = instance.standing() if instance.running else None
            if standing is not None and standing["leading"]:
                return instance
        return None

    def wait_for_leaders(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every service has a leader."""
        until = time.monotonic() + seconds
        for service in dict.fromkeys(each.service for each in self.instances):
            while self.leader(service) is None:
                for instance in self.of(service):
                    assert instance.running, f"{instance.name} ended:\n{instance.tail()}"
                assert time.monotonic() < until, (
                    f"no leader of {service}:\n" + self.of(service)[0].tail()
                )
                time.sleep(0.1)

    def stop(self) -> None:
        """Ask all to end in good order."""
        for instance in self.instances:
            instance.signal(signal.SIGCONT)
            instance.signal(signal.SIGTERM)
        for instance in self.instances:
            if instance.process is not None:
                try:
                    instance.process.wait(20)
                except subprocess.TimeoutExpired:
                    instance.kill()


@contextmanager
def services_running(
    bootstrap: str,
    directory: Path,
    *,
    cell: str,
    partition: int,
    instances: int = 1,
    only: Sequence[str] = SERVICES,
    **settings: object,
) -> Iterator[LiveServices]:
    """Start every service (or only some), so often; stop what still runs at the end."""
    environment = {
        **os.environ,
        "RESILIN_BOOTSTRAP": bootstrap,
        "RESILIN_CELL": cell,
        "RESILIN_PARTITION": str(partition),
        "RESILIN_SESSION_TIMEOUT_SECONDS": "2",
        **{f"RESILIN_{name.upper()}": str(value) for name, value in settings.items()},
    }
    live = LiveServices()
    try:
        for number in range(instances):
            for service in only:
                name = f"{service}-{number}"
                instance = ServiceInstance(service, name, environment, directory / f"{name}.output")
                live.instances.append(instance)
                instance.start()
        yield live
    finally:
        live.stop()
