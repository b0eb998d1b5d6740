"""The page's files: nothing from elsewhere, no markup out of data, nothing that the content-security policy forbids."""

import re
from pathlib import Path

import pytest

import fedcell
from fedcell.plots import STYLES

STATIC = Path(fedcell.__file__).parent / "dashboard" / "static"
FILES = {str(file.relative_to(STATIC)): file for file in sorted(STATIC.rglob("*")) if file.is_file()}
SCRIPTS = [name for name in FILES if name.endswith(".js")]
NAMESPACE = "http://www.w3.org/2000/svg"
# Which directories each one may import from.
LAYERS = {"lib": {"lib"}, "charts": {"charts", "lib"}, "pages": {"pages", "charts", "lib"}}


def imports(script: str) -> set[str]:
    """The scripts that a script imports."""
    found = re.findall(r"^import [^;]*?from \"([^\"]+)\"", FILES[script].read_text(), re.MULTILINE)
    assert FILES[script].read_text().count("import {") == len(found)
    places = ((FILES[script].parent / name).resolve() for name in found)
    return {str(place.relative_to(STATIC.resolve())) for place in places}


def all_imports(script: str) -> set[str]:
    """The scripts that must be there before a script can run, itself among them."""
    needed, new = set(), {script}
    while new:
        needed |= new
        new = {other for one in new for other in imports(one)} - needed
    return needed


def test_there_is_a_page() -> None:
    assert {"index.html", "app.css", "pages/main.js"} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_fetched_from_elsewhere(name: str) -> None:
    text = FILES[name].read_text().replace(NAMESPACE, "")
    assert re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"']*", text) == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_data_never_become_markup_or_code(script: str) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style\""
    assert re.findall(forbidden, re.sub(r"//.*", "", FILES[script].read_text())) == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_import_leads_to_a_file_and_none_upwards(script: str) -> None:
    for name in imports(script):
        assert name in FILES, name
        assert name.split("/")[0] in LAYERS[script.split("/", maxsplit=1)[0]], name


def test_every_page_of_the_menu_has_a_script() -> None:
    pages = re.findall(r"id=\"page-(\w+)\"", FILES["index.html"].read_text())
    assert {"race", "cell", "plan", "results"} <= set(pages)
    assert {f"pages/{page}.js" for page in pages} <= set(SCRIPTS)
    assert "import(`./${page}.js`)" in FILES["pages/main.js"].read_text()


def test_the_page_has_no_inline_code_or_style_and_names_files_that_exist() -> None:
    page = FILES["index.html"].read_text()
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=|<style", page)
    assert set(re.findall(r"(?:href|src)=\"static/([^\"]+)\"", page)) <= set(FILES)


def test_what_the_first_page_needs_is_fetched_at_once() -> None:
    preloaded = re.findall(r"<link rel=\"modulepreload\" href=\"static/([^\"]+)\">", FILES["index.html"].read_text())
    assert set(preloaded) == all_imports("pages/race.js") | (all_imports("pages/main.js") - {"pages/main.js"})


def luminance(colour: str) -> float:
    """Relative luminance of a colour, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_every_line_has_a_contrast_of_3_to_1(theme: str) -> None:
    light, dark, paper = re.findall(r"^ *:root[^{]*\{([^}]*)\}", FILES["app.css"].read_text(), re.MULTILINE)
    palette = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", {"light": light, "dark": dark, "print": paper}[theme]))
    drawn = [f"c-{colour.removeprefix('#')}" for colour, _ in STYLES] + ["compute", "line-strong", "muted", "field"]
    for name in drawn:
        for ground in ("surface", "sunk"):
            assert contrast(palette[name], palette[ground]) >= 3.0, (name, ground)
