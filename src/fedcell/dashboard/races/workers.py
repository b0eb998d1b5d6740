"""Worker processes that compute whole runs, round by round, and end with the server, however it ends.

Server and worker talk over one pipe. The server says ``("run", key, document)``, ``("pause",)``, ``("go",)`` and
``("stop",)``; the worker answers ``("rounds", key, rows)`` while it computes and then ``("done", key, rows,
seconds)``, ``("failed", key, reason)`` or ``("stopped", key)``. When the pipe closes, because the server ended or was
killed, the worker exits at once.
"""

import json
import os
import queue
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

SEND_EVERY_S = 0.15  # rounds travel together: a browser is told five times a second


class Worker:
    """One process; the server's side of it."""

    def __init__(self) -> None:
        from fedcell.runs.sweep import ONE_THREAD

        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_main, args=(theirs, ONE_THREAD), daemon=True, name="fedcell-race")
        self.process.start()
        theirs.close()
        self.key: str | None = None

    def run(self, key: str, document: dict[str, Any]) -> None:
        """Begin a run."""
        self.key = key
        self._say("run", key, json.dumps(document))

    def pause(self) -> None:
        """Stop between two rounds."""
        self._say("pause")

    def go(self) -> None:
        """Go on."""
        self._say("go")

    def stop(self) -> None:
        """Give the run up after the present round."""
        self._say("stop")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        self.process.join(2.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()

    def _say(self, *message: Any) -> None:
        with suppress(OSError):  # it died: reading from the pipe will tell
            self.connection.send(message)


class _Orders:
    """What the server wants, kept up to date by a thread that reads the pipe."""

    def __init__(self, connection: Connection) -> None:
        self.runs: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.stopped = False
        self._going = threading.Event()
        self._going.set()
        self._connection = connection
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                order, *details = self._connection.recv()
                if order == "run":
                    self.stopped = False
                    self.runs.put((details[0], details[1]))
                elif order == "pause":
                    self._going.clear()
                else:
                    self.stopped = self.stopped or order == "stop"
                    self._going.set()
        finally:
            os._exit(0)  # the server has gone

    @property
    def paused(self) -> bool:
        """Whether the next go_on would wait."""
        return not self._going.is_set()

    def go_on(self) -> bool:
        """Wait while paused; False if the run is to be given up."""
        self._going.wait()
        return not self.stopped


def _main(connection: Connection, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # before NumPy and Numba are imported, which look at it once
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's
    orders = _Orders(connection)
    while True:
        _run(*orders.runs.get(), orders, connection)


def _run(key: str, text: str, orders: _Orders, connection: Connection) -> None:
    from fedcell.errors import InputError
    from fedcell.runs.store import Row, encode
    from fedcell.sim.loop import simulate
    from fedcell.sim.spec import parse_spec

    rows: list[Row] = []
    began = sent = time.monotonic()
    try:
        for record in simulate(parse_spec(json.loads(text), "the run"), threads=1):
            rows += encode([record])
            if time.monotonic() - sent > SEND_EVERY_S or orders.paused:
                _send(connection, "rounds", key, rows)
                rows, sent = [], time.monotonic()
            if not orders.go_on():
                _send(connection, "stopped", key)
                return
    except Exception as error:
        said = " ".join(str(error).split())
        _send(connection, "failed", key, said if isinstance(error, InputError) else f"{type(error).__name__}: {said}")
        return
    _send(connection, "done", key, rows, time.monotonic() - began)


def _send(connection: Connection, *message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(0)  # the server has gone
