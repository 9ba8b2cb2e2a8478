"""A worker's line to its leader: two threads, so that training never waits for it.

The line is there before PyTorch is imported, and it comes back by itself: it looks for the
leader's address again whenever the connection breaks, and says where the worker stands. What
the leader orders is put down in :class:`Orders`, where the training thread looks when it is
ready to.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from resilin.elastic import messages as msg
from resilin.elastic.control import FrameError
from resilin.elastic.program import EXIT_FENCED, LeaderAddress

__all__ = ["Link", "Orders", "Status", "leave_process"]

HEARTBEAT_SECONDS = 0.2
RECONNECT_SECONDS = 0.05
LEAVE_GRACE_SECONDS = 5.0
"""How long the training thread has to notice that it is to leave."""


def leave_process(code: int) -> None:
    """End this process now: no collective that waits in some thread can hold it up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@dataclass(slots=True)
class Status:
    """Where the worker stands: what it says when it registers.

    Written by the training thread before it says the same in a message of its own.
    """

    warm: bool = False
    plan: msg.Plan | None = None
    broken: bool = False
    parked: bool = False
    done: bool = False
    stopped_seconds: float | None = None
    position: msg.Position = field(default_factory=msg.Position)


@dataclass(slots=True)
class Orders:
    """What the leader wants of this worker, newest first.

    Attributes:
        plan: The newest plan.
        leave: Whether to leave now.
        checkpoint: Whether to write a checkpoint.
        welcome: What the leader said to the registration.
        changed: Is notified at every change.
    """

    plan: msg.Plan | None = None
    leave: bool = False
    checkpoint: bool = False
    welcome: msg.Welcome | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)


class Link:
    """The line of one worker to whoever leads the job."""

    def __init__(self, directory: Path, worker_id: str) -> None:
        self._directory = directory
        self._worker_id = worker_id
        self.status = Status()
        self.orders = Orders()
        self._lock = threading.Lock()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._connected = threading.Event()
        self._replies: dict[int, queue.SimpleQueue[msg.ToWorker | None]] = {}
        self._requests = 0
        self._term = 0
        self._cut_at = time.monotonic()
        self.on_plan: Callable[[msg.Plan], None] = lambda _plan: None

    def start(self) -> None:
        """Begin to look for the leader."""
        threading.Thread(target=self._run, name="leader-link", daemon=True).start()

    # --- for the other threads -------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether there is a leader at the other end."""
        return self._connected.is_set()

    @property
    def cut_seconds(self) -> float:
        """For how long there has been no leader."""
        return 0.0 if self.connected else time.monotonic() - self._cut_at

    def say(self, message: msg.FromWorker) -> None:
        """Send a message soon; dropped without a leader, as the registration says it too."""
        if self._connected.is_set():
            self._outbox.put(msg.encode(message))

    def ask(self, make: Callable[[int], msg.FromWorker]) -> msg.ToWorker | None:
        """Send a request and wait for its reply; None if the connection breaks before."""
        box: queue.SimpleQueue[msg.ToWorker | None] = queue.SimpleQueue()
        with self._lock:
            if not self._connected.is_set():
                return None
            self._requests += 1
            request = self._requests
            self._replies[request] = box
        self.say(make(request))
        return box.get()

    def give_up(self, request: int) -> None:
        """Let go who waits for the reply to a request."""
        with self._lock:
            box = self._replies.pop(request, None)
        if box is not None:
            box.put(None)

    def say_last(self, message: msg.FromWorker, timeout_seconds: float = 5.0) -> None:
        """Send the last message and wait until it is out, or there is nobody to hear it."""
        if self._connected.wait(timeout_seconds):
            self.say(message)
            outbox = self._outbox
            outbox.put(None)
            deadline = time.monotonic() + timeout_seconds
            while not outbox.empty() and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(0.01)

    def wait(self, seconds: float) -> None:
        """Wait for an order, but not for long."""
        with self.orders.changed:
            self.orders.changed.wait(seconds)

    # --- the threads -----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            connection = self._connect()
            if connection is None:
                time.sleep(RECONNECT_SECONDS)
                continue
            with contextlib.suppress(OSError, FrameError), connection:
                self._serve(connection)
            self._cut()

    def _connect(self) -> socket.socket | None:
        address = LeaderAddress.load(self._directory)
        if address is None or address.term < self._term:
            return None
        try:
            connection = socket.create_connection((address.host, address.port), timeout=2.0)
        except OSError:
            return None
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            outbox = self._outbox = queue.SimpleQueue()
            status = self.status
            outbox.put(
                msg.encode(
                    msg.Register(
                        worker_id=self._worker_id,
                        pid=os.getpid(),
                        warm=status.warm,
                        plan=status.plan,
                        broken=status.broken,
                        parked=status.parked,
                        done=status.done,
                        stopped_seconds=status.stopped_seconds,
                        position=status.position,
                    )
                )
            )
            self._connected.set()
        sender = threading.Thread(
            target=_send_all, args=(connection, outbox), name="leader-sender", daemon=True
        )
        sender.start()
        while (payload := msg.receive_frame(connection)) is not None:
            self._received(msg.decode_to_worker(payload))

    def _cut(self) -> None:
        with self._lock:
            self._connected.clear()
            self._cut_at = time.monotonic()
            self._outbox.put(None)
            replies, self._replies = self._replies, {}
        for box in replies.values():
            box.put(None)

    def _received(self, message: msg.ToWorker) -> None:
        orders = self.orders
        match message:
            case msg.Partitions() | msg.Ranges() | msg.StoreReply():
                with self._lock:
                    box = self._replies.pop(message.request, None)
                if box is not None:
                    box.put(message)
                return
            case msg.Welcome():
                self._term = max(self._term, message.term)
                orders.welcome = message
            case msg.Plan():
                if orders.plan is not None and message.number <= orders.plan.number:
                    return
                orders.plan = message
                self.on_plan(message)
            case msg.CheckpointNow():
                orders.checkpoint = True
            case msg.Leave(fenced=fenced):
                orders.leave = True
                if fenced:
                    sys.stderr.write("the leader had given this worker up\n")
                    leave_process(EXIT_FENCED)
                threading.Thread(target=self._leave_late, daemon=True).start()
        with orders.changed:
            orders.changed.notify_all()

    def _leave_late(self) -> None:
        """Leave without the training thread if that is somewhere where it does not look."""
        time.sleep(LEAVE_GRACE_SECONDS)
        self.say_last(msg.Left(position=self.status.position))
        leave_process(0)


def _send_all(connection: socket.socket, outbox: queue.SimpleQueue[bytes | None]) -> None:
    heartbeat = msg.encode(msg.Heartbeat())
    while True:
        try:
            frame = outbox.get(timeout=HEARTBEAT_SECONDS)
        except queue.Empty:
            frame = heartbeat
        if frame is None:
            return
        try:
            connection.sendall(frame)
        except OSError:
            return
