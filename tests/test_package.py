"""The package as people get it: built, installed into an empty environment, and used there."""

import os
import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from importlib import metadata
from pathlib import Path

import hatchling.build
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fedcell
from harness import run

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADDRESS = "https://example.org/someone/fedcell"
INSTALL_S = 600.0
NEWEST = Path(sys.prefix, "newest")
"""Where `make test` installs Typer, Rich and Pydantic as users get them; Flower wants older ones."""


@contextmanager
def at(source: Path, **address: str) -> Iterator[None]:
    """In a tree to be built, with these variables about its address and no others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(source)
        for variable in ("FEDCELL_ADDRESS", "FEDCELL_SITE"):
            patch.delenv(variable, raising=False)
        for variable, value in address.items():
            patch.setenv(variable, value)
        yield


def metadata_of(wheel: Path) -> Message:
    """What the wheel, or a folder of metadata, says of itself."""
    if wheel.is_dir():
        return message_from_bytes((wheel / "METADATA").read_bytes())
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(file.read(name))


def described(wheel: Path) -> tuple[dict[str, str], str]:
    """The project's URLs by label, and what a package index shows below them."""
    message = metadata_of(wheel)
    assert message["Description-Content-Type"] == "text/markdown"
    urls = dict(url.split(", ", 1) for url in message.get_all("Project-URL", []))
    return urls, bytes(message.get_payload(decode=True)).decode()


def modules(wheel: Path) -> dict[str, int]:
    """The files of the package with their checksums."""
    with zipfile.ZipFile(wheel) as file:
        return {info.filename: info.CRC for info in file.infolist() if info.filename.startswith("fedcell/")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made of what git would put into a clone, without an address."""
    here = tmp_path_factory.mktemp("wheel")
    with at(ROOT):
        return here / hatchling.build.build_wheel(str(here))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, with an address."""
    here = tmp_path_factory.mktemp("source")
    with at(ROOT, FEDCELL_ADDRESS=f"{ADDRESS}/"):
        return here / hatchling.build.build_sdist(str(here))


def test_one_version_everywhere() -> None:
    assert PROJECT["version"] == fedcell.__version__
    assert f"version: {fedcell.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"({fedcell.__version__})" in (ROOT / "CHANGELOG.md").read_text().split("## ")[1]


def test_what_is_in_it(built: Path, source: Path) -> None:
    with zipfile.ZipFile(built) as file:
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
        "hatch_build.py",
        "src/fedcell/__init__.py",
        "tests/conftest.py",
    } <= inside
    assert not [name for name in inside if name.startswith((".venv", "out/")) or "__pycache__" in name]


# ------------------------------------------------------------------------------------------- where the project is


def test_without_an_address_none_is_named(built: Path) -> None:
    urls, text = described(built)
    assert urls == {}
    assert text == (ROOT / "README.md").read_text()


def test_with_an_address_every_link_leads_to_a_file_of_the_version(tmp_path: Path) -> None:
    with at(ROOT, FEDCELL_ADDRESS=ADDRESS):
        urls, text = described(tmp_path / hatchling.build.prepare_metadata_for_build_wheel(str(tmp_path)))
    tag = f"v{fedcell.__version__}"
    assert urls == {
        "Homepage": ADDRESS,
        "Documentation": f"{ADDRESS}/blob/{tag}/docs/index.md",
        "Source": ADDRESS,
        "Issues": f"{ADDRESS}/issues",
        "Changelog": f"{ADDRESS}/blob/{tag}/CHANGELOG.md",
    }
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert len(targets) == len(re.findall(r"\]\(", (ROOT / "README.md").read_text())) > 20
    for target in [*targets, urls["Documentation"], urls["Changelog"]]:
        found = re.fullmatch(rf"{ADDRESS}/(\w+)/{tag}/([^#]+)(?:#.*)?", target)
        assert found, target
        here = ROOT / found[2]
        assert here.is_dir() if found[1] == "tree" else here.is_file(), target
        assert (found[1] == "raw") == (here.suffix == ".png")


def test_the_source_distribution_builds_the_same_wheel_and_keeps_the_address(
    built: Path, source: Path, tmp_path: Path
) -> None:
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    with at(tmp_path / source.name.removesuffix(".tar.gz")):
        again = tmp_path / hatchling.build.build_wheel(str(tmp_path))
    assert modules(again) == modules(built)
    urls, text = described(again)
    assert urls["Homepage"] == ADDRESS
    assert f"]({ADDRESS}/raw/v{fedcell.__version__}/docs/race.png)" in text


def test_a_site_of_its_own(tmp_path: Path) -> None:
    with at(ROOT, FEDCELL_ADDRESS=ADDRESS, FEDCELL_SITE="https://docs.example.org"):
        urls, _ = described(tmp_path / hatchling.build.prepare_metadata_for_build_wheel(str(tmp_path)))
    assert urls["Documentation"] == "https://docs.example.org/"


@pytest.mark.parametrize(
    "address",
    [
        "fedcell",
        "ftp://example.org/fedcell",
        "https://",
        "https://example.org/a b",
        "https://example.org/?x",
        "https://[example",
        "https://me:secret@example.org/fedcell",
        "https://example.org/a)b",
        "https://example.org/<b>",
    ],
)
def test_an_odd_address_is_told_in_one_sentence(address: str, tmp_path: Path) -> None:
    with at(ROOT, FEDCELL_ADDRESS=address), pytest.raises(SystemExit) as told:
        hatchling.build.prepare_metadata_for_build_wheel(str(tmp_path))
    assert str(told.value).startswith(
        f"FEDCELL_ADDRESS is {address.rstrip('/')!r}; give a whole address, such as https://"
    )


