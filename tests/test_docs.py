"""What README and docs show is run, and what they point to exists."""

import base64
import json
import re
import shlex
import shutil
import sys
from html import unescape
from pathlib import Path
from typing import Any

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
COMMANDS = [(name, [line for line in text.splitlines() if line.startswith("fedcell")]) for name, text in blocks("sh")]
SHELL = [
    (name, lines)
    for name, lines in COMMANDS
    if lines and not any(lines == more[: len(lines)] for _, more in COMMANDS if len(more) > len(lines))
]
"""Less those that another block begins with."""


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
    """The very first one as a user's is: from nothing, with all that is installed."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for line in lines:
        words = shlex.split(line.partition("#")[0].partition(">")[0])
        done = fedcell(*words[1:], cwd=tmp_path, cold=(name, line) == (SHELL[0][0], lines[0]))
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


# ------------------------------------------------------------------------------------------- commands within the text


def within(text: str) -> list[str]:
    """The commands of fedcell that a page has within its sentences, whole or begun."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [code for code in re.findall(r"`([^`]+)`", text) if re.match(r"(?:sudo )?fedcell [a-z]", code)]


def test_commands_within_the_text_have_options_that_exist() -> None:
    import typer.main
    from click import Context, Group

    from fedcell.cli import app

    known: dict[str, set[str]] = {}

    def learn(command: Any, name: str) -> None:
        known[name] = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        if isinstance(command, Group):
            for inner in command.list_commands(Context(command)):
                found = command.get_command(Context(command), inner)
                learn(found, f"{name} {inner}")

    learn(typer.main.get_command(app), "fedcell")
    wrong, seen = [], 0
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for code in within(page.read_text()):
            words = code.removeprefix("sudo ").split()
            name = next(" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in known)
            options = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
            wrong += [f"{page.name}: {code}: {odd}" for odd in options - known[name] - {"-h", "--help"}]
            seen += 1
    assert seen > 50
    assert not wrong


# ----------------------------------------------------------------------------------------------------------- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    done = run(sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr  # a broken link or reference is an error
    return folder


@pytest.mark.processes
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = [path.read_text() for path in (site / "reference").glob("*.html")]
    known = set(re.findall(r'id="fedcell\.[\w.]*\.(\w+)"', "".join(pages)))
    import fedcell

    others = ("POLICIES", "TABLE_I", "CellSpec", "DevicesSpec")  # not classes and functions, or other names of some
    assert {name for name in fedcell.__all__ if name not in others} <= known
    model = (site / "model.html").read_text()
    assert "<math" in model
    assert "arithmatex" not in model


@pytest.mark.processes
def test_the_notebooks_are_pages_with_what_they_show(site: Path) -> None:
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        page = unescape(re.sub(r"<[^>]+>", "", (site / "notebooks" / f"{path.stem}.html").read_text()))
        pictures = list((site / "notebooks").glob(f"{path.stem}-*.png"))
        for cell in json.loads(path.read_text())["cells"]:
            for output in cell.get("outputs", []):
                if "image/png" in output.get("data", {}):
                    assert base64.b64decode(output["data"]["image/png"]) in [one.read_bytes() for one in pictures]
                else:
                    assert (output.get("text") or output["data"]["text/plain"])[-1].strip() in page
        assert (site / "notebooks" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.processes
def test_what_the_dashboard_links_to_is_there(site: Path) -> None:
    words = (ROOT / "src" / "fedcell" / "dashboard" / "static" / "pages" / "glossary.js").read_text()
    links = re.findall(r'^    "([a-z/]+)",\n    "([a-z-]*)",$', words, re.MULTILINE)
    assert len(links) == words.partition("};")[0].count(": [")
    for page, place in links:
        assert (ROOT / "docs" / f"{page}.md").exists()
        assert f'id="{place}"' in (site / f"{page}.html").read_text() or not place


@pytest.mark.browser
def test_it_is_whole_in_a_folder_without_the_web_and_finds_what_is_searched_for(site: Path) -> None:
    pytest.importorskip("playwright.sync_api")
    from playwright.sync_api import expect, sync_playwright

    from dashboard.browser import ARGUMENTS, CHROMIUM

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS) as browser,
    ):
        page = browser.new_page()
        asked: list[str] = []
        wrong: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for name in ("index.html", "tutorials/network.html"):
            page.goto((site / name).as_uri())
            page.get_by_role("textbox", name="Search").fill("imbalance")
            expect(page.locator(".md-search-result__meta")).to_contain_text("matching document")
        assert not wrong
        assert {url.split(":")[0] for url in asked} <= {"file", "blob", "data"}
