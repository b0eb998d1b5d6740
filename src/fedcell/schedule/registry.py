"""Policies by name, on the command line and in TOML: ``greedy``, ``greedy:theta=0``, ``package.module:Class:arg=1``.

A package that is installed beside fedcell registers policies by the entry-point group ``fedcell.policies``; they are
named as fedcell's own. examples/own-package is one.
"""

import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fedcell import settings
from fedcell.errors import InputError, did_you_mean, user_code
from fedcell.plugins import MAIN, load_own, may_import
from fedcell.schedule.baselines import All, Deadline, ProportionalFair, Random, RoundRobin
from fedcell.schedule.diverse import Diverse
from fedcell.schedule.greedy import Greedy
from fedcell.schedule.optimal import Optimal
from fedcell.schedule.policy import Policy
from fedcell.schedule.zoo.age_of_update import AgeOfUpdate
from fedcell.schedule.zoo.cs_ucb import CsUcb
from fedcell.schedule.zoo.div_fl import DivFl
from fedcell.schedule.zoo.fed_cbs import FedCbs
from fedcell.schedule.zoo.fed_cgd import FedCgd
from fedcell.schedule.zoo.fedcs import FedCS
from fedcell.schedule.zoo.norms import BestChannel, BestNorm, ChannelThenNorm
from fedcell.schedule.zoo.oort import Oort
from fedcell.schedule.zoo.power_of_choice import PowerOfChoice
from fedcell.schedule.zoo.tifl import TiFL

POLICIES: dict[str, type[Policy]] = {
    "diverse": Diverse,
    "greedy": Greedy,
    "optimal": Optimal,
    "random": Random,
    "round_robin": RoundRobin,
    "deadline": Deadline,
    "proportional_fair": ProportionalFair,
    "all": All,
    "oort": Oort,
    "power_of_choice": PowerOfChoice,
    "tifl": TiFL,
    "fedcs": FedCS,
    "age_of_update": AgeOfUpdate,
    "cs_ucb": CsUcb,
    "best_channel": BestChannel,
    "best_norm": BestNorm,
    "channel_then_norm": ChannelThenNorm,
    "div_fl": DivFl,
    "fed_cbs": FedCbs,
    "fed_cgd": FedCgd,
}
"""Policy classes by name. A new policy is one class and one line here; the contract tests cover all of them."""
GROUP = "fedcell.policies"
"""The entry points of other packages' policies."""


@cache
def installed() -> dict[str, EntryPoint]:
    """The policies that installed packages register, by name; a name that is taken is not used again, which is said."""
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=_package):
        first = found.setdefault(_plain(point.name), point)
        if _package(first) != _package(point):
            warnings.warn(
                f"policy {first.name!r} of the package {_package(point)!r} is not used: the package "
                f"{_package(first)!r} has one of this name; uninstall one of them",
                stacklevel=2,
            )
    for name in sorted(found.keys() & POLICIES):
        warnings.warn(
            f"policy {name!r} of the package {_package(found[name])!r} is not used: fedcell has one of this name; "
            "rename the entry point",
            stacklevel=2,
        )
    return {name: point for name, point in sorted(found.items()) if name not in POLICIES}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _named(name: str) -> type[Policy]:
    """The class of a policy that fedcell or an installed package has by this name."""
    others = installed()
    if _plain(name) in POLICIES:
        return POLICIES[_plain(name)]
    if _plain(name) not in others:
        raise InputError(f"unknown policy {name!r}; {did_you_mean(name, [*POLICIES, *others])}")
    point = others[_plain(name)]
    owner = f"policy {name!r} of the package {_package(point)!r}"
    try:
        found = point.load()
    except Exception as error:  # whatever another package's module raises
        raise InputError(f"{owner} cannot be loaded ({type(error).__name__}: {error}); reinstall it") from None
    return _checked_class(found, point.value, owner)


