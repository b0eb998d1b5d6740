"""All that fedcell uses of Flower beyond its documented API, so that a new version breaks this module only.

Imports of the server's side are in the functions: ClientApps import this module too.
"""

import logging
import sys
from typing import TYPE_CHECKING

from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, ConfigRecord, Message
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy

LOG = logging.getLogger("flwr")
"""Flower's own logger, so that ``flwr run --stream`` shows our lines among its own."""


def answer_query(app: ClientApp, action: str, answer: ClientAppCallable) -> None:
    """Let a ClientApp answer the messages ``query.action``, without passing them through the app's mods.

    Mods such as ``fixedclipping_mod`` reject every message that is not one of training. Flower puts an app's mods
    around a function when it is registered, so the list is empty for that moment.

    Args:
        app: the ClientApp.
        action: of the query.
        answer: from a message and a context to the reply.
    """
    mods = app._mods
    app._mods = []
    try:
        app.query(action)(answer)
    finally:
        app._mods = mods


def has_mod(app: ClientApp, mod: Mod) -> bool:
    """Whether an app has a mod; see `answer_query`."""
    return mod in app._mods


def was_lost(reply: "Message") -> bool:
    """Whether Flower itself replied because it cannot reach the node, or does not have its reply."""
    from flwr.common.constant import ErrorCode

    lost = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
    return reply.has_error() and reply.error.code in lost


def unreadable() -> tuple[type[Exception], ...]:
    """Return the exceptions that pulling messages raises if a node has sent something malformed."""
    from flwr.supercore.inflatable.inflatable_object import UnexpectedObjectContentError
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    return (UnexpectedObjectContentError, DecodeError, ValueError, TypeError, KeyError, IndexError, AttributeError)


def in_simulation(grid: "Grid") -> bool:
    """Whether the grid is the simulation engine's.

    Its messages are all in memory, so that pulls never block, and its nodes take turns at this machine's processors, so
    that when a reply comes says nothing about its node.
    """
    from flwr.superlink.grid import InMemoryGrid

    return isinstance(grid, InMemoryGrid)


def log_start(
    num_rounds: int, arrays: "ArrayRecord", train_config: "ConfigRecord", evaluate_config: "ConfigRecord"
) -> None:
    """Log the arguments of ``start`` as Flower does."""
    from flwr.serverapp.strategy.strategy_utils import log_strategy_start_info

    log_strategy_start_info(num_rounds, arrays, train_config, evaluate_config)


def calling_strategy() -> "Strategy | None":
    """Return the strategy whose method called the caller of this function; None if no strategy did.

    Flower's wrappers call the methods of the strategy inside them, and tell it nothing.
    """
    from flwr.serverapp.strategy import Strategy

    caller = sys._getframe(2).f_locals.get("self")
    return caller if isinstance(caller, Strategy) else None
