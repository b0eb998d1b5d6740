"""Modules of one's own, named as ``module:Class`` or ``module:function``, and how they are imported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from fedcell.errors import InputError

_forbidden: ContextVar[str] = ContextVar("forbidden", default="")
"""Why nothing may be imported now, and how it is asked for; empty where it may be."""


@contextmanager
def without_imports(advice: str = "it is not imported to look at a file") -> Iterator[None]:
    """Import no module of anybody's own: for whoever looks at a file that somebody else may have written.

    Args:
        advice: the close of the refusal: how to ask for the import.
    """
    token = _forbidden.set(advice)
    try:
        yield
    finally:
        _forbidden.reset(token)


def may_import() -> bool:
    """Whether modules of one's own may be imported here; see `without_imports`."""
    return not _forbidden.get()


def import_own(module: str) -> ModuleType:
    """Import a module that the user names: an installed one, or a file in the current directory.

    The directory is searched after all others, and not before somebody names a module: so a file in it called
    ``random.py``, or called like a package that others import if it is there, hides nothing from anybody.

    Args:
        module: such as ``mine`` for ``mine.py``, or ``package.module``.
    """
    if not may_import():
        raise InputError(f"{module!r} is code of somebody's own; {_forbidden.get()}")
    if "" not in sys.path:
        sys.path.append("")
    return import_module(module)


def load_own(what: str, module: str, name: str) -> Any:
    """What a module of one's own calls by this name.

    Args:
        what: the setting for messages, such as ``"policy 'mine:Nearest'"``.
        module: as for :func:`import_own`.
        name: of a class or a function in it.
    """
    try:
        found = import_own(module)
    except ImportError as error:
        raise InputError(f"{what}: cannot import {module!r} ({error})") from None
    if hasattr(found, name):
        return getattr(found, name)
    here = Path(*module.split(".")).with_suffix(".py")
    there = getattr(found, "__file__", None) or "built into Python"
    if here.exists() and not (Path(there).exists() and here.samefile(there)):
        raise InputError(f"{what}: {module!r} is {there}, which hides {here} in this directory; rename yours")
    raise InputError(f"{what}: module {module!r} has no {name!r}")