def parse_policy(text: str, *, allow_import: bool = True, otherwise: Mapping[str, Any] | None = None) -> Policy:
    """Return the policy that a string such as ``greedy:theta=0`` describes, as on the command line and in TOML.

    Args:
        text: ``NAME[:key=value[,key=value...]]`` for a registered policy (a key of `POLICIES`, or one that an installed
            package registers), or ``package.module:Class[:key=value...]`` for your own. The value of a policy's own
            first setting may stand without its key, in front: ``random:8`` is ``random:k=8``. The name of a registered
            policy always means that policy, so a module of your own needs another name.
        allow_import: whether ``package.module:Class`` is allowed, which imports, and so runs, that module. Pass False
            for strings from people who may not run code here.
        otherwise: values of settings that the text leaves out, instead of their defaults.

    Returns:
        The policy; an InputError says what is wrong with the string.

    Example:
        >>> import fedcell as fc
        >>> fc.parse_policy("greedy:theta=0.5,max_devices=8")
        Greedy(max_devices=8, sharing='optimal', theta=0.5)
        >>> fc.parse_policy("random:8")
        Random(max_devices=None, sharing='optimal', k=8)
        >>> fc.parse_policy("gredy")
        Traceback (most recent call last):
        fedcell.errors.InputError: unknown policy 'gredy'; did you mean 'greedy'?
    """
    with user_code(text):
        name, rest = settings.split("policy", text)
        first = settings.split("policy", rest)[0]
        if not names_code(text):
            kind = _named(name)
        elif not allow_import:
            raise InputError(
                f"policy {text!r} is a Python class, which cannot be imported here; give named policies only "
                f"({', '.join(POLICIES)}), or use the command line for your own"
            )
        else:
            if not first or rest.count(":") > 1 or not all(map(str.isidentifier, name.split("."))):
                raise InputError(f"policy {text!r} is not understood; write package.module:Class:key=value")
            kind, rest = _import_policy(name, first, text), settings.split("policy", rest)[1]
        if ":" in rest:
            raise InputError(f"policy {text!r} has more than one list of settings; write {name}:key=value,key=value")
        return settings.build(kind, "policy", name, rest, positional=_first_setting(kind), otherwise=otherwise)


def _first_setting(kind: type[Policy]) -> list[str]:
    """The first setting that the policy does not share with all others."""
    shared = {field.name for field in settings.settable(Policy)}
    return [field.name for field in settings.settable(kind) if field.name not in shared][:1]


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
    module = MAIN[0] if kind.__module__ in MAIN else kind.__module__  # a worker process has a script by another name
    own = f"{module}:{kind.__name__}"
    name = next((n for n, registered in POLICIES.items() if registered is kind), "")
    return settings.write(name or next((n for n, point in installed().items() if point.value == own), own), policy)


def names_code(text: str) -> bool:
    """Whether the string describes a policy by ``package.module:Class``, which is imported, and not by its name."""
    name, rest = settings.split("policy", text)
    first = settings.split("policy", rest)[0]
    if _plain(name) in POLICIES:
        return False
    return "." in name or not (not first or "=" in first or first[0] in "+-.0123456789")


def is_built_in(text: str) -> bool:
    """Whether the string describes a policy that is part of fedcell."""
    return _plain(settings.split("policy", text)[0]) in POLICIES


def canonical_policy(text: str) -> str:
    """The line of the policy that a string describes, as `format_policy` writes it.

    Where nothing may be imported (see `own.without_imports`), a policy that is not fedcell's own keeps its text.
    """
    if not may_import() and not is_built_in(text):
        return text
    return format_policy(parse_policy(text))


def _import_policy(module: str, name: str, text: str) -> type[Policy]:
    return _checked_class(load_own(f"policy {text!r}", module, name), name, f"policy {text!r}")


def _checked_class(found: Any, name: str, what: str) -> type[Policy]:
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise InputError(f"{what}: {name} is not a fedcell Policy; subclass fedcell.Policy and define choose()")
    return found
