"""The leader's process: connections, time and files around :class:`~.leader_state.LeaderState`.

``python -m resilin.elastic.leader --directory D`` waits for the job's lease, publishes where it
listens, and leads until the job is over or another leader has taken the lease. It needs no
PyTorch: it is there at once, and small.

What a successor needs is on disk before anything that follows from it is said.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
import uuid
from pathlib import Path

from resilin.elastic import messages as msg
from resilin.elastic.checkpoints import newest_step
from resilin.elastic.control import ControlMessage, FrameError, parse_message, write_message
from resilin.elastic.files import read_bytes, write_atomically
from resilin.elastic.leader_state import Action, Durable, Hangup, LeaderState, Tell, TellAgent
from resilin.elastic.lease import Lease
from resilin.elastic.program import JobProgram, LeaderAddress, checkpoints_path

__all__ = ["EXIT_LEASE_LOST", "Leader", "main"]

EXIT_LEASE_LOST = 4
TICK_SECONDS = 0.1
LINGER_SECONDS = 60.0
"""How long a leader without an agent and without a worker stays."""
HELLO = b'{"role":"agent"}'


class Hold:
    """This process's hold on the lease: it ends the process once another has taken it."""

    def __init__(self, lease: Lease, ttl_seconds: float) -> None:
        self._lease = lease
        self._every_seconds = ttl_seconds / 4
        self._renewed_at = time.monotonic()
        self.term = lease.term

    def check(self) -> None:
        """Renew the lease if it is time to; from a stalled process nothing may be heard."""
        now = time.monotonic()
        if now - self._renewed_at < self._every_seconds:
            return
        self._renewed_at = now
        if not self._lease.renew(time.time()):
            _log("another leader has taken the lease")
            sys.stderr.flush()
            os._exit(EXIT_LEASE_LOST)


