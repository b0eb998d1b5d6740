"""A run's key counts the code of one's own, in files and typed in; changed code runs, whatever ran before."""

import hashlib
import importlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedcell as fc
from fedcell.plugins import code_of
from harness import FEDCELL, LIMIT_S, PYTHON, TINY, Process, run
from twins.small import write_small_npz

POLICY = """
from dataclasses import dataclass
import numpy as np
import fedcell as fc

@dataclass(frozen=True)
class Mine(fc.Policy):
    k: int = 3

    def choose(self, view, rng):
        return np.argsort(view.upload_s)[: self.k]
"""


class Files:
    """Modules in a directory of its own, which are forgotten afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def write(self, name: str, text: str) -> None:
        path = self.folder.joinpath(*name.split("/")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()

    def sha256(self, name: str, kind: str = "Mine") -> str:
        module = sys.modules.get(name) or importlib.import_module(name)
        return code_of(getattr(module, kind), "mlp").sha256


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files change within a second
    before = set(sys.modules)
    yield Files(tmp_path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


# --- in files ------------------------------------------------------------------------------------------------------


def test_a_module_that_imports_nothing_of_its_owners_has_the_key_of_version_0_2(files: Files) -> None:
    files.write("plain_of_a_test", POLICY)
    content = hashlib.sha256(POLICY.encode()).hexdigest()
    assert files.sha256("plain_of_a_test") == hashlib.sha256(content.encode()).hexdigest()
    cell, task = fc.Cell(radius_m=500.0), fc.TaskSpec(partition="iid")
    spec = fc.Spec(policy="plain_of_a_test:Mine", rounds=2, cell=cell, task=task)
    assert spec.key() == "36f43eb80bf6aa9742f4dbc918e5512b06265b4fe793272ba105c8a4a7058cfe"
    assert fc.Spec().own_code().sha256 == fc.Spec().code_sha256() == ""


@pytest.mark.parametrize(
    ("imports", "changed"),
    [
        ("from helper_of_a_test import K", "helper_of_a_test"),
        ("import helper_of_a_test", "helper_of_a_test"),
        ("import pack_of_a_test.deep", "pack_of_a_test/deep"),
        ("import pack_of_a_test.deep", "pack_of_a_test/__init__"),
        ("from pack_of_a_test import deep", "pack_of_a_test/beside"),  # which deep imports
        ("def later():\n    import helper_of_a_test", "helper_of_a_test"),
    ],
)
def test_the_modules_that_it_imports_count_and_theirs(files: Files, imports: str, changed: str) -> None:
    plain = dict.fromkeys(("helper_of_a_test", "pack_of_a_test/__init__", "pack_of_a_test/beside"), "K = 3\n")
    plain["pack_of_a_test/deep"] = "from . import beside\n"
    for name, text in plain.items():
        files.write(name, text)
    files.write("importing_of_a_test", f"{POLICY}\n{imports}\n")
    first = files.sha256("importing_of_a_test")
    files.write(changed, plain[changed] + "K = 15\n")
    name = changed.removesuffix("/__init__").replace("/", ".")
    if name in sys.modules:
        assert files.sha256("importing_of_a_test") == first  # what runs is what was imported
        importlib.reload(sys.modules[name])
    second = files.sha256("importing_of_a_test")
    assert second != first
    files.write(changed, plain[changed])
    if name in sys.modules:
        importlib.reload(sys.modules[name])
    assert files.sha256("importing_of_a_test") == first


def test_a_file_is_read_once_and_not_for_every_run(files: Files) -> None:
    files.write("helper_of_a_test", "K = 3\n")
    files.write("read_once_of_a_test", f"{POLICY}\nimport helper_of_a_test\n")
    opened: list[str] = []
    ours = [True]
    sys.addaudithook(lambda event, what: opened.append(str(what[0])) if event == "open" and ours else None)
    spec = fc.Spec(grid={"policy": ["read_once_of_a_test:Mine"], "seed": list(range(100))})
    assert len({run.key() for run in spec.runs()}) == 100
    ours.clear()  # for a hook stays
    for name in ("helper_of_a_test", "read_once_of_a_test"):  # imported, and looked at
        assert len([path for path in opened if path.endswith(f"{name}.py")]) <= 2


def test_a_reloaded_class_is_raced_as_it_is(files: Files) -> None:
    files.write("reloaded_of_a_test", POLICY)
    spec = fc.Spec(**TINY, grid={"policy": ["reloaded_of_a_test:Mine"], "seed": [0]})

    def chosen() -> list[int]:
        (records,) = fc.run_race(spec).runs["reloaded_of_a_test:Mine"]
        return [len(record.plan.devices) for record in records]

    assert chosen() == [3, 3]
    files.write("reloaded_of_a_test", POLICY.replace("k: int = 3", "k: int = 2"))
    importlib.reload(sys.modules["reloaded_of_a_test"])
    assert chosen() == [2, 2]


@pytest.mark.processes
def test_a_changed_helper_runs_again(tmp_path: Path) -> None:
    """Finding 10 of the review: the same command gave the runs of the old helper."""
    write_small_npz(tmp_path / "small.npz")
    (tmp_path / "spec.toml").write_text('rounds = 1\ntask = {data = "small.npz", hidden = [4]}\n')
    (tmp_path / "pol9.py").write_text("from helper9 import K\n" + POLICY.replace("self.k", "K"))
    command = [*FEDCELL, "race", "spec.toml", "--policy", "pol9:Mine", "--seeds", "1", "--store", "h9.db", "--json"]
    for k in (3, 15):
        (tmp_path / "helper9.py").write_text(f"K = {k}\n")
        done = run(*command, "--plot", "none", "-q", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rounds"][0]["devices"] == k


READS = POLICY.replace("[: self.k]", "[: {}]")


@pytest.mark.parametrize(
    ("module", "helper", "name", "value"),
    [
        (READS.format("K") + "K = 3", "", "values_of_a_test.K", 9),
        (READS.format("few()") + "K = 3\ndef few(): return K", "", "values_of_a_test.K", 9),
        (READS.format("helper_of_a_test.K") + "import helper_of_a_test", "K = 3", "helper_of_a_test.K", 9),
        (
            READS.format("few()") + "from helper_of_a_test import few",
            "K = 3\ndef few(): return K",
            "helper_of_a_test.K",
            9,
        ),
        (READS.format("K['k']") + "K = {'k': 3}", "", "values_of_a_test.K", {"k": 9}),
    ],
)
def test_a_value_of_a_module_that_is_assigned_anew_counts(
    files: Files, module: str, helper: str, name: str, value: object
) -> None:
    files.write("helper_of_a_test", helper)
    files.write("values_of_a_test", module)
    first = files.sha256("values_of_a_test")
    where, _, what = name.partition(".")
    before = getattr(sys.modules[where], what)
    setattr(sys.modules[where], what, value)
    assert files.sha256("values_of_a_test") != first
    assert code_of(sys.modules["values_of_a_test"].Mine, "mlp").typed == name.replace(".", ":")
    setattr(sys.modules[where], what, before)
    sys.modules[where].NOT_READ = 5  # type: ignore[attr-defined]
    assert files.sha256("values_of_a_test") == first


def test_a_value_that_the_code_itself_changes_does_not_count(files: Files) -> None:
    count = "    def count(self):\n        global N\n        N += 1\nN = 0"
    files.write("counting_of_a_test", f"{READS.format('N')}\n{count}")
    first = files.sha256("counting_of_a_test")
    sys.modules["counting_of_a_test"].N = 5  # type: ignore[attr-defined]
    assert files.sha256("counting_of_a_test") == first


@pytest.mark.processes
@pytest.mark.parametrize(
    "reads", ["K = int(sys.argv[1])", "import argparse\nK = argparse.Namespace(k=int(sys.argv[1]))"]
)
def test_what_a_script_takes_from_its_command_line_counts(tmp_path: Path, reads: str) -> None:
    used = "K.k" if "argparse" in reads else "K"
    race = f"""
