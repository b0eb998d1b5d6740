"""What README and docs show is run, and what they point to exists."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from harness import fedcell, python, run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [
        (f"{page.relative_to(ROOT)}-{n}", text)
        for page in PAGES
        for n, text in enumerate(pattern.findall(page.read_text()))
    ]


PYTHON = blocks("python")
SHELL = [
    (name, lines) for name, text in blocks("sh") if (lines := [x for x in text.splitlines() if x.startswith("fedcell")])
]


def test_there_is_something_to_run() -> None:
    assert len(PYTHON) >= 3
    assert len(SHELL) >= 3


@pytest.mark.processes
@pytest.mark.parametrize("code", [text for _, text in PYTHON], ids=[name for name, _ in PYTHON])
def test_python_snippet_runs(code: str, tmp_path: Path) -> None:
    assert python(code, cwd=tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize(("name", "lines"), SHELL, ids=[name for name, _ in SHELL])
def test_commands_run_one_after_the_other(name: str, lines: list[str], tmp_path: Path) -> None:
    """The very first ones as a user's are: from nothing, with all that is installed."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for line in lines:
        words = shlex.split(line.partition("#")[0].partition(">")[0])
        done = fedcell(*words[1:], cwd=tmp_path, cold=name == SHELL[0][0])
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert done.stdout, line


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_make_target_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


@pytest.mark.processes
def test_the_site_builds_and_every_public_name_is_in_its_reference(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = run(sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr  # a broken link or reference is an error
    pages = [path.read_text() for path in (tmp_path / "site" / "reference").glob("*.html")]
    known = set(re.findall(r'id="fedcell\.[\w.]*\.(\w+)"', "".join(pages)))
    import fedcell

    assert {name for name in fedcell.__all__ if name not in ("POLICIES", "TABLE_I", "__version__")} <= known
    model = (tmp_path / "site" / "model.html").read_text()
    assert "<math" in model
    assert "arithmatex" not in model
    for page in (tmp_path / "site").rglob("*.html"):  # nothing comes from elsewhere
        assert not re.findall(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', page.read_text())
