"""A link law of one's own, that of examples/own_law.py: it registers its need, and all else follows."""

import ast
import importlib
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell import settings
from fedcell.dashboard.limits import known_law
from fedcell.errors import InputError
from fedcell.plan.device_table import read_devices
from fedcell.plan.plans import plan_round, plans_csv
from fedcell.plugins import without_imports
from fedcell.schedule import bandwidth
from fedcell.schedule.laws import LAWS
from fedcell.schedule.profiles import imbalance, standardise
from fedcell.sim.spec import parse_stored

SOURCE = Path(fc.__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples"
NO_DRAWS = np.random.default_rng(0)
GUARD = 0.03


@pytest.fixture(scope="module")
def law() -> Iterator[fc.Law]:
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(EXAMPLES)
    yield importlib.import_module("own_law").Slots(GUARD)
    patch.undo()


def cell(M: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.lognormal(0.0, 1.0, M), rng.uniform(1.0, 9.0, M)


def seconds(c: np.ndarray, t: np.ndarray) -> float:
    """When all are done: the T at which guard + c / (T - t) sum to 1, by bisection."""
    low, high = float(t.max()), 1e9
    for _ in range(200):
        T = (low + high) / 2.0
        low, high = (low, T) if t.max() < T and (GUARD + c / (T - t)).sum() <= 1.0 else (T, high)
    return high


@pytest.mark.parametrize("M", [1, 2, 7, 30])
def test_it_is_shared_as_its_need_says(law: fc.Law, M: int) -> None:
    c, t = cell(M, M)
    band = fc.allocate(c, t, law=law)
    assert band.round_s == pytest.approx(seconds(c, t), rel=1e-9)
    assert band.shares.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(t + c / (band.shares - GUARD), band.round_s, rtol=1e-9)
    both = fc.allocate(np.stack([c, 2.0 * c]), t, law=law)
    assert np.asarray(both.round_s).tolist() == pytest.approx([seconds(c, t), seconds(2.0 * c, t)], rel=1e-9)


def test_more_devices_than_it_carries_get_one_sentence(law: fc.Law) -> None:
    assert law.max_devices == 33
    with pytest.raises(InputError, match="40 devices cannot share 33 uploads, one each at least; schedule at most 33"):
        fc.allocate(*cell(40, 1), law=law)


@pytest.mark.parametrize("seed", range(3))
def test_policies_are_right_under_it(law: fc.Law, seed: int) -> None:
    c, t = cell(7, seed)
    profiles = np.random.default_rng(seed).dirichlet(np.ones(3), 7)
    view, theta = fc.RoundView(c, t, law=law, profiles=profiles), 0.05
    sets = [list(s) for n in range(1, 8) for s in itertools.combinations(range(7), n)]
    times = {tuple(s): seconds(c[s], t[s]) for s in sets}
    least = min((theta + 1.0 / len(s)) * times[tuple(s)] for s in sets)
    best = fc.Optimal(theta).decide(view, NO_DRAWS)
    assert (theta + 1.0 / best.devices.size) * best.round_s == pytest.approx(least, rel=1e-9)
    chosen: list[int] = []  # Algorithm 2, as printed
    value = math.inf
    while len(chosen) < 7:
        k = min(set(range(7)) - set(chosen), key=lambda k: times[tuple(sorted([*chosen, k]))])
        new = (theta + 1.0 / (len(chosen) + 1)) * times[tuple(sorted([*chosen, k]))]
        if new > value:
            break
        chosen, value = [*chosen, k], new
    assert fc.Greedy(theta).decide(view, NO_DRAWS).devices.tolist() == sorted(chosen)
    known = standardise(profiles)
    assert known is not None
    diverse = fc.Diverse(theta, memory=0.0).decide(view, NO_DRAWS)

    def worth(s: np.ndarray) -> float:
        return (theta + imbalance(known, s)) * times[tuple(s.tolist())]

    assert worth(diverse.devices) == pytest.approx(min(worth(np.array(s)) for s in sets), rel=1e-9)


def test_it_is_planned_with_from_the_command_line(law: fc.Law, fedcell_here: Any) -> None:
    """In this process, which has compiled it. What a process finds in its directory: cli/test_main.py."""
    line = "own_law:Slots:guard=0.03"
    assert law.line == line
    done = fedcell_here("plan", EXAMPLES / "devices.csv", "--law", line, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert f"law {line}" in done.stdout
    assert "ms per second" in done.stdout
    planned = plan_round(read_devices(EXAMPLES / "devices.csv"), [], fc.Cell(), None, 0, law=line)
    header, first, *_ = plans_csv(planned, several=False).splitlines()
    assert header == "device,index,share,ms_per_second,upload_s,compute_s,finish_s"
    assert float(first.split(",")[3]) == pytest.approx(1000.0 * float(first.split(",")[2]))


def test_the_example_prints_its_rounds(law: fc.Law, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("own_law").main()
    assert "guard 0.02, Optimal: 6 devices in 10.34 s\n" in capsys.readouterr().out


def test_a_run_with_it_is_simulated_and_keyed_by_its_code(law: fc.Law) -> None:
    small: dict[str, Any] = {"policy": "all", "rounds": 2, "devices": {"count": 3}, "task": {"hidden": [4]}}
    spec = fc.Spec(**small).changed({"cell.law": law})
    assert spec.cell.law == law.line
    assert spec.key() != fc.Spec(**small).key()
    assert spec.code_sha256()
    free, guarded = ([r.round_s for r in fc.simulate(one, threads=1)] for one in (fc.Spec(**small), spec))
    assert all(slow > fast for slow, fast in zip(guarded, free, strict=True))
    with pytest.raises(InputError, match="guard of law 'own_law' is 'x'; give a number"):
        spec.changed({"cell.law": "own_law:Slots:guard=x"})


def test_nothing_is_imported_because_a_file_or_a_stranger_says_so(law: fc.Law) -> None:
    document = {**fc.Spec().model_dump(), "cell": {"law": "no_such_module:Law"}}
    assert parse_stored(document, "the run").cell.law == "no_such_module:Law"
    with without_imports(), pytest.raises(InputError, match="'own_law' is user-defined code"):
        fc.parse_law(law.line)
    with pytest.raises(InputError, match="is a Python class, which cannot be imported here; give named laws only"):
        known_law(law.line)
    with pytest.raises(InputError, match=r"Path is not a fedcell Law; subclass fedcell\.Law"):
        fc.parse_law("pathlib:Path")


# ------------------------------------------------------------------------------------------------------- in one file


def mentions(path: Path, kind: str, name: str) -> bool:
    """Whether a module uses a law by its class, or by its name in a text that is no docstring."""
    tree = ast.parse(path.read_text())
    docs = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs
    ]
    compared = [
        side.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant)
    ]
    named = any(isinstance(node, ast.Name | ast.alias) and kind in vars(node).values() for node in ast.walk(tree))
    return named or name in compared or any(re.search(rf"^{name}:|\blaw {name}\b", text) for text in texts)


@pytest.mark.parametrize(("name", "others"), [("blocks", 0), ("power", 0), ("ingress", 0)])
def test_a_law_is_known_to_its_file_and_its_line_alone(name: str, others: int) -> None:
    kind = LAWS[name].__name__
    own = {SOURCE / "schedule" / "laws" / f"{name}.py", SOURCE / "schedule" / "laws" / "__init__.py"}
    front_doors = {SOURCE / "__init__.py", SOURCE / "schedule" / "__init__.py"}
    found = {path for path in set(SOURCE.rglob("*.py")) - front_doors if mentions(path, kind, name)}
    assert own <= found
    assert len(found - own) == others, sorted(found - own)
    pages = {path.name for path in (SOURCE / "dashboard" / "static").rglob("*.js")}
    naming = {page.name for page in (SOURCE / "dashboard" / "static").rglob("*.js") if f'"{name}"' in page.read_text()}
    assert pages
    assert name == "blocks" or not naming  # which is a column there, too


def test_every_law_can_be_chosen_in_a_form() -> None:
    for name, kind in LAWS.items():
        assert kind.label, name
        for setting in settings.settable(kind):
            assert set(setting.metadata) == {"label", "usual", "scale"}, (name, setting.name)


def test_what_is_compiled_for_it_is_not_kept(law: fc.Law) -> None:
    """Numba would not notice that its need has changed."""
    fc.allocate(*cell(3, 1), law=law)
    fc.allocate(*cell(3, 1))
    solve: Any = bandwidth._share_rows
    compiled = [str(signature) for signature in solve.signatures]
    kept = [str(key) for key in solve._cache._cache_file._load_index()]
    assert any("SlotsNeeds" in one for one in compiled)
    assert not any("SlotsNeeds" in one for one in kept)
    assert any("DensityNeeds" in one for one in kept)