class Leader:
    """One leader of one job, for one term."""

    def __init__(self, directory: Path, program: JobProgram, hold: Hold) -> None:
        self._program = program
        self._hold = hold
        self._term = hold.term
        self._state_path = directory / "leader-state.json"
        self._state = LeaderState(
            seed=program.seed,
            partition_size=program.partition_size,
            lease_seconds=program.lease_seconds,
            now=time.monotonic(),
            term=hold.term,
            checkpoint_step=newest_step(checkpoints_path(directory)) or 0,
        )
        if (written := read_bytes(self._state_path)) is not None:
            self._state.succeed(Durable.model_validate_json(written))
        self._written_version = self._state.durable_version
        self._workers: dict[str, asyncio.StreamWriter] = {}
        self._agents: set[asyncio.StreamWriter] = set()
        self._store: dict[tuple[int, str], str] = {}
        self._waiting: dict[tuple[int, str], list[tuple[str, int]]] = {}
        self._alone_since = time.monotonic()
        self.finished = asyncio.Event()

    async def listen(self) -> tuple[asyncio.Server, LeaderAddress]:
        """Begin to listen; the address is to be published by the caller."""
        server = await asyncio.start_server(self._serve, self._program.host, 0)
        host, port = server.sockets[0].getsockname()[:2]
        return server, LeaderAddress(host=host, port=port, pid=os.getpid(), term=self._term)

    def tick(self) -> None:
        """Let the core know what time it is; see whether anybody still needs this leader."""
        now = time.monotonic()
        self._act(self._state.tick(now))
        if self._workers or self._agents:
            self._alone_since = now
        patience = 0.0 if self._state.over else LINGER_SECONDS
        if now - self._alone_since > patience + TICK_SECONDS:
            self.finished.set()

    # --- connections -----------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            payload = await msg.read_frame(reader)
            if payload is not None and b'"Register"' in payload[:40]:
                await self._serve_worker(payload, reader, writer)
            elif payload is not None:
                await self._serve_agent(payload, reader, writer)
        except (FrameError, ConnectionError) as error:
            _log(f"connection closed: {error}")
        except asyncio.CancelledError:
            pass  # the leader ends; asyncio's streams would print it as an error
        finally:
            writer.close()

    async def _serve_agent(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._agents.add(writer)
        try:
            payload: bytes | None = first
            self._act(self._state.agent_connected())
            while payload is not None:
                if payload.replace(b" ", b"") != HELLO:
                    self._act(self._state.agent_said(parse_message(payload)))
                payload = await msg.read_frame(reader)
        finally:
            self._agents.discard(writer)

    async def _serve_worker(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        register = msg.decode_from_worker(first)
        if not isinstance(register, msg.Register):
            raise FrameError("a worker's first message is Register")
        worker_id = register.worker_id
        if (earlier := self._workers.get(worker_id)) is not None:
            earlier.close()
        self._workers[worker_id] = writer
        try:
            self._act(self._state.worker_said(worker_id, register))
            while (payload := await msg.read_frame(reader)) is not None:
                if self._workers.get(worker_id) is not writer:
                    return  # it has another connection by now
                self._from_worker(worker_id, msg.decode_from_worker(payload))
        finally:
            if self._workers.get(worker_id) is writer:
                del self._workers[worker_id]
                self._act(self._state.closed(worker_id))

    def _from_worker(self, worker_id: str, message: msg.FromWorker) -> None:
        match message:
            case msg.StoreSet(number=number, key=key, value=value):
                self._store[number, key] = value
                for waiter, request in self._waiting.pop((number, key), ()):
                    self._send(waiter, msg.StoreReply(request=request, value=value))
            case msg.StoreGet(request=request, number=number, key=key):
                if (known := self._store.get((number, key))) is not None:
                    self._send(worker_id, msg.StoreReply(request=request, value=known))
                elif number in self._state.open_numbers:
                    self._waiting.setdefault((number, key), []).append((worker_id, request))
                else:
                    self._send(worker_id, msg.StoreReply(request=request))
            case _:
                try:
                    actions = self._state.worker_said(worker_id, message)
                except ValueError as error:
                    raise FrameError(f"{worker_id}: {error}") from None
                self._act(actions)

    def _send(self, worker_id: str, message: msg.ToWorker) -> None:
        if (writer := self._workers.get(worker_id)) is not None and not writer.is_closing():
            writer.write(msg.encode(message))

    # --- what the core wants ---------------------------------------------------------------

    def _act(self, actions: list[Action]) -> None:
        if self._state.durable_version != self._written_version:
            self._written_version = self._state.durable_version
            self._hold.check()
            durable = self._state.durable().model_dump_json().encode()
            # A crash of the machine takes the workers too: then the checkpoint counts.
            write_atomically(self._state_path, durable, durable=False)
            self._sweep()
        for action in actions:
            match action:
                case Tell(worker_id=worker_id, message=message):
                    self._send(worker_id, message)
                case TellAgent(message=said):
                    self._tell_agents(said)
                case Hangup(worker_id=worker_id):
                    self._send(worker_id, msg.Leave(fenced=True))
                    if (writer := self._workers.pop(worker_id, None)) is not None:
                        writer.close()

    def _tell_agents(self, message: ControlMessage) -> None:
        for agent in self._agents:
            if not agent.is_closing():
                write_message(agent, message)

    def _sweep(self) -> None:
        """Forget the keys of plans that are over, and let go who waits for them."""
        live = self._state.open_numbers
        self._store = {key: value for key, value in self._store.items() if key[0] in live}
        for key in [key for key in self._waiting if key[0] not in live]:
            for waiter, request in self._waiting.pop(key):
                self._send(waiter, msg.StoreReply(request=request))


async def lead(directory: Path, program: JobProgram) -> int:
    """Wait for the lease, lead until there is nothing to lead; return the exit code."""
    lease = Lease(directory, uuid.uuid4().hex, program.leader_lease_seconds)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not lease.acquire(time.time()):
        if stop.is_set():
            return 0
        await asyncio.sleep(TICK_SECONDS)
    hold = Hold(lease, program.leader_lease_seconds)
    leader = Leader(directory, program, hold)
    server, address = await leader.listen()
    address.save(directory)
    try:
        while not (leader.finished.is_set() or stop.is_set()):
            hold.check()
            leader.tick()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_SECONDS)
    finally:
        server.close()
    lease.release()
    return 0


def _log(text: str) -> None:
    sys.stderr.write(f"leader: {text}\n")


def main() -> int:
    """Run the leader of one job."""
    parser = argparse.ArgumentParser(prog="resilin.elastic.leader", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the job's directory")
    directory: Path = parser.parse_args().directory
    program = JobProgram.load(directory)
    code = asyncio.run(lead(directory, program))
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
