"""Policies by name, on the command line and in TOML: ``greedy``, ``greedy:theta=0``, ``package.module:Class:arg=1``."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from fedcell import settings
from fedcell.errors import InputError
from fedcell.own import load_own
from fedcell.schedule.baselines import All, Deadline, ProportionalFair, Random, RoundRobin
from fedcell.schedule.diverse import Diverse
from fedcell.schedule.greedy import Greedy
from fedcell.schedule.optimal import Optimal
from fedcell.schedule.policy import Policy

POLICIES: dict[str, type[Policy]] = {
    "diverse": Diverse,
    "greedy": Greedy,
    "optimal": Optimal,
    "random": Random,
    "round_robin": RoundRobin,
    "deadline": Deadline,
    "proportional_fair": ProportionalFair,
    "all": All,
}
"""Policy classes by name. A new policy is one class and one line here; the contract tests cover all of them."""


@contextmanager
def blaming(policy: str) -> Iterator[None]:
    """Name the policy and the line that failed: a user's own policy may raise anything."""
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


def parse_policy(text: str, *, allow_import: bool = True) -> Policy:
    """Return the policy that a string such as ``greedy:theta=0`` describes, as on the command line and in TOML.

    Args:
        text: ``NAME[:key=value[,key=value...]]`` for a registered policy (a key of `POLICIES`), or
            ``package.module:Class[:key=value...]`` for your own.
        allow_import: whether ``package.module:Class`` is allowed, which imports, and so runs, that module. Pass False
            for strings from people who may not run code here.

    Returns:
        The policy; an InputError says what is wrong with the string.

    Example:
        >>> import fedcell as fc
        >>> fc.parse_policy("greedy:theta=0.5,max_devices=8")
        Greedy(max_devices=8, sharing='optimal', theta=0.5)
        >>> fc.parse_policy("gredy")
        Traceback (most recent call last):
        fedcell.errors.InputError: unknown policy 'gredy'; did you mean 'greedy'?
    """
    with blaming(text):
        name, rest = settings.split("policy", text)
        first = settings.split("policy", rest)[0]
        if "." not in name and (not first or "=" in first):
            kind = settings.choose("policy", name, POLICIES)
        elif not allow_import:
            raise InputError(
                f"policy {text!r} is a Python class, which cannot be imported here; give named policies only "
                f"({', '.join(POLICIES)}), or use the command line for your own"
            )
        else:
            if not first or rest.count(":") > 1:
                raise InputError(f"policy {text!r} is not understood; write package.module:Class:key=value")
            kind, rest = _import_policy(name, first, text), settings.split("policy", rest)[1]
        if ":" in rest:
            raise InputError(f"policy {text!r} has more than one list of settings; write {name}:key=value,key=value")
        return settings.build(kind, "policy", name, rest)


def format_policy(policy: Policy) -> str:
    """Return the string from which `parse_policy` builds this policy; settings with their default are left out.

    Args:
        policy: a registered policy or your own.

    Returns:
        Such as ``greedy:theta=0.5``.

    Example:
        >>> import fedcell as fc
        >>> fc.format_policy(fc.Deadline(seconds=8.0, max_devices=5))
        'deadline:max_devices=5,seconds=8'
    """
    kind = type(policy)
    name = next((n for n, registered in POLICIES.items() if registered is kind), f"{kind.__module__}:{kind.__name__}")
    return settings.write(name, policy)


def _import_policy(module: str, name: str, text: str) -> type[Policy]:
    found = load_own(f"policy {text!r}", module, name)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise InputError(
            f"policy {text!r}: {name} is not a fedcell Policy; subclass fedcell.Policy and define choose()"
        )
    return found
