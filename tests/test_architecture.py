"""The picture in docs/architecture.md, held true."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest

import fedcell
from harness import python
from tree import first_line, page_with_tree

SOURCE = Path(fedcell.__file__).parent
ROOT = SOURCE.parents[1]
BASE = {"errors", "files", "types", "rng", "units", "distributions", "settings", "defaults"}
BASE |= {"plugins", "runtime", "fields", "quantisation"}
DOORS = {"lazy_names", "names_in"}
"""What fedcell itself has for the doors of its packages."""
# What each part may import, besides itself and the base.
MAY_IMPORT: dict[str, set[str]] = {
    "world": set(),
    "schedule": {"world"},
    "learn": {"world"},
    "protocol": {"schedule"},
    "sim": {"protocol", "schedule", "learn", "world"},
    "plots": set(),
    "tables": set(),
    "plan": {"plots", "schedule", "world", "__init__"},
    "runs": {"sim", "protocol", "schedule", "learn", "world", "plots", "tables", "__init__"},
    "paper": {"runs", "sim", "protocol", "schedule", "learn", "world", "plots", "tables", "__init__"},
    # Shells: nothing imports them but the command line.
    "flower": {"sim", "protocol", "schedule", "learn", "world"},
    "gym": {"runs", "sim", "protocol", "schedule", "learn", "world", "plots"},
    "testbed": {"flower", "runs", "sim", "protocol", "schedule", "learn", "world", "plots"},
    "dashboard": {
        "tables",
        "paper",
        "runs",
        "sim",
        "protocol",
        "plan",
        "plots",
        "schedule",
        "learn",
        "world",
        "__init__",
    },
    "__main__": {"cli"},
    "cli": {
        "dashboard",
        "testbed",
        "flower",
        "paper",
        "runs",
        "sim",
        "protocol",
        "plan",
        "plots",
        "tables",
        "schedule",
        "learn",
        "world",
        "__init__",
    },
}
OPTIONAL = ("torch", "flwr", "gymnasium", "dask", "pyarrow", "fastapi", "scipy", "tensorboard", "mlflow", "wandb")


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


@cache
def nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """What a module imports."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedcell":
            names = (
                [f"fedcell.{alias.name}" for alias in node.names if alias.name not in DOORS]
                if node.module == "fedcell"
                else [str(node.module)]
            )
            # `from fedcell import units` names a module, `from fedcell import __version__` does not.
            found |= {
                part(n) if (SOURCE / f"{part(n)}.py").exists() or (SOURCE / part(n)).is_dir() else "__init__"
                for n in names
            }
        if isinstance(node, ast.Import):
            found |= {part(alias.name) for alias in node.names if alias.name.split(".")[0] == "fedcell"}
    return found


# What `fedcell flower new` writes is a user's app, not a module of ours.
FILES = [p for p in sorted(SOURCE.rglob("*.py")) if p != SOURCE / "__init__.py" and "my-app" not in p.parts]


def test_imports_point_one_way() -> None:
    wrong = {}
    for path in FILES:
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert own in BASE or own in MAY_IMPORT, f"put {own} into the picture"
        wrong[path] = imported(path) - (BASE if own in BASE else MAY_IMPORT[own] | BASE | {own})
    assert not {path: modules for path, modules in wrong.items() if modules}


MOST_EXPORTED = {
    "world": 40,
    "schedule": 70,
    "learn": 50,
    "protocol": 20,
    "sim": 32,
    "plan": 8,
    "runs": 67,
    "paper": 15,
    "flower": 24,
}
MOST_EXPORTED |= {"dashboard": 8, "testbed": 8}
"""Packages with a front door, and how many names it may have."""


def names_of(path: Path, package: str) -> set[str]:
    """The names that a module of ours imports from a package, or from its modules."""
    found = set()
    for node in nodes(path):
        whole = f"fedcell.{package}"
        if isinstance(node, ast.ImportFrom) and (node.module == whole or str(node.module).startswith(f"{whole}.")):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.Import):  # a module of it, whole: nothing that a door could have
            found |= {alias.name for alias in node.names if alias.name.startswith(f"{whole}.")}
    return found


