"""The source of a user's own policy or model: a run's key has it, so that changed code is run again."""

import hashlib
import importlib
import inspect
import sys
from functools import lru_cache
from typing import Any


def code_sha256(policy: type, model: str) -> str:
    """The SHA-256, in hex, of the modules that define a user's own policy and model; empty if both are fedcell's.

    Args:
        policy: the policy's class; the modules of its own base classes count too.
        model: ``package.module:function``, or the name of one of fedcell's models.
    """
    sources = [_source_sha256(kind) for kind in policy.__mro__ if _is_own(kind)]
    sources += [_source_sha256(function) for function in _functions(model)]
    return hashlib.sha256(" ".join(sources).encode()).hexdigest() if sources else ""


def _is_own(thing: Any) -> bool:
    root = str(thing.__module__).partition(".")[0]
    return root == "__main__" or root not in {"fedcell", *sys.stdlib_module_names}


def _functions(model: str) -> list[Any]:
    """The function that makes the model, if it is a user's; a run with one that cannot be imported will say why."""
    module, colon, name = model.partition(":")
    if not colon:
        return []
    try:
        return [getattr(importlib.import_module(module), name)]
    except Exception:
        return []


@lru_cache(maxsize=256)  # by the class or function itself: the source as it was when it was imported, or soon after
def _source_sha256(thing: Any) -> str:
    module = inspect.getmodule(thing)
    try:
        with open(str(getattr(module, "__file__", None)), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:  # typed into an interpreter
        try:
            return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()
        except (OSError, TypeError):
            return "unknown"
