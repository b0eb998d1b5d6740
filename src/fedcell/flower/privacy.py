"""Differential privacy around the wrapped strategy: how many devices its noise is for, and what it has spent.

Flower's wrappers clip each model to a norm C and add noise of (multiplier x C / ``num_sampled_clients``) to the mean.
The mean of n models moves by up to C / n if one device changes its own, so the noise hides a device only in a mean of
at least ``num_sampled_clients`` models, and a privacy accountant counts on exactly that many. A round that delivers
fewer is therefore not averaged, as in Flower's own rounds with an accountant.
"""

import json
from enum import Enum
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    Strategy,
)

from fedcell.errors import InputError
from fedcell.flower.wrapped import name_of, unwrap
from fedcell.quantisation import WEIGHT_BITS
from fedcell.schedule.baselines import All
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import format_policy
from fedcell.types import Floats

_SETTINGS = (type(None), bool, int, float, str, bytes, Enum, np.number, np.ndarray, ArrayRecord, Strategy)


def sample_size(strategy: Strategy) -> int | None:
    """Return the number of devices that the noise is calibrated for; None without differential privacy."""
    sizes = [getattr(part, "num_sampled_clients", None) for part in unwrap(strategy)]
    return next((int(size) for size in sizes if size is not None), None)


def require_sample_size(strategy: Strategy, policy: Policy, nodes: int) -> None:
    """Refuse a policy that does not schedule as many devices as the noise is calibrated for."""
    wanted = sample_size(strategy)
    if wanted is None:
        return
    counts = (getattr(policy, "k", None), policy.max_devices, nodes if isinstance(policy, All) else None)
    fixed = hasattr(policy, "k") or isinstance(policy, All)
    if not fixed or min(count for count in counts if count is not None) != wanted:
        raise InputError(
            f"the policy is {format_policy(policy)}, but the noise of {type(strategy).__name__} is for exactly "
            f"{wanted} devices in each round (num_sampled_clients); use a policy such as random:k={wanted}"
        )


def refuse_question(strategy: Strategy, policy: Policy) -> None:
    """Refuse a policy that asks devices about their training: no noise hides the answers, or the choice by them."""
    if sample_size(strategy) is not None:
        raise InputError(
            f"{format_policy(policy)} asks devices about their training before it chooses, and the noise of "
            f"{type(strategy).__name__} does not hide their answers; use a policy such as random:k="
            f"{sample_size(strategy)}"
        )


def refuse_rounding(strategy: Strategy, bits: Floats | None) -> None:
    """Refuse few bits a weight where devices clip their updates: a rounded one may be longer than the norm."""
    client_side = (DifferentialPrivacyClientSideAdaptiveClipping, DifferentialPrivacyClientSideFixedClipping)
    if (
        bits is not None
        and (bits < WEIGHT_BITS).any()
        and any(isinstance(one, client_side) for one in unwrap(strategy))
    ):
        raise InputError(
            f"the policy rounds uploads to few bits a weight, which may make an update longer than "
            f"{type(strategy).__name__} allows; use one whose clipping is on the server's side"
        )


def require_round_size(strategy: Strategy, count: int) -> None:
    """Refuse a round of another number of devices than the noise is calibrated for."""
    wanted = sample_size(strategy)
    if wanted is not None and count not in (0, wanted):
        raise InputError(
            f"a round has {count} devices, but the noise of {type(strategy).__name__} is for exactly {wanted} "
            f"(num_sampled_clients); use a policy such as random:k={wanted}"
        )


def skip_round(strategy: Strategy, server_round: int) -> None:
    """Tell the strategy that a round that it has configured will not be aggregated."""
    for part in unwrap(strategy):
        pending = getattr(part, "_pending_events", None)
        if isinstance(pending, dict):
            pending.pop(server_round, None)


def accountant_states(strategy: Strategy) -> dict[str, Any]:
    """Return the states of the strategy's privacy accountants, to be saved as JSON."""
    found = {}
    for depth, part in enumerate(unwrap(strategy)):
        accountant = getattr(part, "accountant", None)
        if accountant is None:
            continue
        try:
            found[str(depth)] = json.loads(json.dumps(accountant.state_dict(), allow_nan=False))
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"the {type(accountant).__name__} of {type(part).__name__} cannot be saved ({error}), and a resumed "
                "run would spend its privacy again; run without state=..."
            ) from None
    return found


def restore_accountants(strategy: Strategy, states: dict[str, Any]) -> None:
    """Restore what `accountant_states` returned; states of other accountants are refused."""
    parts = unwrap(strategy)
    if states.keys() != accountant_states(strategy).keys():
        raise InputError(
            f"the saved run has {'a' if states else 'no'} record of the privacy that it spent, but {name_of(strategy)} "
            f"has {'no' if states else 'an'} accountant; resume it as it was started"
        )
    for depth, state in states.items():
        try:
            getattr(parts[int(depth)], "accountant").load_state_dict(state)  # noqa: B009
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the privacy that the saved run spent cannot be restored: {error}") from None


def require_resumable(strategy: Strategy) -> None:
    """Refuse to resume differential privacy that keeps something which is not saved, such as a random generator."""
    if sample_size(strategy) is None:
        return
    for part in unwrap(strategy):
        for name, value in vars(part).items():
            if name != "accountant" and not _plain(value):
                raise InputError(
                    f"{name_of(strategy)} cannot be resumed: {type(part).__name__}.{name} is a {type(value).__name__}, "
                    "which is not saved, and the privacy may depend on it; start a new run in another directory"
                )


def _plain(value: Any) -> bool:
    """Whether a value is a setting, or one of the things that are saved."""
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_plain, value))
    return isinstance(value, _SETTINGS) or callable(value)
