"""The page's files: nothing from elsewhere, no markup out of data, nothing that the content-security policy forbids."""

import re
from pathlib import Path

import pytest

import fedcell

STATIC = Path(fedcell.__file__).parent / "dashboard" / "static"
FILES = sorted(STATIC.iterdir())
SCRIPTS = [file for file in FILES if file.suffix == ".js"]
NAMESPACE = "http://www.w3.org/2000/svg"


def test_there_is_a_page() -> None:
    assert {"index.html", "app.css", "main.js"} <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_nothing_is_fetched_from_elsewhere(file: Path) -> None:
    assert re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"']*", file.read_text().replace(NAMESPACE, "")) == []


@pytest.mark.parametrize("file", SCRIPTS, ids=[file.name for file in SCRIPTS])
def test_data_never_become_markup_or_code(file: Path) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style\""
    assert re.findall(forbidden, re.sub(r"//.*", "", file.read_text())) == []


@pytest.mark.parametrize("file", SCRIPTS, ids=[file.name for file in SCRIPTS])
def test_every_import_leads_to_a_file(file: Path) -> None:
    for name in re.findall(r"from \"\./([^\"]+)\"", file.read_text()):
        assert (STATIC / name).is_file(), name


def test_the_page_has_no_inline_code_or_style_and_names_files_that_exist() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=|<style", page)
    for name in re.findall(r"(?:href|src)=\"static/([^\"]+)\"", page):
        assert (STATIC / name).is_file(), name
