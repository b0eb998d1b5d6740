"""Mutation test: do the tests that mirror a file notice a small change of its meaning? ``make mutants``.

A mutant is the tree with one change: a comparison, an operator or a number is another one, a condition is negated, a
minimum becomes a maximum, a statement is dropped. Which ones is drawn from the sites of all files in proportion to how
many there are, with a seed. Each meets the tests that mirror its file (tests/runs/test_stats.py for runs/stats.py; the
tests of the folder where there is no such file) and the examples of its docstrings. A survivor is a test that is
missing, unless the change means the same: those are listed, with the reason, in tools/equivalent_mutants.toml.

    python tools/mutants.py --count 200 --seed 1
    python tools/mutants.py --only runs/stats.py --count 20
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("schedule", "protocol", "sim", "world", "learn", "runs", "flower")
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.toml"
LEFT_OUT = ("mlp_cuda", "torch_", "simd", "my-app")
"""They need a GPU, or minutes of compiling a mutant."""
SLOW = "not processes and not browser and not flower and not links"
"""The tests that mirror a file are tried first without those that start processes, then all."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}
CALLS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any",
         "floor": "ceil", "ceil": "floor", "argmin": "argmax", "argmax": "argmin", "mean": "sum"}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        file: below src/fedcell.
        line: from 1.
        before: the line as it is.
        change: what is done to it, in words.
        text: the whole file, changed.
    """

    file: str
    line: int
    before: str
    change: str
    text: str

    @property
    def name(self) -> str:
        """The mutant as it is listed."""
        return f"{self.file}:{self.line}: {self.change}: {self.before}"


def mutants_of(file: Path, source: Path) -> list[Mutant]:
    """All mutants of a file."""
    text = file.read_text("utf-8")
    lines = text.split("\n")
    found = []
    for node, change, new in _changes(ast.parse(text)):
        first, last = _span(node)
        if first[0] != last[0] and not isinstance(node, ast.stmt):
            continue  # a change within a line is readable
        line = first[0] - 1
        changed = _replaced(lines, first, last, new)
        if changed is not None:
            name = str(file.relative_to(source))
            found.append(Mutant(name, first[0], lines[line].strip(), change, changed))
    return found


def _span(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _replaced(lines: Sequence[str], first: tuple[int, int], last: tuple[int, int], new: str) -> str | None:
    """The text with another piece from first to last; None if it is no Python any more. Columns count bytes."""
    head = lines[first[0] - 1].encode()[: first[1]].decode()
    tail = lines[last[0] - 1].encode()[last[1] :].decode()
    text = "\n".join([*lines[: first[0] - 1], head + new + tail, *lines[last[0] :]])
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    return text


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """What may be changed: the node, in words, and the code instead of it."""
    for node in _meaningful(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS and len(node.ops) == 1:
            other = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
            yield node, "another comparison", f"({ast.unparse(other)})"
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _of_texts_or_types(node):
            yield (
                node,
                "another operator",
                f"({ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))})",
            )
        elif isinstance(node, ast.BoolOp):
            other_op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            yield node, "and for or", f"({ast.unparse(ast.BoolOp(other_op, node.values))})"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "another truth value", repr(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            number = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 + (node.value == 0.0)
            yield node, "another number", repr(number)
        elif isinstance(node, ast.Call) and (name := _called(node)) in CALLS:
            called = ast.unparse(node.func)
            yield node.func, f"{CALLS[name]} for {name}", called.removesuffix(name) + CALLS[name]
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test, "a negated condition", f"(not ({ast.unparse(node.test)}))"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            yield node, "a dropped sign", f"({ast.unparse(node.operand)})"
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield node, "a dropped statement", "pass"


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _of_texts_or_types(node: ast.BinOp) -> bool:
    """Whether it joins texts or types."""
    sides = (node.left, node.right)
    if isinstance(node.op, ast.BitOr) and all(isinstance(s, ast.Name) and s.id[0].isupper() for s in sides):
        return True
    texts = (s.value if isinstance(s, ast.Constant) else "" if isinstance(s, ast.JoinedStr) else None for s in sides)
    return any(isinstance(text, str) for text in texts)


def _meaningful(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that decide something: no annotations, no messages, no imports for types."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "bases", "keywords_of_class"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Raise | ast.Assert):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Assign) and "__all__" in ast.unparse(child.targets[0]):
                continue
            yield from _meaningful(child)


def mirrors(file: str, tests: Path) -> list[str]:
    """The tests that mirror a file, as arguments for pytest."""
    parts = Path(file).with_suffix("").parts
    stem = parts[-1].lstrip("_")
    if stem == "__init__":
        stem, parts = parts[-2], parts[:-1]
    folder = tests.joinpath(*parts[:-1])
    for where in (tests.joinpath(*parts[:n]) for n in range(len(parts) - 1, 0, -1)):
        exact = [*where.glob(f"test_{stem}.py"), *where.glob(f"test_{stem}_*.py")]
        if exact:
            return sorted(str(path) for path in exact)
    while not folder.is_dir():
        folder = folder.parent
    return [str(folder)]


def compiled(text: str) -> bool:
    """Whether Numba compiles something of a file."""
    return "njit" in text or "overload" in text


@dataclass(frozen=True)
class Copy:
    """A copy of the tree in which mutants are tried, one after the other."""

    root: Path

    @classmethod
    def make(cls, place: Path) -> "Copy":
        """Copy what the tests need."""
        for name in ("src", "tests", "tools", "examples", "docs", "benchmarks"):
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile"):
            shutil.copy(ROOT / name, place / name)
        return cls(place)

    def passes(self, tests: Sequence[str], seconds: float, numba: Path, extra: Sequence[str] = ()) -> tuple[bool, str]:
        """Whether tests pass within so many seconds, and the last line they print."""
        environment = os.environ | {
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(numba),
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *extra, *tests]
        process = subprocess.Popen(
            command, cwd=self.root, env=environment, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return False, f"no end within {seconds:.0f} s"
        lines = [line for line in output.splitlines() if line.startswith(("E  ", "FAILED", "ERROR"))] or [output[-200:]]
        return process.returncode in (0, 5), lines[0]

    def survives(self, mutant: Mutant, seconds: float) -> tuple[bool, str]:
        """Whether the tests pass with the mutant in place of its file."""
        file = self.root / "src" / "fedcell" / mutant.file
        before = file.read_text("utf-8")
        fresh = self.root / "numba-of-mutant"
        numba = fresh if compiled(before) else self.root / "numba"
        try:
            file.write_text(mutant.text, "utf-8")
            tests = mirrors(mutant.file, self.root / "tests")
            module = ".".join(("fedcell", *Path(mutant.file).with_suffix("").parts)).removesuffix(".__init__")
            doctests = f"{self.root}/tests/test_doctests.py::test_examples_run[{module}]"
            passed, why = self.passes(tests, seconds, numba, ["-m", SLOW])
            if passed:
                passed, why = self.passes([doctests], seconds, numba)
            if passed:
                passed, why = self.passes(tests, seconds, numba, ["-m", f"not ({SLOW}) and not browser and not links"])
            return passed, why
        finally:
            file.write_text(before, "utf-8")
            shutil.rmtree(fresh, ignore_errors=True)


def drawn(count: int, seed: int, only: str | None) -> list[Mutant]:
    """The mutants of a run, at most one for each line."""
    source = ROOT / "src" / "fedcell"
    files = [p for package in PACKAGES for p in sorted((source / package).rglob("*.py"))]
    files = [p for p in files if not any(part in str(p) for part in LEFT_OUT)]
    files = [p for p in files if only is None or str(p.relative_to(source)).startswith(only)]
    every = [mutant for path in files for mutant in mutants_of(path, source)]
    random.Random(seed).shuffle(every)
    by_line = {(mutant.file, mutant.line): mutant for mutant in reversed(every)}
    chosen = [mutant for mutant in every if by_line[mutant.file, mutant.line] is mutant]
    return chosen[:count]


def equivalent() -> dict[str, str]:
    """The mutants that mean the same, and why."""
    if not EQUIVALENT.exists():
        return {}
    return {
        entry["mutant"]: entry["why"] for entry in tomllib.loads(EQUIVALENT.read_text("utf-8")).get("equivalent", [])
    }


def known(mutant: Mutant) -> str:
    """A mutant's name without its line number, which moves."""
    return f"{mutant.file}: {mutant.change}: {mutant.before}"


