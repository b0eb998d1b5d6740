"""Tests are run in forks of one process that has imported everything but fedcell, and find it in a copy of the tree.

That saves some seconds for each mutant. Whatever a test starts is a descendant of this process, orphans too, for it
asks the kernel for them; so all of it is ended when the fork has ended, whoever killed that.
"""

import compileall
import ctypes
import fcntl
import hashlib
import importlib
import json
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = (
    "numpy.random", "numba.typed", "scipy.optimize", "scipy.special", "scipy.stats", "pydantic", "typer",
    "rich.console", "rich.live", "rich.table", "matplotlib.figure", "matplotlib.backends.backend_agg",
    "fastapi.testclient", "uvicorn", "hypothesis.strategies", "hypothesis.extra.numpy", "torch", "flwr.app",
    "flwr.clientapp", "flwr.serverapp.strategy", "flwr.simulation", "pyarrow.parquet", "distributed", "sqlite3",
    "httpx", "multiprocessing.forkserver", "mlflow", "gymnasium",
)  # fmt: skip
"""What fedcell or its tests import, as far as it is installed."""
FAST = "not processes and not browser and not flower and not links"
WITH_PROCESSES = f"not ({FAST}) and not browser and not links"
FOLLOWED = 20
"""How many calls of a function are followed in a test: tracing makes it ten times as slow."""
COMPILED = ("njit", "overload", "solver import")
"""What a file has in it of which Numba compiles something."""
NO_TESTS = 5
WRONG_ARGUMENTS = 4
PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Trial:
    """What came of running tests.

    Attributes:
        passed: whether all passed; also if there were none.
        failed: the test that failed, if it was one.
        why: the first line that says why.
    """

    passed: bool
    failed: str = ""
    why: str = ""


