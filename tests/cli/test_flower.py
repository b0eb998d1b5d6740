"""`fedcell flower new`: what it writes, what it refuses, and that it leaves nothing half-written."""

import re
import resource
import tomllib
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower-mnist"
Fedcell = Callable[..., CompletedProcess[str]]


def files(folder: Path, package: str) -> set[str]:
    found = (str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {name.replace(package, "PACKAGE") for name in found}


def pyproject(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def test_it_writes_an_app_under_the_given_name(tmp_path: Path, fedcell_here: Fedcell) -> None:
    done = fedcell_here("flower", "new", "Digits-2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'cd Digits-2\n  flwr run . --stream --federation-config "num-supernodes=10"\n' in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["Digits-2"]
    assert (tmp_path / "Digits-2" / "digits_2" / "task.py").exists()
    document = pyproject(tmp_path / "Digits-2")
    assert document["project"]["name"] == "Digits-2"
    assert document["tool"]["flwr"]["app"]["components"]["clientapp"] == "digits_2.client_app:app"
    for path in (tmp_path / "Digits-2").rglob("*"):
        if path.is_file():
            assert "my_app" not in path.read_text()
            assert "my-app" not in path.read_text()


def test_it_writes_into_an_empty_directory_and_elsewhere(tmp_path: Path, fedcell_here: Fedcell) -> None:
    (tmp_path / "empty").mkdir()
    assert fedcell_here("flower", "new", tmp_path / "empty").returncode == 0
    assert (tmp_path / "empty" / "empty" / "server_app.py").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_app", "has only letters, digits and hyphens, at most 32; give another, such as my-app"),
        ("my app", "such as my-app"),
        ("9lives", "such as lives"),
        ("app-", "such as app"),
        ("café", "such as caf"),
        ("..", "such as my-app"),
        ("a" * 33, f"such as {'a' * 32}"),
        ("class", "class is already a keyword, a module or an installed package of Python"),
        ("JSON", "such as my-JSON"),
        ("numpy", "such as my-numpy"),
        ("full", "the directory full exists and is not empty"),
        ("file", "file exists and is not a directory"),
        ("link", "link exists and is not a directory"),
        ("none/my-app", "none is not a directory; create it first"),
        ("/proc/my-app", "cannot write /proc/my-app: "),
    ],
)
def test_what_cannot_be_written_gets_one_sentence(
    name: str, sentence: str, tmp_path: Path, fedcell_here: Fedcell
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    done = fedcell_here("flower", "new", name, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sentence in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disc_that_fills_up_leaves_nothing(tmp_path: Path, fedcell_here: Fedcell) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))  # the README has more
        done = fedcell_here("flower", "new", "my-app", cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (done.returncode, done.stderr) == (2, "fedcell: cannot write my-app: File too large; give another place\n")
    assert list(tmp_path.iterdir()) == []


def test_a_state_directory_called_new_is_still_shown(tmp_path: Path, fedcell_here: Fedcell) -> None:
    (tmp_path / "new").mkdir()
    done = fedcell_here("flower", "./new", cwd=tmp_path)
    assert done.returncode == 2
    assert "new/state.json" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["new"], "missing argument 'NAME'"),
        (["new", "one", "two"], "got unexpected extra argument (two)"),
        (["new", "--plain", "one"], "no such option: --plain"),
    ],
)
def test_wrong_arguments_point_to_the_help_of_new(arguments: list[str], complaint: str, fedcell_here: Fedcell) -> None:
    done = fedcell_here("flower", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fedcell: {complaint}; see fedcell flower new --help\n"


def test_both_helps_name_both_commands_within_80_columns(fedcell_here: Fedcell) -> None:
    both, own = fedcell_here("flower", "--help"), fedcell_here("flower", "new", "--help")
    assert re.search(
        r"^Usage: .*fedcell flower \[OPTIONS\] DIRECTORY\.\.\.\n +.*fedcell flower new NAME\n", both.stdout
    )
    assert "is ./new" in " ".join(both.stdout.split())
    assert "fedcell flower new [OPTIONS] NAME\n" in own.stdout
    assert "task.py" in own.stdout
    assert max(len(line) for line in (both.stdout + own.stdout).splitlines()) <= 80


def test_the_example_is_its_twin(tmp_path: Path, fedcell_here: Fedcell) -> None:
    """The same files, and the same pyproject.toml but for what they train and how they are configured."""
    fedcell_here("flower", "new", tmp_path / "flower-mnist")
    assert files(tmp_path / "flower-mnist", "flower_mnist") == files(EXAMPLE, "flower_mnist")
    written, example = pyproject(tmp_path / "flower-mnist"), pyproject(EXAMPLE)
    assert set(written["tool"]["flwr"]["app"]["config"]) & set(example["tool"]["flwr"]["app"]["config"]) == {
        *("policy", "radio", "seed", "state")
    }
    for document in (written, example):
        for name in ("description", "dependencies"):
            del document["project"][name]
        for name in ("publisher", "config"):
            del document["tool"]["flwr"]["app"][name]
        del document["tool"]["uv"]
    assert written == example
    for folder in (tmp_path / "flower-mnist", EXAMPLE):
        assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own use of Typer and pathspec
@pytest.mark.parametrize("app", ["new", "example"])
def test_it_can_be_published(app: str, tmp_path: Path, fedcell_here: Fedcell) -> None:
    """Flower's own checks, those of `flwr build` and of `flwr app publish`; the strict format of bundles."""
    pytest.importorskip("flwr", reason="Flower is not installed")
    from flwr.cli.app_cmd.publish import _collect_file_paths, _validate_app_name, _validate_description, _validate_files
    from flwr.cli.build import build_fab_from_files
    from flwr.cli.config_utils import load_and_validate
    from flwr.cli.utils import collect_files

    folder = EXAMPLE
    if app == "new":
        folder = tmp_path / "my-first"
        fedcell_here("flower", "new", folder)
    document, remarks = load_and_validate(folder / "pyproject.toml")
    assert remarks == []
    _validate_app_name(folder.name, "directory")
    _validate_description(document["project"]["description"])
    _validate_files(_collect_file_paths(folder))
    _, format_of = build_fab_from_files(collect_files(folder))
    ours = pyproject(ROOT)["project"]["optional-dependencies"]["flower"]
    assert (format_of.fab_format_version, [f"flwr[simulation]>={format_of.flwr_version_min}"]) == (1, ours)
    # Flower installs what is not excluded before each run, over the packages that are there.
    names = {dependency.partition(">")[0].partition("[")[0] for dependency in document["project"]["dependencies"]}
    assert names == set(document["tool"]["uv"]["exclude-dependencies"])
