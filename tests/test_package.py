"""The package as people get it: built, installed into an empty environment, and used there."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import fedcell
from harness import run

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALL_S = 600.0


def pythons() -> list[str]:
    """This Python, and with FEDCELL_PYTHONS=all every other one from 3.11 on that is on this machine."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    if os.environ.get("FEDCELL_PYTHONS") == "all":
        places = [*os.get_exec_path(), *map(str, Path.home().glob(".pyenv/versions/*/bin"))]
        for minor in range(11, 20):
            there = next(filter(None, (shutil.which(f"python3.{minor}", path=place) for place in places)), None)
            if there is not None:
                found.setdefault(f"3.{minor}", there)
    return list(found.values())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution, both made of what git would put into a clone."""
    here = tmp_path_factory.mktemp("package")
    for kind in ("build_wheel", "build_sdist"):
        code = f"import hatchling.build as b; print(b.{kind}({str(here)!r}))"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return here


def test_one_version_everywhere() -> None:
    assert PROJECT["version"] == fedcell.__version__
    assert f"version: {fedcell.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"({fedcell.__version__})" in (ROOT / "CHANGELOG.md").read_text().split("## ")[1]


def test_what_is_in_it(built: Path) -> None:
    [wheel], [source] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    ours = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "fedcell").rglob("*.*")}
    wanted = {name for name in ours if "__pycache__" not in name and not name.endswith((".nbi", ".nbc", ".pyc"))}
    assert wanted <= names
    assert not [name for name in names if not name.startswith(("fedcell/", "fedcell-"))]
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "src/fedcell/__init__.py",
        "tests/conftest.py",
    } <= inside
    assert not [name for name in inside if name.startswith((".venv", "out/")) or "__pycache__" in name]


@pytest.mark.processes
@pytest.mark.parametrize("python", pythons())
def test_it_installs_and_plans_in_an_empty_environment(python: str, built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    assert run(python, "-m", "venv", tmp_path / "venv").returncode == 0
    done = run(
        tmp_path / "venv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", wheel,
        limit_s=INSTALL_S, cold=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    command = tmp_path / "venv" / "bin" / "fedcell"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    assert run(command, "--version", env=environment, cold=True).stdout.split()[-1] == fedcell.__version__
    planned = run(
        command, "plan", ROOT / "examples" / "devices.csv", "--json", cwd=tmp_path, env=environment, cold=True
    )
    assert planned.returncode == 0, planned.stderr
    assert '"devices"' in planned.stdout


@pytest.mark.processes
def test_the_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    done = run(hadolint, ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
