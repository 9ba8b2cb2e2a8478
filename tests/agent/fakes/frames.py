"""The frames of the control protocol, in as little as starts at once."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    payload = json.dumps(message).encode()
    connection.sendall(len(payload).to_bytes(4, "big") + payload)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    length = _exactly(connection, 4)
    payload = None if length is None else _exactly(connection, int.from_bytes(length, "big"))
    return None if payload is None else json.loads(payload)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    chunks = b""
    while len(chunks) < count:
        try:
            chunk = connection.recv(count - len(chunks))
        except ConnectionError:
            return None
        if not chunk:
            return None
        chunks += chunk
    return chunks


def behaviour(directory: Path) -> dict[str, Any]:
    """What a test wants of its fakes: a job's hyperparameters."""
    return dict(json.loads((directory / "program.json").read_text())["hyperparameters"])
