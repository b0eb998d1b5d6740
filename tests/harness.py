"""Real processes as a user has them: every test that needs one starts it here.

What a process prints is kept aside, so that it never waits for a reader; every wait is for an event and has a limit;
and each process, with all that it started in turn, is ended by its id when its block is left. They are found by a mark
in their environment: so none is missed, even one that has changed its session or outlived its parent, and none that is
not ours is touched.
"""

import atexit
import ctypes
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import httpx
import psutil  # type: ignore[import-untyped]

MARK = "FEDCELL_TEST_PROCESS"
COMPILING = "note: compiling for this machine, once; this takes some seconds\n"
LIMIT_S = 180.0
"""How long a test waits for what must come: far more than a loaded machine needs, and yet an end."""
PYTHON = (sys.executable, "-W", "error")
FEDCELL = (*PYTHON, "-m", "fedcell")
BASE_INSTALL = Path(__file__).with_name("base_install")
"""For PYTHONPATH: hides what processes do not need, but take time to import where it is installed."""
SET_BY_OTHERS = ("PYTEST_", "BROWSER_USE_", "CUBLAS_", "GRPC_", "TORCHINDUCTOR_")
"""Variables that pytest, and PyTorch and Flower when they are imported, set in a worker for themselves."""
TINY: dict[str, Any] = {"rounds": 2, "devices": {"count": 4}, "task": {"hidden": [4]}}
"""A race of seconds: each device has 15,000 digits, the model 4 hidden units."""

Found = TypeVar("Found")
marked = True
"""Whether the test that runs has a marker for its processes; set by conftest.py."""


def accept_interrupts() -> None:
    """Let Ctrl-C reach us and all that we start, also where a shell started us in the background with SIGINT ignored.

    A process keeps an ignored signal ignored, and so do its children; a signal that has a handler starts as usual in
    them. So one handler here is enough for every process of every test.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_until(condition: Callable[[], Found], what: str, limit_s: float = LIMIT_S, every_s: float = 0.02) -> Found:
    """What the condition gives once it holds; a failure that says what never came when it does not in time."""
    give_up_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < give_up_s, f"waited {limit_s:g} s in vain for {what}"
        time.sleep(every_s)
    return found


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


# ---------------------------------------------------------------------------------------------------------- processes


class _Printed:
    """A file that a process writes and we read meanwhile, and after it is closed."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        self._last = ""

    def text(self) -> str:
        if not self.file.closed:
            size = os.fstat(self.file.fileno()).st_size
            self._last = os.pread(self.file.fileno(), size, 0).decode(errors="replace")
        return self._last

    def close(self) -> None:
        self.text()
        self.file.close()


PR_SET_CHILD_SUBREAPER = 36


