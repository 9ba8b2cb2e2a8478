"""A leader that only pretends: it keeps count of its workers and of the iterations."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from frames import behaviour, receive, send

STEP_SECONDS = 0.01
SAY_SECONDS = 0.05


class Leader:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        program = json.loads((directory / "program.json").read_text())
        self.total = 10**12 if program["endless"] else program["total_iterations"]
        self.behaviour = behaviour(directory)
        self.lock = threading.RLock()
        self.agents: list[socket.socket] = []
        self.workers: dict[str, socket.socket] = {}
        self.dismissed: set[str] = set()
        self.command: dict[str, Any] | None = None
        self.members: list[str] = []
        self.generation = 0
        self.done = self.saved = self.newest_checkpoint()
        self.over = False

    # --- checkpoints: the files that the runtime's own reader takes for intact ---------------

    def newest_checkpoint(self) -> int:
        steps = [int(path.stem[5:]) for path in (self.directory / "checkpoints").glob("*.json")]
        return max(steps, default=0)

    def save(self) -> None:
        folder = self.directory / "checkpoints"
        folder.mkdir(exist_ok=True)
        step = int(self.done)
        state = f"{step}".encode()
        (folder / f"step-{step:012d}.pt").write_bytes(state)
        manifest = {"step": step, "bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()}
        temporary = folder / ".temporary"
        temporary.write_text(json.dumps(manifest))
        temporary.rename(folder / f"step-{step:012d}.json")
        self.saved = step

    # --- connections -------------------------------------------------------------------------

    def serve(self) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        address = {"host": "127.0.0.1", "port": server.getsockname()[1]}
        temporary = self.directory / ".leader.json"
        temporary.write_text(json.dumps({**address, "pid": os.getpid(), "term": 1}))
        temporary.rename(self.directory / "leader.json")
        threading.Thread(target=self.train, daemon=True).start()
        while True:
            connection, _ = server.accept()
            threading.Thread(target=self.listen, args=(connection,), daemon=True).start()

    def listen(self, connection: socket.socket) -> None:
        hello = receive(connection)
        if hello is None:
            return
        if hello.get("role") == "agent":
            with self.lock:
                self.agents.append(connection)
            while (command := receive(connection)) is not None:
                with self.lock:
                    self.obey(command)
        else:
            self.host(hello["worker_id"], connection)

    def host(self, worker_id: str, connection: socket.socket) -> None:
        with self.lock:
            self.workers[worker_id] = connection
            self.look()
        while (message := receive(connection)) is not None:
            with self.lock:
                if message["type"] == "UserFailed":
                    self.over = True
                    self.say(
                        type="Failed",
                        generation=self.generation,
                        reason="UserCodeFailed",
                        message=message["message"],
                    )
        with self.lock:
            self.closed(worker_id)

    def closed(self, worker_id: str) -> None:
        self.workers.pop(worker_id, None)
        done = self.done
        if worker_id in self.dismissed or self.over:
            self.say(type="WorkerLeft", worker_id=worker_id, iterations_done=done)
            return
        self.members = [member for member in self.members if member != worker_id]
        survivors = len(self.members)
        if not survivors:
            self.done = done = self.saved
        self.say(
            type="WorkerFailed",
            worker_id=worker_id,
            message="its connection closed",
            survivors=survivors,
            iterations_done=done,
        )

    def say(self, **message: Any) -> None:
        for agent in [*self.agents]:
            try:
                send(agent, message)
            except OSError:
                self.agents.remove(agent)

    # --- commands ----------------------------------------------------------------------------

    def obey(self, command: dict[str, Any]) -> None:
        if command == self.command:
            return
        self.command = command
        if command["type"] == "Stop":
            if command["keep_progress"] and self.members:
                self.save()
            self.members = []
            self.dismiss([*self.workers])
        else:
            self.look()

    def dismiss(self, worker_ids: list[str]) -> None:
        for worker_id in worker_ids:
            self.dismissed.add(worker_id)
            send(self.workers[worker_id], {"type": "Leave"})

    def look(self) -> None:
        command = self.command
        if command is None or command["type"] != "Resize" or self.over:
            return
        wanted = [member["worker_id"] for member in command["workers"]]
        if any(worker_id not in self.workers for worker_id in wanted) or wanted == self.members:
            return
        self.generation = command["generation"]
        self.members = wanted
        self.say(type="GenerationReady", generation=self.generation)
        self.say(
            type="GenerationSwitched",
            generation=self.generation,
            workers=len(wanted),
            stopped_seconds=0.125,
            iterations_done=self.done,
        )
        self.dismiss([w for w in self.workers if w not in wanted and w not in self.dismissed])

    # --- training ----------------------------------------------------------------------------

    def train(self) -> None:
        said_at = 0.0
        while True:
            time.sleep(STEP_SECONDS)
            with self.lock:
                if self.over or not self.members:
                    continue
                if not ("hang" in self.behaviour and self.done >= self.behaviour["hang"]):
                    self.done = min(self.total, self.done + len(self.members))
                every = self.behaviour.get("checkpoint_every", 10**9)
                if self.done - self.saved >= every:
                    self.save()
                if self.done >= self.total:
                    self.over = True
                    self.save()
                    self.say(
                        type="Completed", generation=self.generation, iterations_done=self.done
                    )
                    self.dismiss([*self.workers])
                elif time.monotonic() - said_at > SAY_SECONDS:
                    said_at = time.monotonic()
                    self.progress()

    def progress(self) -> None:
        self.say(
            type="Progress",
            generation=self.generation,
            workers=len(self.members),
            iterations_done=self.done,
            iterations_per_second=len(self.members) / STEP_SECONDS,
            checkpoint_iterations=self.saved,
            samples=[
                {"worker_id": w, "step_seconds": STEP_SECONDS, "compute_seconds": 0.005}
                for w in self.members
            ],
        )


if __name__ == "__main__":
    Leader(Path(sys.argv[2])).serve()
