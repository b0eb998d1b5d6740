"""Names of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``.

    Args:
        package: its name.
        where: by module, the names it defines, separated by spaces.

    Returns:
        A function that imports a name's module, and keeps the name in the package.
    """
    modules = {name: module for module, names in where.items() for name in names.split()}

    def look_up(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
