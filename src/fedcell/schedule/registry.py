"""Policies by name, on the command line and in TOML: ``greedy``, ``greedy:theta=0``, ``package.module:Class:arg=1``.

A package that is installed beside fedcell registers policies by the entry-point group ``fedcell.policies``; they are
named as fedcell's own. examples/own-package is one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedcell import settings

if TYPE_CHECKING:
    from fedcell.schedule.policy import Policy


def _first_setting(kind: type[Any]) -> list[str]:
    """The first setting that a policy does not share with all others."""
    from fedcell.schedule.policy import Policy

    shared = {field.name for field in settings.settable(Policy)}
    return [field.name for field in settings.settable(kind) if field.name not in shared][:1]


POLICIES = settings.Registry["Policy"](
    "policy",
    {
        "auto": "fedcell.schedule.auto:Auto",
        "diverse": "fedcell.schedule.diverse:Diverse",
        "greedy": "fedcell.schedule.greedy:Greedy",
        "optimal": "fedcell.schedule.optimal:Optimal",
        "random": "fedcell.schedule.baselines:Random",
        "round_robin": "fedcell.schedule.baselines:RoundRobin",
        "deadline": "fedcell.schedule.baselines:Deadline",
        "proportional_fair": "fedcell.schedule.baselines:ProportionalFair",
        "all": "fedcell.schedule.baselines:All",
        "oort": "fedcell.schedule.zoo.oort:Oort",
        "power_of_choice": "fedcell.schedule.zoo.power_of_choice:PowerOfChoice",
        "tifl": "fedcell.schedule.zoo.tifl:TiFL",
        "fedcs": "fedcell.schedule.zoo.fedcs:FedCS",
        "age_of_update": "fedcell.schedule.zoo.age_of_update:AgeOfUpdate",
        "cs_ucb": "fedcell.schedule.zoo.cs_ucb:CsUcb",
        "best_channel": "fedcell.schedule.zoo.norms:BestChannel",
        "best_norm": "fedcell.schedule.zoo.norms:BestNorm",
        "channel_then_norm": "fedcell.schedule.zoo.norms:ChannelThenNorm",
        "div_fl": "fedcell.schedule.zoo.div_fl:DivFl",
        "fed_cbs": "fedcell.schedule.zoo.fed_cbs:FedCbs",
        "fed_cgd": "fedcell.schedule.zoo.fed_cgd:FedCgd",
    },
    positional=_first_setting,
    base="fedcell.schedule.policy:Policy",
    advice="subclass fedcell.Policy and define choose()",
    group="fedcell.policies",
)
"""Policy classes by name. A new policy is one class and one line here; the contract tests cover all of them."""


def parse_policy(text: str, *, allow_import: bool = True, otherwise: Mapping[str, Any] | None = None) -> "Policy":
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
    return POLICIES.parse(text, allow_import=allow_import, otherwise=otherwise)


def format_policy(policy: "Policy") -> str:
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
    return POLICIES.format(policy)
