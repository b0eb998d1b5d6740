"""Every example in a docstring runs and prints what it says, and every public name has one."""

import doctest
import importlib
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedcell

SOURCE = Path(fedcell.__file__).parent
EXTRAS = {"torch", "flwr", "distributed", "pyarrow", "fastapi", "pydantic_core", "uvicorn", "starlette"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def module_names() -> list[str]:
    names = (path.relative_to(SOURCE.parent).with_suffix("").parts for path in sorted(SOURCE.rglob("*.py")))
    ours = (parts for parts in names if parts[-1] != "__main__" and "my-app" not in parts)  # which is a user's app
    return [".".join(parts).removesuffix(".__init__") for parts in ours]


def imported(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Flower's own use of Typer
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRAS:
            raise
        return pytest.skip(f"{name} needs {error.name}, which is not installed")


@pytest.mark.parametrize("name", module_names())
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(name)
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(module, optionflags=FLAGS)
    assert failed == 0, f"{failed} examples of {name} failed; see the captured output"


PUBLIC = {name: getattr(fedcell, name) for name in fedcell.__all__}
DOCUMENTED = [name for name, value in PUBLIC.items() if inspect.isclass(value) or inspect.isfunction(value)]


def test_all_other_public_names_are_tables() -> None:
    assert {"POLICIES", "TABLE_I"} == set(fedcell.__all__) - set(DOCUMENTED)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_name_has_an_example(name: str) -> None:
    assert ">>>" in (vars(PUBLIC[name]).get("__doc__") if inspect.isclass(PUBLIC[name]) else PUBLIC[name].__doc__)


def several_parameters(function: Callable[..., Any]) -> bool:
    return len(inspect.signature(function).parameters) >= 2


@pytest.mark.parametrize("name", [n for n in DOCUMENTED if inspect.isfunction(PUBLIC[n])])
def test_public_function_says_its_arguments_and_what_it_returns(name: str) -> None:
    function = PUBLIC[name]
    doc = inspect.getdoc(function) or ""
    if several_parameters(function):
        assert "\nArgs:\n" in doc
        for parameter in inspect.signature(function).parameters:
            assert f"\n    {parameter}: " in doc, parameter
    assert "\nReturns:\n" in doc or "\nYields:\n" in doc
