"""Mutation test: do the tests that mirror a file notice a small change of its meaning? ``make mutants``.

A mutant is the tree with one change: a comparison, an operator or a number is another one, a condition is negated, a
minimum becomes a maximum, a statement is dropped. Which ones is drawn from the sites of all files in proportion to how
many there are, with a seed. Each meets the tests that mirror its file (tests/runs/test_stats.py for runs/stats.py; the
tests of the folder where there is no such file) and the examples of its docstrings, until one fails: first those that
execute the changed line, the shortest first, then the others, at last those that start processes. A survivor is a test
that is missing, unless the change means the same: those are listed, with the reason, in tools/equivalent_mutants.toml.

    python tools/mutants.py --count 200 --seed 1
    python tools/mutants.py --only runs/stats.py --count 20
    python tools/mutants.py --seed 1 --again
"""

import argparse
import ast
import hashlib
import json
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trials import FAST, ROOT, WITH_PROCESSES, Tree, Trial

PACKAGES = ("schedule", "protocol", "sim", "world", "learn", "runs", "flower")
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.toml"
LEFT_OUT = ("mlp_cuda", "torch_", "simd", "my-app")
"""They need a GPU, or minutes of compiling a mutant."""

PROCESSES_S = 300.0
"""The longest that a test with processes may take."""

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
        after: and changed.
        change: what is done to it, in words.
        text: the whole file, changed.
    """

    file: str
    line: int
    before: str
    after: str
    change: str
    text: str

    @property
    def name(self) -> str:
        """The mutant as it is listed."""
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"

    @property
    def known(self) -> str:
        """The same without the number of the line, which moves."""
        return f"{self.file}: {self.before} -> {self.after}"


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
        name, after = str(file.relative_to(source)), changed.split("\n")[line].strip()
        found.append(Mutant(name, first[0], lines[line].strip(), after, change, changed))
    return found


def _span(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _replaced(lines: Sequence[str], first: tuple[int, int], last: tuple[int, int], new: str) -> str:
    """The text with another piece from first to last. Columns count bytes."""
    head = lines[first[0] - 1].encode()[: first[1]].decode()
    tail = lines[last[0] - 1].encode()[last[1] :].decode()
    empty = [""] * (last[0] - first[0])  # so that the lines after it keep their numbers
    return "\n".join([*lines[: first[0] - 1], head + new + tail, *empty, *lines[last[0] :]])


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


def mirrors(file: str, tests: Path) -> list[Path]:
    """The files of tests that mirror a file.

    test_state.py and test_state_directory.py mirror state.py, unless there is a state_directory.py.
    """
    parts = Path(file).with_suffix("").parts
    stem = parts[-1].lstrip("_")
    if stem == "__init__":
        stem, parts = parts[-2], parts[:-1]
    others = {f"test_{path.stem}" for path in (ROOT / "src" / "fedcell" / file).parent.glob(f"{stem}_*.py")}
    for where in (tests.joinpath(*parts[:n]) for n in range(len(parts) - 1, 0, -1)):
        exact = [*where.glob(f"test_{stem}.py"), *where.glob(f"test_{stem}_*.py")]
        if exact := [path for path in exact if path.stem not in others]:
            return sorted(exact)
    folder = tests.joinpath(*parts[:-1])
    while not folder.is_dir():
        folder = folder.parent
    return sorted(folder.rglob("test_*.py"))


def tried(mutant: Mutant, tree: Tree, seconds: float, processes: bool) -> Trial:
    """The tests with the mutant in place of its file, until one fails."""
    file = tree.source / mutant.file
    before = file.read_text("utf-8")
    mirroring = mirrors(mutant.file, tree.root / "tests")
    first = tree.tests_of(mirroring, mutant.file, mutant.line)
    module = ".".join(("fedcell", *Path(mutant.file).with_suffix("").parts)).removesuffix(".__init__")
    names = {path: str(path.relative_to(tree.root)) for path in mirroring}
    nearest = [name for name in names.values() if any(test.startswith(name) for test in first)]
    rest = [name for name in names.values() if name not in nearest]
    try:
        file.write_text(mutant.text, "utf-8")
        examples = f"tests/test_doctests.py::test_examples_run[{module}]"
        trial = tree.run([*nearest, examples, "-m", FAST], first, seconds, mutant.file)
        if trial.passed and rest:
            trial = tree.run([*rest, "-m", FAST], {}, seconds, mutant.file)
        if trial.passed and processes:
            trial = tree.run([*names.values(), "-m", WITH_PROCESSES], {}, PROCESSES_S, mutant.file)
            file.write_text(before, "utf-8")
            if trial.failed and not tree.run([trial.failed], {}, PROCESSES_S, None).passed:
                return Trial(True, why=f"{trial.failed} fails without the mutant, too")
        return trial
    finally:
        file.write_text(before, "utf-8")


def all_mutants() -> list[Mutant]:
    """Those of all files."""
    source = ROOT / "src" / "fedcell"
    files = [p for package in PACKAGES for p in sorted((source / package).rglob("*.py"))]
    files = [p for p in files if not any(part in str(p) for part in LEFT_OUT)]
    return [mutant for path in files for mutant in mutants_of(path, source)]


def drawn(count: int, seed: int, only: str | None) -> list[Mutant]:
    """The mutants of a run, at most one for each line; a change of the code elsewhere leaves the others drawn."""
    every = [mutant for mutant in all_mutants() if only is None or mutant.file.startswith(only)]
    alike: Counter[str] = Counter()

    def lot(mutant: Mutant) -> str:
        place = f"{mutant.file}: {mutant.change}: {mutant.before}"
        alike[place] += 1
        return hashlib.sha256(f"{seed} {place} {alike[place]}".encode()).hexdigest()

    every.sort(key=lot)
    by_line = {(mutant.file, mutant.line): mutant for mutant in reversed(every)}
    chosen = [mutant for mutant in every if by_line[mutant.file, mutant.line] is mutant]
    return chosen[:count]


def equivalent() -> dict[str, str]:
    """The mutants that mean the same, and why."""
    listed = tomllib.loads(EQUIVALENT.read_text("utf-8"))["equivalent"]
    same = {entry["mutant"]: entry["why"] for entry in listed}
    if gone := same.keys() - {mutant.known for mutant in all_mutants()}:
        sys.exit(f"{EQUIVALENT.name} has what is no mutant any more:\n  " + "\n  ".join(sorted(gone)))
    return same


def main() -> None:
    """Draw mutants, try them and say who survived."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="the longest that one test may take")
    parser.add_argument("--only", help="files below src/fedcell that begin so, such as runs/ or runs/stats.py")
    parser.add_argument("--fast", action="store_true", help="leave out tests that start processes")
    parser.add_argument("--untraced", action="store_true", help="trace no tests: sooner for few mutants, else later")
    parser.add_argument("--again", action="store_true", help="only those that survived when they were last tried")
    parser.add_argument(
        "--place", type=Path, default=ROOT / "out" / "mutants", help="where copies and the log are kept"
    )
    options = parser.parse_args()
    mutants, same, began = drawn(options.count, options.seed, options.only), equivalent(), time.monotonic()
    survivors: list[Mutant] = []
    with Tree.made(options.place.resolve()) as tree:
        kept = options.place / "log.jsonl"
        if options.again:
            last = {entry["mutant"]: entry["result"] for entry in map(json.loads, kept.read_text().splitlines())}
            mutants = [mutant for mutant in mutants if last.get(mutant.known) == "SURVIVED"]
        files = sorted({path for mutant in mutants for path in mirrors(mutant.file, tree.root / "tests")})
        if failed := tree.trace(files, anew=not options.untraced):
            sys.exit("these tests fail without any mutant:\n  " + "\n  ".join(failed))
        print(f"traced {len(files)} files of tests, {time.monotonic() - began:.0f} s", flush=True)
        with kept.open("a") as log:
            for done, mutant in enumerate(mutants, 1):
                one_began = time.monotonic()
                trial = Trial(True)
                if mutant.known not in same:
                    trial = tried(mutant, tree, options.seconds, not options.fast)
                words = "killed" if not trial.passed else "equivalent" if mutant.known in same else "SURVIVED"
                print(
                    f"{done}/{len(mutants)} {words:10} {time.monotonic() - one_began:3.0f} s {mutant.name}", flush=True
                )
                entry = {"mutant": mutant.known, "result": words, "by": trial.failed, "why": trial.why}
                log.write(json.dumps(entry) + "\n")
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
