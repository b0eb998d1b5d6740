"""Run the tests in several processes: `pytest --workers 5`.

All tests are collected once, then the workers are forked: pytest-xdist's workers collect each for itself, which takes
longer than many a suite (14 s of processor time each in a fresh clone). A worker takes one file after the other, so
that the tests of a file, which share servers, stay together. conftest.py takes the hooks from here.
"""

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

NUMBER_BYTES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in N processes, file by file")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = min(session.config.option.workers, len({item.path for item in session.items}))
    if count < 1 or session.config.option.collectonly or session.testsfailed:
        return None  # pytest's own loop
    files = [list(tests) for _, tests in groupby(session.items, lambda item: item.path)]
    left = _pipe_with(range(len(files)))
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all, before they part
    workers: dict[Connection, _Worker] = {}
    for i in range(count):
        ours, theirs = Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            for other in (ours, *workers):  # so that a write fails once the parent is gone
                other.close()
            _work(session, i, _taken(left, files), theirs)
        theirs.close()
        workers[ours] = _Worker(session, ours, pid)
    os.close(left)
    try:
        while workers:
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)
                if not workers[ready].listen():
                    workers.pop(ready).ended()
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    finally:
        for worker in workers.values():
            worker.interrupt()
        for worker in workers.values():
            worker.wait()
    return True


def _pipe_with(numbers: range) -> int:
    """A descriptor that the workers read from, each number once."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in numbers))
    os.close(writing)
    return reading


def _taken(left: int, files: list[list[pytest.Item]]) -> Iterator[list[pytest.Item]]:
    """The files that nobody else has taken."""
    while number := os.read(left, NUMBER_BYTES):
        yield files[int.from_bytes(number, "big")]


class _Worker:
    """One that was forked, as its parent sees it."""

    def __init__(self, session: pytest.Session, told: Connection, pid: int) -> None:
        self._session, self._told, self._pid = session, told, pid
        self._running: tuple[str, tuple[str, int | None, str]] | None = None

    def listen(self) -> bool:
        """Pass on what it says, to the terminal and to whoever counts; False once it has nothing more to say."""
        try:
            said = self._told.recv()
        except EOFError:
            return False
        config = self._session.config
        if "report" in said:
            report = config.hook.pytest_report_from_serializable(config=config, data=said["report"])
            config.hook.pytest_runtest_logreport(report=report)
        elif "begins" in said:
            self._running = (said["begins"], said["location"])
        else:
            config.hook.pytest_runtest_logfinish(nodeid=said["ends"], location=said["location"])
            self._running = None
        return True

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGINT)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        self._told.close()
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def ended(self) -> None:
        """See how it ended: in the midst of a test means that the test has failed."""
        if (status := self.wait()) != 0 and self._running:
            nodeid, location = self._running
            text = f"the worker ended with status {status}; the tests of this file after this one were not run"
            report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
            self._session.config.hook.pytest_runtest_logreport(report=report)


class _Teller:
    """Tells the parent what happens here, in place of pytest's terminal."""

    def __init__(self, config: pytest.Config, tell: Callable[[dict[str, Any]], None]) -> None:
        self._config, self._tell = config, tell

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._tell({"begins": nodeid, "location": location})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._tell({"report": data})

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._tell({"ends": nodeid, "location": location})


def _work(session: pytest.Session, i: int, files: Iterator[list[pytest.Item]], parent: Connection) -> NoReturn:
    """The whole of a worker's life."""
    status = 1
    config = session.config
    plugins = config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    try:
        capture.stop_global_capturing()  # its files are the parent's
        capture.start_global_capturing()
        factory = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.mktemp(f"worker-{i}", numbered=False)
        plugins.unregister(name="terminalreporter")
        plugins.register(_Teller(config, parent.send))
        for tests in files:
            for item, following in zip(tests, [*tests[1:], None], strict=True):
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        status = 0
    except (KeyboardInterrupt, BrokenPipeError):  # or the parent is gone
        session._setupstate.teardown_exact(None)  # servers and the like
    except BaseException:
        capture.stop_global_capturing()
        traceback.print_exc()
    finally:
        os._exit(status)  # nothing of the parent's is flushed, removed or said twice
