"""Policies of other packages: found by their entry points, and one sentence for each that cannot be used."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fedcell as fc
from harness import fedcell, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-package"
CODE = (EXAMPLE / "lucky_policy.py").read_text()
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package with entry points on the path, as pip would."""
    packages = []

    def put(package: str, code: str, **points: str) -> None:
        (tmp_path / f"{package}.py").write_text(code)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name.replace('_', '-')} = {package}:{value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[fedcell.policies]", *lines]))
        monkeypatch.syspath_prepend(tmp_path)
        fc.POLICIES.installed.cache_clear()
        packages.append(package)

    yield put
    fc.POLICIES.installed.cache_clear()
    for name in packages:
        sys.modules.pop(name, None)


def test_a_package_s_policy_has_its_name_everywhere(install: Install) -> None:
    install("lucky_one", CODE, lucky="Lucky", very_lucky="Lucky")
    policy = fc.parse_policy("lucky:k=2")
    assert type(policy).__module__ == "lucky_one"
    assert fc.parse_policy("lucky:2") == policy
    assert fc.parse_policy("Very-Lucky:2") == policy  # as fedcell's own names
    assert fc.parse_policy("lucky:2", allow_import=False) == policy  # whoever installed it has allowed it
    assert fc.format_policy(policy) == "lucky:k=2"
    view = fc.RoundView(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0]))
    assert policy.decide(view, np.random.default_rng(0)).devices.size == 2
    run_of = fc.Spec(policy="lucky:2", rounds=1)
    assert run_of.policy == "lucky:k=2"
    with pytest.raises(fc.InputError, match="unknown policy 'luky'; did you mean 'lucky'"):
        fc.parse_policy("luky")


@pytest.mark.parametrize(
    ("code", "value", "words"),
    [
        (
            "import no_such_module",
            "Lucky",
            r"cannot be loaded \(ModuleNotFoundError: .*'no_such_module'\); reinstall it",
        ),
        ("1 / 0", "Lucky", r"cannot be loaded \(ZeroDivisionError: division by zero\); reinstall it"),
        ("x = 1", "Lucky", r"cannot be loaded \(AttributeError: .*'Lucky'\); reinstall it"),
        ("Lucky = 7", "Lucky", "broken_one:Lucky is not a fedcell Policy; subclass fedcell.Policy and define choose"),
        ("class Lucky: pass", "Lucky", "broken_one:Lucky is not a fedcell Policy"),
    ],
)
def test_a_broken_package_gets_one_sentence_and_spoils_nothing(
    code: str, value: str, words: str, install: Install
) -> None:
    install("broken_one", code, lucky=value)
    with pytest.raises(fc.InputError, match=f"^policy 'lucky' of the package 'broken_one'(:|) {words}") as caught:
        fc.parse_policy("lucky:k=2")
    assert "\n" not in str(caught.value)
    assert fc.parse_policy("greedy") == fc.Greedy()


def test_fedcell_s_own_names_cannot_be_taken(install: Install) -> None:
    install("greedy_one", CODE, round_robin="Lucky", lucky="Lucky")
    expected = "policy 'round_robin' of the package 'greedy_one' is not used: fedcell has one of this name; rename"
    with pytest.warns(UserWarning, match=expected):
        assert fc.parse_policy("round-robin:k=3") == fc.RoundRobin(3)
    assert list(fc.POLICIES.installed()) == ["lucky"]
    assert type(fc.parse_policy("lucky")).__name__ == "Lucky"


def test_of_two_packages_with_one_name_the_first_counts_and_the_other_is_named(install: Install) -> None:
    install("a_second", CODE.replace("Lucky", "Other"), lucky="Other")
    install("a_first", CODE, Lucky="Lucky")
    expected = "policy 'Lucky' of the package 'a_second' is not used: the package 'a_first' has one of this name"
    with pytest.warns(UserWarning, match=expected):
        assert type(fc.parse_policy("lucky")).__name__ == "Lucky"


@pytest.mark.processes
def test_the_example_package_is_installed_and_raced(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(EXAMPLE, source)  # the build leaves files there
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q"]
    done = run(sys.executable, "-m", "pip", "install", *options, "--target", target, source)
    assert done.returncode == 0, done.stderr
    env = os.environ | {"PYTHONPATH": str(target)}
    line = ["race", "--policy", "lucky:k=2", "--seeds", "1", "--rounds", "2", "--devices", "4", "--plot", "none"]
    done = fedcell(*line, "--workers", "1", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "lucky:k=2" in done.stdout