class _Forked:
    """A child of ours as :class:`subprocess.Popen` has them, as far as :class:`Process` needs it."""

    stdin = stdout = stderr = None

    def __init__(self, args: Sequence[str], pid: int) -> None:
        self.args, self.pid = args, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        give_up_s = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > give_up_s:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.01)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Zygote:
    """The process of zygote.py, which ends with us; the commands that it becomes are our children."""

    def __init__(self) -> None:
        self.environment = _environment()
        self.mark = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*PYTHON, str(Path(__file__).with_name("zygote.py")), str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            env={**with_base_install(os.environ), MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        atexit.register(self._end)

    def fork(self, command: Sequence[str], cwd: Path | None, env: Mapping[str, str], fds: list[int]) -> _Forked:
        words = {"arguments": command[len(PYTHON) :], "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        adopt = ctypes.CDLL(None).prctl
        with self._lock:
            adopt(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that the kernel gives us its orphans
            try:
                socket.send_fds(self._channel, [json.dumps(words).encode()], fds)
                pid = int(self._channel.recv(100) or 0)
            finally:
                adopt(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert pid, f"the zygote could not start {' '.join(command)}; see what it said on standard error"
        return _Forked(command, pid)

    def _end(self) -> None:
        self._channel.close()
        self._process.wait(LIMIT_S)


@cache
def _zygote() -> _Zygote:
    return _Zygote()


def _environment() -> dict[str, str]:
    """What a library may have read when it was imported."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SET_BY_OTHERS)}


def with_base_install(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that finds nothing but what it needs."""
    path = env.get("PYTHONPATH")
    return {**env, "PYTHONPATH": f"{BASE_INSTALL}{os.pathsep + path if path else ''}"}


class Process:
    """A process in a session of its own; leaving its block ends it and all that it started.

    A command that begins as :data:`PYTHON` starts from the zygote: it is forked from a process that has imported what
    `fedcell` does. It starts from nothing where it may look at what differs: at an environment or streams of its own.
    With ``cold`` a process starts from nothing, and finds all that is installed, as a user's does.

    Attributes:
        popen: for what is not asked for here, such as a pipe.
    """

    def __init__(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        cold: bool = False,
    ) -> None:
        assert marked, "a test that starts processes carries a marker: processes, browser, flower or links"
        self._mark = uuid.uuid4().hex
        self._out, self._err = _Printed(), _Printed()
        words = [str(word) for word in command]
        whole_env = {**(os.environ if env is None else env), MARK: self._mark}
        if not cold:
            whole_env = with_base_install(whole_env)
        special = (env, stdout, stderr) != (None, None, None) or stdin == subprocess.PIPE
        if cold or special or sys.platform != "linux" or tuple(words[: len(PYTHON)]) != PYTHON:
            warm = False
        else:
            warm = _zygote().environment == _environment()
        self.popen: subprocess.Popen[Any] | _Forked
        self._zygote = _zygote() if warm else None
        if self._zygote is not None:
            with open(os.devnull) as nothing:
                given = nothing if stdin == subprocess.DEVNULL else stdin
                fds = [f if isinstance(f, int) else f.fileno() for f in (given, self._out.file, self._err.file)]
                self.popen = self._zygote.fork(words, cwd, whole_env, fds)
            return
        self.popen = subprocess.Popen(
            words,
            cwd=cwd,
            env=whole_env,
            stdin=stdin,
            stdout=self._out.file if stdout is None else stdout,
            stderr=self._err.file if stderr is None else stderr,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id, which is its session's and its group's too."""
        return self.popen.pid

    @property
    def out(self) -> str:
        """What it has printed on standard output so far."""
        return self._out.text()

    @property
    def err(self) -> str:
        """What it has printed on standard error so far."""
        return self._err.text()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.popen.poll() is not None

    def wait_for(self, condition: Callable[[], Found], what: str, limit_s: float = LIMIT_S) -> Found:
        """As :func:`wait_until`, and a failure also if the process ends before."""

        def holds() -> Found:
            ended = self.ended  # asked first: what it did last counts
            found = condition()
            said = f"it ended with status {self.popen.returncode} before {what} came:\n{self.out}{self.err}"
            assert found or not ended, said
            return found

        return wait_until(holds, what, limit_s)

    def wait_for_text(self, text: str, limit_s: float = LIMIT_S) -> None:
        """Wait until it has printed the text, on whichever stream."""
        self.wait_for(lambda: text in self.out or text in self.err, f"the text {text!r}", limit_s)

    def interrupt(self, *, group: bool = False) -> None:
        """Ctrl-C: to the process alone, or to its group as a terminal does."""
        (os.killpg if group else os.kill)(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """As `kill -9`: this process alone, at once."""
        self.popen.kill()
        self.popen.wait(LIMIT_S)

    def finish(self, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Wait until it ends by itself; its status and all that it printed."""
        try:
            status = self.popen.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {limit_s:g} s:\n{self.out}{self.err}") from None
        return subprocess.CompletedProcess(self.popen.args, status, self.out, self.err)

    def living(self) -> list[psutil.Process]:
        """It and what it started, and what that started, as far as they have not ended."""
        found = []
        for pid in psutil.pids():
            with suppress(psutil.Error, OSError):  # it is gone, or somebody else's
                if self._started(pid) and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _started(self, pid: int) -> bool:
        if pid == self.pid:
            return not self.ended
        if (told := Path(f"/proc/{pid}/environ")).parent.exists():  # psutil, for other systems, takes ten times as long
            environment = told.read_bytes()
            if self._zygote is not None and f"{MARK}={self._zygote.mark}".encode() in environment:
                return os.getsid(pid) == self.pid  # a fork shows the environment that its zygote was started with
            return f"{MARK}={self._mark}".encode() in environment
        return bool(psutil.Process(pid).environ().get(MARK) == self._mark)

    def end(self) -> None:
        """SIGKILL for it and all that it started, until none is left."""

        def none_left() -> bool:
            processes = self.living()
            for process in processes:  # again and again: one may start another meanwhile
                with suppress(psutil.NoSuchProcess):
                    process.kill()  # psutil sees to it that its id is not another's by now
            return not processes

        wait_until(none_left, "the killed processes to be gone")
        self.popen.wait(LIMIT_S)
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr, self._out, self._err):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    typed: str | None = None,
    limit_s: float = LIMIT_S,
    cold: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; ``typed`` is its standard input, which is empty otherwise."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write((typed or "").encode())
        stdin.seek(0)
        with Process(*command, cwd=cwd, env=env, stdin=stdin, cold=cold) as process:
            return process.finish(limit_s)


def fedcell(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, with warnings as errors; the options are those of :func:`run`."""
    return run(*FEDCELL, *arguments, **options)


def python(code: str, **options: Any) -> str:
    """What a Python process of its own prints that runs this code; it must end well and say nothing else."""
    done = run(*PYTHON, "-c", code, **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def traced_peak_bytes(before: str, code: str, **options: Any) -> int:
    """The most memory that the code takes beyond what was there before it, in a process where nothing else runs."""
    lines = [before, "import tracemalloc", "tracemalloc.start()", code, "print(tracemalloc.get_traced_memory()[1])"]
    return int(python("\n".join(lines), **options))


class Terminal:
    """A terminal for a process to write on or to read from: give it ``screen.line`` as stdin, stdout or stderr."""

    def __enter__(self) -> Self:
        self._ours, self.line = pty.openpty()
        self._seen = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        with suppress(OSError):  # the other side is closed by all who had it
            while part := os.read(self._ours, 2**16):
                self._seen += part

    @property
    def shown(self) -> str:
        """What has been written on it so far."""
        return self._seen.decode(errors="replace")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    def __exit__(self, *_: object) -> None:
        os.close(self.line)
        self._reader.join(LIMIT_S)
        os.close(self._ours)


# ------------------------------------------------------------------------------------------------- the dashboard


def http_client(url: str = "") -> httpx.Client:
    """A client of servers here: it reads no certificates, which would take it 30 ms."""
    return httpx.Client(base_url=url, timeout=LIMIT_S, verify=False)


class Served:
    """A running `fedcell serve`, and a client that talks to it."""

    def __init__(self, process: Process, url: str) -> None:
        self.process, self.printed = process, url
        self.url = url.partition("?")[0]
        self.port = int(self.url.rstrip("/").rpartition(":")[2])
        self.http = http_client(self.url)

    def get(self, path: str) -> Any:
        """The answer's document; the status must be a success."""
        answer = self.http.get(path)
        assert answer.is_success, answer.text
        return answer.json()

    def post(self, path: str, document: Any = None) -> Any:
        """The answer's document; the status must be a success."""
        answer = self.http.post(path, json=document) if document is not None else self.http.post(path)
        assert answer.is_success, answer.text
        return answer.json()

    def until(self, path: str, holds: Any, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The document at a path, once the condition holds."""
        last: dict[str, Any] = {}

        def fits() -> bool:
            last["document"] = self.get(path)
            return bool(holds(last["document"]))

        try:
            wait_until(fits, path, limit_s)
        except AssertionError:
            raise AssertionError(f"{path} was still {json.dumps(last['document'])[:500]}") from None
        return last["document"]  # type: ignore[no-any-return]

    def wait(self, id: str, *states: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The race, once it is in one of the states."""
        return self.until(f"/api/races/{id}", lambda race: race["state"] in states, limit_s)

    def rss_mb(self) -> float:
        """The server's memory."""
        return float(psutil.Process(self.process.pid).memory_info().rss / 2**20)

    def workers(self) -> list[int]:
        """The process ids of the server's workers: the children of its fork server."""
        return workers_of(self.process.pid)

    def stop(self) -> None:
        """Ctrl-C, and the server's end; what it has said besides its address is a fault."""
        self.http.close()
        self.process.interrupt()
        done = self.process.finish()
        assert (done.returncode, done.stderr.removeprefix(COMPILING)) == (0, ""), done.stderr

    def kill(self) -> None:
        """As `kill -9`: the server alone."""
        self.http.close()
        self.process.kill()
        assert self.process.err.removeprefix(COMPILING) == ""


def workers_of(driver: int) -> list[int]:
    """The process ids of a driver's workers: the children of its fork server."""
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(driver).children():
            if any(name in " ".join(_command(child)) for name in ("forkserver", "zygote.py")):
                found += [worker.pid for worker in child.children()]
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()  # type: ignore[no-any-return]
    except psutil.Error:
        return []


@contextmanager
def serve(store: Path, *options: str, cwd: Path | None = None) -> Iterator[Served]:
    """`fedcell serve` on a free port, in the file's folder or another, ended with Ctrl-C unless it was ended before."""
    here = store.parent if cwd is None else cwd
    with Process(*FEDCELL, "serve", store, "--no-browser", "--port", "0", *options, cwd=here) as process:
        process.wait_for(lambda: process.out.endswith("\n"), "the server's address")
        assert process.out.startswith("fedcell dashboard at http://"), process.out + process.err
        served = Served(process, process.out.split()[3])
        try:
            yield served
        finally:
            served.http.close()
        if not process.ended:
            served.stop()


def read_events(url: str, *, until: str = "end", limit_s: float = LIMIT_S) -> list[tuple[str, Any]]:
    """The events of a stream, up to the first of this name."""
    found: list[tuple[str, Any]] = []
    with http_client() as client, client.stream("GET", url, timeout=limit_s) as stream:
        assert stream.status_code == 200
        name = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
                if name == until:
                    break
    return found