@dataclass(frozen=True)
class Traced:
    """What was seen of the tests of a file while the tree was as it is.

    Attributes:
        seconds: for each test.
        lines: for each file below src/fedcell, for each line, the tests that execute it.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]


class _Plugin:
    """Runs the tests of a fork in an order, each within a limit of time, and remembers the one that failed."""

    def __init__(self, order: Mapping[str, float], seconds: float) -> None:
        self._order, self._seconds = order, seconds
        self.failed = self.why = ""
        self.told = -1
        """The descriptor to which is written what runs, for whoever ends this process cannot be told afterwards."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._order.get(item.nodeid, float("inf")))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        os.write(self.told, json.dumps({"running": item.nodeid}).encode() + b"\n")
        signal.setitimer(signal.ITIMER_REAL, self._seconds)  # which ends the process: a test may be in compiled code
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed, self.why = report.nodeid, _first_line(report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed, self.why = report.nodeid, _first_line(report.longreprtext)


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E  ")]
    return lines[0] if lines else text[-200:]


class _Tracer(_Plugin):
    """Notes which lines of fedcell each test executes, and for how long it runs."""

    def __init__(self, source: Path, seconds: float) -> None:
        super().__init__({}, seconds)
        self._source = f"{source}{os.sep}"
        self._now: set[tuple[str, int]] = set()
        self._entered: Counter[CodeType] = Counter()
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, list[str]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        self._now, self._entered = set(), Counter()
        began = time.perf_counter()
        threading.settrace(self._calls)
        sys.settrace(self._calls)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.seconds[item.nodeid] = time.perf_counter() - began
            for file, line in self._now:
                tests = self.lines.setdefault(file.removeprefix(self._source), {}).setdefault(line, [])
                tests.append(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        files = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
        self.sources = [file.removeprefix(self._source) for file in files if file.startswith(self._source)]

    def _calls(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self._source) or self._entered[code] == FOLLOWED:
            return None
        self._entered[code] += 1
        return self._lines

    def _lines(self, frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
        if event == "line":
            self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._lines


@dataclass
class Tree:
    """The copy of the tree in which mutants are tried, one after the other.

    Attributes:
        place: of the copy, Numba's cache and what was traced; kept, for they take minutes to make.
    """

    place: Path
    _traced: dict[str, Traced] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The copy."""
        return self.place / "tree"

    @property
    def source(self) -> Path:
        """Of the package."""
        return self.root / "src" / "fedcell"

    @classmethod
    @contextmanager
    def made(cls, place: Path) -> "Iterator[Tree]":
        """A copy of what the tests need, and a process that is ready to fork; nobody else uses the place meanwhile."""
        place.mkdir(parents=True, exist_ok=True)
        with (place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tree = cls(place)
            shutil.rmtree(tree.root, ignore_errors=True)
            for name in ("src", "tests", "tools", "examples", "docs", "benchmarks"):
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, tree.root / name, ignore=ignored, symlinks=True)
            for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"):
                shutil.copy2(ROOT / name, tree.root / name)
            # By their content: a mutant may be as long as its file and of the same second.
            hashed = py_compile.PycInvalidationMode.CHECKED_HASH
            for name in ("src", "tests"):
                compileall.compile_dir(tree.root / name, quiet=2, invalidation_mode=hashed)
            _prepare()
            yield tree

    def trace(self, files: Sequence[Path], *, anew: bool = True) -> list[str]:
        """See to it that these files of tests are traced; the tests that fail, which none may.

        What was traced holds until the file of tests changes, or a file of the package that it imported; ``anew``:
        whether the others are traced.
        """
        kept = self.place / "traced"
        kept.mkdir(exist_ok=True)
        failed = []
        for path in files:
            name = str(path.relative_to(self.root))
            written, test = kept / f"{name.replace('/', '-')}.json", _digest(path)
            answer: dict[str, Any] = json.loads(written.read_text()) if written.exists() else {"test": ""}
            if answer["test"] != test or any(_digest(self.source / f) != d for f, d in answer["sources"].items()):
                if not anew:
                    continue
                answer = self._fork([name, "-m", FAST], _Tracer(self.source, 900.0), self._numba())
                if answer.get("failed") or "sources" not in answer:
                    failed.append(answer.get("failed") or f"{name}: {answer['output'][-2000:]}")
                    continue
                answer |= {"test": test, "sources": {file: _digest(self.source / file) for file in answer["sources"]}}
                written.write_text(json.dumps(answer))
            lines = {
                file: {int(line): tests for line, tests in of_file.items()} for file, of_file in answer["lines"].items()
            }
            self._traced[str(path)] = Traced(answer["seconds"], lines)
        return failed

    def tests_of(self, files: Sequence[Path], file: str, line: int) -> dict[str, float]:
        """The fast tests that execute a line, with their seconds: all that there are if none is known to.

        None is known to execute what Numba compiles, or what runs when a module is imported.
        """
        known = [self._traced[str(path)] for path in files if str(path) in self._traced]
        of_line = {test: traced.seconds[test] for traced in known for test in traced.lines.get(file, {}).get(line, ())}
        return of_line or {test: seconds for traced in known for test, seconds in traced.seconds.items()}

    def run(self, arguments: Sequence[str], order: Mapping[str, float], seconds: float, mutated: str | None) -> Trial:
        """Run tests until one fails; each may take so many seconds."""
        plugin = _Plugin(order, seconds)
        with self._numba_for(mutated) as numba:
            answer = self._fork(["-x", *arguments], plugin, numba)
        if answer["status"] == WRONG_ARGUMENTS and "not found:" in answer["output"]:
            sys.exit(answer["output"])
        if answer["status"] < 0:
            return Trial(False, answer["running"], f"ended by signal {-answer['status']} in {answer['running']}")
        return Trial(
            answer["status"] in (0, NO_TESTS), answer.get("failed", ""), answer.get("why", answer["output"][-200:])
        )

    def _numba(self) -> Path:
        return self.place / "numba"

    @contextmanager
    def _numba_for(self, mutated: str | None) -> Iterator[Path]:
        """Numba's cache for a mutant: without what was compiled of its file, and of files that import that."""
        if mutated is None or not (stale := self._compiled_from(mutated)):
            yield self._numba()
            return
        fresh = self.place / "numba-of-mutant"
        shutil.rmtree(fresh, ignore_errors=True)
        if self._numba().exists():
            shutil.copytree(
                self._numba(), fresh, ignore=lambda _, names: [n for n in names if n.split(".")[0] in stale]
            )
        try:
            yield fresh
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _compiled_from(self, mutated: str) -> Collection[str]:
        """The names of the modules in which something is compiled that may have a piece of the mutated file in it."""
        texts = {path: path.read_text("utf-8") for path in self.source.rglob("*.py")}
        compiled = {path for path, text in texts.items() if any(one in text for one in COMPILED)}
        if self.source / mutated not in compiled:
            return ()
        found = {self.source / mutated}
        if "register(" in texts[self.source / mutated]:  # a link law's functions are called where the solver's are
            found |= {path for path in compiled if path.stem == "solver"}
        while True:
            more = {p for p in compiled if any(f".{one.stem} import" in texts[p] for one in found)} | found
            if more == found:
                return {path.stem for path in found}
            found = more

    def _fork(self, arguments: Sequence[str], plugin: _Plugin, numba: Path) -> dict[str, Any]:
        """Run pytest in a fork: what the plugin saw, the exit status (below zero: the signal) and what was printed."""
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile("w+") as seen:
            pid = os.fork()
            if pid == 0:
                _become_pytest(self.root, arguments, plugin, numba, printed.fileno(), seen.fileno())
            try:
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            finally:
                _end_descendants()
            seen.seek(0)
            printed.seek(0)
            lines = seen.read().splitlines()
            answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
            return {"running": "", **answer, "status": status, "output": printed.read().decode(errors="replace")}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32] if path.exists() else "gone"


def _prepare() -> None:
    """Import what everybody needs, and become the one to whom the kernel gives orphans."""
    os.environ.update(OMP_NUM_THREADS="1", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in IMPORTED:
            with suppress(ImportError):
                importlib.import_module(name)
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("this needs Linux: nobody else gives us the orphans of a test that was killed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what runs is ended first


def _become_pytest(root: Path, arguments: Sequence[str], plugin: _Plugin, numba: Path, printed: int, seen: int) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.chdir(root)
        sys.path[:] = [
            str(root / "src"),
            *(p for p in sys.path if Path(p).resolve() not in (ROOT / "tools", ROOT / "src")),
        ]
        os.environ.update(PYTHONPATH=str(root / "src"), PYTHONDONTWRITEBYTECODE="1", NUMBA_CACHE_DIR=str(numba))
        sys.dont_write_bytecode = True
        import numba as package

        vars(package.config)["CACHE_DIR"] = str(numba)  # it read the environment when it was imported
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 300.0)
        plugin.told = seen
        quiet = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
        status = int(pytest.main([*quiet, *arguments], plugins=[plugin]))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        answer = {name: value for name, value in vars(plugin).items() if not name.startswith("_")}
        os.write(seen, json.dumps(answer).encode())
        sys.stdout.flush()
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(status)


def _end_descendants() -> None:
    """End all that the fork has started; the orphans among them have become our children."""
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10.0)
