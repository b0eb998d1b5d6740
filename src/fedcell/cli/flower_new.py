"""`fedcell flower new`: a Flower app to start from."""

import keyword
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcell.errors import InputError

TEMPLATE = Path(__file__).parents[1] / "flower" / "my-app"
"""The app itself, which runs as it is; `new` writes it under another name."""
NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?")
"""What both Flower and Python's packaging accept; Flower wants it of the directory, too."""


def new(
    name: Annotated[
        Path, typer.Argument(metavar="NAME", help="Directory to write, named like the app.", show_default=False)
    ],
) -> None:
    """Write a Flower app whose devices fedcell schedules.

    The app trains a small PyTorch model on MNIST; put your own model and data into its task.py. It runs in Flower's
    simulation and in deployment, as its README.md says.
    """
    write_app(name)
    typer.echo(
        f"Wrote {name}. Run it in simulation:\n\n"
        f"  cd {name}\n"
        '  flwr run . --stream --federation-config "num-supernodes=10"\n\n'
        "Its README.md says how to deploy it, and where your model and data go."
    )
    missing = _missing()
    if missing:
        typer.echo(f'It needs {missing}: pip install "fedcell[flower,torch]"')


def write_app(path: Path) -> None:
    """Write the app into a directory that does not exist yet or is empty: completely, or not at all.

    Args:
        path: the directory; its last part is the name of the app.
    """
    package = _package_of(path.name)
    try:
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: {path.parent} is not a directory; create it first")
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{path} exists and is not a directory; give another name")
        if path.is_dir() and any(path.iterdir()):
            raise InputError(f"the directory {path} exists and is not empty; give another name")
        _write_whole_directory(path, {"my_app": package, "my-app": path.name})
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; give another place") from None


def _package_of(name: str) -> str:
    """The name of the app's package; an InputError if the app cannot have this name."""
    from importlib.metadata import packages_distributions

    if not NAME.fullmatch(name):
        better = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-0123456789")[:32].rstrip("-") or "my-app"
        raise InputError(
            f"a Flower app cannot have the name {name!r}: it starts with a letter and has only letters, digits and "
            f"hyphens, at most 32; give another, such as {better}"
        )
    package = name.lower().replace("-", "_")
    taken = {"fedcell", *sys.stdlib_module_names, *packages_distributions()}
    if keyword.iskeyword(package) or package in taken:
        raise InputError(
            f"a Flower app cannot have the name {name!r}: {package} is already a keyword, a module or an installed "
            f"package of Python; give another, such as my-{name}"
        )
    return package


def _write_whole_directory(path: Path, names: dict[str, str]) -> None:
    """Write the template with these names elsewhere, then give the directory its own."""
    import secrets
    import shutil

    scratch = path.with_name(f".fedcell-{secrets.token_hex(8)}")
    try:
        for source in sorted(TEMPLATE.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                target = scratch / _renamed(str(source.relative_to(TEMPLATE)), names)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_renamed(source.read_text(encoding="utf-8"), names), encoding="utf-8")
        os.replace(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new_name in names.items():
        text = text.replace(old, new_name)
    return text


def _missing() -> str:
    from importlib.util import find_spec

    return " and ".join(
        name for name, module in (("Flower", "flwr"), ("PyTorch", "torch")) if find_spec(module) is None
    )