spec = fc.Spec(**{TINY!r}, grid={{"policy": ["__main__:Mine"], "seed": [0]}})
for N in range(2):
    (records,) = fc.run_race(spec, store="s.db").runs["__main__:Mine"]
    print(len(records[0].plan.devices))
"""
    (tmp_path / "script.py").write_text(f"import sys\n{READS.format(used + ' + N')}\n{reads}\n{race}")
    for k in ("1", "3"):
        done = run(*PYTHON, "script.py", k, cwd=tmp_path)
        assert done.stdout.split() == [k, str(int(k) + 1)], done.stderr


# --- typed in ------------------------------------------------------------------------------------------------------


class Notebook:
    """A module ``__main__`` without a file, whose cells are run as a kernel runs them."""

    def __init__(self) -> None:
        self.main = ModuleType("__main__")
        self.count = 0

    def cell(self, text: str) -> None:
        self.count += 1
        exec(compile(text, f"/tmp/ipykernel_1/{self.count}.py", "exec"), vars(self.main))

    def code(self) -> fc.Spec:
        return fc.Spec(policy="__main__:Mine")


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    monkeypatch.setitem(sys.modules, "__main__", made.main)
    made.cell("import numpy as np")
    made.cell(POLICY)
    return made


HELPED = POLICY.replace("return np.argsort", "return helper(view) if self.k else np.argsort")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", POLICY.replace("k: int = 3", "k: int = 4")),
        ("", POLICY.replace("[: self.k]", "[-self.k :]")),
        ("", POLICY + "    max_devices: int = 2"),
        ("", POLICY + "    uses_norms = True"),
        ("", "def near(self, view, rng): return [0]\nMine.choose = near"),
        (HELPED + "def helper(view): return [0]", "def helper(view): return [1]"),
        (HELPED + "def helper(view, n=1): return range(n)", "helper.__defaults__ = (2,)"),
        (HELPED + "def helper(view): return deeper()\ndef deeper(): return [0]", "def deeper(): return [1]"),
        (HELPED + "K = 3\ndef helper(view): return range(K)", "K = 4"),
        (HELPED + "K = [0, 1]\ndef helper(view): return K", "K[0] = 2"),
        (HELPED + "K = {'a': (1, 2.0)}\ndef helper(view): return K['a']", "K['a'] = (1, 3.0)"),
        (HELPED + "W = np.arange(9.0)\ndef helper(view): return [W.argmax()]", "W[3] = 99.0"),
        (HELPED + "def make(n):\n    return lambda view: range(n)\nhelper = make(2)", "helper = make(3)"),
        (HELPED + "class H:\n    k = 1\n    def __call__(self, view): return [H.k]\nhelper = H()", "H.k = 2"),
        (
            HELPED + "class H:\n    def __call__(self, view): return [self.k]\nhelper = H(); helper.k = 1",
            "helper.k = 2",
        ),
        (HELPED + "SPEC = fc.Spec(seed=1)\ndef helper(view): return [SPEC.seed]", "SPEC = fc.Spec(seed=2)"),
        (HELPED + "from functools import partial\nhelper = partial(max, 1)", "helper = partial(max, 2)"),
        (
            HELPED
            + "class M(type):\n    def k(self): return [0]\nclass H(metaclass=M): pass\ndef helper(view): return H.k()",
            "class M(type):\n    def k(self): return [1]\nclass H(metaclass=M): pass",
        ),
        (HELPED + "from types import SimpleNamespace as N\nC = N(k=1)\ndef helper(view): return [C.k]", "C.k = 2"),
        ("class Base(Mine):\n    pass\nclass Mine(Base):\n    pass", "Base.k = 9"),
        (POLICY.replace("[: self.k]", "[: (lambda: 3)()]"), POLICY.replace("[: self.k]", "[: (lambda: 4)()]")),
    ],
)
def test_what_typed_code_refers_to_counts(notebook: Notebook, before: str, after: str) -> None:
    notebook.cell(before)
    first = notebook.code().key()
    assert notebook.code().key() == first
    assert notebook.code().own_code().typed == "__main__:Mine"
    notebook.cell("OTHER = object()\ndef unrelated(): return OTHER")
    assert notebook.code().key() == first
    notebook.cell(after)
    assert notebook.code().key() != first
    notebook.cell(POLICY)
    notebook.cell(before)
    assert notebook.code().key() == first


def test_typed_code_counts_the_files_that_it_imports(notebook: Notebook, files: Files) -> None:
    files.write("helper_of_a_test", "def helper(view): return [0]\n")
    for imports in (
        "from helper_of_a_test import helper",
        "import helper_of_a_test\ndef helper(view): return helper_of_a_test.helper(view)",
        "def helper(view):\n    import helper_of_a_test\n    return helper_of_a_test.helper(view)",
    ):
        notebook.cell(HELPED + imports)
        first = notebook.code().key()
        files.write("helper_of_a_test", "def helper(view): return [1]\n")
        importlib.reload(sys.modules["helper_of_a_test"])
        assert notebook.code().key() != first
        files.write("helper_of_a_test", "def helper(view): return [0]\n")
        importlib.reload(sys.modules["helper_of_a_test"])


@pytest.mark.parametrize(
    ("cell", "after"),
    [
        ("def helper(view): return range(helper_of_a_test.K)", "helper_of_a_test.K = 2"),
        ("def helper(view): return helper_of_a_test.few()", "helper_of_a_test.K = 2"),
        ("from helper_of_a_test import few\ndef helper(view): return few()", "helper_of_a_test.K = 2"),
        ("def helper(view): return helper_of_a_test.few()", "helper_of_a_test.few = lambda: range(2)"),
        ("def helper(view): return helper_of_a_test.few()", "helper_of_a_test.many = lambda k: range(2)"),
    ],
)
def test_what_is_assigned_anew_in_a_module_that_typed_code_uses_counts(
    notebook: Notebook, files: Files, cell: str, after: str
) -> None:
    files.write("helper_of_a_test", "K = 3\ndef few(): return many(K)\ndef many(k): return range(k)")
    notebook.cell(f"{HELPED}import helper_of_a_test\n{cell}")
    first = notebook.code().key()
    notebook.cell("helper_of_a_test.NOT_READ = 5")
    assert notebook.code().key() == first
    notebook.cell(after)
    assert notebook.code().key() != first


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (
            "K = object()\ndef helper(view): return K",
            "the value of its global K cannot be told: builtins.object has no",
        ),
        ("R = np.random.default_rng(0)\ndef helper(view): return R.integers(3)", "global R cannot be told"),
        ("L = []\ndef helper(view): L.append(view); return [0]", "helper changes the global L (L.append)"),
        ("N = 0\ndef helper(view):\n    global N\n    N += 1\n    return [N]", "helper changes the global N"),
        ("def helper(view): return eval('[0]')", "helper calls eval, which may run anything"),
        ("def helper(view):\n    from __main__ import N\n    return [N]", "helper imports __main__"),
        ("A = np.array([object()])\ndef helper(view): return A", "global A cannot be told"),
    ],
)
def test_what_has_no_hash_runs_but_is_neither_kept_nor_cached(
    notebook: Notebook, tmp_path: Path, cell: str, said: str
) -> None:
    notebook.cell(HELPED + cell)
    spec = fc.Spec(**TINY, grid={"policy": ["all"], "seed": [0]})
    spec = spec.changed({}, {"policy": ["__main__:Mine"], "seed": [0]})
    with fc.Store(tmp_path / "results.db") as store:
        for refused in (lambda: fc.run_race(spec, store=store), lambda: fc.run_sweep(spec, store), notebook.code().key):
            with pytest.raises(fc.InputError) as told:
                refused()
            assert said in str(told.value)
            assert "__main__:Mine has no key under which it could be kept" in str(told.value)
        assert store.runs() == []
        assert store.races() == []


def test_an_edited_cell_is_raced_with_and_without_a_store_and_swept(notebook: Notebook, tmp_path: Path) -> None:
    """Findings 1 and 32 of the review."""
    spec = fc.Spec(**TINY, grid={"policy": ["__main__:Mine"], "seed": [0, 1]})
    with fc.Store(tmp_path / "results.db") as store:

        def counts(kept: fc.Store | None) -> set[int]:
            runs = fc.run_race(spec, store=kept).runs["__main__:Mine"]
            return {len(record.plan.devices) for records in runs for record in records}

        for k in (3, 2):
            notebook.cell(POLICY.replace("k: int = 3", f"k: int = {k}"))
            assert [counts(None), counts(store), counts(store)] == [{k}] * 3
        assert len(store.runs()) == 4
        notebook.cell(POLICY.replace("k: int = 3", "k: int = 1"))
        for done, skipped in ((2, 0), (0, 2)):
            found = fc.run_sweep(spec, store)
            assert (found.done, found.skipped, found.failures, found.complete) == (done, skipped, {}, True)
        notebook.cell("LOG = []\n" + POLICY.replace("return", "LOG.append(len(view)); return"))
        assert counts(None) == {3}
        assert notebook.main.LOG == [4, 4, 4, 4]


def test_worker_processes_refuse_what_was_typed(notebook: Notebook) -> None:
    notebook.cell("")
    with pytest.raises(fc.InputError, match="__main__:Mine was typed in, into a notebook or an interpreter, where no"):
        fc.Runner([notebook.code()])


def test_a_model_typed_again_is_trained(notebook: Notebook) -> None:
    pytest.importorskip("torch")
    notebook.cell(
        "from torch import nn\nWIDTH = 4\n"
        "def net(data): return nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))"
    )
    task: dict[str, Any] = {"engine": "torch", "model": "__main__:net"}
    spec = fc.Spec(policy="random:k=1", rounds=1, devices=fc.Devices(count=60), task=fc.TaskSpec(**task))

    def weights() -> int:
        *_, last = fc.Runner([spec], on="threads", models=True)
        assert isinstance(last, fc.RunDone)
        assert last.model is not None
        return last.model.size

    first = spec.key()
    assert weights() == 784 * 4 + 4 + 4 * 10 + 10
    notebook.cell("WIDTH = 5")
    assert weights() == 784 * 5 + 5 + 5 * 10 + 10
    assert spec.key() != first


AT_A_PROMPT = POLICY.replace("int = 3\n\n", "int = 3\n")
TYPED_AT_A_PROMPT = f"""
import fedcell as fc
{AT_A_PROMPT}