@pytest.mark.parametrize("package", MOST_EXPORTED)
def test_nobody_reaches_past_a_front_door(package: str) -> None:
    """What is imported from a package elsewhere, from whichever of its modules, stands in its ``__all__``."""
    public = import_module(f"fedcell.{package}").__all__
    outside = [path for path in FILES if path.relative_to(SOURCE).parts[0] != package]
    wanted = {name for path in outside for name in names_of(path, package)}
    assert wanted <= set(public)
    assert len(wanted) > 1


def test_there_are_few_exported_names() -> None:
    packages = [fedcell, *(import_module(f"fedcell.{package}") for package in MOST_EXPORTED)]
    assert len({name for package in packages for name in package.__all__}) <= 400


@pytest.mark.parametrize("package", MOST_EXPORTED)
def test_a_front_door_opens_on_all_it_names(package: str) -> None:
    module = import_module(f"fedcell.{package}")
    assert len(set(module.__all__)) == len(module.__all__) <= MOST_EXPORTED[package]
    for name in module.__all__:
        assert hasattr(module, name) or find_spec(f"fedcell.{package}.{name}"), name
    with pytest.raises(AttributeError, match="has no attribute 'gredy'"):
        _ = module.gredy


def test_the_tree_is_that_of_the_modules() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert page == page_with_tree(page, SOURCE), "run `make tree`"


def test_every_module_says_in_one_line_what_it_is_for() -> None:
    for path in FILES:
        line = first_line(path)
        assert len(line) >= 10, path


def test_all_exported_names_exist_and_are_all_there_is() -> None:
    for name in fedcell.__all__:
        assert getattr(fedcell, name) is not None
    source = ast.parse((SOURCE / "__init__.py").read_text())
    typed = {a.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for a in node.names}
    assert typed - {
        "TYPE_CHECKING",
        "Any",
        "Callable",
        "Mapping",
        "MappingProxyType",
        "import_module",
        "resolve_name",
    } == set(fedcell.__all__)
    assert dir(fedcell) == sorted(fedcell.__all__)
    with pytest.raises(AttributeError, match="no attribute 'gredy'"):
        _ = fedcell.gredy


@pytest.mark.processes
def test_importing_fedcell_imports_nothing_heavy() -> None:
    code = "import sys, fedcell; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = python(code, cold=True).split()
    assert not {"numpy", "numba", "matplotlib", "pydantic", "rich", *OPTIONAL} & set(loaded)


@pytest.mark.processes
def test_the_whole_api_imports_no_optional_dependency() -> None:
    # Numba looks for SciPy by itself, so that one cannot be asked for here.
    code = (
        "import sys, fedcell, fedcell.runs.race, fedcell.cli, fedcell.plan.plans\n"
        "[getattr(fedcell, n) for n in fedcell.__all__]\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = python(code, cold=True).split()
    assert not (set(OPTIONAL) - {"scipy"}) & set(loaded)


@pytest.mark.processes
def test_simulate_stays_the_function_whatever_is_imported_first() -> None:
    code = "import fedcell.runs.race, fedcell; assert callable(fedcell.simulate)"
    assert python(code, cold=True) == ""


@pytest.mark.processes
def test_the_loop_imports_little() -> None:
    """Neither files, TOML nor channels: what plays a round is handed the spec, the data and the world."""
    code = "import sys, fedcell.sim.loop; print(*(m for m in sys.modules if m.split('.')[0] == 'fedcell'))"
    loaded = python(code, cold=True).split()
    assert len(loaded) <= 40
    assert not {"fedcell.files", "fedcell.sim.spec", "fedcell.world.channel"} & set(loaded)


THEIRS = {
    "pydantic": {"annotated_types", "pydantic_core"},
    "fastapi": {"starlette"},
    "flwr": {"cryptography", "google"},
    "mlflow_skinny": {"mlflow"},
}
"""What others bring that we import: only what they always do. Typer, for one, has a copy of click of its own by now."""


def imported_at_run_time(node: ast.AST) -> Iterator[str]:
    """The packages that a module imports, but for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name.split(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module.split(".")[0]
        yield from imported_at_run_time(child)


def test_what_is_imported_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    declared = {re.split(r"[\[<>=!; ]", one)[0].lower().replace("-", "_") for one in wanted}
    brought = set().union(*(names for package, names in THEIRS.items() if package in declared))
    for path in FILES:
        found = set(imported_at_run_time(ast.parse(path.read_text()))) - set(sys.stdlib_module_names) - {"fedcell"}
        assert found <= declared | brought, path
