"""Worker processes, each at the end of its own pipe, that end with the driver."""

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

from typing_extensions import override

from fedcell.errors import InputError
from fedcell.runtime import WORKER_NUMBER, compiling_begins, when_compiling

START_PAUSES_S = (0.1, 1.0, 0.0)
"""Seconds to wait after each of three attempts to start a worker."""
COMPILING = "compiling"
"""What a worker sends before its answer if it has to compile something."""
NO_START = "worker processes end as soon as they start; a script must call fedcell under if __name__ == '__main__':"
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True, eq=False)
class _Worker:
    process: ForkServerProcess
    connection: Connection
    number: int  # the lowest that no other one has


class Processes(Executor):
    """Worker processes that end with the driver, however it ends.

    They come from a fork server that has fedcell imported. Each has a pipe of its own to a thread of the driver, and
    shares nothing with the others: when one dies, whatever it was doing, the call it had raises BrokenExecutor, and the
    next call starts a new one. (The pool of the standard library shares one pipe and its lock: a worker killed while
    it answers leaves the others, and the driver, waiting for ever.)

    Args:
        workers: processes at once.
    """

    def __init__(self, workers: int) -> None:
        self._most = workers
        self._context = multiprocessing.get_context("forkserver")
        self._calls = SimpleQueue[tuple[Future[Any], bytes] | None]()
        self._threads: list[Thread] = []
        self._workers: set[_Worker] = set()
        self._lock, self._open = Lock(), True

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        self._calls.put((future, pickle.dumps((fn, args, kwargs))))
        if len(self._threads) < self._most:
            self._threads.append(Thread(target=self._serve, daemon=True))
            self._threads[-1].start()
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, whatever they are doing; ``submit`` starts new ones."""
        with self._lock:
            self._open = False
            for worker in self._workers:
                worker.process.kill()
        with suppress(Empty):
            while call := self._calls.get_nowait():
                call[0].cancel()
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()
        self._threads, self._open = [], True

    def _serve(self) -> None:
        """In a thread of the driver: hand calls to a worker, one after the other."""
        worker: _Worker | None = None
        while call := self._calls.get():
            future, work = call
            if not future.set_running_or_notify_cancel():
                continue
            if worker is not None and not worker.process.is_alive():  # it died idle: no call is to blame
                self._end(worker)
                worker = None
            try:
                worker = worker or self._begin()
                worker.connection.send_bytes(work)
                while (answer := worker.connection.recv()) == COMPILING:
                    compiling_begins()
                done, value = answer
            except (EOFError, OSError):  # it died, perhaps in the middle of its answer
                self._end(worker)
                worker = None
                future.set_exception(BrokenExecutor("the worker process died"))
            except Exception as error:  # what cannot be started or unpacked
                future.set_exception(error)
            else:
                (future.set_result if done else future.set_exception)(value)
        self._end(worker)

    def _begin(self) -> _Worker:
        for pause_s in START_PAUSES_S:
            worker: _Worker | None = None
            try:
                worker = self._start()
                worker.connection.recv_bytes()  # it is ready
                return worker
            except (EOFError, OSError):  # also if the fork server died just now
                self._end(worker)
            # A killed fork server no longer answers a while before the system says that it has ended.
            time.sleep(pause_s)
        raise InputError(NO_START)

    def _start(self) -> _Worker:
        with self._lock:
            if not self._open:
                raise BrokenExecutor("the workers were shut down")
            self._context.set_forkserver_preload(["fedcell.sim.loop", "fedcell.learn.mlp"])
            ours, theirs = self._context.Pipe()
            number = next(n for n in count() if n not in {worker.number for worker in self._workers})
            process = self._context.Process(target=_work, args=(theirs, number), daemon=True)
            try:
                with _as_workers_should_be():
                    forkserver.ensure_running()
                process.start()
            except RuntimeError:  # this is such a worker, importing the script again
                raise InputError(NO_START) from None
            theirs.close()  # or the worker's death would not end the pipe
            worker = _Worker(process, ours, number)
            self._workers.add(worker)
            return worker

    def _end(self, worker: _Worker | None) -> None:
        if worker is not None:
            with self._lock:
                self._workers.remove(worker)
            worker.process.kill()
            worker.process.join()
            worker.connection.close()


@contextmanager
def _as_workers_should_be() -> Iterator[None]:
    """What the fork server inherits now, all workers inherit from it: one thread each, and Ctrl-C is the driver's."""
    resource_tracker.ensure_running()  # or the fork server would start it, and that lets Ctrl-C through again
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(connection: Connection, number: int) -> None:
    """A worker's life: calls come in, answers go out."""
    os.environ[WORKER_NUMBER] = str(number)
    os.environ.update(ONE_THREAD)  # for what is imported later, if the caller had a fork server already
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls = SimpleQueue[bytes]()
    Thread(target=_listen, args=(connection, calls), daemon=True).start()
    when_compiling(lambda: _send_compiling(connection))
    connection.send_bytes(b"ready")
    while True:
        work = calls.get()
        try:
            fn, args, kwargs = pickle.loads(work)
            answer = pickle.dumps((True, fn(*args, **kwargs)))
        except Exception as error:
            answer = pickle.dumps((False, error))
        try:
            connection.send_bytes(answer)
        except OSError:  # the driver has gone: nobody is left to be told
            os._exit(1)


def _send_compiling(connection: Connection) -> None:
    with suppress(OSError):  # the driver has gone, and so does this process
        connection.send(COMPILING)


def _listen(connection: Connection, calls: "SimpleQueue[bytes]") -> None:
    """Exit at once when the driver closes the pipe, by ending the worker or by its own death."""
    try:
        while True:
            calls.put(connection.recv_bytes())
    finally:
        os._exit(1)