spec = fc.Spec(**{TINY!r}, grid={{"policy": ["__main__:Mine"], "seed": [0]}})
print([len(record.plan.devices) for record in fc.run_race(spec).runs["__main__:Mine"][0]])
{AT_A_PROMPT.replace("k: int = 3", "k: int = 2")}

print([len(record.plan.devices) for record in fc.run_race(spec).runs["__main__:Mine"][0]])
"""


@pytest.mark.processes
def test_it_is_so_at_a_real_prompt(tmp_path: Path) -> None:
    (tmp_path / "typed.txt").write_text(TYPED_AT_A_PROMPT)
    done = run("bash", "-c", f"{sys.executable} -W error -i < typed.txt", cwd=tmp_path)
    assert done.stdout.split("\n")[:2] == ["[3, 3]", "[2, 2]"], done.stderr


SCRIPT = f"""{POLICY}

if __name__ == "__main__":
    spec = fc.Spec(**{TINY!r}, grid={{"policy": ["__main__:Mine", "random:k=9"], "seed": [0, 1]}})
    with fc.Store("results.db") as store:
        result = fc.run_sweep(spec, store)
        print(result.done, len(result.failures), result.complete, result.stopped)
"""


@pytest.mark.processes
def test_a_script_may_sweep_the_policy_in_it_and_failures_leave_it_incomplete(tmp_path: Path) -> None:
    (tmp_path / "sweeps.py").write_text(SCRIPT)
    done = run(*PYTHON, "sweeps.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("2 2 False False\n", "")


# --- Ctrl-C --------------------------------------------------------------------------------------------------------


ENDLESS = """
import fedcell as fc

