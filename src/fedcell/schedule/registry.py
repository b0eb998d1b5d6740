"""Policies by name, on the command line and in TOML: ``greedy``, ``greedy:theta=0``, ``package.module:Class:arg=1``."""

import importlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, get_type_hints

from fedcell.check import did_you_mean
from fedcell.errors import InputError
from fedcell.schedule.baselines import All, Deadline, ProportionalFair, Random, RoundRobin
from fedcell.schedule.greedy import Greedy
from fedcell.schedule.optimal import Optimal
from fedcell.schedule.policy import Policy

POLICIES: dict[str, type[Policy]] = {
    "greedy": Greedy,
    "optimal": Optimal,
    "random": Random,
    "round_robin": RoundRobin,
    "deadline": Deadline,
    "proportional_fair": ProportionalFair,
    "all": All,
}
"""A new policy is one class and one line here; the contract tests run over all of them."""


@contextmanager
def blaming(policy: str) -> Iterator[None]:
    """Say whose code failed and where: a policy of one's own may raise anything."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        raise InputError(
            f"policy {policy!r} failed with {type(error).__name__}: {' '.join(str(error).split())} "
            f"({last.filename}, line {last.lineno}); correct it"
        ) from error


def parse_policy(text: str) -> Policy:
    """Return the policy that a line such as ``greedy:theta=0`` names.

    ``NAME[:key=value[,key=value...]]`` for a registered policy, ``package.module:Class[:key=value...]`` for one's own
    (which imports that module).
    """
    with blaming(text):
        return _parse(text)


def _parse(text: str) -> Policy:
    name, *rest = [part.strip() for part in text.split(":")]
    if "." in name or (rest and rest[0] and "=" not in rest[0]):
        if not rest or len(rest) > 2:
            raise InputError(f"policy {text!r} is not understood; write package.module:Class:key=value")
        kind = _import_policy(name, rest[0], text)
        rest = rest[1:]
    else:
        found = POLICIES.get(name.replace("-", "_").lower())
        if found is None:
            raise InputError(f"unknown policy {name!r}; {did_you_mean(name, POLICIES)}")
        kind = found
    if len(rest) > 1:
        raise InputError(f"policy {text!r} has more than one list of settings; write {name}:key=value,key=value")
    return _build(kind, name, rest[0] if rest else "")


def format_policy(policy: Policy) -> str:
    """Return the line that parse_policy turns into this policy again."""
    kind = type(policy)
    name = next((n for n, registered in POLICIES.items() if registered is kind), f"{kind.__module__}:{kind.__name__}")
    given = [
        f"{f.name}={_text(getattr(policy, f.name))}" for f in _settings(kind) if getattr(policy, f.name) != f.default
    ]
    return f"{name}:{','.join(given)}" if given else name


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def _settings(kind: type[Policy]) -> list[Field[Any]]:
    return [f for f in fields(kind) if f.init]


_hints = cache(get_type_hints)  # they never change, and take as long as the rest of a policy's making


def _build(kind: type[Policy], name: str, text: str) -> Policy:
    known = {f.name: f for f in _settings(kind)}
    hints = _hints(kind)
    given: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise InputError(f"{item!r} in policy {name!r} is not understood; write key=value")
        if key not in known:
            raise InputError(f"policy {name!r} has no setting {key!r}; {did_you_mean(key, known)}")
        if key in given:
            raise InputError(f"policy {name!r} is given {key} twice; give it once")
        given[key] = _value(value, hints[key], f"{key} of policy {name!r}")
    needed = [key for key, f in known.items() if f.default is MISSING and key not in given]
    if needed:
        raise InputError(f"policy {name!r} needs {' and '.join(needed)}; write {name}:{'=...,'.join(needed)}=...")
    return kind(**given)


def _value(text: str, hint: Any, what: str) -> Any:
    hint_text = str(hint)
    if "bool" in hint_text:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise InputError(f"{what} is {text!r}; write true or false")
    if "None" in hint_text and text.lower() == "none":
        return None
    for kind, words in ((int, "a whole number"), (float, "a number")):
        if kind.__name__ in hint_text:
            try:
                return kind(text)
            except ValueError:
                raise InputError(f"{what} is {text!r}; give {words}") from None
    return text


def _import_policy(module: str, name: str, text: str) -> type[Policy]:
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise InputError(f"policy {text!r}: cannot import {module!r} ({error})") from None
    except AttributeError:
        raise InputError(f"policy {text!r}: module {module!r} has no {name!r}") from None
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise InputError(
            f"policy {text!r}: {name} is not a fedcell Policy; subclass fedcell.Policy and define choose()"
        )
    return found
