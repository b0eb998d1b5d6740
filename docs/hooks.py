"""What the documentation site does beyond MkDocs.

Formulas become MathML; files beside docs/ are named, not linked; a line ``@public MODULE...`` of a page becomes the
reference of all public names of these modules; the notebooks are pages, with what is kept in them of their outputs; and
the search works in a folder, without a server and without the web.
"""

import base64
import html
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
_NOTEBOOK = re.compile(r"\]\((?:\.\./)+examples/notebooks/(\w+)\.ipynb\)")
_SHIM = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
"""With which the theme searches in pages that are opened as files."""
_WORKER = "assets/javascripts/worker.js"
"""What we have instead."""
_PUBLIC = re.compile(r"^@public (.+)$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook, its pictures, and the notebook itself, to be downloaded."""
    for path in sorted((Path(config.config_file_path).parent / "examples" / "notebooks").glob("*.ipynb")):
        parts, pictures = notebook_page(json.loads(path.read_text("utf-8")), path.stem)
        page = {f"{path.stem}.md": "\n\n".join(parts).encode(), path.name: path.read_bytes()}
        for name, content in (page | pictures).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def notebook_page(document: dict[str, Any], stem: str) -> tuple[list[str], dict[str, bytes]]:
    """A notebook's cells as Markdown, and its pictures by their names, which begin with the stem."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in document["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            if len(parts) == 1:
                parts.append(f"*A notebook: [download it]({stem}.ipynb) to run it.*")
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                name = f"{stem}-{1 + len(pictures)}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell above draws]({name})")
            else:
                parts.append(f"```{{ .text .output }}\n{''.join(data['text/plain']).rstrip()}\n```")
    return parts, pictures


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Expand the reference, and name files of the repository that are not pages: the site can be read without it.

    Links to notebooks lead to their pages.
    """
    up = "../" * page.file.src_uri.count("/")
    markdown = _NOTEBOOK.sub(lambda found: f"]({up}notebooks/{found[1]}.md)", markdown)
    if page.file.src_uri.startswith("reference/"):
        return _PUBLIC.sub(lambda found: "\n\n".join(map(entry, public_names(found[1].split()))), markdown)
    if "/" in page.file.src_uri:
        return markdown
    return _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}`)", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw without a script."""
    kinds = {"[": "block", "(": "inline"}
    return _FORMULA.sub(lambda found: convert(html.unescape(found[3]), kinds[found[2]]), content)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Nothing is loaded from the web."""
    return output.replace(_SHIM, f'<script src="{get_relative_url(_WORKER, page.url)}"></script>')


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages that are not ours, such as 404.html, which no folder shows."""
    return output_content.replace(_SHIM, "")


def on_post_build(config: Any) -> None:
    """Write what starts the search's worker from its text: a browser starts none from a file."""
    scripts = Path(config.site_dir) / "assets" / "javascripts"
    [worker] = (scripts / "workers").glob("search.*.js")
    text = json.dumps(worker.read_text("utf-8"))
    (Path(config.site_dir) / _WORKER).write_text(
        'if (location.protocol === "file:") {\n'
        f'  const text = new Blob([{text}], {{ type: "text/javascript" }});\n'
        "  window.Worker = class extends Worker { constructor() { super(URL.createObjectURL(text)); } };\n"
        "}\n"
    )


def public_names(modules: list[str]) -> list[str]:
    """The full names of all public classes and functions that these modules, or those inside them, define."""
    found = []
    own = [
        module for module in modules if module in ("fedcell.flower", "fedcell.gym")
    ]  # with public names of their own
    for package in ("fedcell", *own):
        for name in import_module(package).__all__:
            thing = getattr(import_module(package), name)
            defined = getattr(thing, "__module__", "")
            other_name = getattr(thing, "__name__", name) != name  # such as CellSpec, which is Cell
            if not other_name and any(f"{defined}.".startswith(f"{module}.") for module in modules):
                found.append(f"{defined}.{name}")
    return sorted(set(found), key=lambda full: full.rpartition(".")[2].lower())


def entry(name: str) -> str:
    """The line from which mkdocstrings makes a reference."""
    return f"::: {name}"