def main() -> None:
    """Draw mutants, try them and say who survived."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="the longest that the tests of one mutant may take"
    )
    parser.add_argument("--only", help="files below src/fedcell that begin so, such as runs/ or runs/stats.py")
    parser.add_argument("--log", type=Path, default=ROOT / "out" / "mutants.jsonl")
    options = parser.parse_args()
    mutants, same, began = drawn(options.count, options.seed, options.only), equivalent(), time.monotonic()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="fedcell-mutants-") as place, options.log.open("a") as log:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for job in range(options.jobs):
            copies.put(Copy.make(Path(place) / str(job)))

        def tried(mutant: Mutant) -> tuple[Mutant, bool, str]:
            copy = copies.get()
            try:
                return mutant, *copy.survives(mutant, options.seconds)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.jobs) as pool:
            for done, (mutant, survived, why) in enumerate(pool.map(tried, mutants), 1):
                words = "killed" if not survived else "equivalent" if known(mutant) in same else "SURVIVED"
                print(f"{done}/{len(mutants)} {words:10} {mutant.name}", flush=True)
                log.write(json.dumps({"mutant": mutant.name, "result": words, "why": why}) + "\n")
                log.flush()
                if words == "SURVIVED":
                    survivors.append(mutant)
    killed = len(mutants) - len(survivors)
    minutes = (time.monotonic() - began) / 60.0
    part = killed / max(len(mutants), 1)
    print(f"{killed} of {len(mutants)} killed or equivalent ({part:.1%}), seed {options.seed}, {minutes:.0f} minutes")
    if survivors:
        print("survivors:", *(mutant.name for mutant in survivors), sep="\n  ")
    sys.exit(killed < 0.95 * len(mutants))


if __name__ == "__main__":
    main()