def told(event):
    if isinstance(event, fc.RunDone):
        print("done", event.key, flush=True)

if __name__ == "__main__":
    spec = fc.Spec(rounds={rounds}, devices={{"count": 4}}, task={{"data": "small.npz", "hidden": [4]}},
                   grid={{"policy": ["all", "random:k=2"], "seed": list(range(40))}})
    with fc.Store("results.db") as store:
        for number in range(3):
            print("began", number, flush=True)
            fc.{call}
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "call", ["run_race(spec, store=store, watch=told)", "run_sweep(spec, store, on_event=told, workers=2)"]
)
def test_ctrl_c_stops_a_script_after_what_is_finished_is_stored(tmp_path: Path, call: str) -> None:
    write_small_npz(tmp_path / "small.npz")
    (tmp_path / "loop.py").write_text(ENDLESS.format(call=call, rounds=300))
    with Process(*PYTHON, "loop.py", cwd=tmp_path) as process:
        process.wait_for_text("done")
        process.interrupt()
        ended = process.finish(LIMIT_S)
    assert ended.returncode == -signal.SIGINT  # as a shell that loops over scripts wants it
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
    assert ended.stdout.count("began") == 1  # and no other race
    with fc.Store(tmp_path / "results.db", "read") as store:
        finished = {run.key for run in store.runs(status="done")}
        assert {line.split()[1] for line in ended.stdout.splitlines() if line.startswith("done")} == finished
        assert [race.state for race in store.races()] == (["stopped"] if "race" in call else [])
