"""What the documentation site does beyond MkDocs.

Formulas become MathML; files beside docs/ are named, not linked; and a line ``@public MODULE...`` of a page becomes the
reference of all public names of these modules.
"""

import html
import re
from importlib import import_module
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
_PUBLIC = re.compile(r"^@public (.+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Expand the reference, and name files of the repository that are not pages: the site can be read without it."""
    if page.file.src_uri.startswith("reference/"):
        return _PUBLIC.sub(lambda found: "\n\n".join(map(entry, public_names(found[1].split()))), markdown)
    if "/" in page.file.src_uri:
        return markdown
    return _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}`)", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw without a script."""
    kinds = {"[": "block", "(": "inline"}
    return _FORMULA.sub(lambda found: convert(html.unescape(found[3]), kinds[found[2]]), content)


def public_names(modules: list[str]) -> list[str]:
    """The full names of all public classes and functions that these modules, or those inside them, define."""
    found = []
    own = [
        module for module in modules if module in ("fedcell.flower", "fedcell.gym")
    ]  # with public names of their own
    for package in ("fedcell", *own):
        for name in import_module(package).__all__:
            defined = getattr(getattr(import_module(package), name), "__module__", "")
            if any(f"{defined}.".startswith(f"{module}.") for module in modules):
                found.append(f"{defined}.{name}")
    return sorted(set(found), key=lambda full: full.rpartition(".")[2].lower())


def entry(name: str) -> str:
    """The line from which mkdocstrings makes a reference."""
    return f"::: {name}"
