"""Where the project is on the web, written into the package's metadata when it is built.

The tree names no address. With FEDCELL_ADDRESS, that of the repository, the metadata get project URLs, and README's
links and pictures, which are relative in the tree, lead to the files of this version's tag, as an index needs it.
Files are taken to be at ADDRESS/blob/TAG/PATH and ADDRESS/raw/TAG/PATH. FEDCELL_SITE is where the documentation site is
served, if it is: without it the documentation is the repository's pages.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_TARGET = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_PICTURES = (".png", ".svg", ".jpg", ".gif")


class Address(MetadataHookInterface):
    """Sets the fields ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set them; what an sdist's metadata already say of them stays."""
        address, site = read_address("FEDCELL_ADDRESS"), read_address("FEDCELL_SITE")
        readme = metadata.get("readme") or {"text": (Path(self.root) / "README.md").read_text("utf-8")}
        text, tag = readme["text"], f"v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, address, tag, Path(self.root))}
        metadata.setdefault("urls", urls(address, site, tag))


def read_address(variable: str) -> str:
    """The address in an environment variable, without a slash at its end; empty if there is none."""
    address = os.environ.get(variable, "").strip().rstrip("/")
    # No name or password, which everybody could read; nothing that ends a link in Markdown or a field of the metadata.
    if address and not re.fullmatch(r"https?://[\w.-]+(:\d+)?(/[\w.~%+-]+)*", address, re.ASCII):
        raise SystemExit(f"{variable} is {address!r}; give a whole address, such as https://example.org/fedcell")
    return address


def urls(address: str, site: str, tag: str) -> dict[str, str]:
    """The project's URLs by label; none without an address."""
    if not address:
        return {"Documentation": f"{site}/"} if site else {}
    return {
        "Homepage": address,
        "Documentation": f"{site}/" if site else f"{address}/blob/{tag}/docs/index.md",
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
    }


def absolute(text: str, address: str, tag: str, root: Path) -> str:
    """Markdown whose relative links lead to the files of a tag; as it was without an address.

    Args:
        text: the Markdown.
        address: of the repository; may be empty.
        tag: of the version.
        root: where the files are that the links are relative to.
    """

    def lead(found: re.Match[str]) -> str:
        path, place = found[1], found[2] or ""
        kind = "raw" if path.lower().endswith(_PICTURES) else "tree" if (root / path).is_dir() else "blob"
        return f"]({address}/{kind}/{tag}/{path}{place})"

    return _TARGET.sub(lead, text) if address else text