# ------------------------------------------------------------------------------------------------- installed, used


def pythons() -> list[str]:
    """Every Python from 3.11 on that is on this machine, with FEDCELL_PYTHONS=all."""
    if os.environ.get("FEDCELL_PYTHONS") != "all":
        return []
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    # pyenv's own commands come last: they refuse to run a version that is not chosen.
    places = [*map(str, Path.home().glob(".pyenv/versions/*/bin")), *os.get_exec_path()]
    for minor in range(11, 20):
        there = next(filter(None, (shutil.which(f"python3.{minor}", path=place) for place in places)), None)
        if there is not None:
            found.setdefault(f"3.{minor}", there)
    return list(found.values())


def needed(requirements: list[str], places: list[str]) -> dict[str, metadata.Distribution]:
    """What these requirements mean, and what they in turn require, each from the first of the places that has it."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(requirements)
    while waiting:
        wanted = Requirement(waiting.pop())
        name = canonicalize_name(wanted.name)
        if (wanted.marker is None or wanted.marker.evaluate({"extra": ""})) and name not in found:
            assert not wanted.extras, f"{wanted}: extras are not followed"
            found[name] = next(iter(metadata.distributions(name=wanted.name, path=places)))
            assert wanted.specifier.contains(found[name].version), wanted
            waiting += found[name].requires or []
    return found


def link(distribution: metadata.Distribution, packages: Path) -> None:
    """A distribution in another environment of the same Python."""
    assert distribution.files, distribution.name
    for top in {file.parts[0] for file in distribution.files} - {"..", "bin", "__pycache__"}:
        (packages / top).symlink_to(str(distribution.locate_file(top)))


def lend_compiled(packages: Path) -> None:
    """Give the installed package what Numba compiled of the same files here: it asks for their age and size."""
    for here in (ROOT / "src" / "fedcell").rglob("*.py"):
        there = packages / here.relative_to(ROOT / "src")
        assert there.read_bytes() == here.read_bytes()
        os.utime(there, ns=(here.stat().st_atime_ns, here.stat().st_mtime_ns))
        for cache in (here.parent / "__pycache__").glob(f"{here.stem}.*.nb[ic]"):
            (there.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copy(cache, there.parent / "__pycache__")


def use(command: Path, folder: Path) -> None:
    """Plan a round and run a race, as somebody who has nothing but the installed package."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    assert run(command, "--version", env=environment, cold=True).stdout.split()[-1] == fedcell.__version__
    assert "Plan one round" in run(command, "--help", env=environment, cold=True).stdout
    for mistake, said in (
        ("--plan", "no such option: --plan"),
        ("--hlep", "no such option: --hlep; did you mean --help?"),
    ):
        done = run(command, mistake, env=environment, cold=True)
        assert (done.returncode, done.stderr.count("\n"), said in done.stderr) == (2, 1, True), done.stderr
    plan = run(command, "plan", ROOT / "examples" / "devices.csv", "--json", cwd=folder, env=environment, cold=True)
    assert plan.returncode == 0, plan.stderr
    assert '"devices"' in plan.stdout
    race = run(
        command, "race", "--rounds", "1", "--seeds", "1", "--policy", "random:k=2", "--csv", "--quiet",
        cwd=folder, env=environment, cold=True,
    )  # fmt: skip
    assert race.returncode == 0, race.stderr
    assert len(race.stdout.splitlines()) == 2
    assert (folder / "race.png").stat().st_size > 0


@pytest.mark.processes
@pytest.mark.parametrize("places", [[], [NEWEST]], ids=["as in the tests", "newest"])
def test_it_is_whole_with_what_it_says_it_needs(places: list[Path], built: Path, tmp_path: Path) -> None:
    """An environment of its own, in which nothing is found but the installed wheel and what its metadata ask for."""
    if not all(place.exists() for place in places):
        pytest.skip("make test installs the newest packages, which Flower does not let us test with otherwise")
    assert run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv").returncode == 0
    python = tmp_path / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    done = run(*pip, "install", "-q", "--no-deps", "--no-index", "--no-compile", built, cold=True)
    assert done.returncode == 0, done.stderr
    [packages] = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    asked = metadata_of(built).get_all("Requires-Dist", [])
    found = needed(asked, [*map(str, places), *sys.path])
    for distribution in found.values():
        link(distribution, packages)
    assert ("click" in found) == (places == [])  # which newer versions of Typer do not bring
    lend_compiled(packages)
    use(tmp_path / "venv" / "bin" / "fedcell", tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("python", pythons() or [pytest.param("", marks=pytest.mark.skip("make test-package does it"))])
def test_pip_installs_it_and_all_that_it_needs(python: str, source: Path, tmp_path: Path) -> None:
    """From the source distribution, on each Python."""
    assert run(python, "-m", "venv", tmp_path / "venv").returncode == 0
    done = run(
        tmp_path / "venv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", source,
        limit_s=INSTALL_S, cold=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    use(tmp_path / "venv" / "bin" / "fedcell", tmp_path)


@pytest.mark.processes
def test_the_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    done = run(hadolint, ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
